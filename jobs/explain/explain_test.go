package explain_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/explain"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

var (
	explained = jobs.JobID{UUID: logbook.NewBookID().UUID}
	itsFlow   = logbook.NewFlowID()
	noon      = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	sessionA  = jobs.NewSessionID()
	sessionB  = jobs.NewSessionID()
)

// conductors are two conductors that take kind "k" from board "default".
func conductors() []jobs.Entity {
	return []jobs.Entity{
		{Name: "c1", JobKinds: []string{"k"}, Boards: []string{"default"}, MaxJobs: 2, Session: sessionA, Labels: []string{"gpu"}},
		{Name: "c2", JobKinds: []string{"k", "l"}, Boards: []string{"default", "night"}, MaxJobs: 1, Session: sessionB},
	}
}

// TestExplain has a row for each reason.
func TestExplain(t *testing.T) {
	by := func(kind jobs.RequestKind) *jobs.OperatorRequest {
		return &jobs.OperatorRequest{Kind: kind, By: "ann", Reason: "it rains", At: noon}
	}
	rows := []struct {
		name   string
		set    func(*explain.Situation)
		cause  jobs.Cause
		text   string // part of the text
		remedy string // part of the remedy's verb, target and value; ID stands for the job
	}{
		{"done", func(s *explain.Situation) {
			s.Job.State, s.Job.Outcome, s.Job.FinishedAt = jobs.StateCompleted, jobs.OutcomeSuccess, noon
		}, jobs.CauseFinished, "completed at 2030-01-02T12:00:00Z: success", ""},
		{"failed", func(s *explain.Situation) {
			s.Job.State, s.Job.Outcome, s.Job.Reason = jobs.StateCompleted, jobs.OutcomeFailed, "the undo failed"
		}, jobs.CauseFinished, "failed, the undo failed", "show_flow " + itsFlow.String()},
		{"failed, and not reverted", func(s *explain.Situation) {
			s.Job.State, s.Job.Outcome, s.Flow = jobs.StateCompleted, jobs.OutcomeFailed, logbook.FlowFailure
		}, jobs.CauseFinished, "failed; its flow could not be reverted", "retry_revert " + itsFlow.String()},
		{"held at a failure", func(s *explain.Situation) {
			s.Job.State, s.Job.Outcome, s.Flow, s.Held = jobs.StateCompleted, jobs.OutcomeFailed, logbook.FlowFailure, true
			s.Job.Flow = itsFlow
		}, jobs.CauseFinished, "failed; its flow is held at a failure", "show_flow " + itsFlow.String()},
		{"failed, without a flow", func(s *explain.Situation) {
			s.Job.State, s.Job.Outcome, s.Job.Flow = jobs.StateCompleted, jobs.OutcomeFailed, logbook.FlowID{}
		}, jobs.CauseFinished, "failed", "retry_job ID"},
		{"undone", func(s *explain.Situation) { s.Job.State, s.Job.Outcome = jobs.StateCompleted, jobs.OutcomeReverted },
			jobs.CauseFinished, "reverted", "rerun_flow " + itsFlow.String()},
		{"cancelled", func(s *explain.Situation) { s.Job.State, s.Job.Outcome = jobs.StateCompleted, jobs.OutcomeCancelled },
			jobs.CauseFinished, "cancelled", ""},
		{"trashed", func(s *explain.Situation) { s.Job.State, s.Job.Reason = jobs.StateTrashed, "cannot be built" },
			jobs.CauseTrashed, "it is in the trash: cannot be built", "retry_job ID"},
		{"trashed, of a kind that needs a flow", func(s *explain.Situation) {
			s.Job.State, s.Job.Flow, s.Job.Failure = jobs.StateTrashed, logbook.FlowID{}, &logbook.Failure{Kind: logbook.FailureBuild}
		}, jobs.CauseTrashed, `a job of kind "k" must have a flow, so a retry would also fail`, "run_flow"},
		{"claimed", func(s *explain.Situation) {
			s.Job.State, s.Job.Claim = jobs.StateClaimed, &jobs.Claim{Owner: "c1", Token: jobs.Token{Generation: 1, Index: 7}, Since: noon}
		}, jobs.CauseClaimed, "c1 claimed it at 2030-01-02T12:00:00Z, with token 1-7", "show_flow"},
		{"claimed, and a step waits for a signal", func(s *explain.Situation) {
			s.Job.State, s.Job.Claim, s.Awaits = jobs.StateClaimed, &jobs.Claim{Owner: "c1", Since: noon}, explain.Wait{Signal: "paid"}
		}, jobs.CauseClaimed, "a step waits for signal paid; send it with `conductord job signal ", "show_flow"},
		{"claimed under an order", func(s *explain.Situation) {
			s.Job.State, s.Job.Claim, s.Job.StopRequest = jobs.StateClaimed, &jobs.Claim{Owner: "c1"}, by(jobs.RequestCancel)
			s.Job.Flow = logbook.FlowID{}
		}, jobs.CauseClaimed, "; c1 has a request to cancel the job", ""},
		{"held by a silent session", func(s *explain.Situation) {
			s.Job.State, s.Job.Claim = jobs.StateClaimed, &jobs.Claim{Owner: "c1", Token: jobs.Token{Generation: 1, Index: 7}, Since: noon}
			s.Holder = &jobs.HeldClaim{Left: 2 * time.Second, Silent: 3 * time.Second, Suspect: true}
		}, jobs.CauseSuspect, "the owner's session has been silent for 3s, and the job becomes claimable soon after 2030-01-02T12:00:02Z", ""},
		{"overdue", func(s *explain.Situation) { s.Job.Deadline = noon }, jobs.CauseOverdue, "deadline passed at 2030-01-02T12:00:00Z", ""},
		{"to be undone after its deadline", func(s *explain.Situation) {
			s.Job.Deadline, s.Job.StopRequest = noon, by(jobs.RequestCancel)
		}, jobs.CauseReady, "the job is being cancelled: the conductor that claims the job reverts its flow", ""},
		{"suspended", func(s *explain.Situation) {
			s.Job.State, s.Job.StopRequest = jobs.StateSuspended, by(jobs.RequestSuspend)
		},
			jobs.CauseSuspended, "suspended by ann since 2030-01-02T12:00:00Z: it rains", "resume_job ID"},
		{"parked", func(s *explain.Situation) {
			s.Job.State, s.Job.Parked, s.Job.ModifiedAt, s.Job.Reason = jobs.StateHeld, true, noon, "attempt 2 of 2 has failed: snow"
		}, jobs.CauseParked, "parked at 2030-01-02T12:00:00Z: attempt 2 of 2 has failed: snow", "release_job ID"},
		{"parked, and not reverted", func(s *explain.Situation) {
			s.Flow, s.Job.State, s.Job.Parked, s.Job.Attempted, s.Job.Flow = logbook.FlowFailure, jobs.StateHeld, true, jobs.OutcomeFailed, itsFlow
		}, jobs.CauseParked, "its flow could not be reverted", "retry_revert " + itsFlow.String()},
		{"held", func(s *explain.Situation) { s.Job.State = jobs.StateHeld }, jobs.CauseHeld, "posted with hold", "release_job ID"},
		{"delayed", func(s *explain.Situation) { s.Job.State, s.Job.DueAt = jobs.StateDelayed, noon.Add(time.Hour) },
			jobs.CauseDelayed, "not due before 2030-01-02T13:00:00Z", "make_job_due ID"},
		{"cooling", func(s *explain.Situation) {
			s.Job.State, s.Job.DueAt, s.Job.Reason, s.Lost = jobs.StateCooling, noon.Add(time.Hour), "its owner c1 vanished", true
		}, jobs.CauseCooling, "cools down until 2030-01-02T13:00:00Z: its owner c1 vanished", ""},
		{"waits for an attempt of the job", func(s *explain.Situation) {
			s.Job.State, s.Job.DueAt, s.Job.Reason = jobs.StateCooling, noon.Add(time.Hour), "attempt 1 of 2 has failed"
		}, jobs.CauseCooling, "it waits until 2030-01-02T13:00:00Z: attempt 1 of 2 has failed", "retry_now ID"},
		{"waits for an attempt of a step", func(s *explain.Situation) {
			s.Job.State, s.Job.DueAt, s.Job.Reason = jobs.StateWaiting, noon.Add(time.Hour), "waits until 2030-01-02T13:00:00Z to try step pay again"
		}, jobs.CauseWaiting, "it waits until 2030-01-02T13:00:00Z to try step pay again", "retry_now ID"},
		{"sleeps", func(s *explain.Situation) {
			s.Job.State, s.Job.DueAt, s.Job.Reason = jobs.StateWaiting, noon.Add(time.Hour), "step nap sleeps until 2030-01-02T13:00:00Z"
		}, jobs.CauseWaiting, "step nap sleeps until 2030-01-02T13:00:00Z", "retry_now ID"},
		{"waits without a reason", func(s *explain.Situation) {
			s.Job.State, s.Job.DueAt = jobs.StateWaiting, noon.Add(time.Hour)
		}, jobs.CauseWaiting, "its flow waits until 2030-01-02T13:00:00Z", "retry_now ID"},
		{"waits for a topic", func(s *explain.Situation) {
			s.Job.State, s.Job.DueAt, s.Job.Reason, s.Awaits = jobs.StateWaiting, noon.Add(time.Hour), "step pay waits for topic payments, key o'7 since noon", explain.Wait{Board: "mail", Topic: "payments", Key: "o'7"}
		}, jobs.CauseWaiting, `step pay waits for topic payments, key o'7 since noon; publish with ` + "`conductord signal publish payments --key 'o'\\''7' --board mail`", ""},
		{"waits for an approval", func(s *explain.Situation) {
			s.Job.State, s.Job.DueAt, s.Job.Reason = jobs.StateWaiting, noon.Add(time.Hour), "step ask waits for approval by 2 of dba since noon"
			s.Awaits = explain.Wait{Approval: "ask", Missing: []logbook.Need{{Role: "dba", Count: 1}}}
		}, jobs.CauseWaiting, "approval by 2 of dba since noon; missing: 1 of dba; decide with `conductord approval approve ", ""},
		{"waits for a signal", func(s *explain.Situation) {
			s.Job.State, s.Job.DueAt, s.Job.Reason, s.Awaits = jobs.StateWaiting, noon.Add(time.Hour), "step pay waits for signal paid since noon", explain.Wait{Signal: "paid"}
		}, jobs.CauseWaiting, "step pay waits for signal paid since noon; send it with `conductord job signal ", ""},
		{"of a paused board", func(s *explain.Situation) {
			s.Paused, s.Conductors = &jobs.BoardPause{By: "ann", Reason: "it rains", At: noon}, nil
		}, jobs.CauseBoardPaused, `board "default" was paused by ann at 2030-01-02T12:00:00Z: it rains`, "resume_board default"},
		{"of a paused board whose name is no word", func(s *explain.Situation) {
			s.Job.Board, s.Paused = "ann's board", &jobs.BoardPause{At: noon}
		}, jobs.CauseBoardPaused, `board "ann's board" was paused by an operator`, "resume_board ann's board"},
		{"reserved", func(s *explain.Situation) {
			s.Job.Reserved, s.Conductors = &jobs.Reservation{Conductor: "worker-2", Until: noon.Add(time.Minute)}, nil
		}, jobs.CauseReserved, `it is reserved for conductor "worker-2" until 2030-01-02T12:01:00Z`, ""},
		{"claimed, and to be transferred", func(s *explain.Situation) {
			s.Job.State, s.Job.Claim, s.Job.StopRequest = jobs.StateClaimed, &jobs.Claim{Owner: "c1"}, by(jobs.RequestTransfer)
			s.Job.StopRequest.To, s.Job.Flow = "worker-2", logbook.FlowID{}
		}, jobs.CauseClaimed, `has a request to transfer the job to conductor "worker-2"`, ""},
		{"a step waits for a worker", func(s *explain.Situation) { untaken(s, steps.Only{}) },
			jobs.CauseClaimed, `step "cut" has waited 1m (since 2030-01-02T11:59:00Z) for a worker of the type "film" with the labels "gpu", and no live worker runs it`, "start_worker film gpu"},
		{"for the worker of another step", func(s *explain.Situation) {
			untaken(s, steps.Only{Session: sessionA, Name: "w1"}, jobs.Entity{Session: sessionB, Name: "w2", JobKinds: []string{"film"}, Labels: []string{"gpu"}})
		}, jobs.CauseClaimed, `same_worker_as binds it to worker "w1", session ` + sessionA.String() + `, which has ended; no live worker of this name runs this type`, "start_worker film gpu w1"},
		{"that one is busy", func(s *explain.Situation) {
			untaken(s, steps.Only{Session: sessionA, Name: "w1"}, jobs.Entity{Session: sessionA, Name: "w1", JobKinds: []string{"film"}, Labels: []string{"gpu"}})
		}, jobs.CauseClaimed, `, and 1 worker is at its limit of steps`, "show_flow"},
		{"that one has free slots", func(s *explain.Situation) {
			untaken(s, steps.Only{Session: sessionA, Name: "w1"}, jobs.Entity{Session: sessionA, Name: "w1", JobKinds: []string{"film"}, Labels: []string{"gpu"}, MaxJobs: 4})
			s.Live = map[jobs.SessionID]steps.Live{sessionA: {Holds: 3, Heard: noon.Add(-8 * time.Second)}}
		}, jobs.CauseClaimed, `, and worker "w1" has free slots, but last asked for steps 8s ago; if it has died, its session ends soon`, "start_worker film gpu w1"},
		{"one is full, and one has died", func(s *explain.Situation) {
			film := jobs.Entity{Session: sessionA, Name: "w1", JobKinds: []string{"film"}, Labels: []string{"gpu"}, MaxJobs: 4}
			other := film
			other.Session, other.Name = sessionB, "w2"
			untaken(s, steps.Only{}, film, other)
			s.Live = map[jobs.SessionID]steps.Live{sessionA: {Holds: 4, Heard: noon}, sessionB: {}}
		}, jobs.CauseClaimed, `, and 1 worker is at its limit of steps; worker "w2" has free slots, but has not asked for steps since the last change of leader; if it has died`, "start_worker film gpu"},
		{"that one does it no more", func(s *explain.Situation) {
			untaken(s, steps.Only{Session: sessionA, Name: "w1"}, jobs.Entity{Session: sessionA, Name: "w1"}, jobs.Entity{Session: sessionB, Name: "w1", JobKinds: []string{"film"}, Labels: []string{"gpu"}})
		}, jobs.CauseClaimed, `, which is live and does not run this type`, "show_flow"},
		{"another of that name is busy", func(s *explain.Situation) {
			untaken(s, steps.Only{Session: sessionA, Name: "w1"}, jobs.Entity{Session: sessionB, Name: "w1", JobKinds: []string{"film"}, Labels: []string{"gpu"}})
		}, jobs.CauseClaimed, `, and 1 worker is at its limit of steps`, "start_worker film gpu w1"},
		{"delayed on a paused board", func(s *explain.Situation) {
			s.Job.State, s.Job.DueAt, s.Paused = jobs.StateDelayed, noon.Add(time.Hour), &jobs.BoardPause{At: noon}
		}, jobs.CauseDelayed, "not due before", "make_job_due ID"},
		{"no conductor at all", func(s *explain.Situation) { s.Conductors = nil },
			jobs.CauseNoConductor, `no live conductor takes jobs of kind "k" from board "default"`, "start_conductor"},
		{"none of the kind", func(s *explain.Situation) { s.Job.Kind = "m" }, jobs.CauseNoConductor, `kind "m"`, "start_conductor"},
		{"none of the board", func(s *explain.Situation) { s.Job.Board = "night" }, jobs.CauseNoConductor, `board "night"`, "start_conductor"},
		{"workers are not seen", func(s *explain.Situation) { s.Conductors, s.Job.Flow = nil, logbook.FlowID{} },
			jobs.CauseNoConductor, "this check sees your own workers only if they are registered", "start_conductor"},
		{"labels", func(s *explain.Situation) { s.Job.Labels = []string{"big", "gpu"} },
			jobs.CauseLabels, `(the closest, c1, lacks "big"); the job needs "big", "gpu"`, "offer_labels"},
		{"drained", func(s *explain.Situation) {
			s.Drains = map[string]jobs.Drain{"c1": {By: "ann", Reason: "a new kernel", At: noon}, "c2": {By: "bob", At: noon.Add(-time.Hour)}}
			s.Ahead = 3
		}, jobs.CauseDrained, "all 2 live conductors that could take it are drained; the last, c1, by ann at 2030-01-02T12:00:00Z: a new kernel",
			"undrain_conductor c1"},
		{"those with the labels are drained", func(s *explain.Situation) {
			s.Job.Labels, s.Drains = []string{"gpu"}, map[string]jobs.Drain{"c1": {At: noon}}
		}, jobs.CauseDrained, "the only live conductor that could take it is drained; the last, c1, by an operator", "undrain_conductor c1"},
		{"those that are not drained are full", func(s *explain.Situation) {
			s.Drains, s.Claims = map[string]jobs.Drain{"c1": {At: noon}}, map[jobs.SessionID]int{sessionB: 1}
		}, jobs.CauseFull, "1 conductor is at its limit of jobs", "add_capacity"},
		{"one of two is drained", func(s *explain.Situation) {
			s.Drains = map[string]jobs.Drain{"c1": {At: noon}}
		}, jobs.CauseReady, "the next job of its kind", ""},
		{"full", func(s *explain.Situation) { s.Claims = map[jobs.SessionID]int{sessionA: 2, sessionB: 1}; s.Ahead = 1 },
			jobs.CauseFull, "2 conductors are at their limits of jobs, and 1 job comes before this job", "reprioritise_job ID"},
		{"those with the labels are full", func(s *explain.Situation) {
			s.Job.Labels, s.Claims = []string{"gpu"}, map[jobs.SessionID]int{sessionA: 2}
		}, jobs.CauseFull, "1 conductor is at its limit of jobs, and no job comes before this job", "add_capacity"},
		{"behind", func(s *explain.Situation) { s.Ahead = 3 }, jobs.CauseBehind, "3 jobs come before this job", "reprioritise_job ID very-high"},
		{"behind a high one", func(s *explain.Situation) { s.Ahead, s.First = 1, jobs.VeryHigh },
			jobs.CauseBehind, "1 job comes before this job", "reprioritise_job ID 201"},
		{"behind the highest", func(s *explain.Situation) { s.Ahead, s.First = 1, math.MaxInt32 }, jobs.CauseBehind, "1 job comes", ""},
		{"far behind", func(s *explain.Situation) { s.Ahead = explain.MaxAhead }, jobs.CauseBehind, "at least 1000 come before this job", "reprioritise_job ID"},
		{"ready", func(*explain.Situation) {}, jobs.CauseReady, "the next job of its kind", ""},
	}
	seen := map[jobs.Cause]bool{}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := &explain.Situation{Now: noon, Conductors: conductors(), Job: jobs.Job{
				ID: explained, Board: "default", Kind: "k", State: jobs.StateClaimable, Flow: itsFlow,
			}}
			if row.set(s); s.Job.Board == "night" {
				s.Conductors = s.Conductors[:1]
			}
			e := explain.Job(s)
			remedy := strings.ReplaceAll(row.remedy, "ID", explained.String())
			said := strings.Join([]string{string(e.Remedy.Verb), e.Remedy.Target, e.Remedy.Value, e.Remedy.Name}, " ")
			if e.Job != explained || e.State != s.Job.State || e.Cause != row.cause || !strings.Contains(e.Text, row.text) ||
				!strings.Contains(said, remedy) || (remedy == "") != (e.Remedy == jobs.Remedy{}) {
				t.Errorf("explained as %+v", e)
			}
			if strings.Count(e.Text, " until ") > 1 {
				t.Errorf("the text names two times: %s", e.Text)
			}
			if waits := slices.Contains([]jobs.Cause{jobs.CauseDelayed, jobs.CauseCooling, jobs.CauseWaiting, jobs.CauseSuspect, jobs.CauseReserved}, e.Cause); waits != (!e.Until.IsZero()) {
				t.Errorf("until %s", e.Until)
			}
		})
		seen[row.cause] = true
	}
	for _, cause := range jobs.Causes {
		if !seen[cause] {
			t.Errorf("no row explains %s", cause)
		}
	}
}

// untaken lets a claimed job wait for a worker that runs "film" and offers "gpu".
func untaken(s *explain.Situation, only steps.Only, workers ...jobs.Entity) {
	s.Job.State, s.Job.Claim = jobs.StateClaimed, &jobs.Claim{Owner: "c1"}
	s.Untaken = []steps.Offer{{Work: steps.Work{ID: steps.ID{Step: "cut"}, Type: "film", Labels: []string{"gpu"}}, Only: only, Since: noon.Add(-time.Minute)}}
	s.Workers = workers
}
