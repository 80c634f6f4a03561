package logbook_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/logbook"
)

// moves reads a table of transitions: each line is a state, "→", and the states that can follow.
// All other transitions must be refused.
func moves(table string) (states []string, allowed map[[2]string]bool) {
	allowed = map[[2]string]bool{}
	for line := range strings.Lines(strings.TrimSpace(table)) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), "→")
		from = strings.TrimSpace(from)
		states = append(states, from)
		allowed[[2]string{from, from}] = true
		for _, next := range strings.Fields(to) {
			allowed[[2]string{from, next}] = true
		}
	}
	return states, allowed
}

func checkMoves(t *testing.T, table string, move func(from, to string) error) {
	t.Helper()
	states, allowed := moves(table)
	states = append(states, "NOWHERE", "")
	for _, from := range states {
		for _, to := range states {
			err := move(from, to)
			if allowed[[2]string{from, to}] != (err == nil) {
				t.Errorf("%s to %s: %v", from, to, err)
			}
			if err != nil && !errors.Is(err, logbook.ErrConflict) {
				t.Errorf("%s to %s: %v is no ErrConflict", from, to, err)
			}
		}
	}
}

func TestFlowMoves(t *testing.T) {
	checkMoves(t, `
		pending   → running suspended success
		running   → reverting suspended success failure
		reverting → reverted suspended failure
		suspended → running reverting
		failure   → reverting running
		success   →
		reverted  → running
	`, func(from, to string) error { return logbook.FlowState(from).Move(logbook.FlowState(to)) })
}

func TestAtomMoves(t *testing.T) {
	checkMoves(t, `
		pending        → running reverting ignore success
		running        → success failure pending reverting
		success        → reverting retrying pending
		failure        → reverting pending success
		reverting      → reverted revert_failure
		reverted       → pending success
		revert_failure → reverting reverted pending success
		retrying       → running reverting
		ignore         → pending success
	`, func(from, to string) error { return logbook.AtomState(from).Move(logbook.AtomState(to)) })
}

func TestFinishedFlows(t *testing.T) {
	for state, want := range map[logbook.FlowState]bool{
		logbook.FlowPending: false, logbook.FlowRunning: false, logbook.FlowReverting: false,
		logbook.FlowSuspended: false, logbook.FlowSuccess: true, logbook.FlowReverted: true, logbook.FlowFailure: true,
	} {
		if got := state.Finished(); got != want {
			t.Errorf("%s: finished is %t", state, got)
		}
	}
}

func TestJudge(t *testing.T) {
	older, fence, newer := logbook.Token{Generation: 1, Index: 5}, logbook.Token{Generation: 1, Index: 9}, logbook.Token{Generation: 2, Index: 1}
	for _, row := range []struct {
		name     string
		token    logbook.Token
		sequence uint64
		verdict  logbook.Verdict
		err      error
	}{
		{"the next", fence, 4, logbook.Fresh, nil},
		{"the last again", fence, 3, logbook.Repeat, nil},
		{"an old one again", fence, 1, logbook.Repeat, nil},
		{"one too far", fence, 5, logbook.Fresh, logbook.ErrConflict},
		{"number 0", fence, 0, logbook.Fresh, logbook.ErrInvalid},
		{"the first under a new token", newer, 1, logbook.Fresh, nil},
		{"the second under a new token", newer, 2, logbook.Fresh, logbook.ErrConflict},
		{"number 0 under a new token", newer, 0, logbook.Fresh, logbook.ErrInvalid},
		{"the first under an older token", older, 1, logbook.Fresh, logbook.ErrFenced},
		{"outside any claim, after one", logbook.Token{}, 1, logbook.Fresh, logbook.ErrFenced},
	} {
		flow := logbook.FlowDetail{ID: logbook.NewFlowID(), Fence: fence, Sequence: 3}
		before := flow
		verdict, err := flow.Judge(&logbook.Update{Token: row.token, Sequence: row.sequence})
		if verdict != row.verdict || !errors.Is(err, row.err) || (err == nil) != (row.err == nil) {
			t.Errorf("%s: got %d, %v", row.name, verdict, err)
		}
		if !reflect.DeepEqual(flow, before) {
			t.Errorf("%s: the flow was changed", row.name)
		}
	}
	if verdict, err := (&logbook.FlowDetail{}).Judge(&logbook.Update{Sequence: 1}); verdict != logbook.Fresh || err != nil {
		t.Errorf("the first of a new flow: got %d, %v", verdict, err)
	}
}

func TestFlowAdvance(t *testing.T) {
	now, token := time.Unix(100, 0).UTC(), logbook.Token{Generation: 1, Index: 9}
	old, cause := &logbook.Failure{Kind: "old"}, &logbook.Failure{Kind: "new"}
	for _, row := range []struct {
		name   string
		update logbook.Update
		state  logbook.FlowState
		cause  *logbook.Failure
		err    error
	}{
		{"nothing said", logbook.Update{}, logbook.FlowRunning, old, nil},
		{"a state", logbook.Update{State: logbook.FlowReverting}, logbook.FlowReverting, old, nil},
		{"a cause", logbook.Update{Cause: cause}, logbook.FlowRunning, cause, nil},
		{"no way there", logbook.Update{State: logbook.FlowReverted, Cause: cause}, logbook.FlowRunning, old, logbook.ErrConflict},
		{"no such state", logbook.Update{State: "DONE"}, logbook.FlowRunning, old, logbook.ErrConflict},
	} {
		row.update.Token, row.update.Sequence = token, 4
		flow := logbook.FlowDetail{State: logbook.FlowRunning, Cause: old, Sequence: 3}
		want := logbook.FlowDetail{State: row.state, Cause: row.cause, Fence: token, Sequence: 4, UpdatedAt: now}
		if row.err != nil {
			want = flow
		}
		if err := flow.Advance(&row.update, now); !errors.Is(err, row.err) {
			t.Errorf("%s: %v", row.name, err)
		}
		if !reflect.DeepEqual(flow, want) {
			t.Errorf("%s: got %+v, want %+v", row.name, flow, want)
		}
	}
}

// at is a time on the clock of the tests.
func at(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

func running(number int) logbook.Attempt {
	return logbook.Attempt{Action: logbook.ActionExecute, Number: number, StartedAt: at(1)}
}

func ended(number int, result string) logbook.Attempt {
	a := running(number)
	a.EndedAt, a.Result = at(2), json.RawMessage(result)
	return a
}

func TestAtomAdvance(t *testing.T) {
	begun := logbook.AtomDetail{
		Name: "pay", Kind: logbook.KindTask, Version: "1", State: logbook.AtomRunning, Intention: logbook.IntendExecute,
		RetryAt: at(9), Attempts: []logbook.Attempt{ended(1, "1"), running(2)},
	}
	revert := logbook.Attempt{Action: logbook.ActionRevert, Number: 1, StartedAt: at(3)}
	for _, row := range []struct {
		name   string
		change logbook.AtomChange
		want   func(*logbook.AtomDetail) // change from the old atom
		err    error
	}{
		{"nothing said clears the time", logbook.AtomChange{}, func(a *logbook.AtomDetail) { a.RetryAt = time.Time{} }, nil},
		{"everything at once", logbook.AtomChange{
			Kind: logbook.KindTask, Version: "2", State: logbook.AtomReverting, Intention: logbook.IntendRevert, RetryAt: at(10),
			Attempts: []logbook.Attempt{ended(2, "2"), revert},
		}, func(a *logbook.AtomDetail) {
			a.Version, a.State, a.Intention, a.RetryAt = "2", logbook.AtomReverting, logbook.IntendRevert, at(10)
			a.Attempts = []logbook.Attempt{ended(1, "1"), ended(2, "2"), revert}
		}, nil},
		{"an attempt begun again", logbook.AtomChange{Attempts: []logbook.Attempt{running(2)}},
			func(a *logbook.AtomDetail) { a.RetryAt = time.Time{} }, nil},
		{"another kind", logbook.AtomChange{Kind: logbook.KindRetry}, nil, logbook.ErrConflict},
		{"no way there", logbook.AtomChange{State: logbook.AtomReverted, Version: "2"}, nil, logbook.ErrConflict},
		{"an attempt that has ended", logbook.AtomChange{
			State: logbook.AtomSuccess, Attempts: []logbook.Attempt{ended(2, "2"), ended(1, "3")},
		}, nil, logbook.ErrConflict},
		{"an attempt that ends twice in one change", logbook.AtomChange{
			Attempts: []logbook.Attempt{ended(2, "2"), ended(2, "3")},
		}, nil, logbook.ErrConflict},
		{"attempt 0", logbook.AtomChange{Attempts: []logbook.Attempt{running(0)}}, nil, logbook.ErrInvalid},
		{"an attempt at nothing", logbook.AtomChange{Attempts: []logbook.Attempt{{Number: 1}}}, nil, logbook.ErrInvalid},
	} {
		atom, want := begun, begun
		atom.Attempts = append([]logbook.Attempt(nil), begun.Attempts...)
		if row.want != nil {
			row.want(&want)
		}
		err := atom.Advance(&row.change)
		if !errors.Is(err, row.err) || (err == nil) != (row.err == nil) {
			t.Errorf("%s: %v", row.name, err)
		}
		if !reflect.DeepEqual(atom, want) {
			t.Errorf("%s: got %+v\nwant %+v", row.name, atom, want)
		}
	}
}

// An operator resets an atom: its earlier attempts become history.
func TestReset(t *testing.T) {
	atom := logbook.NewAtom("a", logbook.KindTask)
	atom.State, atom.Intention, atom.Progress = logbook.AtomRevertFailure, logbook.IntendRevert, &logbook.Progress{Done: 3}
	ended := time.Unix(1, 0)
	atom.Attempts = []logbook.Attempt{
		{Action: logbook.ActionExecute, Number: 1, EndedAt: ended, Failure: &logbook.Failure{Kind: "error"}},
		{Action: logbook.ActionRevert, Number: 1, EndedAt: ended, Failure: &logbook.Failure{Kind: "error"}},
	}
	reset := logbook.Attempt{Action: logbook.ActionReset, Number: 1, Owner: "ada", EndedAt: ended}
	change := logbook.AtomChange{Name: "a", State: logbook.AtomPending, Intention: logbook.IntendExecute, Attempts: []logbook.Attempt{reset}}
	if err := atom.Advance(&change); err != nil {
		t.Fatal(err)
	}
	if _, ok := atom.Last(logbook.ActionExecute); ok || atom.Failure() != nil || atom.Progress != nil || len(atom.Attempts) != 3 {
		t.Errorf("after a reset it is %+v", atom)
	}
	if err := atom.Advance(&change); !errors.Is(err, logbook.ErrConflict) {
		t.Errorf("the same reset again: %v", err)
	}
	change = logbook.AtomChange{Name: "a", State: logbook.AtomSuccess, Attempts: []logbook.Attempt{{Action: logbook.ActionExecute, Number: 2, EndedAt: ended, Result: json.RawMessage("7")}}}
	if err := atom.Advance(&change); err != nil {
		t.Fatal(err)
	}
	if result, ok := atom.Result(); !ok || string(result) != "7" {
		t.Errorf("the result is %s", result)
	}
}

// A flow that is rerun has no cause. A flow that is reverted further has the cause of the update,
// or else its previous cause.
func TestCauseOfAFlowThatGoesOn(t *testing.T) {
	old, given := &logbook.Failure{Kind: "error", Message: "old"}, &logbook.Failure{Kind: "error", Message: "given"}
	for _, row := range []struct {
		to    logbook.FlowState
		cause *logbook.Failure
		want  *logbook.Failure
	}{{logbook.FlowRunning, nil, nil}, {logbook.FlowReverting, nil, old}, {logbook.FlowReverting, given, given}, {"", given, given}} {
		flow := logbook.FlowDetail{State: logbook.FlowFailure, Cause: old, Interventions: []logbook.Intervention{{Token: logbook.Token{Index: 5}}}}
		if err := flow.Advance(&logbook.Update{Token: logbook.Token{Index: 6}, Sequence: 1, State: row.to, Cause: row.cause}, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if flow.Cause != row.want || len(flow.Pending()) > 0 {
			t.Errorf("on its way to %q its cause is %v, and pending are %v", row.to, flow.Cause, flow.Pending())
		}
	}
}

func TestNewAtom(t *testing.T) {
	got := logbook.NewAtom("pay", logbook.KindTask)
	want := logbook.AtomDetail{
		Name: "pay", Kind: logbook.KindTask, State: logbook.AtomPending, Intention: logbook.IntendExecute,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestAtomResult(t *testing.T) {
	failed := ended(2, "")
	failed.Failure = &logbook.Failure{Kind: "exit"}
	failedWith := ended(1, "8")
	failedWith.Failure = failed.Failure
	for _, row := range []struct {
		name     string
		state    logbook.AtomState
		attempts []logbook.Attempt
		result   string
		ok       bool
		failure  bool
	}{
		{"never tried", logbook.AtomPending, nil, "", false, false},
		{"under way", logbook.AtomRunning, []logbook.Attempt{running(1)}, "", false, false},
		{"done", logbook.AtomSuccess, []logbook.Attempt{ended(1, "7")}, "7", true, false},
		{"done, to be undone", logbook.AtomReverting, []logbook.Attempt{ended(1, "7"), {Action: logbook.ActionRevert, Number: 1}}, "7", true, false},
		{"undone", logbook.AtomReverted, []logbook.Attempt{ended(1, "7")}, "", false, false},
		{"failed at last", logbook.AtomFailure, []logbook.Attempt{ended(1, "7"), failed}, "", false, true},
		{"a default after a failure that is not ignored", logbook.AtomFailure, []logbook.Attempt{failedWith}, "", false, true},
		{"failed, to be undone", logbook.AtomReverting, []logbook.Attempt{failed}, "", false, true},
		{"outcome unknown", logbook.AtomReverting, []logbook.Attempt{running(1)}, "", false, false},
	} {
		atom := logbook.AtomDetail{State: row.state, Attempts: row.attempts}
		result, ok := atom.Result()
		if string(result) != row.result || ok != row.ok || (atom.Failure() != nil) != row.failure {
			t.Errorf("%s: got %s, %t, failure %v", row.name, result, ok, atom.Failure())
		}
	}
}

// TestIgnoredFailure: the default is the result until the step is undone, and the failure can be read.
func TestIgnoredFailure(t *testing.T) {
	failed := ended(1, "8")
	failed.Failure = &logbook.Failure{Kind: "exit"}
	without := failed
	without.Result = nil
	atom := func(name string, attempt logbook.Attempt) logbook.AtomDetail {
		return logbook.AtomDetail{Name: name, Kind: logbook.KindTask, State: logbook.AtomFailure, Intention: logbook.IntendIgnore, Attempts: []logbook.Attempt{attempt}}
	}
	detail := logbook.FlowDetail{State: logbook.FlowReverted, Atoms: []logbook.AtomDetail{atom("a", failed), atom("b", without)}}
	if result, ok := detail.Atoms[0].Result(); !ok || string(result) != "8" {
		t.Errorf("the result is %s, %t", result, ok)
	}
	if result, ok := detail.Atoms[1].Result(); ok {
		t.Errorf("the result is %s, and there is no default", result)
	}
	if ignored := detail.IgnoredFailures(); len(ignored) != 2 || ignored[1].Step != "b" || len(detail.AlsoFailed(nil)) > 0 {
		t.Errorf("ignored are %v, and also failed %v", ignored, detail.AlsoFailed(nil))
	}
	undone := detail.Atoms[0]
	undone.State, undone.Intention = logbook.AtomReverting, logbook.IntendRevert
	if result, ok := undone.Result(); ok || undone.FailureIgnored() {
		t.Errorf("a step that is undone has the result %s", result)
	}
}
