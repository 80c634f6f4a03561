package conductor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/traceparent"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// SpanIDs makes the ids of traces and spans, for sdktrace.WithIDGenerator of OpenTelemetry's SDK.
// If a job was posted without a traceparent, its trace gets its ids from the job's id. All owners
// of the job then continue one trace, and nothing is stored for it. With other ids, each claim of
// such a job starts a separate trace.
type SpanIDs struct{}

// tracedJob is the context key for the job whose trace starts.
type tracedJob struct{}

// NewIDs makes the ids of a trace and its first span. A hash of the job's id is evenly spread, as
// samplers require; a UUID is not.
func (SpanIDs) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	job, ok := ctx.Value(tracedJob{}).(jobs.JobID)
	if !ok {
		job = jobs.NewJobID()
	}
	sum := sha256.Sum256(job.UUID[:])
	copy(span[:], sum[copy(id[:], sum[:]):])
	return id, span
}

// NewSpanID makes a random id.
func (SpanIDs) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	for i, bits := 0, rand.Uint64()|1; i < len(id); i, bits = i+1, bits>>8 {
		id[i] = byte(bits)
	}
	return id
}

// runTrace is the span of a run. Its times are the cluster's. A nil one does nothing.
type runTrace struct {
	run   *run
	span  trace.Span
	facts []attribute.KeyValue // attributes of every span
}

// traceRun starts the span of a run. At the job's first claim it also makes the span from the
// posting to that claim. Both are children of the span that posted the job. Without such a span,
// the span of the posting starts the trace, and is the parent of every run.
func (r *run) traceRun(ctx context.Context) context.Context {
	tracer, job := r.loop.options.Tracer, &r.claimed.Job
	if tracer == nil {
		return ctx
	}
	facts := []attribute.KeyValue{
		attribute.String("conductord.job.id", job.ID.String()), attribute.String("conductord.job.name", job.Name),
		attribute.String("conductord.board", job.Board), attribute.String("conductord.kind", job.Kind),
		attribute.String("conductord.owner", r.loop.options.Name), attribute.String("conductord.token", r.token.String()),
	}
	if !job.Flow.IsZero() {
		facts = append(facts, attribute.String("conductord.flow.id", job.Flow.String()))
	}
	name := cmp.Or(job.BookName, job.Kind)
	how := []trace.SpanStartOption{trace.WithTimestamp(job.PostedAt), trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(facts...)}
	parent, err := traceparent.Parse("job traceparent", job.Traceparent)
	if err == nil {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	} else {
		how = append(how, trace.WithNewRoot())
	}
	_, posted := tracer.Start(context.WithValue(ctx, tracedJob{}, job.ID), "post "+name, how...)
	if job.Claims == 1 {
		posted.End(trace.WithTimestamp(job.ModifiedAt))
	}
	if err != nil {
		ctx = trace.ContextWithSpan(ctx, posted)
	}
	ctx, span := tracer.Start(ctx, "run "+name, trace.WithTimestamp(r.now()), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(append(facts, attribute.Int("conductord.claims", job.Claims))...))
	r.trace = &runTrace{run: r, span: span, facts: facts}
	return ctx
}

// end ends the span of a run, with the end of the claim, the job's outcome and the reason.
func (t *runTrace) end(how string, outcome jobs.Outcome, reason any, failed bool) {
	if t == nil {
		return
	}
	t.span.SetAttributes(attribute.String("conductord.ended", how), attribute.String("conductord.outcome", string(outcome)))
	if failed {
		t.span.SetStatus(codes.Error, clip(fmt.Sprint(reason)))
	}
	t.span.End(trace.WithTimestamp(t.run.now()))
}

// hook is the engine's hook for attempts; nil: none.
func (t *runTrace) hook() func(context.Context, *flow.Call) (context.Context, func(*logbook.Failure, bool)) {
	if t == nil {
		return nil
	}
	return t.attempt
}

// attempt starts the span of an attempt at a step.
func (t *runTrace) attempt(ctx context.Context, call *flow.Call) (context.Context, func(*logbook.Failure, bool)) {
	ctx, span := t.run.loop.options.Tracer.Start(ctx, string(call.Action)+" "+call.Step, trace.WithTimestamp(t.run.now()),
		trace.WithAttributes(t.facts...), trace.WithAttributes(
			attribute.String("conductord.step", call.Step), attribute.String("conductord.action", string(call.Action)),
			attribute.Int("conductord.attempt", call.Attempt), attribute.Int("conductord.asked", call.Asked)))
	return ctx, func(failure *logbook.Failure, again bool) {
		outcome := "success"
		if again {
			outcome = "not yet"
		}
		if failure != nil {
			outcome = "failure"
			span.SetAttributes(attribute.String("error.type", failure.Kind))
			span.SetStatus(codes.Error, clip(fmt.Sprint(t.run.loop.options.loggable(failure.Message))))
		}
		span.SetAttributes(attribute.String("conductord.outcome", outcome))
		span.End(trace.WithTimestamp(t.run.now()))
	}
}
