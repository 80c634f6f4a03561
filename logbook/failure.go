package logbook

// Failure is the durable record of an error. Match failures by Kind, never by text.
type Failure struct {
	// Kind is the registered name of the error's kind, such as
	// "handler.exit" or "timeout". Never empty.
	Kind string `json:"kind"`
	// Message is one sentence, for display.
	Message string `json:"message"`
	// Step is the failed step, in the failure of a whole flow.
	Step string `json:"step,omitempty"`
	// Code is an exit status or another number that the kind defines.
	Code int `json:"code,omitempty"`
	// Permanent: a retry would fail again, so the failure is not retried.
	Permanent bool `json:"permanent,omitempty"`
	// Details are facts for programs: at most MaxDetails values.
	Details Values `json:"details,omitempty"`
	// Stack is the goroutine's stack after a panic, or the stack that a handler reported.
	Stack string `json:"stack,omitempty"`
	// Causes are the causes of the failure, nearest first.
	Causes []Failure `json:"causes,omitempty"`
}

func (f *Failure) Error() string {
	if f.Step == "" {
		return f.Message
	}
	return "step " + f.Step + ": " + f.Message
}

// Matches reports whether the failure or one of its causes is of the kind.
func (f *Failure) Matches(kind string) bool {
	if f == nil {
		return false
	}
	for i := range f.Causes {
		if f.Causes[i].Matches(kind) {
			return true
		}
	}
	return f.Kind == kind
}

// Origin returns the failure that started the revert of a flow, given the failure of a revert that
// failed permanently. The last cause of such a failure is its origin. Origin returns other failures
// unchanged.
func (f *Failure) Origin() *Failure {
	if f != nil && f.Kind != FailureIntervention && len(f.Causes) > 0 {
		if below := &f.Causes[len(f.Causes)-1]; below.Step != "" || below.Kind == FailureOperator {
			return below
		}
	}
	return f
}

// The kinds of failure that conductord itself records. Programs add their own.
const (
	FailureError      = "error"             // a step returned an error without a registered kind
	FailurePanic      = "panic"             // a step panicked; see Stack
	FailureTimeout    = "timeout"           // the step exceeded its timeout
	FailureResult     = "result"            // the step's result is not JSON, or too large
	FailureExit       = "handler.exit"      // a handler ended with a status other than 0; Code is the status
	FailureSignal     = "handler.signal"    // a handler was killed by a signal; Code is the signal
	FailureHandler    = "handler"           // a handler could not be found or started
	FailureBuild      = "flow.build"        // the flow cannot be built or compiled
	FailureChanged    = "flow.changed"      // the flow's definition changed, and its OnChange does not allow the change
	FailureRejected   = "signal.rejected"   // the awaited signal was a rejection
	FailureApproval   = "approval.rejected" // a person rejected the step's approval, or nobody decided in time
	FailureSignalData = "signal.data"       // the data of a signal have the wrong type
	FailureArgument   = "flow.argument"     // an argument of a step is missing or has the wrong type
	FailureSecret     = "secret"            // a secret that an argument names is not available
	// FailureInterrupted: the conductor ended the step, because its work is reverted or its flow
	// was suspended. No retry policy counts it.
	FailureInterrupted = "flow.interrupted"
	FailureWorkerLost  = "worker.lost" // the session of the worker ended, and the progress of the step is unknown
	FailureNoWorker    = "worker.none" // no worker took the step in time, or no worker can
	FailureCrash       = "crash"       // the conductor died while it had the job
	FailureOperator    = "operator"    // an operator ended the job

	// FailureIntervention: the interventions in a failed flow cannot be performed, so none took
	// effect.
	FailureIntervention = "flow.intervention"

	// FailureAtMostOnce: an at-most-once step was running when its conductor died, so it is unknown
	// whether its work is done; or it returned "not yet", which would start it twice.
	FailureAtMostOnce = "at_most_once"
)

// IsReserved reports whether only a conductor may record failures of this kind. Decisions about
// steps, flows and jobs depend on these kinds. If a step returns such a failure, its kind becomes
// FailureError: see Foreign.
func IsReserved(kind string) bool {
	switch kind {
	case FailureBuild, FailureChanged, FailureInterrupted, FailureWorkerLost, FailureNoWorker, FailureCrash,
		FailureOperator, FailureIntervention, FailureAtMostOnce:
		return true
	}
	return false
}

// Foreign returns a copy of a failure that comes from outside the conductor: from a step, or from
// another flow through a step. In the copy, reserved kinds are FailureError, and the names of steps
// are part of the messages.
func (f *Failure) Foreign() *Failure {
	if f == nil {
		return nil
	}
	own := *f
	if own.Message, own.Step = f.Error(), ""; own.Kind == "" || IsReserved(own.Kind) {
		own.Kind = FailureError
	}
	own.Causes = nil
	for i := range f.Causes {
		own.Causes = append(own.Causes, *f.Causes[i].Foreign())
	}
	return &own
}
