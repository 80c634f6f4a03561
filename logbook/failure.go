package logbook

// Failure is the record of an error: what a person needs to understand it after the process is
// gone. It is matched by Kind, never by text.
type Failure struct {
	// Kind is the registered name of the error's kind, such as
	// "handler.exit" or "timeout". Never empty.
	Kind string `json:"kind"`
	// Message is one sentence for a person.
	Message string `json:"message"`
	// Step is the step that failed, where the failure is of a whole flow.
	Step string `json:"step,omitempty"`
	// Code is an exit status or another number that the kind defines.
	Code int `json:"code,omitempty"`
	// Permanent: another try would fail again, so there is none.
	Permanent bool `json:"permanent,omitempty"`
	// Details are facts that programs can read: at most MaxDetails of them.
	Details Values `json:"details,omitempty"`
	// Stack is the goroutine's stack, where the error was a panic, or what a handler gave as its own.
	Stack string `json:"stack,omitempty"`
	// Causes is the chain below, nearest first.
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

// Origin returns why a flow was reverting when one of its reverts failed permanently: the last cause of
// the revert's failure. Other failures are returned unchanged.
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
	FailureError    = "error"          // a step returned an error of no registered kind
	FailurePanic    = "panic"          // a step panicked; Stack says where
	FailureTimeout  = "timeout"        // the step's time was up
	FailureResult   = "result"         // the step's result is not JSON, or too large
	FailureExit     = "handler.exit"   // a handler ended with a status other than 0; Code is the status
	FailureSignal   = "handler.signal" // a handler was killed by a signal; Code is the signal
	FailureHandler  = "handler"        // a handler could not be found or started
	FailureBuild    = "flow.build"     // the flow cannot be built or compiled
	FailureChanged  = "flow.changed"   // the flow is built otherwise than it was begun, and refuses that
	FailureArgument = "flow.argument"  // an argument of a step cannot be had
	FailureSecret   = "secret"         // a secret that an argument names cannot be had
	// FailureInterrupted: the conductor ended the step, because its work is undone or its flow was
	// suspended. It counts for no retry policy.
	FailureInterrupted = "flow.interrupted"
	FailureWorkerLost  = "worker.lost" // the session of the worker ended, and nobody knows how far the step came
	FailureNoWorker    = "worker.none" // no worker has taken the step in its time, or none can
	FailureCrash       = "crash"       // the conductor died while it held the job
	FailureOperator    = "operator"    // a person has ended it

	// FailureIntervention: interventions in a failed flow cannot be carried out, and none was.
	FailureIntervention = "flow.intervention"

	// FailureAtMostOnce: an at-most-once step was running when its conductor died, so nobody knows
	// whether it has happened; or it has said "not yet", which would start it twice.
	FailureAtMostOnce = "at_most_once"
)

// IsReserved reports whether only a conductor may record a failure of this kind, because decisions about
// steps, flows and jobs depend on it. Where a step says it, the kind becomes FailureError: see Foreign.
func IsReserved(kind string) bool {
	switch kind {
	case FailureBuild, FailureChanged, FailureInterrupted, FailureWorkerLost, FailureNoWorker, FailureCrash,
		FailureOperator, FailureIntervention, FailureAtMostOnce:
		return true
	}
	return false
}

// Foreign copies a failure that comes from outside the conductor: from a step, or from another flow
// through a step. The copy has no reserved kinds. The names of steps move into its messages.
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
