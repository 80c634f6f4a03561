package daemon_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/cmd/conductord/daemon"
	"github.com/conductord/conductord/config"
)

// traced starts the traces of a configuration. It also returns the log and the metrics.
func traced(t *testing.T, c config.Traces) (trace.Tracer, func(), *bytes.Buffer, func(metric string) float64) {
	t.Helper()
	registry, log := prometheus.NewRegistry(), &bytes.Buffer{}
	whole := config.Default()
	whole.Node, whole.Traces = "n1", c
	tracer, stop, err := daemon.StartTraces(whole, registry, hclog.New(&hclog.LoggerOptions{Output: log, Mutex: &sync.Mutex{}}))
	if err != nil {
		t.Fatal(err)
	}
	return tracer, stop, log, func(metric string) float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == metric {
				return family.GetMetric()[0].GetCounter().GetValue()
			}
		}
		t.Fatalf("there is no metric %s", metric)
		return 0
	}
}

func spans(tracer trace.Tracer, count int) {
	for range count {
		_, span := tracer.Start(context.Background(), "step")
		span.End()
	}
}

func TestNoTracesWithoutEndpoint(t *testing.T) {
	before := goleak.IgnoreCurrent()
	tracer, stop, _, _ := traced(t, config.Traces{OneIn: 1})
	defer stop()
	if tracer != nil {
		t.Error("there is a tracer, and no endpoint")
	}
	noneLeft(t, before)
}

func TestSpansAreSent(t *testing.T) {
	headers := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(headers, []byte("Authorization: Bearer sesame\nX-Tenant:a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got tracepb.TracesData
	var path, contentType, authorization, tenant string
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := proto.Unmarshal(body, &got); err != nil {
			t.Error(err)
		}
		path, contentType, authorization, tenant = r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("Authorization"), r.Header.Get("X-Tenant")
	}))
	defer collector.Close()
	tracer, stop, _, metric := traced(t, config.Traces{Endpoint: collector.URL + "/otlp/", Headers: headers, OneIn: 1})
	spans(tracer, 3)
	stop()
	if path != "/otlp/v1/traces" || contentType != "application/x-protobuf" || authorization != "Bearer sesame" || tenant != "a" {
		t.Errorf("the collector was called at %s with %s, %s, %s", path, contentType, authorization, tenant)
	}
	if len(got.ResourceSpans) != 1 || len(got.ResourceSpans[0].ScopeSpans[0].Spans) != 3 || !strings.Contains(got.ResourceSpans[0].Resource.String(), `"n1"`) {
		t.Errorf("the collector got %v", &got)
	}
	if sent, dropped := metric("conductord_trace_spans_sent_total"), metric("conductord_trace_spans_dropped_total"); sent != 3 || dropped != 0 {
		t.Errorf("%v spans are counted as sent, and %v as dropped", sent, dropped)
	}
}

// TestDeadCollector: a collector that hangs costs only the queue. Dropped spans are counted and
// logged once, and a stop ends the request.
func TestDeadCollector(t *testing.T) {
	before := goleak.IgnoreCurrent()
	defer noneLeft(t, before)
	asked, gone := make(chan struct{}, 100), make(chan struct{}, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	defer collector.Close()
	tracer, stop, _, metric := traced(t, config.Traces{Endpoint: collector.URL, OneIn: 1})
	spans(tracer, 512) // a full batch is sent immediately
	<-asked
	spans(tracer, daemon.MaxSpans+7)
	if dropped := metric("conductord_trace_spans_dropped_total"); dropped != 512+7 {
		t.Errorf("%v spans were dropped", dropped)
	}
	began := time.Now()
	stop()
	<-gone
	if took := time.Since(began); took > 3*time.Second { // without the stop, the request may take 5 s
		t.Errorf("the stop took %s", took)
	}
}

// noneLeft waits until all new goroutines have ended. An exporter that was stopped first drops its queue.
func noneLeft(t *testing.T, before goleak.Option) {
	t.Helper()
	err := goleak.Find(before)
	for until := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(until); {
		err = goleak.Find(before) // it waits up to half a second
	}
	if err != nil {
		t.Error(err)
	}
}

// TestRefusedSpansAreLoggedOnce: a collector that refuses all requests has all spans counted
// as dropped, and one line in the log.
func TestRefusedSpansAreLoggedOnce(t *testing.T) {
	var requests atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer collector.Close()
	tracer, stop, log, metric := traced(t, config.Traces{Endpoint: collector.URL, OneIn: 1})
	spans(tracer, 2000)
	stop()
	if dropped := metric("conductord_trace_spans_dropped_total"); dropped != 2000 || requests.Load() < 4 {
		t.Errorf("%v spans were dropped in %d requests", dropped, requests.Load())
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "401") {
		t.Errorf("the log is:\n%s", text)
	}
}

func TestOneInIsKeptByAllNodes(t *testing.T) {
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer collector.Close()
	sampled := 0
	one, stop, _, _ := traced(t, config.Traces{Endpoint: collector.URL, OneIn: 10})
	defer stop()
	for range 10_000 {
		_, span := one.Start(context.Background(), "job", trace.WithNewRoot())
		if span.IsRecording() {
			sampled++
		}
	}
	if sampled < 800 || sampled > 1200 {
		t.Errorf("%d of 10000 are traced, and one in 10 should be", sampled)
	}
}

func TestHeadersOfTraces(t *testing.T) {
	for name, row := range map[string]struct {
		text string
		mode os.FileMode
		says string
	}{
		"for all to read": {"A: b\n", 0o644, "has mode 0644"},
		"no header":       {"A: b\nBearer sesame\n", 0o600, "has a line that is not NAME: VALUE"},
		"too large":       {strings.Repeat("A: b\n", 20_000), 0o600, "has 100000 bytes"},
	} {
		path := filepath.Join(t.TempDir(), "headers")
		if err := os.WriteFile(path, []byte(row.text), row.mode); err != nil {
			t.Fatal(err)
		}
		c := config.Default()
		c.Traces = config.Traces{Endpoint: "http://127.0.0.1:1", Headers: path, OneIn: 1}
		_, _, err := daemon.StartTraces(c, prometheus.NewRegistry(), hclog.NewNullLogger())
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v does not say %q", name, err, row.says)
		}
	}
}
