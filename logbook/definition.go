package logbook

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ChangePolicy is what happens to a flow that has begun when code that builds it differently
// continues it.
type ChangePolicy string

// The policies.
const (
	// ChangeAdopt continues as long as what has begun stays where it was in the flow: steps may be
	// added behind it, and steps that have not begun may change or go. Other changes are refused.
	ChangeAdopt ChangePolicy = "adopt"
	// ChangePin leaves the flow to a conductor that builds it as it was: the job is released.
	ChangePin ChangePolicy = "pin"
	// ChangeRefuse continues only if nothing has changed.
	ChangeRefuse ChangePolicy = "refuse"
)

func (p ChangePolicy) check() error {
	switch p {
	case "", ChangeAdopt, ChangePin, ChangeRefuse:
		return nil
	}
	return &InvalidError{Field: "flow on_change", Reason: fmt.Sprintf("%.64q is none of %s, %s and %s", string(p), ChangeAdopt, ChangePin, ChangeRefuse)}
}

// Definition is the structure of a flow: its steps, and what each one waits for, requires and
// provides.
type Definition struct {
	// Hash covers all steps with their names, versions, Ports and Places. Flows of the same hash
	// are built alike.
	Hash string `json:"hash"`
	// Packed are the steps, as PackSteps returns them. Empty if they were too long to keep: then
	// only the hash shows that something has changed.
	Packed []byte `json:"packed,omitempty"`
}

// DefinedStep is one step of a definition.
type DefinedStep struct {
	Name    string   `json:"n"`
	Kind    AtomKind `json:"k,omitempty"` // empty: KindTask
	Version string   `json:"v,omitempty"`
	// Ports and Place are hashes: of what the step requires and provides, and
	// of what it waits for.
	Ports string `json:"p,omitempty"`
	Place string `json:"w,omitempty"`
	// Provides are the values that the step provides to the whole flow: see FlowDetail.Values.
	Provides []DefinedValue `json:"o,omitempty"`
}

// DefinedValue is a value of a flow and where it comes from.
type DefinedValue struct {
	Symbol string `json:"s"`
	// Beside are earlier steps of the definition that also provide the symbol and may run at the
	// same time as this one: at most MaxBeside, or BesideAny for all earlier ones.
	Beside []string `json:"b,omitempty"`
	DefinedSource
}

// DefinedSource is a part of a step's result.
type DefinedSource struct {
	Step  string `json:"n,omitempty"` // empty: the step that provides the value
	Field string `json:"f,omitempty"` // of the result; empty: all of it
	// Element and Index are for a step of KindEach, within one of its instances: the element of its
	// list, and the place of that element.
	Element bool `json:"e,omitempty"`
	Index   bool `json:"i,omitempty"`
	// Each, of a step of KindEach, is the source in its instances. The value is the list of theirs.
	Each *DefinedSource `json:"l,omitempty"`
}

const (
	// MaxBeside bounds DefinedValue.Beside: with many, all of them together could fill a definition.
	MaxBeside = 8
	// BesideAny stands alone in DefinedValue.Beside. It is no name of a step.
	BesideAny = ""
)

// The first byte of packed steps is their encoding.
const (
	packedPlain    = 'p' // as JSON
	packedDeflated = 'd' // as JSON that is compressed
)

// maxPlain bounds what is not compressed: a compressor takes a megabyte of
// memory, more than everything else of a small flow.
const maxPlain = 8 << 10

// PackSteps compresses the steps of a definition. Only Definition.Steps reads the bytes: they
// may differ from one version of Go to the next.
func PackSteps(steps []DefinedStep) ([]byte, error) {
	text, err := json.Marshal(steps)
	if err != nil {
		return nil, fmt.Errorf("cannot pack a definition: %w", err)
	}
	if len(text) <= maxPlain {
		return append([]byte{packedPlain}, text...), nil
	}
	var packed bytes.Buffer
	packed.WriteByte(packedDeflated)
	// The level is valid, so this cannot fail.
	squeeze, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("cannot pack a definition: %w", err)
	}
	if _, err := squeeze.Write(text); err != nil {
		return nil, fmt.Errorf("cannot pack a definition: %w", err)
	}
	if err := squeeze.Close(); err != nil {
		return nil, fmt.Errorf("cannot pack a definition: %w", err)
	}
	return packed.Bytes(), nil
}

// maxUnpacked bounds the size of an unpacked definition: the longest flow with the longest names.
const maxUnpacked = 16 << 20

// Steps are the steps of the definition, in the order of the flow. ErrInvalid if the bytes were not
// made by PackSteps.
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
		return nil, &InvalidError{Field: "definition steps", Reason: fmt.Sprintf("not packed steps: they begin with %q", how)}
	}
}

// decodeSteps reads one step after the other, so that a text which holds more
// than any flow has is not made into all of them first.
func decodeSteps(text []byte) ([]DefinedStep, error) {
	fault := func(err error) error {
		return &InvalidError{Field: "definition steps", Reason: "not packed steps: " + err.Error()}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if token, err := decoder.Token(); err != nil {
		return nil, fault(err)
	} else if token == nil {
		return nil, nil // as no steps are packed
	} else if token != json.Delim('[') {
		return nil, fault(errors.New("they are no list"))
	}
	steps := []DefinedStep{} // not nil, which means that no steps are kept
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
		return nil, fault(errors.New("more follows behind the list"))
	}
	return steps, nil
}
