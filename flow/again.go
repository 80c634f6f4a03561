package flow

import (
	"context"
	"errors"
	"time"

	"github.com/conductord/conductord/internal/duration"
	"github.com/conductord/conductord/logbook"
)

// again are the rules of a step that continues the job: see Again.
type again struct {
	after time.Duration
	at    *timeOfDay
}

// Again makes a step that continues the job with another iteration of its flow. The step runs no code. Its arguments
// (Requires, Optional, Rebind) become values of the job's store, by their names; other values stay:
//
//	flow.Again("next-month", flow.Requires("month"), flow.Rebind(map[string]string{"month": "following"}))
//
// When the step and all other steps have succeeded, one log entry ends the iteration and starts the next. The job
// keeps its id, key, unread signals and deadline. The iteration has a new flow detail: results, attempts and marks
// of earlier iterations do not apply, and all idempotency keys are new. The cluster keeps the latest 10 iterations.
// If the flow fails, or if a condition skips the step, the job ends as it would without the step. A job with a
// cancel request ends too.
//
// The step must be a step of the job's flow itself, and a flow has at most one. AgainAfter and AgainAt delay the next
// iteration.
func Again(name string, options ...StepOption) *Step {
	return NewStep(name, nil, append([]StepOption{stepOption(func(s *Step) { s.again, s.task = &again{}, againTask{} })}, options...)...)
}

// AgainAfter delays the next iteration by d from the end of the current one, at most MaxWait. Meanwhile, no
// conductor has the job.
func AgainAfter(d time.Duration) StepOption { return againOption(func(a *again) { a.after = d }) }

// AgainAt delays the next iteration until a time of day, such as "08:00 Europe/Berlin": the first one after the end of
// the current iteration. The default zone is UTC. See DeadlineAt.
func AgainAt(text string) StepOption {
	return stepOption(func(s *Step) {
		at, err := parseTimeOfDay(text)
		if err != nil {
			s.fault("its next iteration: %w", err)
			return
		}
		againOption(func(a *again) { a.at = &at }).ofStep(s)
	})
}

func againOption(set func(*again)) StepOption {
	return stepOption(func(s *Step) {
		if s.again == nil {
			s.fault("it has an option for the next iteration, but does not continue the job: create the step with flow.Again")
			return
		}
		set(s.again)
	})
}

// Continues reports whether the step was made with Again.
func (s *Step) Continues() bool { return s.again != nil }

// NextIteration returns the delay until the next iteration, if the current iteration ends now.
func (s *Step) NextIteration(now time.Time) time.Duration {
	if s.again.at != nil {
		return s.again.at.next(now).Sub(now)
	}
	return s.again.after
}

// Continues returns the step that continues the job; false if the plan has none.
func (p *Plan) Continues() (step int, ok bool) {
	for number, step := range p.steps {
		if step.Continues() {
			return number, true
		}
	}
	return 0, false
}

// note describes the step in a plan.
func (a *again) note() string {
	switch {
	case a.at != nil:
		return "continues the job with the next iteration at " + a.at.text
	case a.after > 0:
		return "continues the job with the next iteration after " + duration.Text(a.after)
	}
	return "continues the job with the next iteration"
}

// checkAgain reports contradictions of a step that continues the job.
func (s *Step) checkAgain() {
	if s.again == nil {
		return
	}
	switch {
	case s.again.after < 0 || s.again.after > MaxWait:
		s.fault("its next iteration starts after %s; the limit is %s", s.again.after, MaxWait)
	case s.again.after > 0 && s.again.at != nil:
		s.fault("its next iteration has both a delay and a time of day; set only one of them")
	case len(s.requires) > logbook.MaxValues:
		s.fault("it gives %d values to the next iteration; the limit is %d", len(s.requires), logbook.MaxValues)
	case len(s.provides) > 0:
		s.fault("it continues the job, so it cannot provide values")
	}
	for _, option := range []struct {
		name string
		set  bool
	}{
		{"AtMostOnce", s.atMostOnce}, {"Repeatable", s.repeatable}, {"PointOfNoReturn", s.noReturn}, {"Retry", s.retry.Attempts > 1},
		{"Timeout", s.timeout > 0}, {"Deadline", s.deadline > 0 || s.deadlineAt != nil}, {"WaitAtMost", s.waitAtMost > 0}, {"Waits", s.wait != nil},
		{"Concurrency", s.concurrency.given}, {"SameWorkerAs", s.sameWorkerAs != ""}, {"IgnoreFailure", s.ignoresFailure}, {"Sends", len(s.sends) > 0},
	} {
		if option.set {
			s.fault("it only continues the job, so it cannot have the option %s", option.name)
		}
	}
}

// surveyAgain checks the place of a step that continues the job. path is the flows around it.
func (c *compiler) surveyAgain(step *Step, path []Node) {
	if step.again == nil {
		return
	}
	root, _ := c.plan.root.(*Flow)
	switch {
	case root == nil:
		c.fault(ErrInvalid, "step %q continues the job, and is the only step: put it into a flow with another step", step.name)
	case step.IsLate():
		c.fault(ErrInvalid, "step %q continues the job, so it cannot be %s step: make it an ordinary step of the flow", step.name, map[bool]string{true: "an on_error", false: "a finally"}[step.onError])
	case len(path) > 1:
		c.fault(ErrInvalid, "step %q continues the job, and is in %s: only the whole flow can continue, so move the step to %s", step.name, quoted(path[len(path)-1]), quoted(root))
	case root.each != nil || root.selects:
		c.fault(ErrInvalid, "step %q continues the job, but %s does not need all members: put this flow into a new outer flow, and move the step there", step.name, quoted(root))
	case c.continues != "":
		c.fault(ErrInvalid, "steps %q and %q both continue the job; a flow has one such step", c.continues, step.name)
	default:
		c.continues = step.name
	}
}

// againTask is the task of a step that continues the job. The engine does not call it.
type againTask struct{}

func (againTask) Execute(context.Context, *Call) (any, error) {
	return nil, errors.New("internal error: the task of a step that continues the job was called")
}
