package cluster

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/conductord/conductord/logbook"
)

// TestLedgersCanDisagree checks that the ledger finds violations.
func TestLedgersCanDisagree(t *testing.T) {
	id, old, current := logbook.NewFlowID(), logbook.Token{Generation: 1, Index: 1}, logbook.Token{Generation: 1, Index: 2}
	entry := func(action logbook.Action, run string, token logbook.Token, event Event) Entry {
		number := map[logbook.Token]int{old: 1, current: 2}[token]
		return Entry{Flow: id, Step: "a", Action: action, Attempt: number, Key: "a/" + string(action), Token: token, Run: run, Kind: RetriedStep, Event: event}
	}
	begun := func(run string, token logbook.Token) Entry {
		return entry(logbook.ActionExecute, run, token, EventBegun)
	}
	done := func(run string, token logbook.Token) Entry {
		return entry(logbook.ActionExecute, run, token, EventDone)
	}
	undone := entry(logbook.ActionRevert, "undo", current, EventDone)
	recorded := func(state logbook.FlowState, run string, token logbook.Token) logbook.FlowDetail {
		result, err := json.Marshal(Result{Run: run})
		if err != nil {
			t.Fatal(err)
		}
		attempts := []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, Token: old}, {Action: logbook.ActionExecute, Number: 2, Token: current}}
		last := map[logbook.Token]int{old: 0, current: 1}[token]
		attempts[last].EndedAt, attempts[last].Result = time.Now(), result
		return logbook.FlowDetail{ID: id, State: state, Atoms: []logbook.AtomDetail{{Name: "a", Attempts: attempts[:last+1]}}}
	}
	for _, row := range []struct {
		name    string
		entries []Entry
		detail  logbook.FlowDetail
		fits    bool
	}{
		{"a success", []Entry{begun("1", old), done("1", old)}, recorded(logbook.FlowSuccess, "1", old), true},
		{"a crash, then a success", []Entry{begun("1", old), begun("2", current), done("2", current)}, recorded(logbook.FlowSuccess, "2", current), true},
		{"a run that was never made", []Entry{begun("1", old), done("1", old)}, recorded(logbook.FlowSuccess, "2", old), false},
		{"a run under another token", []Entry{begun("1", old), done("1", old)}, recorded(logbook.FlowSuccess, "1", current), false},
		{"a run after the result", []Entry{begun("1", old), done("1", old), begun("2", old), done("2", old)}, recorded(logbook.FlowSuccess, "1", old), false},
		{"undone", []Entry{begun("1", old), done("1", old), undone}, recorded(logbook.FlowReverted, "1", old), true},
		{"not undone", []Entry{begun("1", old), done("1", old)}, recorded(logbook.FlowReverted, "1", old), false},
		{"undone for nothing", []Entry{begun("1", old), done("1", old), undone}, recorded(logbook.FlowSuccess, "1", old), false},
		{"half undone", []Entry{begun("1", old), done("1", old), undone}, recorded(logbook.FlowFailure, "1", old), false},
	} {
		ledger := NewLedger(true)
		for _, one := range row.entries {
			if err := ledger.Write(one, func() bool { return true }); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ledger.Check(row.detail); (err == nil) != row.fits {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	ledger := NewLedger(true)
	for _, one := range []Entry{begun("1", current), begun("2", old)} {
		_ = ledger.Write(one, func() bool { return true })
	}
	if ledger.Faults() == nil {
		t.Error("an old token is no fault")
	}
}

// TestLedgersJudgeExecutions checks that only a repeatable step may start before its causes are
// durable. Step "left" uses the result of step "a", and stands behind a decider. The runs are named
// after their steps.
func TestLedgersJudgeExecutions(t *testing.T) {
	id, lost, kept := logbook.NewFlowID(), logbook.Token{Generation: 1, Index: 1}, logbook.Token{Generation: 1, Index: 2}
	ran := func(kind StepKind, step, run string, attempt int, token logbook.Token, inputs map[string]string) []Entry {
		begun := Entry{Flow: id, Step: step, Action: logbook.ActionExecute, Attempt: attempt, Key: step, Token: token, Run: run, Kind: kind, Inputs: inputs, Event: EventBegun}
		done := begun
		done.Event = EventDone
		return []Entry{begun, done}
	}
	success := func(step, run, pick string, attempts ...logbook.Attempt) logbook.AtomDetail {
		result, err := json.Marshal(Result{Run: run, Pick: pick})
		if err != nil {
			t.Fatal(err)
		}
		last := &attempts[len(attempts)-1]
		last.EndedAt, last.Result = time.Now(), result
		return logbook.AtomDetail{Name: step, State: logbook.AtomSuccess, Attempts: attempts}
	}
	attempt := func(number int, token logbook.Token) logbook.Attempt {
		return logbook.Attempt{Action: logbook.ActionExecute, Number: number, Token: token}
	}
	ignored := logbook.AtomDetail{Name: Left, State: logbook.AtomIgnored}
	a := func(pick string) logbook.AtomDetail { return success("a", "a2", pick, attempt(1, kept)) }
	before := slices.Concat(ran(RepeatableStep, "a", "a1", 1, lost, nil), ran(RepeatableStep, "a", "a2", 1, kept, nil))
	of := func(run string) map[string]string { return map[string]string{"a": run} }
	for _, row := range []struct {
		name    string
		entries []Entry // after both runs of "a"
		left    logbook.AtomDetail
		pick    string
		counted Executions
		fits    bool
	}{
		{"one of what is recorded", ran(RetriedStep, Left, "l", 1, kept, of("a2")), success(Left, "l", "", attempt(1, kept)), Left, Executions{}, true},
		{"a retried one of a lost result", slices.Concat(ran(RetriedStep, Left, "l1", 1, lost, of("a1")), ran(RetriedStep, Left, "l2", 2, kept, of("a2"))),
			success(Left, "l2", "", attempt(1, lost), attempt(2, kept)), Left, Executions{}, false},
		{"a repeatable one of a lost result", slices.Concat(ran(RepeatableStep, Left, "l1", 1, lost, of("a1")), ran(RepeatableStep, Left, "l2", 1, kept, of("a2"))),
			success(Left, "l2", "", attempt(1, kept)), Left, Executions{Begun: 2, Again: 1, OtherInputs: 1}, true},
		{"a repeatable one that records what it made of a lost result", ran(RepeatableStep, Left, "l", 1, kept, of("a1")),
			success(Left, "l", "", attempt(1, kept)), Left, Executions{Begun: 1, OtherInputs: 1}, false},
		{"a repeatable one that is left out in the end", ran(RepeatableStep, Left, "l", 1, lost, of("a1")), ignored, Right, Executions{Begun: 1, OtherInputs: 1, LeftOut: 1}, true},
		{"a retried one that is left out in the end", ran(RetriedStep, Left, "l", 1, lost, of("a2")), ignored, Right, Executions{}, false},
		{"one that the record has not picked", ran(RepeatableStep, Left, "l", 1, kept, of("a2")), success(Left, "l", "", attempt(1, kept)), Right, Executions{Begun: 1}, false},
		{"a repeatable one that is not recorded", ran(RepeatableStep, Left, "l", 1, kept, of("a2")), logbook.AtomDetail{Name: Left}, Left, Executions{Begun: 1, LeftOut: 1}, false},
		{"a retried one without its mark", slices.Concat(ran(RetriedStep, Left, "l1", 1, lost, of("a2")), ran(RetriedStep, Left, "l2", 1, kept, of("a2"))),
			success(Left, "l2", "", attempt(1, kept)), Left, Executions{}, false},
		{"one that is to run once, and began twice", slices.Concat(ran(OnceStep, Left, "l1", 1, lost, of("a2")), ran(OnceStep, Left, "l2", 2, kept, of("a2"))),
			success(Left, "l2", "", attempt(1, lost), attempt(2, kept)), Left, Executions{}, false},
	} {
		ledger := NewLedger(false)
		entries := slices.Concat(before, row.entries)
		slices.SortStableFunc(entries, func(a, b Entry) int { return a.Token.Compare(b.Token) })
		for _, one := range entries {
			if err := ledger.Write(one, func() bool { return true }); err != nil {
				t.Fatal(err)
			}
		}
		row.counted.Begun, row.counted.Again = row.counted.Begun+2, row.counted.Again+1 // of "a"
		counted, err := ledger.Check(logbook.FlowDetail{ID: id, State: logbook.FlowSuccess, Atoms: []logbook.AtomDetail{a(row.pick), row.left}})
		if (err == nil) != row.fits || counted != row.counted {
			t.Errorf("%s: %+v, %v", row.name, counted, err)
		}
	}
}
