package flow

import "errors"

// Kinds of faults that Compile and Registry report, for errors.Is. Compile joins all faults into
// one error.
var (
	// ErrMissing: a step requires a value that no step provides and that is not an input.
	ErrMissing = errors.New("missing requirement")
	// ErrDuplicate: two steps of one flow have the same name, a flow contains one node twice, or
	// a name is registered twice.
	ErrDuplicate = errors.New("duplicate")
	// ErrCycle: steps wait for each other, or a flow contains itself.
	ErrCycle = errors.New("cycle")
	// ErrAmbiguous: two providers of one name are equally near to a step.
	ErrAmbiguous = errors.New("ambiguous provider")
	// ErrUnknownKind: no factory is registered under the name.
	ErrUnknownKind = errors.New("unknown kind of flow")
	// ErrUnknownNode: a link names a child that its graph does not have.
	ErrUnknownNode = errors.New("unknown node")
	// ErrInvalid: a step or flow contradicts itself; the text says how.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge: more steps or deeper nesting than the limits allow.
	ErrTooLarge = errors.New("flow too large")
	// ErrFactory: a factory has refused its arguments, or panicked.
	ErrFactory = errors.New("cannot build the flow")
)
