package conductor

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Internals that the tests use.

var SaidOf = saidOf

var (
	ErrHandOver   = errHandOver
	ErrDrained    = errDrained
	ErrPaused     = errPaused
	ErrTimeOver   = errTimeOver
	ErrDoubt      = errDoubt
	ErrClaimLost  = errClaimLost
	ErrClaimEnded = errClaimEnded
	ErrElsewhere  = errElsewhere
)

var CheckDecryptedWork = checkDecryptedWork

func (s standing) String() string {
	return [...]string{"sound", "doubtful", "failing", "lost"}[s]
}

type Attendance struct{ a attendance }

func NewAttendance(ttl time.Duration, sent time.Time) *Attendance {
	return &Attendance{newAttendance(ttl, sent)}
}

func (w *Attendance) Standing(now time.Time) string { return w.a.standing(now).String() }

func (w *Attendance) Acknowledged(sent, now time.Time) { w.a.acknowledged(sent, now) }

func (w *Attendance) Look(now time.Time) (string, bool, time.Time) {
	s, ask, next := w.a.look(now)
	return s.String(), ask, next
}

// Decide returns the verb and the ending for the end of a run.
func Decide(o Options, job jobs.Job, end engine.End, err error) (string, jobs.Ending) {
	o = o.withDefaults()
	d := o.decide(&job, job.Token, result{end: end, err: err})
	return string(d.verb), d.ending
}

// DecideUnder is Decide for a job with a stop request.
func DecideUnder(o Options, job jobs.Job, end engine.End, err error, request *jobs.OperatorRequest) (string, jobs.Ending) {
	o = o.withDefaults()
	d := o.decide(&job, job.Token, result{end: end, err: err, stopRequest: request})
	return string(d.verb), d.ending
}

func DecideUnbuildable(o Options, job jobs.Job, err error) (string, jobs.Ending) {
	o = o.withDefaults()
	d := o.decide(&job, job.Token, unbuildable(err))
	return string(d.verb), d.ending
}

// Journal is the journal of one run.
type Journal struct{ *journal }

func NewJournal(alive context.Context, connection logbook.Connection) Journal {
	return Journal{newJournal(alive, connection, hclog.NewNullLogger())}
}

func (j Journal) Flush(ctx context.Context) { j.flush(ctx) }
func (j Journal) Close()                    { j.close() }

// Untraced makes a run's trace calls for a conductor without a Tracer. It returns false if a call
// changes the context or the engine's options.
func Untraced(ctx context.Context) func() bool {
	r := &run{loop: &workLoop{options: &Options{}}}
	return func() bool {
		same := r.traceRun(ctx) == ctx && r.trace.hook() == nil
		r.trace.end(string(consume), jobs.OutcomeSuccess, nil, false)
		return same
	}
}

// TracedJob returns a context in which the trace of a job starts.
func TracedJob(ctx context.Context, id jobs.JobID) context.Context {
	return context.WithValue(ctx, tracedJob{}, id)
}
