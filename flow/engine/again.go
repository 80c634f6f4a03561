package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// A step of flow.Again runs no task. Its result is the object of its arguments, so it is recorded and survives a crash
// like every result. At the end of a successful flow, the result gives the store of the next iteration.

// Continuation is the next iteration of a flow that has succeeded.
type Continuation struct {
	Values logbook.Values // replace values of the store, by name
	After  time.Duration  // delay from the end of this iteration
}

// giveValues ends the execution of a step that continues the job. attempt has written its mark.
func (c *core) giveValues(step int, values logbook.Values, now time.Time) {
	said := outcome{step: step, ended: now}
	if why := c.refuseValues(step, values); why != "" {
		said.failure = argumentFailure(why)
	} else if encoded, err := logbook.EncodeJSON(values); err != nil {
		said.failure = argumentFailure(fmt.Sprintf("cannot encode the values of the next iteration: %s", err))
	} else {
		said.result = encoded
	}
	c.finish(said, now)
}

// refuseValues returns why the next iteration cannot have the values; empty: it can. A reference to a secret from the
// result of a step would become trusted, because it would be in the store.
func (c *core) refuseValues(step int, values logbook.Values) string {
	wires := c.plan.Arguments(step)
	for i := range wires {
		wire := c.source(&wires[i])
		if wire.From != flow.FromStore && wire.From != flow.FromStep && holdsReference(values[wires[i].Name]) {
			return fmt.Sprintf("its argument %q has a reference to a secret that does not come from the store", wires[i].Name)
		}
	}
	store := maps.Clone(c.store)
	if store == nil {
		store = logbook.Values{}
	}
	maps.Copy(store, values)
	size, given := 0, 0
	for name, value := range store {
		size += len(name) + len(value)
	}
	for name, value := range values {
		given += len(name) + len(value)
	}
	switch most := maxBytesOf(&c.limits); {
	case given > c.limits.Value:
		return (&logbook.LimitError{Field: "the values for the next iteration", Limit: int64(c.limits.Value), Size: int64(given), Unit: "bytes"}).Error()
	case len(store) > logbook.MaxValues:
		return (&logbook.LimitError{Field: "the store of the next iteration", Limit: logbook.MaxValues, Size: int64(len(store)), Unit: "values"}).Error()
	case size > most:
		return (&logbook.LimitError{Field: "the store of the next iteration", Limit: int64(most), Size: int64(size), Unit: "bytes"}).Error()
	}
	return ""
}

// holdsReference reports whether a value is, or has in it, a reference to a secret.
func holdsReference(value json.RawMessage) bool {
	tree, err := logbook.DecodeJSON(value)
	return err == nil && treeHoldsReference(tree)
}

func treeHoldsReference(value any) bool {
	switch value := value.(type) {
	case []any:
		for i := range value {
			if treeHoldsReference(value[i]) {
				return true
			}
		}
	case map[string]any:
		if _, isName := value[secretKey].(string); isName && len(value) == 1 {
			return true
		}
		for key := range value {
			if treeHoldsReference(value[key]) {
				return true
			}
		}
	}
	return false
}

// continuation is the next iteration of a flow that has succeeded; nil: the flow does not continue. An operator may
// have completed the step with another result than an object: then the store stays as it is.
func (c *core) continuation(now time.Time) *Continuation {
	step, ok := c.plan.Continues()
	if !ok || c.vertices[step].phase != succeeded {
		return nil
	}
	next := &Continuation{After: c.plan.Step(step).NextIteration(now)}
	if json.Unmarshal(c.vertices[step].result, &next.Values) != nil {
		next.Values = nil
	}
	return next
}
