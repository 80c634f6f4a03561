package jobstest

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// signalKey sends a signal by key and checks the answer.
func (k *kit) signalKey(key, id string, want jobs.SignalReceipt) {
	k.Helper()
	receipt, err := k.Board.SignalKey(k.ctx, k.board, key, logbook.Signal{Name: "paid", ID: id})
	if err != nil || receipt != want {
		k.Errorf("SignalKey %s with id %s: got %+v, %v, want %+v", key, id, receipt, err, want)
	}
}

func signalsByKey(k *kit) {
	session := k.session("worker")
	_, err := k.Board.SignalKey(k.ctx, k.board, "order 7", logbook.Signal{Name: "paid", ID: "early"})
	k.wants("SignalKey without a job", err, jobs.ErrNotFound)
	first := k.post(k.keyed("first", "order 7"), k.keyed("other", "order 8"))[0]
	k.signalKey("order 7", "one", jobs.SignalReceipt{Answer: jobs.SignalKept, Job: first.ID})
	k.signalKey("order 7", "one", jobs.SignalReceipt{Answer: jobs.SignalRepeated, First: jobs.SignalKept, Job: first.ID})
	k.signal(first.ID, "paid", "one", jobs.SignalRepeated)
	k.signal(first.ID, "paid", "two", jobs.SignalKept)
	k.signalKey("order 7", "two", jobs.SignalReceipt{Answer: jobs.SignalRepeated, First: jobs.SignalKept, Job: first.ID})
	k.same("unread signals", k.job(first.ID).UnreadSignals, 2)
	k.wants("Consume", k.Board.Consume(k.ctx, success(k.claim(session, first.ID))), nil)
	_, err = k.Board.SignalKey(k.ctx, k.board, "order 7", logbook.Signal{Name: "paid", ID: "late"})
	k.wants("SignalKey after the end of the job", err, jobs.ErrNotFound)
	next := k.post(k.keyed("next", "order 7"))[0]
	k.signalKey("order 7", "one", jobs.SignalReceipt{Answer: jobs.SignalRepeated, First: jobs.SignalKept, Job: first.ID})
	k.signalKey("order 7", "late", jobs.SignalReceipt{Answer: jobs.SignalKept, Job: next.ID})
	k.wants("Purge", k.Board.Purge(k.ctx, jobs.JobCommand{Job: first.ID}), nil)
	k.signalKey("order 7", "one", jobs.SignalReceipt{Answer: jobs.SignalKept, Job: next.ID})
	for name, sent := range map[string]jobs.SignalCommand{
		"no key":     {},
		"a long key": {Key: string(make([]byte, 300))},
	} {
		if _, err := k.Board.SignalKey(k.ctx, sent.Board, sent.Key, logbook.Signal{Name: "paid", ID: "x"}); err == nil {
			k.Errorf("SignalKey with %s succeeds", name)
		}
	}
}

// withSignal makes a posting with a key and a signal.
func (k *kit) withSignal(key, id string) jobs.Posting {
	posting := k.keyed("with a signal", key)
	posting.Signal = &logbook.Signal{Name: "paid", ID: id, Data: json.RawMessage("7")}
	return posting
}

// postWithSignal posts with a signal and checks the answer.
func (k *kit) postWithSignal(posting jobs.Posting, existed bool, want jobs.SignalReceipt) {
	k.Helper()
	posted, err := k.Board.Post(k.ctx, posting)
	if err != nil || posted[0].Err != nil || posted[0].Existed != existed || posted[0].Signal != want || posted[0].Job.ID != want.Job {
		k.Errorf("Post with a signal: %s, %v, want %+v", render(posted), err, want)
	}
}

func signalsWithPostings(k *kit) {
	session := k.session("worker")
	first := k.withSignal("order 7", "")
	k.postWithSignal(first, false, jobs.SignalReceipt{Answer: jobs.SignalKept, Job: first.ID})
	k.postWithSignal(first, true, jobs.SignalReceipt{Answer: jobs.SignalRepeated, First: jobs.SignalKept, Job: first.ID})
	k.signalKey("order 7", first.ID.String(), jobs.SignalReceipt{Answer: jobs.SignalRepeated, First: jobs.SignalKept, Job: first.ID})
	second := k.withSignal("order 7", "two")
	second.Priority = jobs.High
	k.postWithSignal(second, true, jobs.SignalReceipt{Answer: jobs.SignalKept, Job: first.ID})
	if job := k.job(first.ID); job.UnreadSignals != 2 || job.Priority != jobs.High {
		k.Errorf("the job has become %s", render(job))
	}
	_, err := k.Board.Job(k.ctx, second.ID)
	k.wants("Job of the second posting", err, jobs.ErrNotFound)
	k.same("events", stories(k.events(jobs.Watch{Job: first.ID}, 3))[:2], []string{"posted with a signal claimable", "signalled with a signal claimable"})
	k.wants("Consume", k.Board.Consume(k.ctx, success(k.claim(session, first.ID))), nil)
	k.postWithSignal(second, true, jobs.SignalReceipt{Answer: jobs.SignalRepeated, First: jobs.SignalKept, Job: first.ID})
	third := k.withSignal("order 7", "three")
	k.postWithSignal(third, false, jobs.SignalReceipt{Answer: jobs.SignalKept, Job: third.ID})
	keyless, long := k.withSignal("", "x"), k.withSignal("order 7", "x")
	long.Signal.Data = json.RawMessage(`"` + string(make([]byte, logbook.MaxSignalData)) + `"`)
	for _, bad := range []jobs.Posting{keyless, long} {
		if posted, err := k.Board.Post(k.ctx, bad); err != nil || posted[0].Err == nil {
			k.Errorf("posted %s, %v", render(posted), err)
		}
	}
}

func signalsOfTwoPosters(k *kit) {
	const posters = 6
	answers, made := make([]jobs.Posted, posters), 0
	var all sync.WaitGroup
	for i := range posters {
		posting := k.withSignal("order 7", "")
		all.Go(func() {
			if posted, err := k.Board.Post(k.ctx, posting); err == nil {
				answers[i] = posted[0]
			}
		})
	}
	all.Wait()
	for _, answer := range answers {
		if answer.Err != nil || answer.Signal.Answer != jobs.SignalKept || answer.Job.ID != answers[0].Job.ID {
			k.Errorf("got %s", render(answer))
		}
		if !answer.Existed {
			made++
		}
	}
	k.same("posted jobs", made, 1)
	k.same("unread signals", k.job(answers[0].Job.ID).UnreadSignals, posters)
}

// succeeds makes an update in which a step starts, succeeds, and sends signals.
func succeeds(claimed jobs.Claimed, sequence uint64, step string, sends ...logbook.Sending) logbook.Update {
	u := change(claimed, sequence, logbook.FlowRunning)
	begun := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, Token: claimed.Job.Token, StartedAt: time.Unix(1_000_000_000, 0).UTC()}
	ended := begun
	ended.EndedAt, ended.Sends = begun.StartedAt, sends
	u.Atoms = []logbook.AtomChange{
		{Name: step, Kind: logbook.KindTask, State: logbook.AtomRunning, Attempts: []logbook.Attempt{begun}},
		{Name: step, State: logbook.AtomSuccess, Attempts: []logbook.Attempt{ended}},
	}
	return u
}

// answersOf returns the answers to the signals that a step has sent.
func (k *kit) answersOf(flow logbook.FlowID, step string) (answers []string) {
	k.Helper()
	for _, atom := range k.flow(flow).Atoms {
		if atom.Name != step {
			continue
		}
		for _, sent := range atom.Attempts[len(atom.Attempts)-1].Sends {
			if sent.Signal.Data != nil {
				k.Errorf("the record has the data of %s", render(sent))
			}
			answers = append(answers, sent.Answer)
		}
	}
	return answers
}

func sentSignals(k *kit) {
	session := k.session("worker")
	target, sender := k.travelling(session, "target"), k.travelling(session, "sender")
	k.wants("Update", k.update(waitsFor(target, 1, "fly", 1, "paid")), nil)
	keyed := k.post(k.keyed("keyed", "order 7"))[0]
	paid := func(id string) *logbook.Signal {
		return &logbook.Signal{Name: "paid", ID: id, Data: json.RawMessage("7")}
	}
	u := succeeds(sender, 1, "fly", logbook.Sending{Job: target.Job.ID.String(), Signal: paid("one")}, logbook.Sending{Key: "order 7", Signal: paid("two")},
		logbook.Sending{Job: sender.Job.ID.String(), Signal: paid("three")})
	k.wants("Update that sends", k.update(u), nil)
	k.wants("Update, repeated", k.update(u), nil)
	k.same("answers", k.answersOf(sender.Job.Flow, "fly"), []string{"taken", "kept", "kept"})
	k.same("the signal of the target", k.taken(target.Job.Flow, "fly"), "one")
	k.same("unread signals", []int{k.job(keyed.ID).UnreadSignals, k.job(sender.Job.ID).UnreadSignals}, []int{1, 1})
	k.wants("Update after it", k.update(waitsFor(sender, 2, "stay", 1, "paid")), nil)
	k.same("the signal of the sender", k.taken(sender.Job.Flow, "stay"), "three")
}

func unsentSignals(k *kit) {
	session := k.session("worker")
	sender := k.travelling(session, "sender")
	over := k.post(k.posting("over"))[0]
	k.wants("Consume", k.Board.Consume(k.ctx, success(k.claim(session, over.ID))), nil)
	paid := &logbook.Signal{Name: "paid", ID: "one"}
	u := succeeds(sender, 1, "fly", logbook.Sending{Job: over.ID.String(), Signal: paid}, logbook.Sending{Key: "nobody", Signal: paid}, logbook.Sending{Job: jobs.NewJobID().String(), Signal: paid})
	k.wants("Update that sends", k.update(u), nil)
	k.same("answers", k.answersOf(sender.Job.Flow, "fly"), []string{"job_over", "not_found", "not_found"})
	for _, event := range k.events(jobs.Watch{Job: sender.Job.ID, Kinds: []jobs.EventKind{jobs.EventUnsent}}, 3) {
		if event.Signal != "paid" || event.Reason == "" || len(event.Steps) != 1 || event.Steps[0].Name != "fly" {
			k.Errorf("the event is %s", render(event))
		}
	}
	many := succeeds(sender, 2, "stay", make([]logbook.Sending, logbook.MaxSends+1)...)
	k.wantsLimit("Update that sends too much", k.update(many), logbook.MaxSends, logbook.MaxSends+1)
	k.wantsInvalid("Update that sends to nobody", k.update(succeeds(sender, 2, "stay", logbook.Sending{Signal: paid})))
}
