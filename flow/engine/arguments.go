package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// null is the result of a step that has none.
var null = json.RawMessage("null")

// arguments collects the arguments of an attempt.
func (f *facts) arguments(step int, action logbook.Action) (logbook.Values, *logbook.Failure) {
	wires := f.plan.Arguments(step)
	if action == logbook.ActionRevert {
		wires = f.plan.RevertArguments(step)
	}
	values := make(logbook.Values, len(wires))
	for i := range wires {
		value, ok := f.value(&wires[i])
		if wires[i].From == flow.FromStep {
			value, ok = f.plan.Step(step).Injected(wires[i].Name)
		}
		why := ""
		if ok && wires[i].Path != "" && wires[i].From != flow.FromStep {
			inner, err := f.inner(&wires[i], value)
			if value, ok = inner, err == nil; !ok {
				why = ": " + err.Error()
			}
		}
		if ok {
			values[wires[i].Name] = value
			continue
		}
		if !wires[i].Optional {
			return nil, f.missing(&wires[i], why)
		}
	}
	if action == logbook.ActionExecute {
		if _, err := f.concurrencyKey(step); err != nil {
			return nil, argumentFailure("cannot fill its concurrency key: " + err.Error())
		}
	}
	return values, nil
}

func argumentFailure(message string) *logbook.Failure {
	return &logbook.Failure{Kind: logbook.FailureArgument, Permanent: true, Message: message}
}

// inner is the value at the path of a wire. A path does not lead into a reference to a secret: the
// value of the secret is known only to the attempt.
func (f *facts) inner(wire *flow.Wire, value json.RawMessage) (json.RawMessage, error) {
	wire = f.source(wire)
	if name, is := secretIn(wire, value); is && name != wire.Reference() {
		return nil, fmt.Errorf("there is no %.120q: %.120q is a secret", wire.Reference(), name)
	}
	return flow.Inner(wire.Symbol, value, wire.Path)
}

// secretIn finds a reference to a secret at the path of a wire, or on the way there.
func secretIn(wire *flow.Wire, value json.RawMessage) (name string, found bool) {
	if wire.From != flow.FromStore || !bytes.Contains(value, []byte(`"`+secretKey+`"`)) {
		return "", false
	}
	name = wire.Symbol
	for rest := wire.Path; ; {
		if isReference(value) {
			return name, true
		}
		if rest == "" {
			return "", false
		}
		part, behind, _ := strings.Cut(rest, ".")
		inner, err := flow.Inner(name, value, part)
		if err != nil {
			return "", false
		}
		value, name, rest = inner, name+"."+part, behind
	}
}

// isReference reports whether a value is a reference to a secret.
func isReference(value json.RawMessage) bool {
	var fields map[string]any
	if json.Unmarshal(value, &fields) != nil || len(fields) != 1 {
		return false
	}
	_, is := fields[secretKey].(string)
	return is
}

// missing is the failure of a step without a required argument. why is the reason why the path of the
// argument leads to no value.
func (f *facts) missing(wire *flow.Wire, why string) *logbook.Failure {
	message := fmt.Sprintf("its argument %q has no value", wire.Name) + why
	if skipped := f.plan.SkippedProviders(wire); skipped != "" && f.isSkipped(f.source(wire)) {
		message += ": " + skipped
	}
	return argumentFailure(message)
}

// source returns the source of an argument: the first provider that was not skipped. All
// providers are done before the step starts, so a resumed flow takes the same one.
func (f *facts) source(wire *flow.Wire) *flow.Wire {
	chosen := wire
	for i := 0; i < len(wire.Others) && f.isSkipped(chosen); i++ {
		chosen = &wire.Others[i]
	}
	return chosen
}

// storedInstead returns the arguments that the store supplies because their providers were skipped.
func (f *facts) storedInstead(step int, action logbook.Action) (names []string) {
	wires := f.plan.Arguments(step)
	if action == logbook.ActionRevert {
		wires = f.plan.RevertArguments(step)
	}
	for i := range wires {
		if wire := &wires[i]; len(wire.Others) > 0 && f.source(wire).From == flow.FromStore {
			names = append(names, wire.Name)
		}
	}
	return names
}

// isSkipped reports whether the provider of a source was skipped, or has failed without a default and its
// failure is ignored.
func (f *facts) isSkipped(source *flow.Wire) bool {
	step, ok := source.Provider()
	if ok && source.Late {
		return source.Part != flow.PartFailure && f.vertices[step].result == nil
	}
	return ok && (f.isAbsent(step) || source.Part != flow.PartFailure && f.vertices[step].hasNoDefault())
}

func (f *facts) value(wire *flow.Wire) (json.RawMessage, bool) {
	wire = f.source(wire)
	switch {
	case wire.From == flow.FromNowhere, wire.From == flow.FromStep:
		return nil, false
	case wire.From == flow.FromStore:
		value, ok := f.store[wire.Symbol]
		return value, ok
	}
	if wire.From == flow.FromEach {
		return f.gathered(wire.Gathered)
	}
	v := &f.vertices[wire.From]
	if wire.Late && (wire.Part == flow.PartFailure || v.result == nil) {
		return f.lateFailure(wire)
	}
	if wire.Part == flow.PartFailure {
		return f.ignoredFailure(wire.From), true
	}
	if !wire.Late && v.phase != succeeded && (v.phase != tolerated || v.hasNoDefault()) {
		return nil, false
	}
	if wire.Part != flow.PartWhole {
		return f.part(wire)
	}
	if wire.Field == "" {
		return v.result, true
	}
	// Parsed once: thousands of steps of a wide flow may ask for a field.
	if v.fields == nil {
		v.fields = make(logbook.Values)
		if err := json.Unmarshal(v.result, &v.fields); err != nil || v.fields == nil {
			v.fields = make(logbook.Values)
		}
	}
	value, ok := v.fields[wire.Field]
	return value, ok
}

// missingField is the failure of a step whose result lacks a field that a later step
// requires. The provider is at fault, so it fails before anything uses its result.
func missingField(plan *flow.Plan, step int, result json.RawMessage) *logbook.Failure {
	wanted := plan.Consumed(step)
	if len(wanted) == 0 {
		return nil
	}
	var fields logbook.Values
	if err := json.Unmarshal(result, &fields); err != nil {
		return &logbook.Failure{Kind: logbook.FailureResult,
			Message: fmt.Sprintf("its result must be a JSON object with the field %q", wanted[0])}
	}
	for _, field := range wanted {
		if _, ok := fields[field]; !ok {
			return &logbook.Failure{Kind: logbook.FailureResult, Message: fmt.Sprintf("its result lacks the field %q", field)}
		}
	}
	return nil
}
