package fsm

import "fmt"

// fault means that the machine cannot continue: the disk or the stored data is bad, or the program has a defect. The
// package panics with a fault, and caught turns the panic into an error at the boundary of the package. A fault is
// not an error, so the compiler distinguishes it from refusals: every error of a command is an answer to its caller.
//
// Faults as errors were rejected. They passed through three hundred functions that cannot handle them, and looked
// like refusals.
type fault struct{ cause error }

// corrupt makes a fault, for panic.
func corrupt(format string, arguments ...any) *fault {
	return &fault{fmt.Errorf(format, arguments...)}
}

// caught turns a fault into the error of the function that defers caught.
func caught(err *error) {
	switch cause := recover().(type) {
	case nil:
	case *fault:
		*err = fmt.Errorf("the state cannot be trusted: %w", cause.cause)
	default:
		panic(cause)
	}
}
