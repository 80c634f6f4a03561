package steptest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const (
	// stopTime limits the time in which a worker must stop an attempt.
	stopTime = 10 * time.Second
	// forEver is the sleep in seconds of a step that must be stopped. It is longer than stopTime,
	// and short enough to continue the tests if the worker ignores the stop.
	forEver = 20
	// shortly is the sleep in seconds of a step that is disturbed while it runs.
	shortly = 2
	// mostSlots is the maximum number of slots that the test fills. For a worker with more slots,
	// only the upper limit is tested.
	mostSlots = 16
	// quiet is the time for which the test checks that something does not happen.
	quiet = 500 * time.Millisecond
)

// sleeping posts a step that sleeps, and waits until the worker has it. A limit of 0 means none.
func (t *trial) sleeping(seconds int, limit time.Duration) (jobs.Job, attemptSeen) {
	before := len(t.tap.seen(typeSleep))
	p := only(typeSleep, 1, fmt.Sprintf(`{"seconds": %d}`, seconds))
	p.Steps[0].Timeout = limit
	job := t.post(p)
	t.until(t.ctx, "that the worker takes the step", func() bool { return len(t.tap.seen(typeSleep)) > before })
	return job, t.tap.seen(typeSleep)[before]
}

// slept checks the result of a step that slept for shortly.
func (t *trial) slept(atom *logbook.AtomDetail, attempt int) {
	t.result(atom, fmt.Sprintf(`{"slept": %d, "attempt": %d}`, shortly, attempt))
}

// stops checks that the worker reports the end of an attempt in time.
func (t *trial) stops(attempt attemptSeen, told time.Time) {
	ctx, cancel := context.WithDeadlineCause(t.ctx, told.Add(stopTime), fmt.Errorf("%s are over", stopTime))
	defer cancel()
	t.until(ctx, "a report of the end of the attempt within "+stopTime.String(), func() bool { return t.tap.ended(attempt.id) })
}

// testRetry changes the report of the first attempt into a failure on its way to the node, although
// the worker has reported a result.
func testRetry(t *trial) {
	var first []byte
	t.tap.interfere(nil, func(o *v1.StepOutcome) (lose bool) {
		if o.GetResult() != nil && o.GetId().GetAttempt() == 1 {
			first = slices.Clone(o.GetResult().GetJson())
			o.Result, o.Failure = nil, &v1.Failure{Kind: "test.retry", Message: "the test makes this attempt fail"}
		}
		return false
	})
	defer t.tap.interfere(nil, nil)
	second := executed(t.do(typeEcho, 2, `{"same": "in both"}`)).Result
	t.tap.interfere(nil, nil)
	var results [2]struct {
		Attempt int
		Key     string
	}
	t.holds(json.Unmarshal(first, &results[0]) == nil && json.Unmarshal(second, &results[1]) == nil,
		"two results with attempt and key", "%s and %s", brief(string(first)), brief(string(second)))
	a, b := results[0], results[1]
	t.holds(a.Attempt == 1 && b.Attempt == 2 && a.Key == b.Key && a.Key != "",
		"the attempts 1 and 2 with the same key", "attempt %d with the key %q, and attempt %d with %q", a.Attempt, a.Key, b.Attempt, b.Key)
}

// testOnce loses two answers: the answer that assigns an attempt, and the answer that confirms its
// end.
func testOnce(t *trial) {
	t.tap.interfere(func() {}, func(*v1.StepOutcome) (lose bool) { return true })
	defer t.tap.interfere(nil, nil)
	atom := t.do(typeEcho, 1, "{}")
	t.holds(len(atom.Attempts) == 1 && executed(atom).Failure == nil,
		"1 attempt that succeeds, though two answers were lost", "%d attempts, the last with the failure %v", len(atom.Attempts), executed(atom).Failure)
	t.works()
	t.pass(quiet) // a second report can follow late
	for _, a := range t.tap.seen("") {
		t.holds(a.again == 0, "no report of an attempt after the answer `recorded`", "%d more of the attempt %s of a step %s", a.again, a.id, a.kind)
	}
}

// testSlots runs one more sleeping step than there are slots. A worker may take attempts that wait
// for a slot, so the number of taken attempts proves nothing. But all steps together need the time
// of two sleeps.
func testSlots(t *trial) {
	const early = 100 * time.Millisecond // timers of some languages end before their time
	slots := t.entity.MaxJobs
	if slots == 0 {
		slots = t.tap.mostSlots()
	}
	p := plan{AtOnce: true}
	for i := range min(slots, mostSlots) + 1 {
		p.Steps = append(p.Steps, step{Name: fmt.Sprintf("s%d", i), Type: typeSleep, arguments: `{"seconds": 1}`})
	}
	before := len(t.tap.seen(typeSleep))
	ended, _ := t.ended(t.post(p))
	t.holds(ended.Outcome == jobs.OutcomeSuccess, "a success", "%s", ended.Outcome)
	attempts := t.tap.seen(typeSleep)[before:]
	atOnce, end := 0, attempts[0].given
	for i := range attempts {
		running := 0
		for _, a := range attempts[:i+1] {
			if a.done.After(attempts[i].given) {
				running++
			}
		}
		atOnce = max(atOnce, running)
		if attempts[i].done.After(end) {
			end = attempts[i].done
		}
	}
	took := end.Sub(attempts[0].given)
	t.holds(slots > mostSlots || took >= 2*time.Second-early,
		fmt.Sprintf("at most %d attempts at once, its slots: %d sleeps of 1 s need 2 s", slots, slots+1), "%s", took.Round(time.Millisecond))
	t.holds(atOnce >= min(slots, mostSlots), fmt.Sprintf("that it takes %d attempts at once", slots), "%d", atOnce)
}

func testAdoption(t *trial) {
	const named = "a Pull that names the attempt in `holds` while it runs"
	job, attempt := t.sleeping(shortly, 0)
	t.until(t.ctx, named, func() bool { return t.tap.heldBy(attempt.session, attempt.id) || t.tap.ended(attempt.id) })
	t.holds(!t.tap.ended(attempt.id), named, "none before its end")
	t.check(t.stopConductor())
	t.check(t.startConductor())
	atom := t.record(job)
	t.holds(len(atom.Attempts) == 1, "1 attempt", "%d", len(atom.Attempts))
	t.slept(atom, 1)
}

func testSession(t *trial) {
	job, attempt := t.sleeping(shortly, 0)
	session, err := jobs.ParseSessionID(attempt.session)
	t.check(err)
	t.check(t.client.CloseSession(t.ctx, session))
	atom := t.record(job)
	first := atom.Attempts[0].Failure
	t.holds(len(atom.Attempts) == 2 && first != nil && first.Kind == logbook.FailureWorkerLost,
		"2 attempts, the first with the failure worker.lost", "%d, the first with %v", len(atom.Attempts), first)
	t.slept(atom, 2)
	for _, a := range t.tap.seen(typeSleep) {
		t.holds(a.session == attempt.session || !t.tap.heldBy(a.session, attempt.id),
			"a new session that does not name the attempts of the old one in `holds`", "the attempt %s in `holds`", attempt.id)
	}
	t.works()
}

func testSigterm(t *trial) {
	job, attempt := t.sleeping(shortly, 0)
	t.worker.stop()
	t.pass(quiet) // until the signal has arrived
	late := t.post(only(typeEcho, 1, "{}"))
	defer func() { // the next worker must not get the attempt
		_ = t.client.Cancel(t.ctx, jobs.JobCommand{Job: late.ID})
		_, _ = t.client.Wait(t.ctx, late.ID)
	}()
	echoes := len(t.tap.seen(typeEcho))
	t.slept(t.record(job), 1)
	t.exits()
	t.holds(t.worker.err == nil, "exit code 0", "%v%s", t.worker.err, t.worker.said())
	began := len(t.tap.seen(typeEcho)) - echoes
	t.holds(began == 0, "no new attempt after SIGTERM", "%d", began)
	sessions, err := t.client.Sessions(t.ctx)
	t.check(err)
	for i := range sessions {
		t.holds(sessions[i].ID.String() != attempt.session, "a session that is closed at the end", "it is open")
	}
}

// testPromised sends SIGTERM while an answer that assigns an attempt is in flight. It loses that
// answer and the answers to repeated calls.
func testPromised(t *trial) {
	const most = 3 // a client can repeat a call at once, on another connection
	lost := 0
	var lose func()
	lose = func() {
		lost++
		first := lost == 1
		if lost < most {
			t.tap.interfere(lose, nil) // the next answer can follow at once
		}
		if first {
			t.worker.stop()
			time.Sleep(quiet) // until the worker has ended the call
		}
	}
	t.tap.interfere(lose, nil)
	defer t.tap.interfere(nil, nil)
	job := t.post(only(typeEcho, 1, "{}"))
	t.exits()
	ctx, cancel := context.WithTimeout(t.ctx, stopTime) // the end of its step is recorded already
	defer cancel()
	_, err := t.client.Wait(ctx, job.ID)
	t.holds(err == nil, "the end of the attempt before that of the worker", "none: %v", err)
}

// exits waits until a worker ends after a request to end.
func (t *trial) exits() {
	select {
	case <-t.worker.ended:
	case <-t.ctx.Done():
		t.fail("the end of the worker when its attempts have ended", "it still runs: %v", context.Cause(t.ctx))
	}
}
