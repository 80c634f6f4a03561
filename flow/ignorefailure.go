package flow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// failureSuffix is the end of the symbol under which a step with IgnoreFailure provides its failure.
const failureSuffix = ".failure"

// IgnoreFailure lets the flow continue after the step has failed permanently: after all its attempts, or
// after a permanent failure. The step ends in the state failure, with its failure in the record. Later
// steps treat it as done. Retries around the step do not run.
//
// The result of a failed step is the value def, a JSON value or a value that marshals to one. Without
// def, the step has no result: optional arguments are absent. Steps that require its values are
// skipped, and so are the steps that require their values.
//
// Later steps can require the failure under the symbol STEP.failure: an object with the fields kind,
// message, code and details of a logbook.Failure, or null if the step has not failed. Deciders get the
// failure under the same name.
//
// The failure of a decider before the step, and a failure while the flow reverts, are not ignored. When
// the flow reverts later, the step is undone like any other step that has failed.
func IgnoreFailure(def ...any) StepOption {
	return stepOption(func(s *Step) {
		s.ignoresFailure, s.defaultResult = true, nil
		switch {
		case len(def) > 1:
			s.fault("it has %d default results", len(def))
		case len(def) == 1:
			encoded, err := json.Marshal(def[0])
			if err != nil {
				s.fault("its default result: %w", err)
			}
			s.defaultResult = encoded
		}
	})
}

// IgnoresFailure reports whether the step has the option IgnoreFailure.
func (s *Step) IgnoresFailure() bool { return s.ignoresFailure }

// DefaultResult is the result of the step if its failure is ignored; nil: none.
func (s *Step) DefaultResult() json.RawMessage { return s.defaultResult }

// FailureName is the name under which deciders and later steps find the failure of a step.
func FailureName(step string) string { return step + failureSuffix }

// surveyIgnored checks the default result of a step.
func (c *compiler) surveyIgnored(step *Step) {
	if step.defaultResult == nil {
		return
	}
	if err := c.limits.CheckValue("default result", step.defaultResult); err != nil {
		c.fault(ErrInvalid, "step %q: %w", step.name, err)
	}
	var fields logbook.Values
	isObject := json.Unmarshal(step.defaultResult, &fields) == nil && fields != nil
	for _, provision := range step.provides {
		if _, ok := fields[provision.Field]; provision.Field != "" && (!isObject || !ok) {
			c.fault(ErrInvalid, "step %q provides %q, and its default result has no field %q", step.name, provision.Symbol, provision.Field)
		}
	}
}

// checkFailureNames reports steps that are named like the failure of another step: a decider could not
// distinguish them.
func (c *compiler) checkFailureNames() {
	for _, name := range sortedKeys(c.names) {
		if base, ok := strings.CutSuffix(name, failureSuffix); ok && c.ignoring[base] {
			c.fault(ErrDuplicate, "step %q has the name of the failure of step %q", name, base)
		}
	}
}

// Omission is a required value that can be absent because the failure of its provider is ignored and the provider has
// no default result. The step that requires it is then skipped.
type Omission struct{ Step, Symbol, Provider string }

// String describes the omission as a warning.
func (o Omission) String() string {
	return fmt.Sprintf("step %q is skipped if step %q fails, because it requires %q and there is no default result", o.Step, o.Provider, o.Symbol)
}

// Omissions are the required values that can be absent, in the order of the steps. Programs that show a
// plan should warn about them.
func (p *Plan) Omissions() []Omission {
	p = p.Template()
	var omissions []Omission
	for step := range p.steps {
		for _, wire := range slices.Concat(p.wires[step], p.reverts[step]) {
			if wire.From < 0 || wire.Optional || wire.Part != PartWhole || !p.steps[wire.From].ignoresFailure || p.steps[wire.From].defaultResult != nil {
				continue
			}
			found := Omission{Step: p.steps[step].name, Symbol: wire.Symbol, Provider: p.steps[wire.From].name}
			if !slices.Contains(omissions, found) {
				omissions = append(omissions, found)
			}
		}
	}
	return omissions
}
