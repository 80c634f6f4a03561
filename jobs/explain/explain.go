// Package explain explains why a job does not run now. A Situation has all facts that decide
// about the job; Explain finds the first matching cause and a remedy. A board gathers the
// situation in one read, so that its parts agree.
package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/internal/duration"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

// Situation is all data that decides whether a job runs, at one moment.
type Situation struct {
	Job        jobs.Job
	Flow       logbook.FlowState // of its flow; empty if the job is claimable or has none
	Held       bool              // the flow is held: see logbook.FlowDetail.Held
	Lost       bool              // the job cools because its owner was lost
	Awaits     Wait              // the oldest open wait of the waiting, cooling or claimed job
	Now        time.Time
	Paused     *jobs.BoardPause       // of its board; nil: not paused
	Conductors []jobs.Entity          // live conductors
	Claims     map[jobs.SessionID]int // number of claims of each conductor's session
	Drains     map[string]jobs.Drain  // by the names of conductors
	Ahead      int                    // jobs of its board, kind and labels that are claimed before it
	First      jobs.Priority          // priority of the first of these jobs
	// Untaken are the steps of a claimed job that no worker has taken. Workers are the live
	// step workers. Only the leader knows both.
	Untaken []steps.Offer
	Workers []jobs.Entity
	Live    map[jobs.SessionID]steps.Live // state of these workers; without an entry, a worker counts as full
	// Holder is the state of the claim of a claimed job. Only the leader knows it; nil: unknown.
	Holder *jobs.HeldClaim
}

// MaxAhead limits Situation.Ahead: MaxAhead means this number or more.
const MaxAhead = 1_000

// Job returns the single reason why a job does not run now.
func Job(s *Situation) jobs.Explanation {
	e := explanation{jobs.Explanation{Job: s.Job.ID, State: s.Job.State}}
	switch {
	case s.Job.State == jobs.StateCompleted:
		e.finished(s)
	case s.Job.State == jobs.StateTrashed:
		e.trashed(s)
	case s.Job.Claim != nil:
		e.claimed(s)
	case !s.Job.Deadline.IsZero() && !s.Job.Deadline.After(s.Now) && !cancelling(&s.Job):
		e.say(jobs.CauseOverdue, "its deadline passed at %s; the board will cancel it soon", moment(s.Job.Deadline))
	case s.Job.State == jobs.StateClaimable && s.Paused != nil:
		e.boardPaused(s)
	case s.Job.State == jobs.StateClaimable && s.Job.Reserved != nil:
		e.say(jobs.CauseReserved, "it is reserved for conductor %q until %s; then any conductor can claim it", s.Job.Reserved.Conductor, moment(s.Job.Reserved.Until))
		e.Until = s.Job.Reserved.Until
	case s.Job.State == jobs.StateClaimable:
		e.claimable(s)
	default:
		e.kept(s)
	}
	if cancelling(&s.Job) && !s.Job.State.Finished() && s.Job.Claim == nil {
		e.Text += "; the job is being cancelled: the conductor that claims the job reverts its flow"
	}
	return e.Explanation
}

// explanation is an unfinished explanation.
type explanation struct{ jobs.Explanation }

func (e *explanation) say(cause jobs.Cause, format string, args ...any) {
	e.Cause, e.Text = cause, fmt.Sprintf(format, args...)
}

// does is a remedy for the job itself.
func (e *explanation) does(verb jobs.RemedyVerb) jobs.Remedy {
	return jobs.Remedy{Verb: verb, Target: e.Job.String()}
}

// ofFlow is a remedy for the job's flow.
func ofFlow(verb jobs.RemedyVerb, j *jobs.Job) jobs.Remedy {
	return jobs.Remedy{Verb: verb, Target: j.Flow.String()}
}

// repair explains a flow that only an operator can continue, and names the remedy.
func (e *explanation) repair(s *Situation) {
	e.Remedy = ofFlow(jobs.RemedyShowFlow, &s.Job)
	switch {
	case s.Held:
		e.Text += "; its flow is held at a failure: fix the cause before the next step"
	case s.Flow == logbook.FlowFailure:
		e.Text += "; its flow could not be reverted: fix the cause before the next step"
		e.Remedy.Verb = jobs.RemedyRetryRevert
	}
}

// trashed explains a job that no conductor could do.
func (e *explanation) trashed(s *Situation) {
	e.say(jobs.CauseTrashed, "it is in the trash: %s", cmp.Or(s.Job.Reason, "no reason was given"))
	e.Remedy = e.does(jobs.RemedyRetry)
	if f := s.Job.Failure; s.Job.Flow.IsZero() && f != nil && f.Kind == logbook.FailureBuild {
		e.Text += fmt.Sprintf("; a job of kind %q must have a flow, so a retry would also fail", s.Job.Kind)
		e.Remedy = jobs.Remedy{Verb: jobs.RemedyRunFlow}
	}
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
		e.repair(s)
	case s.Job.Outcome == jobs.OutcomeFailed:
		e.Remedy = e.does(jobs.RemedyRetry)
	case s.Job.Outcome == jobs.OutcomeReverted && flow:
		e.Remedy = ofFlow(jobs.RemedyRerunFlow, &s.Job)
	}
}

func (e *explanation) claimed(s *Situation) {
	claim := s.Job.Claim
	e.say(jobs.CauseClaimed, "%s claimed it at %s, with token %s", claim.Owner, moment(claim.Since), claim.Token)
	silent := len(s.Untaken) > 0 && e.untaken(s)
	if what, remedy := s.Awaits.say(s.Job.ID); what != "" {
		e.Text += fmt.Sprintf("; a step waits for %s; %s", what, remedy)
	}
	if s.Job.StopRequest != nil {
		e.Text += fmt.Sprintf("; %s has a request to %s the job", claim.Owner, s.Job.StopRequest.Kind)
		if to := s.Job.StopRequest.To; to != "" {
			e.Text += fmt.Sprintf(" to conductor %q", to)
		}
		if s.Job.StopRequest.Interrupts() {
			e.Text += "; running steps are interrupted, except for those that must finish"
		} else {
			e.Text += " when its running steps have finished"
		}
	}
	if !s.Job.Flow.IsZero() {
		e.Remedy = ofFlow(jobs.RemedyShowFlow, &s.Job)
	}
	if len(s.Untaken) > 0 && (silent || !isLive(s.Workers, s.Untaken[0].Only.Session)) { // if that worker is live, no other may have the step
		first := &s.Untaken[0].Work
		e.Remedy = jobs.Remedy{Verb: jobs.RemedyStartWorker, Target: first.Type, Value: strings.Join(first.Labels, ","), Name: s.Untaken[0].Only.Name}
	}
	if s.Holder != nil && s.Holder.Suspect {
		e.Cause, e.Until, e.Remedy = jobs.CauseSuspect, s.Now.Add(s.Holder.Left), jobs.Remedy{}
		e.Text += fmt.Sprintf("; the owner's session has been silent for %s, and the job becomes claimable soon after %s unless the owner sends a keep-alive",
			s.Holder.Silent.Round(time.Millisecond), moment(e.Until))
	}
}

// untaken names the step that has waited longest for a worker, and the reason. It reports whether a suitable worker
// has free slots: then the worker has probably died, because a worker with free slots takes the step at once.
func (e *explanation) untaken(s *Situation) (silent bool) {
	first := &s.Untaken[0]
	e.Text += fmt.Sprintf("; step %q has waited %s (since %s) for a worker of the type %q", first.Work.Step,
		duration.Text(max(0, s.Now.Sub(first.Since)).Round(time.Second)), moment(first.Since), first.Work.Type)
	if len(first.Work.Labels) > 0 {
		e.Text += " with the labels " + quoted(first.Work.Labels)
	}
	full, only := 0, first.Only
	var free *jobs.Entity
	bound := isLive(s.Workers, only.Session)
	for i := range s.Workers {
		worker := &s.Workers[i]
		wanted := only.Session.IsZero() || worker.Session == only.Session || !bound && worker.Name == only.Name
		if wanted && steps.Suits(worker, s.Job.Board, first.Work.Type, first.Work.Labels) {
			if live, known := s.Live[worker.Session]; known && live.Holds < worker.MaxJobs {
				free = worker
			} else {
				full++
			}
		}
	}
	if !only.Session.IsZero() {
		e.Text += fmt.Sprintf("; same_worker_as binds it to worker %q, session %s", only.Name, only.Session)
	}
	switch {
	case full > 0:
		e.Text += fmt.Sprintf(", and %s", plural(full, "worker is at its limit of steps", "workers are at their limits of steps"))
	case free != nil:
		e.Text += ", and "
	case bound:
		e.Text += ", which is live and does not run this type"
	case !only.Session.IsZero():
		e.Text += ", which has ended; no live worker of this name runs this type"
	default:
		e.Text += ", and no live worker runs it"
	}
	if free != nil {
		if full > 0 {
			e.Text += "; "
		}
		asked := "has not asked for steps since the last change of leader"
		if heard := s.Live[free.Session].Heard; !heard.IsZero() {
			asked = fmt.Sprintf("last asked for steps %s ago", duration.Text(max(0, s.Now.Sub(heard)).Round(time.Second)))
		}
		e.Text += fmt.Sprintf("worker %q has free slots, but %s; if it has died, its session ends soon", free.Name, asked)
	}
	if more := len(s.Untaken) - 1; more > 0 {
		e.Text += fmt.Sprintf("; %s", plural(more, "other step also waits", "other steps also wait"))
	}
	return free != nil
}

// isLive reports whether a worker of a session lives.
func isLive(workers []jobs.Entity, session jobs.SessionID) bool {
	return slices.ContainsFunc(workers, func(worker jobs.Entity) bool { return worker.Session == session })
}

// kept explains a job that waits for a time or for an operator.
func (e *explanation) kept(s *Situation) {
	switch s.Job.State {
	case jobs.StateSuspended:
		e.say(jobs.CauseSuspended, "it is suspended")
		if request := s.Job.StopRequest; request != nil {
			e.Text += fmt.Sprintf(" by %s since %s", cmp.Or(request.By, "an operator"), moment(request.At))
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
		e.say(jobs.CauseHeld, "it was posted with hold, and has not been released yet")
		e.Remedy = e.does(jobs.RemedyRelease)
	case jobs.StateDelayed:
		e.say(jobs.CauseDelayed, "it is not due before %s", moment(s.Job.DueAt))
		e.Until, e.Remedy = s.Job.DueAt, e.does(jobs.RemedyMakeDue)
	case jobs.StateCooling:
		does := "waits"
		if s.Lost {
			does = "cools down"
		}
		e.say(jobs.CauseCooling, "it %s until %s: %s", does, moment(s.Job.DueAt), cmp.Or(s.Job.Reason, "its last owner released it"))
		if e.Until = s.Job.DueAt; !s.Lost {
			e.Remedy = e.does(jobs.RemedyRetryNow)
		}
	case jobs.StateWaiting:
		e.waiting(s)
	}
}

// waiting explains a job whose flow waits. The reason of its last owner contains the end of the wait.
func (e *explanation) waiting(s *Situation) {
	e.Until = s.Job.DueAt
	what, remedy := s.Awaits.say(s.Job.ID)
	switch reason := s.Job.Reason; {
	case what != "":
		e.say(jobs.CauseWaiting, "%s; %s", cmp.Or(reason, "a step waits for "+what), remedy)
		return
	case reason == "":
		e.say(jobs.CauseWaiting, "its flow waits until %s", moment(s.Job.DueAt))
	case strings.HasPrefix(reason, "waits "):
		e.say(jobs.CauseWaiting, "it %s", reason)
	default:
		e.say(jobs.CauseWaiting, "%s", reason)
	}
	e.Remedy = e.does(jobs.RemedyRetryNow)
}

// parked explains a job that its retry policy holds.
func (e *explanation) parked(s *Situation) {
	e.say(jobs.CauseParked, "it was parked at %s: %s", moment(s.Job.ModifiedAt), s.Job.Reason)
	if e.Remedy = e.does(jobs.RemedyRelease); s.Job.Attempted == jobs.OutcomeFailed && !s.Job.Flow.IsZero() {
		e.repair(s)
	}
}

// boardPaused explains a job whose board is paused.
func (e *explanation) boardPaused(s *Situation) {
	e.say(jobs.CauseBoardPaused, "board %q was paused by %s at %s", s.Job.Board, cmp.Or(s.Paused.By, "an operator"), moment(s.Paused.At))
	if s.Paused.Reason != "" {
		e.Text += ": " + s.Paused.Reason
	}
	e.Remedy = jobs.Remedy{Verb: jobs.RemedyResumeBoard, Target: s.Job.Board}
}

// claimable explains a job that is claimable by every conductor for such jobs.
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
			e.Text += "; this check sees your own workers only if they are registered"
		}
		e.Remedy = jobs.Remedy{Verb: jobs.RemedyStart}
	case len(labelled) == 0:
		e.say(jobs.CauseLabels, "%s; the job needs %s", lackText(able, &s.Job), quoted(s.Job.Labels))
		e.Remedy = jobs.Remedy{Verb: jobs.RemedyOfferLabels}
	case len(willing) == 0:
		e.drained(s, labelled)
	case len(free) == 0:
		e.say(jobs.CauseFull, "%s, and %s before this job",
			plural(len(willing), "conductor is at its limit of jobs", "conductors are at their limits of jobs"), ahead(s.Ahead))
		e.Remedy = jobs.Remedy{Verb: jobs.RemedyAddCapacity}
		if s.Ahead > 0 {
			e.goFirst(s)
		}
	case s.Ahead > 0:
		e.say(jobs.CauseBehind, "%s before this job", ahead(s.Ahead))
		e.goFirst(s)
	default:
		e.say(jobs.CauseReady, "it is the next job of its kind: a conductor will claim it soon")
	}
}

// goFirst names the priority that puts a job before all jobs ahead of it.
func (e *explanation) goFirst(s *Situation) {
	first := jobs.VeryHigh
	if s.First >= first {
		if s.First == math.MaxInt32 {
			e.Remedy = jobs.Remedy{} // no priority is higher
			return
		}
		first = s.First + 1
	}
	e.Remedy = e.does(jobs.RemedyReprioritise)
	e.Remedy.Value = first.String()
}

// drained explains a job that only drained conductors could take. It names the conductor that was
// drained last, because an operator most likely wants to undrain this one.
func (e *explanation) drained(s *Situation, able []jobs.Entity) {
	latest := slices.MinFunc(able, func(a, b jobs.Entity) int {
		return cmp.Or(s.Drains[b.Name].At.Compare(s.Drains[a.Name].At), cmp.Compare(a.Name, b.Name))
	})
	drain := s.Drains[latest.Name]
	all := "the only live conductor that could take it is"
	if len(able) > 1 {
		all = fmt.Sprintf("all %d live conductors that could take it are", len(able))
	}
	e.say(jobs.CauseDrained, "%s drained; the last, %s, by %s at %s", all, latest.Name, cmp.Or(drain.By, "an operator"), moment(drain.At))
	if drain.Reason != "" {
		e.Text += ": " + drain.Reason
	}
	e.Remedy = jobs.Remedy{Verb: jobs.RemedyUndrain, Target: latest.Name}
}

// lackText names the conductor that comes closest to the needs of a job.
func lackText(conductors []jobs.Entity, j *jobs.Job) string {
	nearest := slices.MinFunc(conductors, func(a, b jobs.Entity) int {
		return cmp.Or(cmp.Compare(len(a.Lacks(j)), len(b.Lacks(j))), cmp.Compare(a.Name, b.Name))
	})
	return fmt.Sprintf("no live conductor offers all labels of the job (the closest, %s, lacks %s)", nearest.Name, quoted(nearest.Lacks(j)))
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
		return "no job comes"
	case n >= MaxAhead:
		return fmt.Sprintf("at least %d come", n)
	}
	return plural(n, "job comes", "jobs come")
}
