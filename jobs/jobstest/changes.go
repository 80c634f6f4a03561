package jobstest

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
)

var changeRows = []row{
	{"a held job waits until it is released", heldWaits},
	{"a changed priority gives a job its place", priorityChanged},
	{"a changed time delays a job and brings it forward", timeChanged},
	{"a change of a claimed job takes effect after its release", changedWhileClaimed},
	{"changes are all or nothing, and are events", changesAreWhole},
	{"a job is moved to another board", jobMoved},
	{"a job is put to the front", jobFronted},
	{"changes are refused where they make no sense", senselessChanges},
	{"a deadline is put off, taken away and brought forward", deadlineChanged},
	{"a repeated change keeps a later change of another caller", changeRepeated},
	{"an unfinished job is cancelled at its deadline", deadlineCancels},
	{"the owner of a job is notified of its deadline", deadlineTold},
}

// change is a change of a job, as an operator would request it.
func (k *kit) change(change jobs.Change) {
	k.Helper()
	change.By, change.Reason = "ann", "so it is to be"
	for range 2 {
		k.wants("Change", k.Board.Change(k.ctx, change), nil)
	}
}

func priority(p jobs.Priority) *jobs.Priority { return &p }

// stands checks that a job is in a state.
func (k *kit) stands(id jobs.JobID, state jobs.State) jobs.Job {
	k.Helper()
	job := k.job(id)
	if job.State != state {
		k.Errorf("job is %s, want %s", job.State, state)
	}
	return job
}

func heldWaits(k *kit) {
	session := k.session("worker")
	posting := k.posting("a")
	posting.Hold = true
	job := k.post(posting)[0]
	if !k.stands(job.ID, jobs.StateHeld).Held {
		k.Errorf("the job is not held")
	}
	_, err := k.Board.Claim(k.ctx, session, job.ID, jobs.NewNonce())
	k.wants("Claim", err, jobs.ErrUnclaimable)
	k.same("jobs to be had", names(k.next(k.request(session))), []string{})
	k.wants("Suspend", k.Board.Suspend(k.ctx, command(job.ID)), nil)
	k.wants("Resume", k.Board.Resume(k.ctx, command(job.ID)), nil)
	k.stands(job.ID, jobs.StateHeld)
	asleep := k.asleep(session)
	k.linger(session)
	k.change(jobs.Change{Job: job.ID, Release: true})
	if got := k.wakes("ClaimNext", asleep); got.Job.ID != job.ID || got.Job.Held {
		k.Errorf("got %s", render(got.Job))
	}
	if answers, err := k.Board.Post(k.ctx, posting); err != nil || !answers[0].Existed || answers[0].Job.State != jobs.StateClaimed {
		k.Errorf("posted again: %s, %v", render(answers), err)
	}
}

func priorityChanged(k *kit) {
	session := k.session("worker")
	var posted []jobs.Job
	for _, name := range []string{"a", "b", "c", "d"} {
		posted = append(posted, k.posted(name))
	}
	k.change(jobs.Change{Job: posted[3].ID, Priority: priority(jobs.High)})
	k.change(jobs.Change{Job: posted[2].ID, Priority: priority(jobs.High)})
	k.change(jobs.Change{Job: posted[0].ID, Priority: priority(-7)})
	if got := k.job(posted[0].ID).Priority; got != -7 {
		k.Errorf("the priority is %s", got)
	}
	request := k.request(session)
	request.Max = 4
	k.same("order", names(k.next(request)), []string{"c", "d", "b", "a"})
}

func timeChanged(k *kit) {
	session := k.session("worker")
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	job := k.posted("a")
	k.change(jobs.Change{Job: job.ID, NotBefore: later})
	if got := k.stands(job.ID, jobs.StateDelayed); !got.DueAt.Equal(later) || !got.NotBefore.Equal(later) {
		k.Errorf("due %v, not before %v, want %v", got.DueAt, got.NotBefore, later)
	}
	k.same("jobs to be had", names(k.next(k.request(session))), []string{})
	k.wants("Suspend", k.Board.Suspend(k.ctx, command(job.ID)), nil)
	k.change(jobs.Change{Job: job.ID, NotBefore: later.Add(time.Hour)})
	k.wants("Resume", k.Board.Resume(k.ctx, command(job.ID)), nil)
	if got := k.stands(job.ID, jobs.StateDelayed); !got.DueAt.Equal(later.Add(time.Hour)) {
		k.Errorf("due %v, want an hour later than %v", got.DueAt, later)
	}
	asleep := k.asleep(session)
	k.linger(session)
	k.change(jobs.Change{Job: job.ID, NotBefore: time.Now()})
	if got := k.wakes("ClaimNext", asleep); got.Job.ID != job.ID {
		k.Errorf("got %s", render(got.Job))
	}
}

func changedWhileClaimed(k *kit) {
	for how, lose := range k.losses() {
		session := k.doomed(how, "worker")
		claimed := k.owned(session, how)
		later := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		k.change(jobs.Change{Job: claimed.Job.ID, NotBefore: later, Priority: priority(jobs.Low)})
		k.stands(claimed.Job.ID, jobs.StateClaimed)
		lose(session, claimed)
		if got := k.stands(claimed.Job.ID, jobs.StateDelayed); !got.DueAt.Equal(later) || got.Priority != jobs.Low {
			k.Errorf("given back as %s", render(got))
		}
	}
	claimed := k.owned(k.session("worker"), "ends")
	k.change(jobs.Change{Job: claimed.Job.ID, NotBefore: time.Now().Add(time.Hour)})
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
}

func changesAreWhole(k *kit) {
	job := k.posted("a")
	k.wants("Suspend", k.Board.Suspend(k.ctx, command(job.ID)), nil)
	k.change(jobs.Change{Job: job.ID, Priority: priority(jobs.High), NotBefore: time.Now().Add(time.Hour)})
	flow := k.travelling(k.session("worker"), "travel")
	k.begun(flow)
	k.wants("Cancel", k.Board.Cancel(k.ctx, undo(flow.Job.ID)), nil)
	both := jobs.Change{Job: flow.Job.ID, Priority: priority(jobs.High), NotBefore: time.Now().Add(time.Hour)}
	k.wants("Change of when a cancelled job is due", k.Board.Change(k.ctx, both), jobs.ErrConflict)
	if got := k.job(flow.Job.ID).Priority; got != jobs.Normal {
		k.Errorf("half of a refused change was made: %s", got)
	}
	k.change(jobs.Change{Job: flow.Job.ID, Priority: priority(jobs.High)})
	events := k.events(jobs.Watch{Job: job.ID}, 3)
	k.same("events", stories(events), []string{"posted a claimable", "suspended a suspended", "changed a suspended"})
	if last := events[2]; last.Request == nil || last.Request.Kind != jobs.RequestChange || last.Request.By != "ann" || last.Reason != "so it is to be" {
		k.Errorf("the event of the change is %s", render(last))
	}
}

// shortly is the deadline of a job whose expiry a row waits for. It is long enough for
// everything that the row does first.
const shortly = 4 * time.Second

// dueSoon makes a posting whose deadline passes while the row waits.
func (k *kit) dueSoon(name string) jobs.Posting {
	posting := k.posting(name)
	posting.Deadline = time.Now().Add(shortly)
	return posting
}

func deadlineCancels(k *kit) {
	held := k.dueSoon("held")
	held.Hold = true
	for _, job := range k.post(k.dueSoon("waiting"), held) {
		got, err := k.Board.Wait(k.ctx, job.ID)
		k.wants("Wait", err, nil)
		if got.Outcome != jobs.OutcomeCancelled || got.StopRequest == nil || got.StopRequest.By != jobs.ByDeadline || !strings.Contains(got.Reason, "deadline") {
			k.Errorf("ended as %s", render(got))
		}
	}
	k.same("jobs to be had", names(k.next(k.request(k.session("worker")))), []string{})
	late := k.posting("late")
	late.Deadline = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	k.wantsInvalid("a deadline that has passed", k.verdict(late))
	k.relativeDeadlines()
	never := k.dueSoon("never")
	never.NotBefore = never.Deadline
	k.wantsInvalid("a deadline before it is due", k.verdict(never))
}

// relativeDeadlines count from the posting, or from a later start. They have limits, and exclude absolute deadlines.
func (k *kit) relativeDeadlines() {
	later := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	for what, start := range map[string]time.Time{"at once": {}, "later": later} {
		posting := k.posting("relative, " + what)
		posting.DeadlineAfter, posting.NotBefore = 2*time.Hour, start
		job := k.post(posting)[0]
		from := job.PostedAt
		if !start.IsZero() {
			from = start
		}
		if want := from.Add(2 * time.Hour); !job.Deadline.Equal(want) || job.DeadlineAfter != 2*time.Hour {
			k.Errorf("%s: the deadline is %s, want %s", what, job.Deadline, want)
		}
	}
	for what, after := range map[string]time.Duration{"too short": jobs.MinDeadlineAfter - 1, "too long": jobs.MaxDeadlineAfter + 1, "negative": -time.Hour} {
		posting := k.posting(what)
		posting.DeadlineAfter = after
		k.wantsInvalid(what+" a relative deadline", k.verdict(posting))
	}
	both := k.dueSoon("both")
	both.DeadlineAfter = time.Hour
	k.wantsInvalid("two deadlines", k.verdict(both))
}

func deadlineChanged(k *kit) {
	posting := k.posting("a")
	posting.Deadline = time.Now().Add(time.Hour / 2)
	job := k.post(posting)[0]
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	k.change(jobs.Change{Job: job.ID, Deadline: later})
	if got := k.job(job.ID).Deadline; !got.Equal(later) {
		k.Errorf("the deadline is %v, want %v", got, later)
	}
	k.change(jobs.Change{Job: job.ID, NoDeadline: true})
	if got := k.job(job.ID).Deadline; !got.IsZero() {
		k.Errorf("the deadline is %v, want none", got)
	}
	k.wantsInvalid("a deadline that has passed", k.Board.Change(k.ctx, jobs.Change{Job: job.ID, Deadline: job.PostedAt.Add(-time.Hour)}))
	k.change(jobs.Change{Job: job.ID, NotBefore: later})
	k.wantsInvalid("a deadline before it is due", k.Board.Change(k.ctx, jobs.Change{Job: job.ID, Deadline: later}))
	k.wantsInvalid("a deadline and none", k.Board.Change(k.ctx, jobs.Change{Job: job.ID, Deadline: later.Add(time.Hour), NoDeadline: true}))
	forward := time.Now().Add(shortly)
	k.change(jobs.Change{Job: job.ID, NotBefore: forward.Add(-time.Hour), Deadline: forward})
	got, err := k.Board.Wait(k.ctx, job.ID)
	if k.wants("Wait", err, nil); got.Outcome != jobs.OutcomeCancelled || got.StopRequest == nil || got.StopRequest.By != jobs.ByDeadline {
		k.Errorf("ended as %s", render(got))
	}
	k.wants("a deadline of a finished job", k.Board.Change(k.ctx, jobs.Change{Job: job.ID, Deadline: later}), jobs.ErrConflict)
	flow := k.travelling(k.session("worker"), "travel")
	k.begun(flow)
	k.wants("Cancel", k.Board.Cancel(k.ctx, undo(flow.Job.ID)), nil)
	k.wants("a deadline of a cancelled job", k.Board.Change(k.ctx, jobs.Change{Job: flow.Job.ID, Deadline: later}), jobs.ErrConflict)
}

func changeRepeated(k *kit) {
	job := k.posted("a")
	mine := jobs.Change{ID: uuid.New(), Job: job.ID, Priority: priority(jobs.High)}
	k.change(mine)
	k.change(jobs.Change{Job: job.ID, Priority: priority(jobs.Low)})
	k.change(mine)
	if got := k.job(job.ID).Priority; got != jobs.Low {
		k.Errorf("the repeat has made the priority %s", got)
	}
	other := mine
	other.By, other.Reason, other.Priority = "ann", "so it is to be", priority(jobs.VeryHigh)
	k.wants("another change under the id", k.Board.Change(k.ctx, other), jobs.ErrConflict)
	for range jobs.MaxKnownChanges / 2 { // a client can use the other ids too
		k.change(jobs.Change{ID: uuid.New(), Job: job.ID, Priority: priority(jobs.Low)})
	}
	k.change(mine)
	if got := k.job(job.ID).Priority; got != jobs.Low {
		k.Errorf("the repeat has made the priority %s", got)
	}
}

func deadlineTold(k *kit) {
	session := k.session("worker")
	job := k.post(k.dueSoon("slow"))[0]
	claimed := k.claim(session, job.ID)
	events := k.events(jobs.Watch{Job: job.ID}, 3)
	k.same("events", stories(events), []string{"posted slow claimable", "claimed slow claimed", "stop_requested slow claimed"})
	if last := events[2]; last.Owner != "worker" || last.Request == nil || last.Request.By != jobs.ByDeadline || !last.Request.Revert {
		k.Errorf("the owner's event is %s", render(last))
	}
	ending := success(claimed)
	ending.Outcome = jobs.OutcomeCancelled
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
}

func senselessChanges(k *kit) {
	done := k.owned(k.session("worker"), "done")
	k.wants("Consume", k.Board.Consume(k.ctx, success(done)), nil)
	before := k.job(done.Job.ID)
	k.wants("Change of nothing", k.Board.Change(k.ctx, jobs.Change{Job: done.Job.ID}), jobs.ErrInvalid)
	k.wantsInvalid("Change without an id", k.Board.Change(k.ctx, jobs.Change{Release: true}))
	k.wants("Change of no job", k.Board.Change(k.ctx, jobs.Change{Job: jobs.NewJobID(), Release: true}), jobs.ErrNotFound)
	k.wants("Change of a finished job", k.Board.Change(k.ctx, jobs.Change{Job: done.Job.ID, Priority: priority(jobs.High)}), jobs.ErrConflict)
	k.wants("Delay of a finished job", k.Board.Change(k.ctx, jobs.Change{Job: done.Job.ID, NotBefore: time.Now()}), jobs.ErrConflict)
	k.change(jobs.Change{Job: done.Job.ID, Release: true, Priority: priority(done.Job.Priority)})
	long := jobs.Change{Job: done.Job.ID, Release: true, Reason: strings.Repeat("x", jobs.MaxReason+1)}
	k.wantsLimit("Change with a long reason", k.Board.Change(k.ctx, long), jobs.MaxReason, jobs.MaxReason+1)
	named := jobs.Change{Job: done.Job.ID, Release: true, By: fmt.Sprint("a", string(rune(7)))}
	k.wantsInvalid("Change by nobody with a name", k.Board.Change(k.ctx, named))
	k.same("finished job", k.job(done.Job.ID), before)
}

func jobMoved(k *kit) {
	session, to := k.session("worker"), k.board+"/night"
	job, gone := k.posted("a"), k.posted("b")
	k.wants("Change to no board", k.Board.Change(k.ctx, jobs.Change{Job: job.ID, Board: to}), jobs.ErrNotFound)
	k.wants("CreateBoard", k.Board.CreateBoard(k.ctx, to), nil)
	request := k.request(session)
	request.Boards, request.Wait = []string{to}, parked
	asleep := k.park(k.ctx, request)
	k.linger(session)
	k.change(jobs.Change{Job: job.ID, Board: to})
	if got := k.wakes("ClaimNext", asleep); got.Job.ID != job.ID || got.Job.Board != to || got.Job.Sequence != job.Sequence {
		k.Errorf("got %s", render(got.Job))
	}
	k.wants("Change of what is claimed", k.Board.Change(k.ctx, jobs.Change{Job: job.ID, Board: k.board}), jobs.ErrConflict)
	k.same("events here", stories(k.events(jobs.Watch{Board: k.board, Job: job.ID}, 2)), []string{"posted a claimable", "moved_away a claimable"})
	k.same("events there", stories(k.events(jobs.Watch{Board: to}, 2)), []string{"moved a claimable", "claimed a claimed"})
	k.wants("LimitBoard", k.Board.LimitBoard(k.ctx, to, jobs.BoardLimits{Jobs: 1}), nil)
	k.wants("Change to a full board", k.Board.Change(k.ctx, jobs.Change{Job: gone.ID, Board: to}), jobs.ErrLimit)
	k.wants("Cancel", k.Board.Cancel(k.ctx, command(gone.ID)), nil)
	k.wants("Change of a finished job", k.Board.Change(k.ctx, jobs.Change{Job: gone.ID, Board: to}), jobs.ErrConflict)
	if here, there := k.status(), k.statusOf(to); here.Unfinished() != 0 || there.Jobs[jobs.StateClaimed] != 1 || there.Posted.One != 0 {
		k.Errorf("counted %s and %s", render(here), render(there))
	}
}

func jobFronted(k *kit) {
	var posted []jobs.Job
	for _, name := range []string{"a", "b", "c"} {
		posted = append(posted, k.posted(name))
	}
	first := jobs.Change{ID: uuid.New(), Job: posted[1].ID, Front: true}
	k.change(first)
	k.change(jobs.Change{ID: uuid.New(), Job: posted[2].ID, Front: true})
	k.change(first)
	request := k.request(k.session("worker"))
	request.Max = 3
	k.same("order", names(k.next(request)), []string{"c", "b", "a"})
}
