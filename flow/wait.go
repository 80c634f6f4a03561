package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/internal/duration"
	"github.com/conductord/conductord/logbook"
)

// Wait is the wait of a step: see Signal, Topic and Sleep.
type Wait struct {
	// Signals are the names of the awaited signals; none: the step waits for a Topic or an Approval, or sleeps.
	Signals []string
	// Topic and Key name the awaited publication; empty: none. Key can contain arguments of the step in braces.
	Topic, Key string
	// For limits the wait, from its start. 0: MaxWait, or until the time Until.
	For   time.Duration
	Until time.Time // zero: For limits the wait
	// OnTimeout is the result after the limit; nil: the step fails with the kind logbook.FailureTimeout.
	OnTimeout json.RawMessage
	// Approval is the step's question to people; nil: the step waits for no approval.
	Approval *Approval
	// check reports data that do not fit the type of the step's result; nil: all data fit.
	check func(data json.RawMessage) error
}

// MaxWait is the longest wait for a signal, and the longest sleep.
const MaxWait = logbook.MaxWait

// Signal makes a step that waits for a signal of the same name to the flow's job. The data of the signal are the
// step's result, and T is their type. If T is a struct, its fields are the values that the step provides, as with
// Func. Data that do not fit T fail the step with the kind logbook.FailureSignalData.
//
// While the flow waits only for such steps, no conductor runs it: the board keeps its job until a signal arrives or the
// wait is over. The options WaitFor, WaitUntil, OnTimeout and ForSignals configure the wait. A wait is not reverted.
// When the flow runs again, the step waits again, and does not get a signal twice.
func Signal[T any](name string, options ...StepOption) *Step {
	derived, faults := derive[struct{}, T](name, false)
	wait := &Wait{Signals: []string{name}, check: func(data json.RawMessage) error {
		var value T
		return json.Unmarshal(data, &value)
	}}
	return newStep(name, waitTask{}, derived, faults, append([]StepOption{Waits(wait)}, options...))
}

// Topic makes a step that waits for a publication of a topic and a key on the board of its job, like Signal. The key
// can contain arguments of the step in braces, as in "order-{order}": name them with Requires. The data of the
// publication are the step's result. jobs.Publisher describes the publications that the step gets.
func Topic[T any](name, topic, key string, options ...StepOption) *Step {
	step := Signal[T](name, options...)
	if step.wait != nil {
		step.wait.Signals, step.wait.Topic, step.wait.Key = nil, topic, key
	}
	return step
}

// TopicKey returns the key for one wait for a topic, with the arguments of its step.
func (w *Wait) TopicKey(s *Step, arguments logbook.Values) (string, error) {
	key, err := fillTemplate(w.Key, s.hasArgument, func(argument string) (json.RawMessage, bool) {
		value, ok := arguments[argument]
		return value, ok
	}, func(string) bool { return false })
	if err == nil {
		err = logbook.MaxLimits.CheckName("wait key", key)
	}
	if err != nil {
		return "", fmt.Errorf("cannot fill the key of its topic: %w", err)
	}
	return key, nil
}

// Sleep makes a step that does nothing for a time, at most MaxWait. The time continues while the flow is suspended or
// has no conductor. `conductord flow retry-now` ends it.
func Sleep(name string, d time.Duration, options ...StepOption) *Step {
	return NewStep(name, waitTask{}, append([]StepOption{Waits(&Wait{For: d})}, options...)...)
}

// SleepUntil makes a step that does nothing until a time.
func SleepUntil(name string, at time.Time, options ...StepOption) *Step {
	return NewStep(name, waitTask{}, append([]StepOption{Waits(&Wait{Until: at})}, options...)...)
}

// WaitFor limits the wait of a Signal step, from its start. Default: MaxWait.
func WaitFor(d time.Duration) StepOption {
	return waitOption(func(w *Wait) { w.For = d })
}

// WaitUntil limits the wait of a Signal step to a time.
func WaitUntil(at time.Time) StepOption {
	return waitOption(func(w *Wait) { w.Until = at })
}

// OnTimeout sets the result of a Signal step whose wait ends without a signal. Without this option, the step fails.
func OnTimeout(result any) StepOption {
	return stepOption(func(s *Step) {
		encoded, err := encodeDetails(result)
		if err != nil {
			s.fault("cannot encode its result on a timeout as JSON: %s", err)
			return
		}
		if encoded == nil {
			encoded = json.RawMessage("null")
		}
		waitOption(func(w *Wait) { w.OnTimeout = encoded }).ofStep(s)
	})
}

// ForSignals lets a Signal step wait for signals of other names. The step takes the first signal that arrived.
func ForSignals(names ...string) StepOption {
	return waitOption(func(w *Wait) { w.Signals = names })
}

func waitOption(set func(*Wait)) StepOption {
	return stepOption(func(s *Step) {
		if s.wait == nil {
			s.fault("it has an option for waits, but does not wait: create the step with flow.Signal")
			return
		}
		set(s.wait)
	})
}

// Waits makes a step wait. The step's task is not called. It is for code that makes steps.
func Waits(wait *Wait) StepOption {
	return stepOption(func(s *Step) {
		s.wait = wait
		if s.task == nil {
			s.task = waitTask{}
		}
	})
}

// Wait is the wait of the step; nil: the step does not wait.
func (s *Step) Wait() *Wait { return s.wait }

// End is the end of a wait that starts now.
func (w *Wait) End(now time.Time) time.Time {
	longest := now.Add(MaxWait)
	switch {
	case !w.Until.IsZero() && w.Until.Before(longest):
		return w.Until
	case w.Until.IsZero() && w.For > 0 && w.For < MaxWait:
		return now.Add(w.For)
	}
	return longest
}

// Result returns the result of a step whose wait has ended, with a signal or, if that is nil, at its end.
func (w *Wait) Result(signal *logbook.Signal) (json.RawMessage, *logbook.Failure) {
	switch {
	case w.Approval != nil:
		return w.Approval.result(signal)
	case signal == nil && len(w.Signals) == 0 && w.Topic == "":
		return json.RawMessage("null"), nil
	case signal == nil && w.OnTimeout != nil:
		return w.OnTimeout, nil
	case signal == nil:
		return nil, &logbook.Failure{Kind: logbook.FailureTimeout, Message: fmt.Sprintf("no %s arrived in time", w.names())}
	case signal.Reject != "":
		return nil, &logbook.Failure{Kind: logbook.FailureRejected, Permanent: true, Message: signal.Reject}
	}
	data := signal.Data
	if len(data) == 0 {
		data = json.RawMessage("null")
	}
	if w.check != nil {
		if err := w.check(data); err != nil {
			return nil, &logbook.Failure{Kind: logbook.FailureSignalData, Permanent: true,
				Message: fmt.Sprintf("cannot read the data of signal %q with id %q: %s", signal.Name, signal.ID, err)}
		}
	}
	return data, nil
}

// names describes what the step waits for.
func (w *Wait) names() string {
	if w.Topic != "" {
		return "publication of topic " + w.Topic + ", key " + w.Key + ","
	}
	return "signal " + strings.Join(w.Signals, " or ")
}

// note describes the wait in a plan.
func (w *Wait) note() string {
	limit := ""
	switch {
	case !w.Until.IsZero():
		limit = "until " + w.Until.UTC().Format(time.RFC3339)
	case w.For > 0:
		limit = "for " + duration.Text(w.For)
	}
	if w.Approval != nil {
		return strings.TrimSpace("waits for an approval by " + logbook.NeedText(w.Approval.Need) + " " + limit)
	}
	if len(w.Signals) == 0 && w.Topic == "" {
		return "sleeps " + limit
	}
	return strings.TrimSpace("waits for " + w.names() + " " + limit)
}

// approves reports whether the step waits for an approval.
func (s *Step) approves() bool { return s.wait != nil && s.wait.Approval != nil }

// checkWait reports contradictions of a step that waits.
func (s *Step) checkWait() {
	w := s.wait
	if w == nil {
		return
	}
	switch {
	case w.For < 0 || w.For > MaxWait:
		s.fault("it waits for %s; the limit is %s", w.For, MaxWait)
	case len(w.Signals) == 0 && w.Topic == "" && w.Approval == nil && w.For == 0 && w.Until.IsZero():
		s.fault("it sleeps, but has no duration and no end")
	case w.For > 0 && !w.Until.IsZero():
		s.fault("its wait has both a duration and an end; set only one of them")
	case len(w.Signals) > logbook.MaxWaitSignals:
		s.fault("it waits for %d signals; the limit is %d", len(w.Signals), logbook.MaxWaitSignals)
	}
	if w.Approval != nil {
		s.checkApproval(w.Approval)
	}
	s.checkTopic(w)
	for i, name := range w.Signals {
		if err := logbook.MaxLimits.CheckName("signal name", name); err != nil {
			s.fault("it waits for signal %.80q: %s", name, err)
		}
		if slices.Contains(w.Signals[:i], name) {
			s.fault("it waits for signal %.80q twice", name)
		}
	}
	for option, set := range map[string]bool{"AtMostOnce": s.atMostOnce, "Repeatable": s.repeatable, "WaitAtMost": s.waitAtMost > 0,
		"Concurrency": s.concurrency.given, "SameWorkerAs": s.sameWorkerAs != "", "Deadline": s.deadline > 0, "DeadlineAt": s.deadlineAt != nil} {
		if set {
			s.fault("it only waits, so it cannot have the option %s", option)
		}
	}
}

// checkTopic reports contradictions of a step that waits for a topic.
func (s *Step) checkTopic(w *Wait) {
	if w.Topic == "" && w.Key == "" {
		return
	}
	if err := logbook.MaxLimits.CheckName("topic", w.Topic); err != nil {
		s.fault("it waits for topic %.80q: %s", w.Topic, err)
	}
	if w.Key == "" {
		s.fault("it waits for topic %q, but has no key", w.Topic)
	}
	if len(w.Signals) > 0 || w.Approval != nil {
		s.fault("it waits for a topic, and for signals or an approval; make two steps")
	}
	s.checkTemplate("topic key", w.Key)
}

// waitTask is the task of a step that waits. The engine does not call it.
type waitTask struct{}

func (waitTask) Execute(context.Context, *Call) (any, error) {
	return nil, errors.New("internal error: the task of a step that waits was called")
}
