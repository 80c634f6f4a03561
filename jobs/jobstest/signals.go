package jobstest

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var signalRows = []row{
	{"a job keeps signals until a wait takes the oldest", keptSignals},
	{"a wait takes a signal in the entry of the signal, and the job is claimable", takenSignals},
	{"the wait that began first takes a signal", oldestWait},
	{"a wait does not end without the signal that it has taken", lateTimeout},
	{"an open attempt keeps the signal of its wait, also if the owner forgets the wait", forgottenWait},
	{"a finished job accepts no signal, and recognises repeats", signalsAtTheEnd},
	{"signals over the limits are refused", fullOfSignals},
	{"a signal by key reaches the unfinished job, and its repeat never another job", signalsByKey},
	{"a posting with a signal signals the unfinished job of its key, or posts the job with the signal", signalsWithPostings},
	{"of two postings with a signal at once, one posts the job, and the job has both signals", signalsOfTwoPosters},
	{"a step's signals are sent with the record of its success, once", sentSignals},
	{"a publication to one reaches the wait that began first", publishedToOne},
	{"a publication to all reaches every wait of unfinished jobs", publishedToAll},
	{"the next wait takes a kept publication, once", keptPublications},
	{"publications over the limits are refused", invalidPublications},
	{"a step's signal that reaches no job is an event, and the step succeeds", unsentSignals},
}

// signal sends a signal and checks the answer.
func (k *kit) signal(job jobs.JobID, name, id string, want jobs.SignalAnswer) {
	k.Helper()
	receipt, err := k.Board.Signal(k.ctx, job, logbook.Signal{Name: name, ID: id, Data: json.RawMessage(`"` + id + `"`), By: "ann"})
	if err != nil || receipt.Answer != want {
		k.Errorf("Signal %s with id %s: got %+v, %v, want %s", name, id, receipt, err, want)
	}
}

// waitsFor makes an update with which a step waits for a signal.
func waitsFor(claimed jobs.Claimed, sequence uint64, step string, attempt int, signals ...string) logbook.Update {
	u := change(claimed, sequence, logbook.FlowRunning)
	since := time.Unix(1_000_000_000, 0).UTC()
	wait := &logbook.Wait{Signals: signals, Since: since, Until: since.Add(48 * time.Hour)}
	u.Atoms = []logbook.AtomChange{{Name: step, Kind: logbook.KindTask, State: logbook.AtomPending, RetryAt: wait.Until, Attempts: []logbook.Attempt{
		{Action: logbook.ActionExecute, Number: attempt, Token: claimed.Job.Token, StartedAt: since, Asked: 1, Wait: wait},
	}}}
	return u
}

// ends makes an update with which a waiting step succeeds, with a signal or without.
func ends(u logbook.Update, sequence uint64, signal *logbook.Signal) logbook.Update {
	u.Sequence = sequence
	attempt := u.Atoms[0].Attempts[0]
	wait := *attempt.Wait
	wait.Signal = signal
	attempt.Wait, attempt.EndedAt = &wait, wait.Until
	running := u.Atoms[0]
	running.State, running.RetryAt = logbook.AtomRunning, time.Time{}
	ended := running
	ended.State, ended.Attempts = logbook.AtomSuccess, []logbook.Attempt{attempt}
	u.Atoms = []logbook.AtomChange{running, ended}
	return u
}

// taken returns the id of the signal that the latest attempt at a step has taken; empty: none.
func (k *kit) taken(flow logbook.FlowID, step string) string {
	k.Helper()
	for _, atom := range k.flow(flow).Atoms {
		if atom.Name != step {
			continue
		}
		wait := atom.Attempts[len(atom.Attempts)-1].Wait
		switch {
		case wait == nil:
			k.Errorf("step %s does not wait", step)
		case wait.Signal != nil:
			if wait.Number == 0 || wait.Signal.At.IsZero() || !atom.RetryAt.IsZero() && !atom.Attempts[len(atom.Attempts)-1].Ended() {
				k.Errorf("step %s took a signal, and is %s", step, render(atom))
			}
			return wait.Signal.ID
		}
		return ""
	}
	k.Errorf("there is no step %s", step)
	return ""
}

func keptSignals(k *kit) {
	claimed := k.travelling(k.session("worker"), "waits")
	id, flow := claimed.Job.ID, claimed.Job.Flow
	k.signal(id, "paid", "one", jobs.SignalKept)
	k.signal(id, "paid", "two", jobs.SignalKept)
	k.signal(id, "sent", "three", jobs.SignalKept)
	k.signal(id, "paid", "one", jobs.SignalRepeated)
	k.same("unread signals", k.job(id).UnreadSignals, 3)
	first := waitsFor(claimed, 1, "fly", 1, "paid")
	k.wants("Update", k.update(first), nil)
	k.same("the signal of fly", k.taken(flow, "fly"), "one")
	k.same("unread signals", k.job(id).UnreadSignals, 2)
	signal := logbook.Signal{Name: "paid", ID: "one"}
	k.wants("the end of the wait", k.update(ends(first, 2, &signal)), nil)
	k.wants("Update", k.update(waitsFor(claimed, 3, "stay", 1, "sent", "paid")), nil)
	k.same("the signal of stay", k.taken(flow, "stay"), "two")
	late := release(claimed)
	late.Delay = time.Hour
	k.wants("Abandon by an owner that does not know", k.Board.Abandon(k.ctx, late), nil)
	k.stands(id, jobs.StateClaimable)
	events := k.events(jobs.Watch{Job: id, Kinds: []jobs.EventKind{jobs.EventSignalled}}, 5)
	for i, step := range []string{"", "", "", "fly", "stay"} {
		if got := events[i]; got.Token != claimed.Job.Token || (step == "") != (len(got.Steps) == 0) || step != "" && got.Steps[0].Name != step {
			k.Errorf("event %d is %s", i, render(got))
		}
	}
}

func forgottenWait(k *kit) {
	claimed := k.travelling(k.session("worker"), "waits")
	k.signal(claimed.Job.ID, "paid", "one", jobs.SignalKept)
	k.wants("Update", k.update(waitsFor(claimed, 1, "fly", 1, "paid")), nil)
	again := waitsFor(claimed, 2, "fly", 1, "paid")
	again.Atoms[0].Attempts[0].Wait = nil
	k.wants("Update without the wait", k.update(again), nil)
	k.same("the signal of fly", k.taken(claimed.Job.Flow, "fly"), "one")
}

func takenSignals(k *kit) {
	session := k.session("worker")
	claimed := k.travelling(session, "waits")
	id, flow := claimed.Job.ID, claimed.Job.Flow
	k.wants("Update", k.update(waitsFor(claimed, 1, "fly", 1, "paid")), nil)
	k.wants("RetryNow of a step that waits for a signal", k.Board.RetryNow(k.ctx, jobs.JobCommand{Job: id, Step: "fly"}), jobs.ErrConflict)
	ending := release(claimed)
	ending.Delay, ending.Waits = time.Hour, true
	k.wants("Abandon", k.Board.Abandon(k.ctx, ending), nil)
	k.stands(id, jobs.StateWaiting)
	k.signal(id, "sent", "other", jobs.SignalKept)
	k.stands(id, jobs.StateWaiting)
	k.signal(id, "paid", "one", jobs.SignalTaken)
	k.stands(id, jobs.StateClaimable)
	k.same("the signal of fly", k.taken(flow, "fly"), "one")
	k.signal(id, "paid", "two", jobs.SignalKept)
	receipt, err := k.Board.Signal(k.ctx, id, logbook.Signal{Name: "paid", ID: "one"})
	k.wants("Signal, repeated", err, nil)
	k.same("the answer to the repeat", receipt, jobs.SignalReceipt{Answer: jobs.SignalRepeated, First: jobs.SignalTaken, Job: id})
	k.wants("Suspend", k.Board.Suspend(k.ctx, jobs.JobCommand{Job: id}), nil)
	k.signal(id, "paid", "three", jobs.SignalKept)
	k.wants("Resume", k.Board.Resume(k.ctx, jobs.JobCommand{Job: id}), nil)
	if again := k.claim(session, id); again.Job.UnreadSignals != 3 {
		k.Errorf("the next owner gets a job with %d unread signals, want 3", again.Job.UnreadSignals)
	}
}

func oldestWait(k *kit) {
	session := k.session("worker")
	claimed := k.travelling(session, "waits")
	id, flow := claimed.Job.ID, claimed.Job.Flow
	k.wants("Update", k.update(waitsFor(claimed, 1, "stay", 1, "paid")), nil)
	k.wants("Update", k.update(waitsFor(claimed, 2, "fly", 1, "sent", "paid")), nil)
	k.signal(id, "paid", "one", jobs.SignalTaken)
	k.same("the signals", []string{k.taken(flow, "fly"), k.taken(flow, "stay")}, []string{"", "one"})
	k.signal(id, "paid", "two", jobs.SignalTaken)
	k.same("the signals", []string{k.taken(flow, "fly"), k.taken(flow, "stay")}, []string{"two", "one"})
	k.signal(id, "paid", "three", jobs.SignalKept)
}

func lateTimeout(k *kit) {
	claimed := k.travelling(k.session("worker"), "waits")
	id := claimed.Job.ID
	first := waitsFor(claimed, 1, "fly", 1, "paid")
	k.wants("Update", k.update(first), nil)
	k.signal(id, "paid", "one", jobs.SignalTaken)
	k.wants("a timeout after the signal", k.update(ends(first, 2, nil)), logbook.ErrSignalled)
	k.wants("the end with the signal", k.update(ends(first, 2, &logbook.Signal{Name: "paid", ID: "one"})), nil)
	k.signal(id, "paid", "two", jobs.SignalKept)
}

func signalsAtTheEnd(k *kit) {
	session := k.session("worker")
	job := k.post(k.posting("a"))[0]
	k.signal(job.ID, "paid", "one", jobs.SignalKept)
	k.wants("Consume", k.Board.Consume(k.ctx, success(k.claim(session, job.ID))), nil)
	_, err := k.Board.Signal(k.ctx, job.ID, logbook.Signal{Name: "paid", ID: "two"})
	k.wants("Signal to a finished job", err, jobs.ErrJobOver)
	k.signal(job.ID, "paid", "one", jobs.SignalRepeated)
	_, err = k.Board.Signal(k.ctx, jobs.NewJobID(), logbook.Signal{Name: "paid", ID: "two"})
	k.wants("Signal to no job", err, jobs.ErrNotFound)
	if events := k.events(jobs.Watch{Job: job.ID, Kinds: []jobs.EventKind{jobs.EventCompleted}}, 1); events[0].UnreadSignals != 1 {
		k.Errorf("the end is %s, want 1 unread signal", render(events[0]))
	}
	k.same("unread signals", k.job(job.ID).UnreadSignals, 1)
	k.wants("Purge", k.Board.Purge(k.ctx, jobs.JobCommand{Job: job.ID}), nil)
}

func fullOfSignals(k *kit) {
	job := k.post(k.posting("a"))[0]
	long := json.RawMessage(`"` + strings.Repeat("x", logbook.MaxSignalData-2) + `"`)
	send := func(signal logbook.Signal) error {
		_, err := k.Board.Signal(k.ctx, job.ID, signal)
		return err
	}
	k.wantsLimit("Signal with long data", send(logbook.Signal{Name: "paid", ID: "x", Data: append(long, ' ')}), logbook.MaxSignalData, logbook.MaxSignalData+1)
	k.wantsLimit("Signal with a long reject", send(logbook.Signal{Name: "paid", ID: "x", Reject: strings.Repeat("x", logbook.MaxReject+1)}), logbook.MaxReject, logbook.MaxReject+1)
	k.wantsInvalid("Signal without a name", send(logbook.Signal{ID: "x"}))
	k.wantsInvalid("Signal with data and reject", send(logbook.Signal{Name: "paid", ID: "x", Data: long, Reject: "no"}))
	k.wantsInvalid("Signal that is no JSON", send(logbook.Signal{Name: "paid", ID: "x", Data: json.RawMessage("{")}))
	large := long[:len(long)/2] // encryption adds a third
	large[len(large)-1] = '"'
	const most = 2 * jobs.MaxUnreadBytes / logbook.MaxSignalData
	kept := 0
	var err error
	for err == nil && kept <= most {
		if err = send(logbook.Signal{Name: "paid", ID: string(rune('A' + kept)), Data: large}); err == nil {
			kept++
		}
	}
	k.wants("Signal over the limit", err, jobs.ErrSignalsFull)
	if kept < most*2/3 {
		k.Errorf("only %d signals were kept", kept)
	}
	k.wants("Signal within the limit", send(logbook.Signal{Name: "paid", ID: "last", Data: json.RawMessage("1")}), nil)
}
