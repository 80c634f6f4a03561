package daemon_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/conductord/conductord/cmd/conductord/daemon"
	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

// BenchmarkTracedFlow is a flow of three empty steps on a board in memory, without traces and
// with all of its five spans sent to a collector in this process.
func BenchmarkTracedFlow(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer collector.Close()
	for name, endpoint := range map[string]string{"off": "", "on": collector.URL} {
		b.Run(name, func(b *testing.B) {
			c := config.Default()
			c.Traces.Endpoint = endpoint
			tracer, stop, err := daemon.StartTraces(c, prometheus.NewRegistry(), hclog.NewNullLogger())
			if err != nil {
				b.Fatal(err)
			}
			defer stop()
			registry := flow.NewRegistry()
			empty := func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }
			err = registry.Register("three", func(json.RawMessage) (*flow.Flow, error) {
				return flow.Linear("three", flow.Func("a", empty), flow.Func("b", empty), flow.Func("c", empty)), nil
			})
			if err != nil {
				b.Fatal(err)
			}
			board := boardtest.New(b, boardtest.Options{})
			for range b.N {
				if _, err := jobs.PostOne(b.Context(), board, jobs.NewPosting("three", nil, nil)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			if err := conductor.Run(b.Context(), conductor.Options{Client: board, Registry: registry, Tracer: tracer, MaxDispatches: b.N}); err != nil {
				b.Fatal(err)
			}
		})
	}
}
