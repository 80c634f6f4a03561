package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// give ends the open wait of a step in the record, as the board does. It reports whether a step waits.
func (j *journal) give(signal logbook.Signal) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.detail.Atoms {
		atom := &j.detail.Atoms[i]
		if !atom.OpenWait().Takes(signal.Name) {
			continue
		}
		atom.Take(&signal)
		return true
	}
	return false
}

type payment struct {
	Amount int `json:"amount"`
}

// approve ends the open approval of a step with one decision, as the board does.
func (j *journal) approve(decision logbook.Decision) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.detail.Atoms {
		atom := &j.detail.Atoms[i]
		if wait := atom.OpenWait(); wait == nil || wait.Approval == nil {
			continue
		}
		atom.Decide(&decision)
		return true
	}
	return false
}

// waitingFlow is an order that waits for its payment, and then sleeps.
func waitingFlow(t *testing.T, ran map[string]int, options ...flow.StepOption) *flow.Plan {
	count := func(name string) *flow.Step {
		return act(name, func(context.Context) error { ran[name]++; return nil })
	}
	return compiled(t, flow.Linear("order", count("reserve"), flow.Signal[payment]("paid", options...), flow.Sleep("rest", 24*time.Hour), count("ship")))
}

// live runs a flow until its end, like the conductors of a cluster: it begins again after a crash, gives the signal to
// a flow that waits for one, and runs the flow again when it is due. crash is the update at which the first run
// dies; negative: none does. It returns the times for which the flow was released.
func live(t *testing.T, plan *flow.Plan, j *journal, signal *logbook.Signal, crash int) (end engine.End, released []time.Duration) {
	return liveWith(t, plan, j, signal, nil, crash)
}

// liveWith is live with a decision of an approval.
func liveWith(t *testing.T, plan *flow.Plan, j *journal, signal *logbook.Signal, decision *logbook.Decision, crash int) (end engine.End, released []time.Duration) {
	j.left = crash
	for run := range uint64(20) {
		end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Token: logbook.Token{Index: run + 1}, MaxIdle: time.Second})
		if err == nil && end.Update != nil {
			err = j.apply(*end.Update)
		}
		switch {
		case errors.Is(err, errCrash):
			j.left = -1
			continue
		case err != nil:
			t.Fatalf("run %d: %v", run, err)
		case end.WaitUntil.IsZero():
			return end, released
		}
		released = append(released, end.Wait)
		if end.Awaits != nil && signal != nil && j.give(*signal) {
			continue
		}
		if end.Awaits != nil && decision != nil && j.approve(*decision) {
			continue
		}
		time.Sleep(end.Wait)
	}
	t.Fatal("the flow does not end")
	return end, nil
}

// TestWaits: a flow that waits is released until the end of the wait, and continues with the signal or after its
// limit.
func TestWaits(t *testing.T) {
	for _, row := range []struct {
		name    string
		options []flow.StepOption
		signal  *logbook.Signal
		state   logbook.FlowState
		result  string // of the wait
		failure string // kind
		after   time.Duration
	}{
		{"a signal", nil, &logbook.Signal{Name: "paid", ID: "1", Data: json.RawMessage(`{"amount":7}`)}, logbook.FlowSuccess, `{"amount":7}`, "", 24 * time.Hour},
		{"another of several", []flow.StepOption{flow.ForSignals("paid", "waived")}, &logbook.Signal{Name: "waived", ID: "1", Data: json.RawMessage(`{"amount":0}`)}, logbook.FlowSuccess, `{"amount":0}`, "", 24 * time.Hour},
		{"a limit", []flow.StepOption{flow.WaitFor(48 * time.Hour)}, nil, logbook.FlowReverted, "", logbook.FailureTimeout, 48 * time.Hour},
		{"a limit with a result", []flow.StepOption{flow.WaitFor(time.Hour), flow.OnTimeout(payment{1})}, nil, logbook.FlowSuccess, `{"amount":1}`, "", 25 * time.Hour},
		{"the longest wait", nil, nil, logbook.FlowReverted, "", logbook.FailureTimeout, flow.MaxWait},
		{"a rejection", nil, &logbook.Signal{Name: "paid", ID: "1", Reject: "no money"}, logbook.FlowReverted, "", logbook.FailureRejected, 0},
		{"data of another type", nil, &logbook.Signal{Name: "paid", ID: "1", Data: json.RawMessage(`[]`)}, logbook.FlowReverted, "", logbook.FailureSignalData, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ran, began := map[string]int{}, time.Now()
			j := newJournal(newDetail())
			end, _ := live(t, waitingFlow(t, ran, row.options...), j, row.signal, -1)
			detail := j.snapshot()
			attempt := detail.Atoms[j.index["paid"]].Attempts[0]
			kind := ""
			if attempt.Failure != nil {
				kind = attempt.Failure.Kind
			}
			if end.State != row.state || string(attempt.Result) != row.result || kind != row.failure || time.Since(began) != row.after {
				t.Errorf("%s: %s with %s or %q after %s, want %s with %s or %q after %s", row.name, end.State, attempt.Result, kind, time.Since(began), row.state, row.result, row.failure, row.after)
			}
			if row.signal != nil && (attempt.Wait.Signal == nil || attempt.Wait.Signal.ID != "1" || attempt.Wait.Signal.Data != nil) {
				t.Errorf("%s: the attempt has the wait %+v", row.name, attempt.Wait)
			}
		})
	}
}

// TestCrashAtEveryWriteOfWaits: a flow with waits ends alike after a crash at any of its writes. Its steps run once,
// or once more if the crash lost their result, and its wait does not begin again.
func TestCrashAtEveryWriteOfWaits(t *testing.T) {
	signal := &logbook.Signal{Name: "paid", ID: "1", Data: json.RawMessage(`{"amount":7}`)}
	for crash := range 12 {
		synctest.Test(t, func(t *testing.T) {
			ran, began := map[string]int{}, time.Now()
			j := newJournal(newDetail())
			end, released := live(t, waitingFlow(t, ran, flow.WaitFor(time.Hour)), j, signal, crash)
			detail := j.snapshot()
			paid := detail.Atoms[j.index["paid"]].Attempts
			if end.State != logbook.FlowSuccess || len(paid) != 1 || string(paid[0].Result) != `{"amount":7}` || ran["reserve"] > 2 || ran["ship"] > 2 {
				t.Errorf("crash at update %d: %s, attempts %+v, calls %v", crash, end.State, paid, ran)
			}
			if took := time.Since(began); took < 24*time.Hour || len(released) < 2 || released[0] > time.Hour {
				t.Errorf("crash at update %d: it ended after %s, and was released for %v", crash, took, released)
			}
		})
	}
}

// TestSignalWhileRunning: a signal that comes while other steps run continues its step at once.
func TestSignalWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, shipped := time.Now(), time.Duration(0)
		plan := compiled(t, flow.Unordered("order",
			act("long", func(context.Context) error { time.Sleep(time.Hour); return nil }),
			flow.Linear("paid and shipped", flow.Signal[payment]("paid"), act("ship", func(context.Context) error { shipped = time.Since(began); return nil })),
		))
		signals := make(chan engine.TakenSignal)
		go func() { // ends with the signals, which the run takes
			time.Sleep(time.Minute)
			signals <- engine.TakenSignal{Step: "nothing", Signal: logbook.Signal{Name: "paid", ID: "0"}}
			signals <- engine.TakenSignal{Step: "paid", Signal: logbook.Signal{Name: "other", ID: "0"}}
			signals <- engine.TakenSignal{Step: "paid", Signal: logbook.Signal{Name: "paid", ID: "1", Data: json.RawMessage(`{"amount":7}`)}}
		}()
		end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: newDetail(), Journal: newJournal(newDetail()), Token: logbook.Token{Index: 1}, MaxIdle: time.Second, Signals: signals})
		if err != nil || end.State != logbook.FlowSuccess || shipped != time.Minute {
			t.Errorf("%s after %s, %v; want success, and a shipment after a minute", end.State, shipped, err)
		}
	})
}

// TestSentData: an attempt records the signals that its execution sends. Data without secrets stay unchanged.
func TestSentData(t *testing.T) {
	const data = `{"amount":7,"of":"alice"}`
	j := newJournal(newDetail())
	tell := flow.NewStep("tell", task(func(_ context.Context, call *flow.Call) (any, error) {
		call.SignalKey("mail", "k", logbook.Signal{Name: "paid", Data: json.RawMessage(data)})
		return nil, nil
	}))
	end, _ := live(t, compiled(t, flow.Linear("order", tell)), j, nil, -1)
	sends := j.snapshot().Atoms[j.index["tell"]].Attempts[0].Sends
	if end.State != logbook.FlowSuccess || len(sends) != 1 || sends[0].Key != "k" || string(sends[0].Signal.Data) != data || sends[0].Signal.ID == "" {
		t.Errorf("%s, and the attempt sends %+v", end.State, sends)
	}
}

// TestEndOfWaitIsNoTakeover: a released flow that continues, because a signal has come or an operator has ended the
// wait, was not cut off. So flow.UndoLast undoes nothing.
func TestEndOfWaitIsNoTakeover(t *testing.T) {
	for _, row := range []struct {
		name string
		wait flow.Node
		end  func(j *journal) bool
	}{
		{"a signal", flow.Signal[any]("paid"), func(j *journal) bool { return j.give(logbook.Signal{Name: "paid", ID: "1"}) }},
		{"retry-now", flow.Sleep("rest", time.Hour), func(j *journal) bool {
			atom := &j.detail.Atoms[j.index["rest"]]
			atom.RetryAt = time.Time{}
			return atom.OpenWait() != nil
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			reserved := &reservation{}
			plan := compiled(t, flow.Unordered("order", flow.NewStep("reserve", reserved), row.wait).OnTakeover(flow.UndoLast))
			j := newJournal(newDetail())
			run := func(claim uint64) engine.End {
				end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Token: logbook.Token{Index: claim}, MaxIdle: time.Second})
				if err == nil && end.Update != nil {
					err = j.apply(*end.Update)
				}
				if err != nil {
					t.Fatalf("%s: %v", row.name, err)
				}
				return end
			}
			if end := run(1); end.WaitUntil.IsZero() || !row.end(j) {
				t.Fatalf("%s: the flow does not wait: %+v", row.name, end)
			}
			run(2)
			if reserved.done != 1 || reserved.undone != 0 {
				t.Errorf("%s: the step ran %d times and was undone %d times; want once and never", row.name, reserved.done, reserved.undone)
			}
		})
	}
}

// reservation counts its calls.
type reservation struct{ done, undone int }

func (r *reservation) Execute(context.Context, *flow.Call) (any, error) { r.done++; return nil, nil }
func (r *reservation) Revert(context.Context, *flow.Call) error         { r.undone++; return nil }
