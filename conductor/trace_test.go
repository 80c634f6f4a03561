package conductor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/internal/traceparent"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const posterSpan = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// recorder returns a tracer and its ended spans.
func recorder(sampler sdktrace.Sampler) (trace.Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithIDGenerator(conductor.SpanIDs{}), sdktrace.WithSampler(sampler))
	return provider.Tracer("test"), spans
}

// named returns the spans with a name.
func named(spans *tracetest.SpanRecorder, name string) (found []sdktrace.ReadOnlySpan) {
	for _, span := range spans.Ended() {
		if span.Name() == name {
			found = append(found, span)
		}
	}
	return found
}

// only returns the single span with a name.
func only(t *testing.T, spans *tracetest.SpanRecorder, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	found := named(spans, name)
	if len(found) != 1 {
		t.Fatalf("%d spans have the name %q", len(found), name)
	}
	return found[0]
}

func fact(span sdktrace.ReadOnlySpan, key string) string {
	for _, attribute := range span.Attributes() {
		if string(attribute.Key) == "conductord."+key {
			return attribute.Value.String()
		}
	}
	return ""
}

// TestTraceOfAFlow: a flow with a function, an executable and a step that fails is one trace
// below the span that posted it, with a span for each attempt.
func TestTraceOfAFlow(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "show"), []byte("#!/bin/sh\nprintf '\"%s\"' \"$TRACEPARENT\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	handlers, err := handler.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	tracer, spans := recorder(sdktrace.ParentBased(sdktrace.AlwaysSample()))
	pack := flow.FuncRevert("pack", func(ctx context.Context, _ nothing) (nothing, error) {
		_, span := tracer.Start(ctx, "its own")
		span.End()
		return nothing{}, nil
	}, func(context.Context, nothing, *nothing) error { return nil })
	kinds := factories{"trip": func() ([]flow.Node, error) {
		show := flow.NewStep("show", handlers.Task("show", ""))
		return []flow.Node{pack, show, do("pay", func(context.Context) error { return flow.Permanent(errors.New("no money")) })}, nil
	}}
	c := openCluster(t)
	o := options(c, kinds.registry(t))
	o.Tracer = tracer
	posting := jobs.NewPosting("trip", nil, nil)
	posting.Traceparent = posterSpan
	posted := postOne(t, c, posting)
	running(t, o)
	job := finished(t, c, posted.ID)
	until(t, "the run's span has ended", func() bool { return len(named(spans, "run trip")) == 1 })

	run := only(t, spans, "run trip")
	parents := map[string]trace.SpanID{
		"post trip": {0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7}, "run trip": {0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7},
		"execute pack": run.SpanContext().SpanID(), "execute show": run.SpanContext().SpanID(), "execute pay": run.SpanContext().SpanID(),
		"revert pack": run.SpanContext().SpanID(), "its own": only(t, spans, "execute pack").SpanContext().SpanID(),
	}
	for name, parent := range parents {
		span := only(t, spans, name)
		if got := span.SpanContext().TraceID().String(); got != posterSpan[3:35] || span.Parent().SpanID() != parent {
			t.Errorf("%s is in trace %s below span %s, and should be below %s", name, got, span.Parent().SpanID(), parent)
		}
		if name != "its own" && (fact(span, "job.id") != job.ID.String() || fact(span, "flow.id") != job.Flow.String() || fact(span, "owner") != "tester" ||
			fact(span, "board") != "default" || fact(span, "kind") != "trip" || fact(span, "token") != job.Token.String()) {
			t.Errorf("%s has the attributes %v", name, span.Attributes())
		}
	}
	if count := len(spans.Ended()); count != len(parents)+1 && count != len(parents) { // the revert of the failed step, if it has one
		t.Errorf("there are %d spans", count)
	}
	if pay := only(t, spans, "execute pay"); pay.Status().Code != codes.Error || pay.Status().Description != "no money" || fact(pay, "outcome") != "failure" || fact(pay, "attempt") != "1" {
		t.Errorf("the span of the failed step is %v, %v", pay.Status(), pay.Attributes())
	}
	if run.Status().Code != codes.Error || fact(run, "outcome") != string(jobs.OutcomeReverted) || fact(run, "ended") != "consume" {
		t.Errorf("the span of the run is %v, %v", run.Status(), run.Attributes())
	}
	show := only(t, spans, "execute show").SpanContext()
	want := `"` + traceparent.Of(trace.ContextWithSpanContext(t.Context(), show)) + `"`
	atoms := detailOf(t, c, job).Atoms
	shown := slices.IndexFunc(atoms, func(atom logbook.AtomDetail) bool { return atom.Name == "show" })
	if got := string(atoms[shown].Attempts[0].Result); got != want {
		t.Errorf("the executable sees the traceparent %s, and its span is %s", got, want)
	}
	if post := only(t, spans, "post trip"); !post.StartTime().Equal(job.PostedAt) || !post.EndTime().Equal(job.StartedAt) {
		t.Errorf("the job was posted at %s and claimed at %s, and its span is from %s to %s", job.PostedAt, job.StartedAt, post.StartTime(), post.EndTime())
	}
}

// TestTraceOverOwners: a job without a traceparent has one trace under all its owners, derived
// from the job's id. All owners make the same sampling decision.
func TestTraceOverOwners(t *testing.T) {
	for name, sampler := range map[string]sdktrace.Sampler{"traced": sdktrace.AlwaysSample(), "not traced": sdktrace.NeverSample()} {
		t.Run(name, func(t *testing.T) {
			c := openCluster(t)
			begun := make(chan trace.SpanContext, 2)
			kinds := factories{"long": func() ([]flow.Node, error) {
				return []flow.Node{do("wait", func(ctx context.Context) error {
					begun <- trace.SpanContextFromContext(ctx)
					<-ctx.Done()
					return ctx.Err()
				})}, nil
			}}
			posted := postOne(t, c, jobs.NewPosting("long", nil, nil))
			tracer, spans := recorder(sdktrace.ParentBased(sampler))
			var seen []trace.SpanContext
			for range 2 {
				o := options(c, kinds.registry(t))
				o.Tracer = tracer
				owner := running(t, o)
				seen = append(seen, <-begun)
				drain(t, owner)
			}
			id, root := conductor.SpanIDs{}.NewIDs(conductor.TracedJob(t.Context(), posted.ID))
			if seen[0].TraceID() != id || seen[1].TraceID() != id || seen[0].SpanID() == seen[1].SpanID() {
				t.Errorf("the steps ran in the traces %s and %s, and the job's is %s", seen[0].TraceID(), seen[1].TraceID(), id)
			}
			if name == "not traced" {
				if len(spans.Ended()) != 0 || seen[0].IsSampled() || seen[1].IsSampled() {
					t.Errorf("%d spans of a job that is not traced", len(spans.Ended()))
				}
				return
			}
			if span := only(t, spans, "post long"); span.SpanContext().SpanID() != root || span.Parent().IsValid() {
				t.Errorf("the trace begins with span %s below %s", span.SpanContext().SpanID(), span.Parent().SpanID())
			}
			runs := named(spans, "run long")
			if len(runs) != 2 || runs[0].Parent().SpanID() != root || runs[1].Parent().SpanID() != root {
				t.Errorf("the runs are %v", runs)
			}
		})
	}
}

// TestTraceOfAFunc: the function of a job without a flow runs in the span of the run.
func TestTraceOfAFunc(t *testing.T) {
	c := openCluster(t)
	tracer, spans := recorder(sdktrace.AlwaysSample())
	seen := make(chan trace.SpanID, 1)
	o := conductor.Options{Client: c, Name: "tester", Tracer: tracer, Funcs: map[string]conductor.Func{"mail": func(ctx context.Context, _ jobs.Job) error {
		seen <- trace.SpanContextFromContext(ctx).SpanID()
		return nil
	}}}
	postOne(t, c, jobs.NewPlainPosting("mail", nil))
	running(t, o)
	inside := <-seen
	until(t, "the run's span has ended", func() bool { return len(named(spans, "run mail")) == 1 })
	if run := only(t, spans, "run mail"); run.SpanContext().SpanID() != inside || fact(run, "outcome") != "success" {
		t.Errorf("the function ran in span %s, and the run is %s with %v", inside, run.SpanContext().SpanID(), run.Attributes())
	}
}

// TestTraceOfItsOwn: a job without a traceparent is in no trace of the program that runs it.
func TestTraceOfItsOwn(t *testing.T) {
	c := openCluster(t)
	tracer, spans := recorder(sdktrace.AlwaysSample())
	program, span := tracer.Start(t.Context(), "program")
	defer span.End()
	o := conductor.Options{Client: c, Tracer: tracer, MaxDispatches: 1, Funcs: map[string]conductor.Func{"mail": func(context.Context, jobs.Job) error { return nil }}}
	posted := postOne(t, c, jobs.NewPlainPosting("mail", nil))
	if err := conductor.Run(program, o); err != nil {
		t.Fatal(err)
	}
	id, _ := conductor.SpanIDs{}.NewIDs(conductor.TracedJob(t.Context(), posted.ID))
	if got := only(t, spans, "run mail").SpanContext().TraceID(); got != id {
		t.Errorf("the run is in trace %s, and the job's is %s; the program's is %s", got, id, span.SpanContext().TraceID())
	}
}

// TestNoTracer: without a Tracer a step has no span, even if the job has a traceparent, and a run
// allocates nothing for traces.
func TestNoTracer(t *testing.T) {
	c := openCluster(t)
	seen := make(chan string, 1)
	kinds := factories{"plain": func() ([]flow.Node, error) {
		return []flow.Node{do("look", func(ctx context.Context) error { seen <- traceparent.Of(ctx); return nil })}, nil
	}}
	posting := jobs.NewPosting("plain", nil, nil)
	posting.Traceparent = posterSpan
	postOne(t, c, posting)
	running(t, options(c, kinds.registry(t)))
	if got := <-seen; got != "" {
		t.Errorf("the step sees the traceparent %s", got)
	}
	untraced := conductor.Untraced(t.Context())
	if !untraced() {
		t.Error("a run without a Tracer changes the context or has a hook")
	}
	if allocated := testing.AllocsPerRun(100, func() { untraced() }); allocated != 0 {
		t.Errorf("a run without a Tracer allocates %v times", allocated)
	}
}

// TestSpanIDs: ids of spans are random and never zero, also for other traces.
func TestSpanIDs(t *testing.T) {
	ids := map[string]bool{}
	for range 1000 {
		id, first := conductor.SpanIDs{}.NewIDs(t.Context())
		next := conductor.SpanIDs{}.NewSpanID(t.Context(), id)
		for _, text := range []string{id.String(), first.String(), next.String()} {
			if ids[text] || strings.Trim(text, "0") == "" {
				t.Fatalf("the id %s is zero, or was given twice", text)
			}
			ids[text] = true
		}
	}
}

var _ sdktrace.IDGenerator = conductor.SpanIDs{}
