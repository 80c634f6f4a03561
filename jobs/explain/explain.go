// Package explain says why a job does not run now: from everything that decides about
// it, a Situation, it finds the first cause that holds, and what would help. A board
// gathers the situation in one read, so that its parts agree.
package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
)

// Situation is everything that decides whether a job runs, at one moment.
type Situation struct {
	Job        jobs.Job
	Now        time.Time
	Paused     *jobs.BoardPause       // of its board; nil: it is not paused
	Conductors []jobs.Entity          // the live ones
	Claims     map[jobs.SessionID]int // how many jobs the sessions of these hold
	Drains     map[string]jobs.Drain  // by the names of conductors
	Ahead      int                    // jobs of its board, kind and labels that are claimed before it
	First      jobs.Priority          // of the first of these
	// Untaken are the steps of a claimed job that no worker has taken, and Workers the live
	// ones, as only the leader knows.
	Untaken []steps.Offer
	Workers []jobs.Entity
	// Holder is how the claim of a claimed job stands, as only the leader
	// knows; nil: not known.
	Holder *jobs.HeldClaim
}

// MaxAhead bounds how far Situation.Ahead is counted: that many stand for at
// least so many.
const MaxAhead = 1_000

// Job gives the one reason why a job does not run now.
func Job(s *Situation) jobs.Explanation {
	e := explanation{jobs.Explanation{Job: s.Job.ID, State: s.Job.State}}
	switch {
	case s.Job.State == jobs.StateCompleted:
		e.finished(s)
	case s.Job.State == jobs.StateTrashed:
		e.say(jobs.CauseTrashed, "it was put aside: %s", cmp.Or(s.Job.Reason, "no reason was given"))
		e.Remedy = e.does(jobs.RemedyRetry)
	case s.Job.Claim != nil:
		e.claimed(s)
	case !s.Job.Deadline.IsZero() && !s.Job.Deadline.After(s.Now) && !cancelling(&s.Job):
		e.say(jobs.CauseOverdue, "its deadline, %s, has passed, and the board is about to cancel it", moment(s.Job.Deadline))
	case s.Job.State == jobs.StateClaimable && s.Paused != nil:
		e.boardPaused(s)
	case s.Job.State == jobs.StateClaimable && s.Job.Reserved != nil:
		e.say(jobs.CauseReserved, "it is reserved for conductor %q until %s, and after that anybody can claim it", s.Job.Reserved.Conductor, moment(s.Job.Reserved.Until))
		e.Until = s.Job.Reserved.Until
	case s.Job.State == jobs.StateClaimable:
		e.claimable(s)
	default:
		e.kept(s)
	}
	if cancelling(&s.Job) && !s.Job.State.Finished() && s.Job.Claim == nil {
		e.Text += "; it is being cancelled, and whoever claims it undoes what its flow has done"
	}
	return e.Explanation
}

// explanation is one that is being made.
type explanation struct{ jobs.Explanation }

func (e *explanation) say(cause jobs.Cause, format string, args ...any) {
	e.Cause, e.Text = cause, fmt.Sprintf(format, args...)
}

// does is a remedy that is done to the job.
func (e *explanation) does(verb jobs.RemedyVerb) jobs.Remedy {
	return jobs.Remedy{Verb: verb, Target: e.Job.String()}
}

func showFlow(j *jobs.Job) jobs.Remedy {
	return jobs.Remedy{Verb: jobs.RemedyShowFlow, Target: j.Flow.String()}
}

func cancelling(j *jobs.Job) bool {
	return j.StopRequest != nil && j.StopRequest.Kind == jobs.RequestCancel
}

func moment(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func (e *explanation) finished(s *Situation) {
	e.say(jobs.CauseFinished, "it was completed at %s: %s", moment(s.Job.FinishedAt), s.Job.Outcome)
	if s.Job.Reason != "" {
		e.Text += ", " + s.Job.Reason
	}
	switch flow := !s.Job.Flow.IsZero(); {
	case s.Job.Outcome == jobs.OutcomeFailed && flow:
		e.Text += "; its flow needs a person"
		e.Remedy = showFlow(&s.Job)
	case s.Job.Outcome == jobs.OutcomeFailed:
		e.Remedy = e.does(jobs.RemedyRetry)
	case s.Job.Outcome == jobs.OutcomeReverted && flow:
		e.Remedy = jobs.Remedy{Verb: jobs.RemedyRerunFlow, Target: s.Job.Flow.String()}
	}
}

func (e *explanation) claimed(s *Situation) {
	claim := s.Job.Claim
	e.say(jobs.CauseClaimed, "it has been claimed by %s since %s, under token %s", claim.Owner, moment(claim.Since), claim.Token)
	if len(s.Untaken) > 0 {
		e.untaken(s)
	}
	if s.Job.StopRequest != nil {
		e.Text += fmt.Sprintf("; %s is told to %s it", claim.Owner, s.Job.StopRequest.Kind)
		if to := s.Job.StopRequest.To; to != "" {
			e.Text += fmt.Sprintf(" to conductor %q", to)
		}
		if s.Job.StopRequest.Interrupts() {
			e.Text += "; running steps are interrupted, except for those that must finish"
		} else {
			e.Text += " when its running steps have finished"
		}
	}
	if e.Remedy = e.does(jobs.RemedyCancel); !s.Job.Flow.IsZero() {
		e.Remedy = showFlow(&s.Job)
	}
	if len(s.Untaken) > 0 && !isLive(s.Workers, s.Untaken[0].Only.Session) { // or no other may have it
		first := &s.Untaken[0].Work
		e.Remedy = jobs.Remedy{Verb: jobs.RemedyStartWorker, Target: first.Type, Value: strings.Join(first.Labels, ","), Name: s.Untaken[0].Only.Name}
	}
	if s.Holder != nil && s.Holder.Suspect {
		e.Cause, e.Until, e.Remedy = jobs.CauseSuspect, s.Now.Add(s.Holder.Left), jobs.Remedy{}
		e.Text += fmt.Sprintf(", but the session of its owner has been silent for %s; the job is free again soon after %s unless it is heard before",
			s.Holder.Silent.Round(time.Millisecond), moment(e.Until))
	}
}

// untaken says which step has waited longest for a worker, and why.
func (e *explanation) untaken(s *Situation) {
	first := &s.Untaken[0]
	e.Text += fmt.Sprintf("; step %q has waited for %s, since %s, for a worker that does %q", first.Work.Step,
		max(0, s.Now.Sub(first.Since)).Round(time.Second), moment(first.Since), first.Work.Type)
	if len(first.Work.Labels) > 0 {
		e.Text += " and offers " + quoted(first.Work.Labels)
	}
	able, only := 0, first.Only
	bound := isLive(s.Workers, only.Session)
	for i := range s.Workers {
		worker := &s.Workers[i]
		wanted := only.Session.IsZero() || worker.Session == only.Session || !bound && worker.Name == only.Name
		if wanted && steps.Suits(worker, s.Job.Board, first.Work.Type, first.Work.Labels) {
			able++
		}
	}
	if !only.Session.IsZero() {
		e.Text += fmt.Sprintf("; same_worker_as binds it to worker %q, session %s", only.Name, only.Session)
	}
	switch {
	case able > 0:
		e.Text += fmt.Sprintf(", and %s with all the steps that they do at once", plural(able, "worker is busy", "workers are busy"))
	case bound:
		e.Text += ", which lives and does not do this"
	case !only.Session.IsZero():
		e.Text += ", which has ended, and none of that name that does this is live"
	default:
		e.Text += ", and none is live"
	}
	if more := len(s.Untaken) - 1; more > 0 {
		e.Text += fmt.Sprintf("; so do %s", plural(more, "other step", "other steps"))
	}
}

// isLive reports whether a worker of a session lives.
func isLive(workers []jobs.Entity, session jobs.SessionID) bool {
	return slices.ContainsFunc(workers, func(worker jobs.Entity) bool { return worker.Session == session })
}

// kept explains a job that waits for a time or for a person.
func (e *explanation) kept(s *Situation) {
	switch s.Job.State {
	case jobs.StateSuspended:
		e.say(jobs.CauseSuspended, "it is suspended")
		if request := s.Job.StopRequest; request != nil {
			e.Text += fmt.Sprintf(" by %s since %s", cmp.Or(request.By, "somebody"), moment(request.At))
			if request.Reason != "" {
				e.Text += ": " + request.Reason
			}
		}
		e.Remedy = e.does(jobs.RemedyResume)
	case jobs.StateHeld:
		if s.Job.Parked {
			e.parked(s)
			return
		}
		e.say(jobs.CauseHeld, "it was posted on hold, and nobody has released it")
		e.Remedy = e.does(jobs.RemedyRelease)
	case jobs.StateDelayed:
		e.say(jobs.CauseDelayed, "it is not due before %s", moment(s.Job.DueAt))
		e.Until, e.Remedy = s.Job.DueAt, e.does(jobs.RemedyMakeDue)
	case jobs.StateCooling:
		e.say(jobs.CauseCooling, "it cools until %s: %s", moment(s.Job.DueAt), cmp.Or(s.Job.Reason, "its last owner let go of it"))
		e.Until = s.Job.DueAt
	}
}

// parked explains a job that its retry policy holds.
func (e *explanation) parked(s *Situation) {
	e.say(jobs.CauseParked, "it was parked at %s: %s", moment(s.Job.ModifiedAt), s.Job.Reason)
	if e.Remedy = e.does(jobs.RemedyRelease); s.Job.Attempted == jobs.OutcomeFailed && !s.Job.Flow.IsZero() {
		e.Text += "; its flow is half undone, and needs a person"
		e.Remedy = showFlow(&s.Job)
	}
}

// boardPaused explains a job that nobody can claim for the sake of its board.
func (e *explanation) boardPaused(s *Situation) {
	e.say(jobs.CauseBoardPaused, "board %q was paused by %s at %s", s.Job.Board, cmp.Or(s.Paused.By, "somebody"), moment(s.Paused.At))
	if s.Paused.Reason != "" {
		e.Text += ": " + s.Paused.Reason
	}
	e.Remedy = jobs.Remedy{Verb: jobs.RemedyResumeBoard, Target: s.Job.Board}
}

// claimable explains a job that anybody could claim who takes such jobs.
func (e *explanation) claimable(s *Situation) {
	var able, labelled, willing, free []jobs.Entity
	for _, conductor := range s.Conductors {
		if !conductor.Claims(&s.Job) {
			continue
		}
		able = append(able, conductor)
		if len(conductor.Lacks(&s.Job)) > 0 {
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
		e.say(jobs.CauseNoConductor, "no live conductor takes jobs of kind %q from board %q", s.Job.Kind, s.Job.Board)
		if s.Job.Flow.IsZero() {
			e.Text += "; workers of your own that are not registered are not seen"
		}
		e.Remedy = jobs.Remedy{Verb: jobs.RemedyStart}
	case len(labelled) == 0:
		e.say(jobs.CauseLabels, "%s, and it wants %s", lackText(able, &s.Job), quoted(s.Job.Labels))
		e.Remedy = jobs.Remedy{Verb: jobs.RemedyOfferLabels}
	case len(willing) == 0:
		e.drained(s, labelled)
	case len(free) == 0:
		e.say(jobs.CauseFull, "%s with all the jobs that they take at once, and %s before it",
			plural(len(willing), "conductor is busy", "conductors are busy"), ahead(s.Ahead))
		e.Remedy = jobs.Remedy{Verb: jobs.RemedyAddCapacity}
		if s.Ahead > 0 {
			e.goFirst(s)
		}
	case s.Ahead > 0:
		e.say(jobs.CauseBehind, "%s before it", ahead(s.Ahead))
		e.goFirst(s)
	default:
		e.say(jobs.CauseReady, "nothing is in its way: it is the next of its kind")
	}
}

// goFirst names the priority that puts a job before all that are ahead of it.
func (e *explanation) goFirst(s *Situation) {
	first := jobs.VeryHigh
	if s.First >= first {
		if s.First == math.MaxInt32 {
			e.Remedy = jobs.Remedy{} // nothing is higher
			return
		}
		first = s.First + 1
	}
	e.Remedy = e.does(jobs.RemedyReprioritise)
	e.Remedy.Value = first.String()
}

// drained explains a job that only drained conductors could take. It names the
// one that was drained last, whom it is likeliest to be right to bring back.
func (e *explanation) drained(s *Situation, able []jobs.Entity) {
	latest := slices.MinFunc(able, func(a, b jobs.Entity) int {
		return cmp.Or(s.Drains[b.Name].At.Compare(s.Drains[a.Name].At), cmp.Compare(a.Name, b.Name))
	})
	drain := s.Drains[latest.Name]
	e.say(jobs.CauseDrained, "%s that could take it, and all are drained; the last, %s, by %s at %s",
		plural(len(able), "conductor lives", "conductors live"), latest.Name, cmp.Or(drain.By, "somebody"), moment(drain.At))
	if drain.Reason != "" {
		e.Text += ": " + drain.Reason
	}
	e.Remedy = jobs.Remedy{Verb: jobs.RemedyUndrain, Target: latest.Name}
}

// lackText names the conductor that is nearest to what a job wants.
func lackText(conductors []jobs.Entity, j *jobs.Job) string {
	nearest := slices.MinFunc(conductors, func(a, b jobs.Entity) int {
		return cmp.Or(cmp.Compare(len(a.Lacks(j)), len(b.Lacks(j))), cmp.Compare(a.Name, b.Name))
	})
	return fmt.Sprintf("no live conductor offers all its labels (the nearest, %s, lacks %s)", nearest.Name, quoted(nearest.Lacks(j)))
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
