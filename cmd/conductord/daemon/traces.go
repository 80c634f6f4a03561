package daemon

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/config"
)

const (
	// maxSpans bounds the spans that wait to be sent, a few KB each. maxBatch bounds the spans
	// of one request.
	maxSpans = 8192
	maxBatch = 512
	// maxHeaders bounds the file of headers.
	maxHeaders = 64 << 10
	// batchTime is the time that a span waits for others, and sendTimeout limits one request.
	// lastSends limits all requests of a stopping node, which has handed over by then.
	batchTime   = time.Second
	sendTimeout = 5 * time.Second
	lastSends   = 500 * time.Millisecond
	// dropsLogged is the minimum interval between two log lines about drops.
	dropsLogged = time.Minute
)

// traces sends spans to a collector. OpenTelemetry's batch processor is the queue; its
// goroutine ends with stop. The processor does not count dropped spans, so traces never passes
// it more spans than it can hold.
type traces struct {
	sdktrace.SpanProcessor
	sent, dropped prometheus.Counter
	logger        hclog.Logger
	provider      *sdktrace.TracerProvider
	cancel        context.CancelFunc // of the requests
	waiting       atomic.Int64       // spans in the queue
	lost          atomic.Int64       // dropped spans that are not logged yet
	logged        time.Time          // time of the last such line; used only by the exporter
}

// newTraces makes the metrics of traces; they exist even if no spans are sent.
func newTraces(registry *prometheus.Registry, logger hclog.Logger) *traces {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "conductord", Name: name, Help: help})
		registry.MustRegister(c)
		return c
	}
	return &traces{
		sent:    counter("trace_spans_sent_total", "Spans of this node that the trace collector accepted."),
		dropped: counter("trace_spans_dropped_total", "Dropped spans of this node: the queue was full, or the trace collector did not accept the spans."),
		logger:  logger.Named("traces"),
	}
}

// start makes the tracer of the configuration; nil: none.
func (t *traces) start(c config.Config) (trace.Tracer, error) {
	if c.Traces.Endpoint == "" {
		return nil, nil
	}
	headers, err := readHeaders(c.Traces.Headers)
	if err != nil {
		return nil, fmt.Errorf("cannot read the headers of traces.headers: %w", err)
	}
	to := &collector{traces: t, endpoint: strings.TrimRight(c.Traces.Endpoint, "/") + "/v1/traces", headers: headers, client: http.Client{
		Transport:     http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the headers can be secrets
	}}
	to.open, t.cancel = context.WithCancel(context.Background())
	context.AfterFunc(to.open, to.client.CloseIdleConnections)
	to.encoder = otlptrace.NewUnstarted(to)
	t.SpanProcessor = sdktrace.NewBatchSpanProcessor(to, sdktrace.WithMaxQueueSize(maxSpans),
		sdktrace.WithMaxExportBatchSize(maxBatch), sdktrace.WithBatchTimeout(batchTime), sdktrace.WithExportTimeout(sendTimeout))
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(t), sdktrace.WithIDGenerator(conductor.SpanIDs{}),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(1/float64(c.Traces.OneIn)))),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "conductord"),
			attribute.String("service.instance.id", cmp.Or(c.Node, c.Conductor.Name)), attribute.String("service.version", cli.ProgramVersion().Version))))
	return t.provider.Tracer("github.com/conductord/conductord/conductor"), nil
}

// stop sends the waiting spans, within lastSends, and drops the rest.
func (t *traces) stop() {
	if t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastSends)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.logger.Warn("spans dropped at the stop", "spans", t.waiting.Load(), "error", err)
	}
	t.cancel()
}

// OnEnd implements sdktrace.SpanProcessor.
func (t *traces) OnEnd(span sdktrace.ReadOnlySpan) {
	if t.waiting.Add(1) > maxSpans {
		t.waiting.Add(-1)
		t.drop(1)
		return
	}
	t.SpanProcessor.OnEnd(span)
}

func (t *traces) drop(spans int) {
	t.dropped.Add(float64(spans))
	t.lost.Add(int64(spans))
}

// collector sends spans by OTLP over HTTP. It is the processor's exporter; the processor makes
// one call at a time. It is also the client of OpenTelemetry's encoder, because the standard
// client links gRPC.
type collector struct {
	*traces
	endpoint string
	headers  http.Header
	client   http.Client
	encoder  *otlptrace.Exporter
	open     context.Context // ends with the last request
}

// ExportSpans implements sdktrace.SpanExporter. It has no errors: the processor would only
// log them.
func (c *collector) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.encoder.ExportSpans(ctx, spans)
	c.waiting.Add(-int64(len(spans)))
	if err != nil {
		c.drop(len(spans))
	} else {
		c.sent.Add(float64(len(spans)))
	}
	if now := time.Now(); c.lost.Load() > 0 && now.Sub(c.logged) >= dropsLogged {
		c.logged = now
		c.logger.Warn("spans dropped", "spans", c.lost.Swap(0), "error", err)
	}
	return nil
}

// UploadTraces implements otlptrace.Client.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // an ExportTraceServiceRequest has the same encoding
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.open, cancel)()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header = c.headers
	answer, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, maxHeaders) // so that the connection can be reused
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the collector at %s answers %s", c.endpoint, answer.Status)
	}
	return nil
}

// Start and Stop implement otlptrace.Client, and Shutdown implements the exporter. They do
// nothing: each request is self-contained.
func (*collector) Start(context.Context) error    { return nil }
func (*collector) Stop(context.Context) error     { return nil }
func (*collector) Shutdown(context.Context) error { return nil }

// readHeaders reads a file of headers, which can be secrets; an empty path: none.
func readHeaders(path string) (http.Header, error) {
	headers := http.Header{}
	if path != "" {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, err
		case info.Mode().Perm()&0o007 != 0:
			return nil, fmt.Errorf("%s has mode %04o, which allows other users access: set it to 0600 or 0640", path, info.Mode().Perm())
		case info.Size() > maxHeaders:
			return nil, fmt.Errorf("%s has %d bytes; the limit is %d", path, info.Size(), maxHeaders)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		read, err := textproto.NewReader(bufio.NewReader(strings.NewReader(string(data) + "\n\n"))).ReadMIMEHeader()
		if err != nil { // its text can contain a secret
			return nil, fmt.Errorf("%s has a line that is not NAME: VALUE", path)
		}
		headers = http.Header(read)
	}
	headers.Set("Content-Type", "application/x-protobuf")
	return headers, nil
}
