package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/engine/enginetest"
	"github.com/conductord/conductord/logbook"
)

// TestKeysOfRounds checks the keys of the step "pay" in a flow with a later step "ship". A row
// has the number of failures per key and the intervention that follows, with its step if it
// names one.
func TestKeysOfRounds(t *testing.T) {
	type fails map[string]int
	for _, row := range []struct {
		name   string
		fails  fails
		rounds int // of a retry around both; 0: no retry
		said   string
		want   string
	}{
		{"attempts have one key", fails{"pay/execute": 1}, 0, "", "execute execute"},
		{"so have those to undo it, which are other ones", fails{"ship/execute": 1, "pay/revert": 1}, 0, "", "execute revert revert"},
		{"a retry begins another round", fails{"ship/execute": 1, "ship/execute/2": 1, "pay/execute/2": 1}, 3, "",
			"execute revert execute/2 execute/2 revert/2 execute/3"},
		{"what was undone is run again by a person, or the job's policy", fails{"ship/execute": 1, "ship/execute/2": 1}, 0, "rerun",
			"execute revert execute/2 revert/2"},
		{"what is not undone is tried further", fails{"ship/execute": 1, "pay/revert": 2}, 0, "retry-revert", "execute revert revert revert"},
		{"what is not undone is run again", fails{"ship/execute": 1, "pay/revert": 2}, 0, "rerun pay", "execute revert revert execute/2"},
		{"what is not run again keeps its round", fails{"ship/execute": 1, "pay/revert": 2, "ship/execute/2": 1}, 0, "complete pay",
			"execute revert revert revert/2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var keys []string
			act := func(ctx context.Context, _ none) (none, error) {
				_, key, _ := strings.Cut(flow.CallFrom(ctx).Key(), "/")
				if action, isPay := strings.CutPrefix(key, "pay/"); isPay {
					keys = append(keys, action)
				}
				if row.fails[key]--; row.fails[key] >= 0 {
					return none{}, errors.New("woot")
				}
				return none{}, nil
			}
			undo := func(ctx context.Context, _ none, _ *none) error {
				_, err := act(ctx, none{})
				return err
			}
			root := flow.Linear("order", flow.FuncRevert("pay", act, undo, flow.Retry(flow.Backoff{Attempts: 2})), flow.Func("ship", act))
			if row.rounds > 0 {
				root = root.WithRetry(flow.Times("again", row.rounds))
			}
			plan, err := flow.Compile(root)
			if err != nil {
				t.Fatal(err)
			}
			j := newJournal(newDetail())
			claim := func(token uint64) {
				end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: j.folded(few), Journal: j, Workers: 1, Token: logbook.Token{Index: token}})
				if err == nil && end.Update != nil {
					err = j.apply(*end.Update)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			claim(1)
			if kind, step, _ := strings.Cut(row.said, " "); kind != "" {
				j.detail.Interventions = append(j.detail.Interventions, logbook.Intervention{
					ID: uuid.New(), Flow: j.detail.ID, Kind: logbook.InterventionKind(kind), Step: step, By: "ann", Token: logbook.Token{Index: 2}})
				claim(3)
			}
			if got := strings.Join(keys, " "); got != row.want {
				t.Errorf("the keys were %s, want %s", got, row.want)
			}
		})
	}
}

// TestKeysOutliveCrashes lets the process die at every point of a flow that makes a payment,
// refunds it, and pays again. A bank that recognises payments by key must end with one
// payment, wherever the crash was.
func TestKeysOutliveCrashes(t *testing.T) {
	var paid, back map[string]bool
	var shipped int
	pay := func(ctx context.Context, _ none) (none, error) {
		paid[flow.CallFrom(ctx).Key()] = true
		return none{}, nil
	}
	refund := func(ctx context.Context, _ none, _ *none) error {
		back[strings.Replace(flow.CallFrom(ctx).Key(), "/revert", "/execute", 1)] = true
		return nil
	}
	ship := func(ctx context.Context, _ none) (none, error) {
		if flow.CallFrom(ctx).Round == 0 {
			return none{}, errors.New("no boxes")
		}
		shipped++
		return none{}, nil
	}
	build := func() *flow.Flow {
		return flow.Linear("order", flow.FuncRevert("pay", pay, refund), flow.Func("ship", ship)).WithRetry(flow.Times("again", 2))
	}
	enginetest.CrashEverywhere(t, build, nil,
		enginetest.Before(func() { paid, back, shipped = make(map[string]bool), make(map[string]bool), 0 }),
		enginetest.Check(func(*enginetest.Trace) error {
			for key := range back {
				if !paid[key] {
					return fmt.Errorf("%s was paid back, and not paid: %v", key, paid)
				}
			}
			if len(paid) != 2 || len(back) != 1 || shipped == 0 {
				return fmt.Errorf("paid %v, paid back %v, and shipped %d times", paid, back, shipped)
			}
			return nil
		}))
}

// roundOf counts the rounds of an atom in its record.
func roundOf(atom *logbook.AtomDetail) (round int) {
	undone := false
	for i := range atom.Attempts {
		switch action := atom.Attempts[i].Action; {
		case action == logbook.ActionReset, action == logbook.ActionExecute && undone:
			round, undone = round+1, false
		case action == logbook.ActionRevert:
			undone = true
		}
	}
	return round
}
