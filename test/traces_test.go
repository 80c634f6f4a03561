package test

import (
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/internal/traceparent"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// collector accepts OTLP over HTTP, and stores the spans.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*tracepb.Span
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // its node was killed
		}
		var data tracepb.TracesData
		if r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &data) != nil {
			t.Errorf("%s with %d bytes is no request of OTLP", r.URL.Path, len(body))
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range data.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// of returns the spans of a job by name.
func (c *collector) of(job jobs.JobID) map[string][]*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string][]*tracepb.Span{}
	for _, span := range c.spans {
		for _, attribute := range span.Attributes {
			if attribute.Key == "conductord.job.id" && attribute.Value.GetStringValue() == job.String() {
				found[span.Name] = append(found[span.Name], span)
			}
		}
	}
	return found
}

const tracedFlow = `name = "traced"
[[steps]]
name = "see"
revert = "unsee"
provides = ["seen"]
[[steps]]
name = "hang"
`

// tracedCluster is three servers that send their spans to a collector. The step hang of tracedFlow
// hangs once for each job, with a file of the job's id in dir, and then fails.
func tracedCluster(t *testing.T, dir string) (*local.Cluster, *raftboard.Client, *collector) {
	t.Helper()
	sink := newCollector(t)
	handlers := filepath.Join(dir, "handlers")
	writeHandler(t, handlers, "see", `printf '"%s"' "$TRACEPARENT"`)
	writeHandler(t, handlers, "unsee", `exit 0`)
	writeHandler(t, handlers, "hang", `[ -e `+dir+`/$CONDUCTORD_JOB ] && exit 65
: > `+dir+`/$CONDUCTORD_JOB
exec sleep 300`)
	cluster, client := startCluster(t, func(c *config.Config) {
		c.Conductor.Handlers, c.Traces.Endpoint = []string{handlers}, sink.URL
	})
	return cluster, client, sink
}

func tracedPosting(t *testing.T) jobs.Posting {
	t.Helper()
	document, err := spec.Parse([]byte(tracedFlow), "traced.toml")
	if err != nil {
		t.Fatal(err)
	}
	book := &logbook.Book{ID: logbook.NewBookID(), Name: "traced"}
	book.Flows = []logbook.FlowDetail{document.Detail(logbook.NewFlowID(), book.ID, nil)}
	return jobs.Posting{ID: jobs.NewJobID(), Name: "traced", Book: book}
}

// TestTraceOverAKill: a job has one trace even if its owner is killed, with and without a span of
// its poster. The trace has all ended spans of the first owner, and all spans of the next one.
func TestTraceOverAKill(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	dir := t.TempDir()
	cluster, client, sink := tracedCluster(t, dir)
	poster := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5, 6}, TraceFlags: trace.FlagsSampled})
	for name, ctx := range map[string]context.Context{"with a poster's span": trace.ContextWithSpanContext(t.Context(), poster), "without one": t.Context()} {
		t.Run(name, func(t *testing.T) {
			posting := tracedPosting(t)
			if _, err := jobs.PostOne(ctx, client, posting); err != nil {
				t.Fatal(err)
			}
			id, parent := traceOf(ctx, posting.ID)
			var owner *local.Node
			eventually(t, "the first step's span is sent, and the second step runs", func() bool {
				_, hangs := os.Stat(filepath.Join(dir, posting.ID.String()))
				job, err := client.Job(t.Context(), posting.ID)
				if err != nil || hangs != nil || job.Claim == nil {
					return false
				}
				owner, _ = cluster.Node(job.Claim.Owner)
				return len(sink.of(posting.ID)["execute see"]) == 1 && len(sink.of(posting.ID)["post traced"]) == 1
			})
			owner.Kill()
			eventually(t, "the next owner's run has ended, and its span is sent", func() bool { return len(sink.of(posting.ID)["run traced"]) == 1 })
			if err := owner.Start(); err != nil {
				t.Fatal(err)
			}
			job, err := client.Job(t.Context(), posting.ID)
			if err != nil || job.Outcome != jobs.OutcomeReverted || job.Claims != 2 {
				t.Fatalf("the job is %s after %d claims: %v", job.Outcome, job.Claims, err)
			}

			spans := sink.of(posting.ID)
			for name, list := range spans {
				for _, span := range list {
					if got := trace.TraceID(span.TraceId); got != id {
						t.Errorf("%s is in trace %s, and the job's is %s", name, got, id)
					}
				}
			}
			run := spans["run traced"][0]
			if got := trace.SpanID(run.ParentSpanId); got != parent {
				t.Errorf("the run is below span %s, and should be below %s", got, parent)
			}
			for _, name := range []string{"execute hang", "revert see"} {
				if list := spans[name]; len(list) != 1 || trace.SpanID(list[0].ParentSpanId) != trace.SpanID(run.SpanId) {
					t.Errorf("%s of the next owner is %v, and the run %v", name, list, run)
				}
			}
			see := spans["execute see"][0]
			want := `"00-` + id.String() + "-" + trace.SpanID(see.SpanId).String() + `-01"`
			if got := resultOf(t, client, &job, "see"); trace.SpanID(see.ParentSpanId) == trace.SpanID(run.SpanId) || got != want {
				t.Errorf("the handler has seen %s, and should see %s", got, want)
			}
		})
	}
}

// traceOf returns the trace of a job that is posted in a context, and the parent of the job's runs.
func traceOf(ctx context.Context, job jobs.JobID) (trace.TraceID, trace.SpanID) {
	if poster := trace.SpanContextFromContext(ctx); poster.IsValid() {
		return poster.TraceID(), poster.SpanID()
	}
	sum := sha256.Sum256(job.UUID[:])
	return trace.TraceID(sum[:16]), trace.SpanID(sum[16:24])
}

func resultOf(t *testing.T, client *raftboard.Client, job *jobs.Job, step string) string {
	t.Helper()
	detail, err := client.FlowDetail(t.Context(), job.Flow)
	if err != nil {
		t.Fatal(err)
	}
	atom := slices.IndexFunc(detail.Atoms, func(a logbook.AtomDetail) bool { return a.Name == step })
	return string(detail.Atoms[atom].Attempts[0].Result)
}

// TestTraceparentOfCallers: a job gets the traceparent of an HTTP header, of a field, or of the
// command line's environment.
func TestTraceparentOfCallers(t *testing.T) {
	t.Parallel()
	const header, field = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203332-00"
	address := startDev(t)
	client, err := raftboard.Dial(within(t), address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, row := range map[string]struct{ header, field, want string }{
		"header":                 {header: header, want: header},
		"header that is invalid": {header: strings.ToUpper(header)},
		"field and header":       {header: header, field: field, want: field},
		"neither":                {},
	} {
		id := jobs.NewJobID()
		body := `{"postings": [{"id": "` + id.String() + `", "name": "a", "kind": "mail", "traceparent": "` + row.field + `"}]}`
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/conductord.v1.BoardService/Post", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{"Content-Type": {"application/json"}, traceparent.Header: {row.header}}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if job, err := client.Job(t.Context(), id); err != nil || job.Traceparent != row.want {
			t.Errorf("%s: the job's traceparent is %q, %v; want %q", name, job.Traceparent, err, row.want)
		}
	}
	for name, row := range map[string]struct{ variable, want, says string }{
		"variable":                 {variable: header, want: header},
		"variable that is invalid": {variable: header + "0", says: "TRACEPARENT"},
	} {
		id := jobs.NewJobID()
		post := exec.CommandContext(within(t), binary, "job", "post", "--kind", "mail", "--id", id.String(), "--server", address)
		post.Env = append(os.Environ(), "TRACEPARENT="+row.variable)
		output, err := post.CombinedOutput()
		if row.says != "" {
			if err == nil || !strings.Contains(string(output), row.says) {
				t.Errorf("%s: %v, %s", name, err, output)
			}
			continue
		}
		if job, err := client.Job(t.Context(), id); err != nil || job.Traceparent != row.want {
			t.Errorf("%s: the job's traceparent is %q, %v; want %q\n%s", name, job.Traceparent, err, row.want, output)
		}
	}
}
