package fsm

import "fmt"

// fault says that the machine cannot go on: the disk or the stored data is bad, or the
// program has a defect. A panic with it ends what is being done, and caught makes it an
// error at the boundary of the package. A fault is no error itself, so the compiler keeps
// it apart from refusals: every error that a command returns is an answer to the caller.
//
// Faults as errors were rejected: they passed by hand through three hundred functions
// that cannot do anything about them, and looked like refusals on the way.
type fault struct{ cause error }

// corrupt makes a fault, for panic.
func corrupt(format string, arguments ...any) *fault {
	return &fault{fmt.Errorf(format, arguments...)}
}

// caught makes a fault the error of the function that defers it.
func caught(err *error) {
	switch cause := recover().(type) {
	case nil:
	case *fault:
		*err = fmt.Errorf("the state cannot be trusted: %w", cause.cause)
	default:
		panic(cause)
	}
}
