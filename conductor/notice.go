package conductor

import (
	"runtime/debug"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Moment is an event of a conductor or of one of its jobs.
type Moment string

// The moments, in the order of a job's states. The last moment of every claimed job is consumed,
// abandoned, trashed or claim lost.
const (
	MomentSessionOpened Moment = "session opened"
	MomentRegistered    Moment = "registered" // the board has registered the conductor
	MomentClaimed       Moment = "claimed"
	MomentStarted       Moment = "started"        // its flow was built and starts in an engine, or its Func is called
	MomentStopRequested Moment = "stop_requested" // the job has a stop request; StopRequest is nil if the request was withdrawn
	MomentFlowEnded     Moment = "flow ended"     // or was suspended, or could not continue: see FlowState and Err
	MomentConsumed      Moment = "consumed"
	MomentAbandoned     Moment = "abandoned"
	MomentTrashed       Moment = "trashed"
	MomentClaimLost     Moment = "claim lost" // the claim is over; another owner may have the job
	MomentSessionLost   Moment = "session lost"

	// Moments of the conductor itself, at any time.

	MomentDrained      Moment = "drained"   // an operator has drained it: the board gives it no jobs; see Drain
	MomentUndrained    Moment = "undrained" // the drain has ended
	MomentPaused       Moment = "paused"    // Pause was called
	MomentUnpaused     Moment = "unpaused"
	MomentLimitReached Moment = "limit reached" // MaxDispatches or MaxDuration is reached: it claims no more jobs
)

// Notice reports one moment.
type Notice struct {
	Moment      Moment
	Session     jobs.SessionID
	Job         jobs.JobID // zero for a moment of the session
	Name        string     // of the job
	Token       jobs.Token
	Claims      int                   // number of claims of the job, including this one
	FlowState   logbook.FlowState     // from MomentFlowEnded on
	Outcome     jobs.Outcome          // MomentConsumed
	StopRequest *jobs.OperatorRequest // MomentStopRequested
	Drain       *jobs.Drain           // MomentDrained
	Err         error                 // the error, if any
}

// notify calls Options.Notify, and recovers a panic in it.
func (o *Options) notify(notice Notice) {
	if o.Notify == nil {
		return
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			o.Logger.Error("notify function panicked", "moment", notice.Moment, "panic", panicked, "stack", string(debug.Stack()))
		}
	}()
	o.Notify(notice)
}

func (w *workLoop) notify(notice Notice) { w.options.notify(notice) }
