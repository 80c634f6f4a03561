package flow

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/conductord/conductord/logbook"
)

// Map makes a flow that calls a function for each element of the list under the symbol over, in
// parallel. It provides the list of results, in the order of the elements, under the symbol to.
// Map is an Each of one step, named like the flow with "-item" appended: each call is retried,
// resumed and recorded separately. Options apply to the step. CallFrom gives access to further
// arguments.
func Map[T, R any](name, over, to string, execute func(ctx context.Context, item T) (R, error), options ...StepOption) *Flow {
	const result = "result" // seen in the instance only
	item := name + "-item"
	var task Task
	if execute != nil {
		task = &mapTask[T, R]{item: item, execute: execute}
	}
	step := NewStep(item, task, append([]StepOption{Requires(item), Provides(result)}, options...)...)
	return Each(name, over, item, step, Gather(result, to))
}

type mapTask[T, R any] struct {
	item    string
	execute func(context.Context, T) (R, error)
}

func (t *mapTask[T, R]) Execute(ctx context.Context, call *Call) (any, error) {
	item, err := decodeItem[T](call.Arguments[t.item])
	if err != nil {
		return nil, err
	}
	return t.execute(WithCall(ctx, call), item)
}

// Reduce makes a step that folds the list under the symbol over, from first to last, and provides
// the result under the symbol to. Each call gets the result of the previous call, or start for the
// first call, and the next element. For an empty list, the result is start.
func Reduce[T, A any](name, over, to string, start A, fold func(ctx context.Context, so A, item T) (A, error), options ...StepOption) *Step {
	var task Task
	if fold != nil {
		task = &reduceTask[T, A]{over: over, start: start, fold: fold}
	}
	return NewStep(name, task, append([]StepOption{Requires(over), Provides(to)}, options...)...)
}

type reduceTask[T, A any] struct {
	over  string
	start A
	fold  func(context.Context, A, T) (A, error)
}

func (t *reduceTask[T, A]) Execute(ctx context.Context, call *Call) (any, error) {
	items, err := decodeItem[[]T](call.Arguments[t.over])
	if err != nil {
		return nil, err
	}
	// A copy, because a call may change it and the next call needs the original.
	so, err := copied(t.start)
	if err != nil {
		return nil, err
	}
	ctx = WithCall(ctx, call)
	for i, item := range items {
		if so, err = t.fold(ctx, so, item); err != nil {
			return nil, fmt.Errorf("at element %d: %w", i, err)
		}
	}
	return so, nil
}

// decodeItem decodes a value. A failure is permanent, because the value stays the same.
func decodeItem[T any](value json.RawMessage) (item T, err error) {
	if err := json.Unmarshal(value, &item); err != nil {
		return item, Permanent(Fail(logbook.FailureArgument, fmt.Errorf("cannot read the element: %w", err)))
	}
	return item, nil
}

func copied[A any](start A) (so A, err error) {
	text, err := json.Marshal(start)
	if err == nil {
		err = json.Unmarshal(text, &so)
	}
	if err != nil {
		return so, Permanent(Fail(logbook.FailureArgument, fmt.Errorf("cannot copy the initial value: %w", err)))
	}
	return so, nil
}
