package jobs

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Cause is the one reason why a job does not run now.
type Cause string

// The causes, in the order in which they are looked for: the first that holds
// is the answer.
const (
	CauseFinished    Cause = "finished"     // it has been done, one way or another
	CauseTrashed     Cause = "trashed"      // it was put aside
	CauseClaimed     Cause = "claimed"      // somebody has it: it does run
	CauseSuspect     Cause = "suspect"      // somebody has it whose session is silent
	CauseOverdue     Cause = "overdue"      // its deadline has passed, and it is about to be cancelled
	CauseSuspended   Cause = "suspended"    // a person has stopped it
	CauseParked      Cause = "parked"       // its last attempt has failed, and a person is to say what now
	CauseHeld        Cause = "held"         // nobody has released it yet
	CauseDelayed     Cause = "delayed"      // its time has not come
	CauseCooling     Cause = "cooling"      // it was just let go of
	CauseBoardPaused Cause = "board_paused" // nobody can claim from its board
	CauseNoConductor Cause = "no_conductor" // no live conductor takes its kind from its board
	CauseLabels      Cause = "labels"       // none of those offers all the labels that it wants
	CauseDrained     Cause = "drained"      // all of those are drained
	CauseFull        Cause = "full"         // all of those have as many jobs as they take
	CauseBehind      Cause = "behind"       // others come first
	CauseReady       Cause = "ready"        // nothing: it is about to be claimed
)

// Causes are all causes, in their order.
var Causes = []Cause{
	CauseFinished, CauseTrashed, CauseClaimed, CauseSuspect, CauseOverdue, CauseSuspended, CauseParked, CauseHeld, CauseDelayed, CauseCooling,
	CauseBoardPaused, CauseNoConductor, CauseLabels, CauseDrained, CauseFull, CauseBehind, CauseReady,
}

// Explanation is why a job does not run now, and what would change that.
type Explanation struct {
	Job    JobID
	State  State
	Cause  Cause
	Text   string    // one sentence
	Until  time.Time // when the cause ends by itself, if that is known
	Remedy Remedy    // zero: nothing but to wait
}

// Remedy is what would help a job that does not run. Only the command line
// knows which command that is.
type Remedy struct {
	Verb   RemedyVerb
	Target string // what it is done to, as RemedyVerb says
	Value  string // of RemedyReprioritise: the priority
}

// RemedyVerb is what a remedy does.
type RemedyVerb string

// The verbs, with their targets.
const (
	RemedyRestore      RemedyVerb = "restore_job"       // a job
	RemedyCancel       RemedyVerb = "cancel_job"        // a job
	RemedyResume       RemedyVerb = "resume_job"        // a job
	RemedyRelease      RemedyVerb = "release_job"       // a job
	RemedyMakeDue      RemedyVerb = "make_job_due"      // a job
	RemedyReprioritise RemedyVerb = "reprioritise_job"  // a job
	RemedyShowFlow     RemedyVerb = "show_flow"         // a flow
	RemedyRerunFlow    RemedyVerb = "rerun_flow"        // a flow
	RemedyResumeBoard  RemedyVerb = "resume_board"      // a board
	RemedyUndrain      RemedyVerb = "undrain_conductor" // the name of conductors
	RemedyStart        RemedyVerb = "start_conductor"   // none
	RemedyOfferLabels  RemedyVerb = "offer_labels"      // none
	RemedyAddCapacity  RemedyVerb = "add_capacity"      // none
)

// RemedyVerbs are all verbs.
var RemedyVerbs = []RemedyVerb{
	RemedyRestore, RemedyCancel, RemedyResume, RemedyRelease, RemedyMakeDue, RemedyReprioritise, RemedyShowFlow, RemedyRerunFlow,
	RemedyResumeBoard, RemedyUndrain, RemedyStart, RemedyOfferLabels, RemedyAddCapacity,
}

// Situation is everything that decides whether a job runs, at one moment.
type Situation struct {
	Job        Job
	Now        time.Time
	Paused     *BoardPause       // of its board; nil: it is not paused
	Conductors []Entity          // the live ones
	Claims     map[SessionID]int // how many jobs the sessions of these hold
	Drains     map[string]Drain  // by the names of conductors
	Ahead      int               // jobs of its board, kind and labels that are claimed before it
	First      Priority          // of the first of these
	// Holder is how the claim of a claimed job stands, as only the leader
	// knows; nil: not known.
	Holder *HeldClaim
}

// MaxAhead bounds how far Situation.Ahead is counted: that many stand for at
// least so many.
const MaxAhead = 1_000

// Explain gives the one reason why a job does not run now.
func Explain(s *Situation) Explanation {
	e := Explanation{Job: s.Job.ID, State: s.Job.State}
	switch {
	case s.Job.State == StateCompleted:
		e.finished(s)
	case s.Job.State == StateTrashed:
		e.say(CauseTrashed, "it was put aside: %s", cmp.Or(s.Job.Reason, "no reason was given"))
		e.Remedy = e.does(RemedyRestore)
	case s.Job.Claim != nil:
		e.claimed(s)
	case !s.Job.Deadline.IsZero() && !s.Job.Deadline.After(s.Now) && !cancelling(&s.Job):
		e.say(CauseOverdue, "its deadline, %s, has passed, and the board is about to cancel it", moment(s.Job.Deadline))
	case s.Job.State == StateClaimable && s.Paused != nil:
		e.boardPaused(s)
	case s.Job.State == StateClaimable:
		e.claimable(s)
	default:
		e.kept(s)
	}
	if cancelling(&s.Job) && !s.Job.State.Finished() && s.Job.Claim == nil {
		e.Text += "; it is being cancelled, and whoever claims it undoes what its flow has done"
	}
	return e
}

func (e *Explanation) say(cause Cause, format string, args ...any) {
	e.Cause, e.Text = cause, fmt.Sprintf(format, args...)
}

// does is a remedy that is done to the job.
func (e *Explanation) does(verb RemedyVerb) Remedy { return Remedy{Verb: verb, Target: e.Job.String()} }

func showFlow(j *Job) Remedy { return Remedy{Verb: RemedyShowFlow, Target: j.Flow.String()} }

func cancelling(j *Job) bool { return j.StopRequest != nil && j.StopRequest.Kind == RequestCancel }

func moment(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func (e *Explanation) finished(s *Situation) {
	e.say(CauseFinished, "it was completed at %s: %s", moment(s.Job.FinishedAt), s.Job.Outcome)
	if s.Job.Reason != "" {
		e.Text += ", " + s.Job.Reason
	}
	switch flow := !s.Job.Flow.IsZero(); {
	case s.Job.Outcome == OutcomeFailed && flow:
		e.Text += "; its flow needs a person"
		e.Remedy = showFlow(&s.Job)
	case s.Job.Outcome == OutcomeFailed:
		e.Remedy = e.does(RemedyRestore)
	case s.Job.Outcome == OutcomeReverted && flow:
		e.Remedy = Remedy{Verb: RemedyRerunFlow, Target: s.Job.Flow.String()}
	}
}

func (e *Explanation) claimed(s *Situation) {
	claim := s.Job.Claim
	e.say(CauseClaimed, "%s has it since %s, under token %s", claim.Owner, moment(claim.Since), claim.Token)
	if s.Job.StopRequest != nil {
		e.Text += fmt.Sprintf(", and is told to %s it", s.Job.StopRequest.Kind)
	}
	if e.Remedy = e.does(RemedyCancel); !s.Job.Flow.IsZero() {
		e.Remedy = showFlow(&s.Job)
	}
	if s.Holder != nil && s.Holder.Suspect {
		e.Cause, e.Until, e.Remedy = CauseSuspect, s.Now.Add(s.Holder.Left), Remedy{}
		e.Text += fmt.Sprintf(", but its session has been silent for %s; the job is free again soon after %s unless it is heard before",
			s.Holder.Silent.Round(time.Millisecond), moment(e.Until))
	}
}

// kept explains a job that waits for a time or for a person.
func (e *Explanation) kept(s *Situation) {
	switch s.Job.State {
	case StateSuspended:
		e.say(CauseSuspended, "it is suspended")
		if request := s.Job.StopRequest; request != nil {
			e.Text += fmt.Sprintf(" by %s since %s", cmp.Or(request.By, "somebody"), moment(request.At))
			if request.Reason != "" {
				e.Text += ": " + request.Reason
			}
		}
		e.Remedy = e.does(RemedyResume)
	case StateHeld:
		if s.Job.Parked {
			e.parked(s)
			return
		}
		e.say(CauseHeld, "it was posted on hold, and nobody has released it")
		e.Remedy = e.does(RemedyRelease)
	case StateDelayed:
		e.say(CauseDelayed, "it is not due before %s", moment(s.Job.DueAt))
		e.Until, e.Remedy = s.Job.DueAt, e.does(RemedyMakeDue)
	case StateCooling:
		e.say(CauseCooling, "it cools until %s: %s", moment(s.Job.DueAt), cmp.Or(s.Job.Reason, "its last owner let go of it"))
		e.Until = s.Job.DueAt
	}
}

// parked explains a job that its retry policy holds.
func (e *Explanation) parked(s *Situation) {
	e.say(CauseParked, "it was parked at %s: %s", moment(s.Job.ModifiedAt), s.Job.Reason)
	if e.Remedy = e.does(RemedyRelease); s.Job.Attempted == OutcomeFailed && !s.Job.Flow.IsZero() {
		e.Text += "; its flow is half undone, and needs a person"
		e.Remedy = showFlow(&s.Job)
	}
}

// boardPaused explains a job that nobody can claim for the sake of its board.
func (e *Explanation) boardPaused(s *Situation) {
	e.say(CauseBoardPaused, "board %q was paused by %s at %s", s.Job.Board, cmp.Or(s.Paused.By, "somebody"), moment(s.Paused.At))
	if s.Paused.Reason != "" {
		e.Text += ": " + s.Paused.Reason
	}
	e.Remedy = Remedy{Verb: RemedyResumeBoard, Target: s.Job.Board}
}

// claimable explains a job that anybody could claim who takes such jobs.
func (e *Explanation) claimable(s *Situation) {
	var able, labelled, willing, free []Entity
	for _, conductor := range s.Conductors {
		if !takes(&conductor, &s.Job) {
			continue
		}
		able = append(able, conductor)
		if len(lacking(&conductor, &s.Job)) > 0 {
			continue
		}
		labelled = append(labelled, conductor)
		if _, drained := s.Drains[conductor.Name]; drained {
			continue
		}
		willing = append(willing, conductor)
		if conductor.MaxJobs == 0 || s.Claims[conductor.Session] < conductor.MaxJobs {
			free = append(free, conductor)
		}
	}
	switch {
	case len(able) == 0:
		e.say(CauseNoConductor, "no live conductor takes jobs of kind %q from board %q", s.Job.Kind, s.Job.Board)
		if s.Job.Flow.IsZero() {
			e.Text += "; workers of your own that are not registered are not seen"
		}
		e.Remedy = Remedy{Verb: RemedyStart}
	case len(labelled) == 0:
		e.say(CauseLabels, "%s, and it wants %s", lackText(able, &s.Job), quoted(s.Job.Labels))
		e.Remedy = Remedy{Verb: RemedyOfferLabels}
	case len(willing) == 0:
		e.drained(s, labelled)
	case len(free) == 0:
		e.say(CauseFull, "%s with all the jobs that they take at once, and %s before it",
			plural(len(willing), "conductor is busy", "conductors are busy"), ahead(s.Ahead))
		e.Remedy = Remedy{Verb: RemedyAddCapacity}
		if s.Ahead > 0 {
			e.goFirst(s)
		}
	case s.Ahead > 0:
		e.say(CauseBehind, "%s before it", ahead(s.Ahead))
		e.goFirst(s)
	default:
		e.say(CauseReady, "nothing is in its way: it is the next of its kind")
	}
}

// goFirst names the priority that puts a job before all that are ahead of it.
func (e *Explanation) goFirst(s *Situation) {
	first := VeryHigh
	if s.First >= first {
		if s.First == math.MaxInt32 {
			e.Remedy = Remedy{} // nothing is higher
			return
		}
		first = s.First + 1
	}
	e.Remedy = e.does(RemedyReprioritise)
	e.Remedy.Value = first.String()
}

// drained explains a job that only drained conductors could take. It names the
// one that was drained last, whom it is likeliest to be right to bring back.
func (e *Explanation) drained(s *Situation, able []Entity) {
	latest := slices.MinFunc(able, func(a, b Entity) int {
		return cmp.Or(s.Drains[b.Name].At.Compare(s.Drains[a.Name].At), cmp.Compare(a.Name, b.Name))
	})
	drain := s.Drains[latest.Name]
	e.say(CauseDrained, "%s that could take it, and all are drained; the last, %s, by %s at %s",
		plural(len(able), "conductor lives", "conductors live"), latest.Name, cmp.Or(drain.By, "somebody"), moment(drain.At))
	if drain.Reason != "" {
		e.Text += ": " + drain.Reason
	}
	e.Remedy = Remedy{Verb: RemedyUndrain, Target: latest.Name}
}

// Takes tells whether a conductor claims jobs of this kind from this board, and
// offers all labels that this one wants.
func (e *Entity) Takes(j *Job) bool { return takes(e, j) && len(lacking(e, j)) == 0 }

// takes tells whether a conductor claims jobs of this kind from this board.
func takes(conductor *Entity, j *Job) bool {
	board := slices.Contains(conductor.Boards, j.Board) || (len(conductor.Boards) == 0 && j.Board == DefaultBoard)
	return board && (len(conductor.JobKinds) == 0 || slices.Contains(conductor.JobKinds, j.Kind))
}

// lacking are the labels that a job wants and a conductor does not offer.
func lacking(conductor *Entity, j *Job) []string {
	return slices.DeleteFunc(slices.Clone(j.Labels), func(label string) bool { return slices.Contains(conductor.Labels, label) })
}

// lackText names the conductor that is nearest to what a job wants.
func lackText(conductors []Entity, j *Job) string {
	nearest := slices.MinFunc(conductors, func(a, b Entity) int {
		return cmp.Or(cmp.Compare(len(lacking(&a, j)), len(lacking(&b, j))), cmp.Compare(a.Name, b.Name))
	})
	return fmt.Sprintf("no live conductor offers all its labels (the nearest, %s, lacks %s)", nearest.Name, quoted(lacking(&nearest, j)))
}

func quoted(words []string) string {
	text := make([]string, len(words))
	for i, word := range words {
		text[i] = fmt.Sprintf("%q", word)
	}
	return strings.Join(text, ", ")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func ahead(n int) string {
	switch {
	case n == 0:
		return "none comes"
	case n >= MaxAhead:
		return fmt.Sprintf("at least %d come", n)
	}
	return plural(n, "job comes", "jobs come")
}
