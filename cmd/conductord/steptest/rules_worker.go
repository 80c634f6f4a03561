package steptest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const (
	// stopTime is how long a worker that is told to stop an attempt may take.
	stopTime = 10 * time.Second
	// forEver is how long a step sleeps that must be stopped: longer than stopTime, and so short that
	// a worker which ignores the stop can be tested further.
	forEver = 20
	// shortly is how long a step sleeps during which something happens to it.
	shortly = 2
	// mostSlots is how many slots are filled. Of a worker with more, only the bound is tested.
	mostSlots = 16
	// quiet is how long nothing must happen where a worker must not do something.
	quiet = 500 * time.Millisecond
)

func sleepFor(seconds int) map[string]string {
	return map[string]string{"seconds": fmt.Sprint(seconds)}
}

// until waits for a condition; what it says is expected.
func (t *trial) until(ctx context.Context, what string, holds func() bool) error {
	for !holds() {
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return isnt(what, "nothing: %v", context.Cause(ctx))
		}
	}
	return nil
}

// sleeping posts a step that sleeps, and waits until the worker has it.
func (t *trial) sleeping(ctx context.Context, p plan, seconds int) (jobs.Job, attemptSeen, error) {
	before := len(t.tap.seen(typeSleep))
	job, err := t.post(ctx, p, sleepFor(seconds))
	if err != nil {
		return job, attemptSeen{}, err
	}
	err = t.until(ctx, "that the worker takes the step", func() bool { return len(t.tap.seen(typeSleep)) > before })
	if err != nil {
		return job, attemptSeen{}, err
	}
	return job, t.tap.seen(typeSleep)[before], nil
}

// now is what has been seen of an attempt until now.
func (t *trial) now(attempt attemptSeen) attemptSeen {
	for _, seen := range t.tap.seen("") {
		if idText(seen.id) == idText(attempt.id) {
			return seen
		}
	}
	return attempt
}

// testRetry has the first attempt fail on its way: the worker has reported a result.
func testRetry(ctx context.Context, t *trial) error {
	var first atomic.Value
	t.tap.onReport(func(report *v1.ReportStepRequest) bool {
		o := report.GetOutcome()
		if o.GetResult() != nil && o.GetId().GetAttempt() == 1 {
			first.Store(append([]byte(nil), o.GetResult().GetJson()...))
			o.Result, o.Failure = nil, &v1.Failure{Kind: "test.retry", Message: "the test has this attempt fail"}
		}
		return false
	})
	defer t.tap.onReport(nil)
	arguments := map[string]string{"same": `"in both"`}
	atom, err := t.do(ctx, only(typeEcho, 2, arguments), arguments)
	if err != nil {
		return err
	}
	type echoed struct {
		Attempt int    `json:"attempt"`
		Key     string `json:"key"`
	}
	var results [2]echoed
	said, _ := first.Load().([]byte)
	if json.Unmarshal(said, &results[0]) != nil || json.Unmarshal(last(atom).Result, &results[1]) != nil {
		return isnt("two results with attempt and key", "%s and %s", brief(string(said)), brief(string(last(atom).Result)))
	}
	if want := [2]echoed{{1, results[0].Key}, {2, results[0].Key}}; results != want || results[0].Key == "" {
		return isnt("the attempts 1 and 2 with the same key", "attempt %d with the key %q, and attempt %d with %q", results[0].Attempt, results[0].Key, results[1].Attempt, results[1].Key)
	}
	return nil
}

// testOnce loses the answer that gives an attempt, and the one that says that its end is recorded.
func testOnce(ctx context.Context, t *trial) error {
	t.tap.mu.Lock()
	t.tap.losePull, t.tap.lost = true, 0
	t.tap.mu.Unlock()
	t.tap.onReport(func(*v1.ReportStepRequest) bool { return true })
	atom, err := t.do(ctx, only(typeEcho, 1, nil), nil)
	t.tap.onReport(nil)
	if err != nil {
		return err
	}
	if n := len(atom.Attempts); n != 1 || last(atom).Failure != nil {
		return isnt("1 attempt that succeeds, though two answers were lost", "%d attempts, the last with the failure %v", n, last(atom).Failure)
	}
	if err := t.well(ctx); err != nil {
		return err
	}
	if err := pass(ctx, quiet); err != nil { // a second report may follow late
		return err
	}
	for _, a := range t.tap.seen("") {
		if a.again > 0 {
			return isnt("no report of an attempt after the answer `recorded`", "%d more of the attempt %s of a step %s", a.again, idText(a.id), a.kind)
		}
	}
	return nil
}

func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// testSlots has one more step sleep than there are slots. A worker may be given attempts that wait
// for a slot, so what it is given says nothing; but it needs the time of two sleeps.
func testSlots(ctx context.Context, t *trial) error {
	const early = 100 * time.Millisecond // timers of some languages end before their time
	slots := t.entity.MaxJobs
	if slots == 0 {
		slots = t.tap.mostAsked()
	}
	p := plan{AtOnce: true}
	for i := range min(slots, mostSlots) + 1 {
		p.Steps = append(p.Steps, step{Name: fmt.Sprintf("s%d", i), Type: typeSleep, Arguments: []string{"seconds"}})
	}
	before := len(t.tap.seen(typeSleep))
	job, err := t.post(ctx, p, map[string]string{"seconds": "1"})
	if err != nil {
		return err
	}
	ended, _, err := t.ended(ctx, job.ID)
	if err != nil {
		return err
	}
	if ended.Outcome != jobs.OutcomeSuccess {
		return isnt("a success", "%s", ended.Outcome)
	}
	attempts := t.tap.seen(typeSleep)[before:]
	atOnce, end := 0, attempts[0].given
	for i := range attempts {
		if attempts[i].done.After(end) {
			end = attempts[i].done
		}
		running := 0
		for j := range attempts[:i+1] {
			if attempts[j].done.After(attempts[i].given) {
				running++
			}
		}
		atOnce = max(atOnce, running)
	}
	took := end.Sub(attempts[0].given)
	switch {
	case slots <= mostSlots && took < 2*time.Second-early:
		return isnt(fmt.Sprintf("at most %d attempts at once, its slots: %d sleeps of 1 s need 2 s", slots, slots+1), "%s", took.Round(time.Millisecond))
	case atOnce < min(slots, mostSlots):
		return isnt(fmt.Sprintf("that it takes %d attempts at once", slots), "%d", atOnce)
	}
	return nil
}

func testAdoption(ctx context.Context, t *trial) error {
	job, attempt, err := t.sleeping(ctx, only(typeSleep, 1, sleepFor(shortly)), shortly)
	if err != nil {
		return err
	}
	held := t.until(ctx, "a Pull that names the attempt in `holds` while it runs", func() bool {
		return t.tap.heldBy(attempt.session, attempt.id) || !t.now(attempt).done.IsZero()
	})
	if held != nil {
		return held
	}
	if !t.now(attempt).done.IsZero() {
		return isnt("a Pull that names the attempt in `holds` while it runs", "none before its end")
	}
	if err := t.stopConductor(); err != nil {
		return err
	}
	if err := t.startConductor(); err != nil {
		return err
	}
	atom, err := t.record(ctx, job.ID)
	if err != nil {
		return err
	}
	if n := len(atom.Attempts); n != 1 {
		return isnt("1 attempt", "%d", n)
	}
	return resultIs(atom, fmt.Sprintf(`{"slept": %d, "attempt": 1}`, shortly))
}

func testSession(ctx context.Context, t *trial) error {
	job, attempt, err := t.sleeping(ctx, only(typeSleep, 1, sleepFor(shortly)), shortly)
	if err != nil {
		return err
	}
	session, err := jobs.ParseSessionID(attempt.session)
	if err != nil {
		return err
	}
	if err := t.client.CloseSession(ctx, session); err != nil {
		return err
	}
	atom, err := t.record(ctx, job.ID)
	if err != nil {
		return err
	}
	if n := len(atom.Attempts); n != 2 || atom.Attempts[0].Failure == nil || atom.Attempts[0].Failure.Kind != logbook.FailureWorkerLost {
		return isnt("2 attempts, the first with the failure worker.lost", "%d, the first with %v", n, atom.Attempts[0].Failure)
	}
	if err := resultIs(atom, fmt.Sprintf(`{"slept": %d, "attempt": 2}`, shortly)); err != nil {
		return err
	}
	for _, a := range t.tap.seen(typeSleep) {
		if a.session != attempt.session && t.tap.heldBy(a.session, attempt.id) {
			return isnt("a new session that does not name the attempts of the old one in `holds`", "the attempt %s in `holds`", idText(attempt.id))
		}
	}
	return t.well(ctx)
}

func testStop(ctx context.Context, t *trial) error {
	job, attempt, err := t.sleeping(ctx, only(typeSleep, 1, sleepFor(forEver)), forEver)
	if err != nil {
		return err
	}
	told := time.Now()
	if err := t.client.Cancel(ctx, jobs.JobCommand{Job: job.ID, Grace: 2 * stopTime}); err != nil {
		return err
	}
	return t.stops(ctx, attempt, told)
}

func testTimeout(ctx context.Context, t *trial) error {
	const limit = time.Second
	p := only(typeSleep, 1, sleepFor(forEver))
	p.Steps[0].Timeout = limit
	job, attempt, err := t.sleeping(ctx, p, forEver)
	if err != nil {
		return err
	}
	if err := t.stops(ctx, attempt, attempt.given.Add(limit)); err != nil {
		return err
	}
	atom, err := t.record(ctx, job.ID)
	if err == nil && last(atom).Failure == nil {
		err = isnt("a failure", "the result %s", brief(string(last(atom).Result)))
	}
	return err
}

// stops checks that the worker reports the end of an attempt in time.
func (t *trial) stops(ctx context.Context, attempt attemptSeen, told time.Time) error {
	ctx, cancel := context.WithDeadlineCause(ctx, told.Add(stopTime), fmt.Errorf("%s are over", stopTime))
	defer cancel()
	return t.until(ctx, "a report of the end of the attempt within "+stopTime.String(), func() bool { return !t.now(attempt).done.IsZero() })
}

// testSigterm is the last: it ends the worker.
func testSigterm(ctx context.Context, t *trial) error {
	job, attempt, err := t.sleeping(ctx, only(typeSleep, 1, sleepFor(shortly)), shortly)
	if err != nil {
		return err
	}
	t.worker.stop()
	if err := pass(ctx, quiet); err != nil { // until the signal has come
		return err
	}
	late, err := t.post(ctx, only(typeEcho, 1, nil), nil)
	if err != nil {
		return err
	}
	echoes := len(t.tap.seen(typeEcho))
	atom, err := t.record(ctx, job.ID)
	if err != nil {
		return isnt("that the attempt ends", "%v", err)
	}
	if err := resultIs(atom, fmt.Sprintf(`{"slept": %d, "attempt": 1}`, shortly)); err != nil {
		return err
	}
	select {
	case <-t.worker.ended:
	case <-ctx.Done():
		return isnt("the end of the worker when its attempts have ended", "it still runs: %v", context.Cause(ctx))
	}
	if t.worker.err != nil {
		return isnt("exit code 0", "%v%s", t.worker.err, t.worker.said())
	}
	if n := len(t.tap.seen(typeEcho)); n > echoes {
		return isnt("no new attempt after SIGTERM", "%d", n-echoes)
	}
	sessions, err := t.client.Sessions(ctx)
	if err != nil {
		return err
	}
	for i := range sessions {
		if sessions[i].ID.String() == attempt.session {
			return isnt("a session that is closed at the end", "it is open")
		}
	}
	return t.client.Cancel(ctx, jobs.JobCommand{Job: late.ID})
}
