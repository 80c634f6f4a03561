package cluster

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/conductord/conductord/logbook"
)

// TestLedgersCanDisagree holds that the ledger finds what must not be.
func TestLedgersCanDisagree(t *testing.T) {
	id, old, current := logbook.NewFlowID(), logbook.Token{Generation: 1, Index: 1}, logbook.Token{Generation: 1, Index: 2}
	entry := func(action logbook.Action, run string, token logbook.Token, event Event) Entry {
		return Entry{Flow: id, Step: "a", Action: action, Attempt: 1, Key: "a/" + string(action), Token: token, Run: run, Event: event}
	}
	begun := func(run string, token logbook.Token) Entry {
		return entry(logbook.ActionExecute, run, token, EventBegun)
	}
	done := func(run string, token logbook.Token) Entry {
		return entry(logbook.ActionExecute, run, token, EventDone)
	}
	undone := entry(logbook.ActionRevert, "undo", current, EventDone)
	recorded := func(state logbook.FlowState, run string, token logbook.Token) logbook.FlowDetail {
		result, err := json.Marshal(Result{run})
		if err != nil {
			t.Fatal(err)
		}
		return logbook.FlowDetail{ID: id, State: state, Atoms: []logbook.AtomDetail{{Name: "a", Attempts: []logbook.Attempt{{
			Action: logbook.ActionExecute, Number: 1, Token: token, EndedAt: time.Now(), Result: result,
		}}}}}
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
		if err := ledger.Check(row.detail); (err == nil) != row.fits {
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
