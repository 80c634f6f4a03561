package daemon

import (
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
)

// BallastBytes is the size of a daemon's ballast.
const BallastBytes = ballastBytes

// Ballast is how much of that a program takes in its environment.
func Ballast(p *cli.Program, limit int64) int { return len(limitMemory(p, limit)) }

// MaxSpans is how many spans wait at most.
const MaxSpans = maxSpans

// StartTraces makes the tracer of a configuration, and what ends it.
func StartTraces(c config.Config, registry *prometheus.Registry, logger hclog.Logger) (trace.Tracer, func(), error) {
	t := newTraces(registry, logger)
	tracer, err := t.start(c)
	return tracer, t.stop, err
}
