package logbook

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ChangePolicy decides whether a started flow continues with a changed definition.
type ChangePolicy string

// The policies.
const (
	// ChangeAdopt adopts a change if every started step keeps its place in the flow. Steps may be
	// added after started steps, and steps that have not started may change or disappear. Other
	// changes are refused.
	ChangeAdopt ChangePolicy = "adopt"
	// ChangePin releases the job, for a conductor that builds the old definition.
	ChangePin ChangePolicy = "pin"
	// ChangeRefuse continues only if nothing has changed.
	ChangeRefuse ChangePolicy = "refuse"
)

func (p ChangePolicy) check() error {
	switch p {
	case "", ChangeAdopt, ChangePin, ChangeRefuse:
		return nil
	}
	return &InvalidError{Field: "flow on_change", Reason: fmt.Sprintf("%.64q is not one of %s, %s and %s", string(p), ChangeAdopt, ChangePin, ChangeRefuse)}
}

// FailurePolicy decides what a flow does after a step has failed permanently.
type FailurePolicy string

// The policies.
const (
	// RevertOnFailure reverts the flow.
	RevertOnFailure FailurePolicy = "revert"
	// HoldOnFailure ends the flow in FlowFailure, reverts nothing, and leaves the rest to an operator.
	HoldOnFailure FailurePolicy = "hold"
)

// FailurePolicies are all policies.
var FailurePolicies = []FailurePolicy{RevertOnFailure, HoldOnFailure}

func (p FailurePolicy) check() error {
	if p == "" || slices.Contains(FailurePolicies, p) {
		return nil
	}
	return &InvalidError{Field: "flow on_failure", Reason: fmt.Sprintf("%.64q is not one of %v", string(p), FailurePolicies)}
}

// Definition is the structure of a flow: its steps with their order, inputs and outputs.
type Definition struct {
	// Hash covers all steps with their names, versions, Ports, Places and NoReturn. Flows with equal hashes
	// have equal definitions.
	Hash string `json:"hash"`
	// Packed are the steps, encoded by PackSteps. Empty if they were too long to keep. Then only
	// the hash shows a change.
	Packed []byte `json:"packed,omitempty"`
}

// DefinedStep is one step of a definition.
type DefinedStep struct {
	Name    string   `json:"n"`
	Kind    AtomKind `json:"k,omitempty"` // empty: KindTask
	Version string   `json:"v,omitempty"`
	// Ports is a hash of the step's inputs and outputs. Place is a hash of the steps for which
	// it waits.
	Ports string `json:"p,omitempty"`
	Place string `json:"w,omitempty"`
	// NoReturn: the step is a point of no return. A change of it alone is always adopted.
	NoReturn bool `json:"r,omitempty"`
	// Finally: the step is a finally step. Ports covers it.
	Finally bool `json:"y,omitempty"`
	// Approves: the step waits for an approval. Ports covers it.
	Approves bool `json:"q,omitempty"`
	// OnError: the step is an on_error step. Ports covers it.
	OnError bool `json:"x,omitempty"`
	// Provides are the values that the step provides to the flow: see FlowDetail.Values.
	Provides []DefinedValue `json:"o,omitempty"`
}

// DefinedValue is a value of a flow with its source.
type DefinedValue struct {
	Symbol string `json:"s"`
	// Beside are earlier steps of the definition that also provide the symbol and may run in
	// parallel with this step: at most MaxBeside, or only BesideAny, for all earlier providers.
	Beside []string `json:"b,omitempty"`
	DefinedSource
}

// DefinedSource is a part of a step's result.
type DefinedSource struct {
	Step  string `json:"n,omitempty"` // empty: the step that provides the value
	Field string `json:"f,omitempty"` // field of the result; empty: the whole result
	// Element and Index are for a step of KindEach. Within an instance, they select the instance's
	// element of the list, or the index of this element.
	Element bool `json:"e,omitempty"`
	Index   bool `json:"i,omitempty"`
	// Each is for a step of KindEach: the source within each instance. The value is the list of the
	// instances' values.
	Each *DefinedSource `json:"l,omitempty"`
	// Else is the source to use if the step was ignored; nil: none.
	Else *DefinedSource `json:"a,omitempty"`
}

const (
	// MaxBeside bounds DefinedValue.Beside, whose size grows with the square of the providers.
	MaxBeside = 8
	// BesideAny is the only element of DefinedValue.Beside if there are more than MaxBeside. No step
	// has this name.
	BesideAny = ""
)

// The first byte of packed steps is their encoding.
const (
	packedPlain    = 'p' // as JSON
	packedDeflated = 'd' // as JSON that is compressed
)

// maxPlain bounds uncompressed steps. A compressor takes a megabyte of memory, more than the
// rest of a small flow.
const maxPlain = 8 << 10

// PackSteps encodes the steps of a definition, for Definition.Steps. The bytes for equal steps can
// differ between versions of Go.
func PackSteps(steps []DefinedStep) ([]byte, error) {
	text, err := json.Marshal(steps)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a definition: %w", err)
	}
	if len(text) <= maxPlain {
		return append([]byte{packedPlain}, text...), nil
	}
	var packed bytes.Buffer
	packed.WriteByte(packedDeflated)
	// The level is valid, so this cannot fail.
	squeeze, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a definition: %w", err)
	}
	if _, err := squeeze.Write(text); err != nil {
		return nil, fmt.Errorf("cannot encode a definition: %w", err)
	}
	if err := squeeze.Close(); err != nil {
		return nil, fmt.Errorf("cannot encode a definition: %w", err)
	}
	return packed.Bytes(), nil
}

// maxUnpacked bounds an unpacked definition. The longest flow with the longest names fits.
const maxUnpacked = 16 << 20

// Steps returns the steps of the definition, in the order of the flow; nil if the steps were too long
// to keep. It returns ErrInvalid or ErrLimit for bytes that PackSteps did not produce.
func (d *Definition) Steps() ([]DefinedStep, error) {
	if len(d.Packed) == 0 {
		return nil, nil
	}
	text, err := unpacked(d.Packed)
	if err != nil {
		return nil, err
	}
	steps, err := decodeSteps(text)
	if err != nil {
		return nil, err
	}
	for i := range steps {
		if steps[i].Kind == "" {
			steps[i].Kind = KindTask
		}
	}
	return steps, nil
}

// Points returns the names of the points of no return; nil if there are none, or if there is no definition
// with steps that can be read.
func (d *Definition) Points() map[string]bool {
	return d.names(func(step *DefinedStep) bool { return step.NoReturn })
}

// Finals returns the names of the finally steps, like Points.
func (d *Definition) Finals() map[string]bool {
	return d.names(func(step *DefinedStep) bool { return step.Finally })
}

// ErrorSteps returns the names of the on_error steps, like Points.
func (d *Definition) ErrorSteps() map[string]bool {
	return d.names(func(step *DefinedStep) bool { return step.OnError })
}

// names returns the names of some steps; nil: none.
func (d *Definition) names(wanted func(step *DefinedStep) bool) (names map[string]bool) {
	if d == nil {
		return nil
	}
	steps, _ := d.Steps()
	for i := range steps {
		if wanted(&steps[i]) {
			if names == nil {
				names = make(map[string]bool)
			}
			names[steps[i].Name] = true
		}
	}
	return names
}

func unpacked(packed []byte) ([]byte, error) {
	switch how, rest := packed[0], packed[1:]; how {
	case packedPlain:
		return rest, nil
	case packedDeflated:
		text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(rest)), maxUnpacked+1))
		if err != nil {
			return nil, &InvalidError{Field: "definition steps", Reason: "not packed steps: " + err.Error()}
		}
		if len(text) > maxUnpacked {
			return nil, &LimitError{Field: "definition steps", Limit: maxUnpacked, Size: int64(len(text)), Unit: "bytes unpacked"}
		}
		return text, nil
	default:
		return nil, &InvalidError{Field: "definition steps", Reason: fmt.Sprintf("not packed steps: they start with %q", how)}
	}
}

// decodeSteps decodes the steps one by one, so that it can refuse a text with too many steps
// before it decodes all of them.
func decodeSteps(text []byte) ([]DefinedStep, error) {
	fault := func(err error) error {
		return &InvalidError{Field: "definition steps", Reason: "not packed steps: " + err.Error()}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if token, err := decoder.Token(); err != nil {
		return nil, fault(err)
	} else if token == nil {
		return nil, nil // encoding of an empty list of steps
	} else if token != json.Delim('[') {
		return nil, fault(errors.New("they are not a list"))
	}
	steps := []DefinedStep{} // not nil, which means that no steps are stored
	for decoder.More() {
		if len(steps) == MaxLimits.Steps {
			return nil, &LimitError{Field: "definition steps", Limit: int64(MaxLimits.Steps), Size: int64(len(steps)) + 1, Unit: "steps"}
		}
		var step DefinedStep
		if err := decoder.Decode(&step); err != nil {
			return nil, fault(err)
		}
		steps = append(steps, step)
	}
	if _, err := decoder.Token(); err != nil {
		return nil, fault(err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fault(errors.New("unexpected data after the list"))
	}
	return steps, nil
}
