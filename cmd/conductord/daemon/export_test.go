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

// Ballast is the size of the ballast that a program allocates in its environment.
func Ballast(p *cli.Program, limit int64) int { return len(limitMemory(p, limit)) }

// MaxSpans is the maximum number of waiting spans.
const MaxSpans = maxSpans

// StartTraces starts the tracer of a configuration, and returns a function that stops it.
func StartTraces(c config.Config, registry *prometheus.Registry, logger hclog.Logger) (trace.Tracer, func(), error) {
	t := newTraces(registry, logger)
	tracer, err := t.start(c)
	return tracer, t.stop, err
}
