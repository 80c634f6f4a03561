package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// callsOf runs a flow whose rounds all fail, with a new claim after every few updates. It
// returns the keys and numbers of all calls. Every claim loads at most kept attempts of each
// atom.
func callsOf(t *testing.T, rounds, updates, kept int) (made []string, detail logbook.FlowDetail) {
	t.Helper()
	note := func(ctx context.Context, fails bool) (none, error) {
		call := flow.CallFrom(ctx)
		made = append(made, fmt.Sprintf("%s %d", call.Key()[len(call.Flow.String()):], call.Attempt))
		if fails {
			return none{}, errors.New("woot")
		}
		return none{}, nil
	}
	pay := flow.FuncRevert("pay", func(ctx context.Context, _ none) (none, error) { return note(ctx, flow.CallFrom(ctx).Attempt%2 == 1) },
		func(ctx context.Context, _ none, _ *none) error { _, err := note(ctx, false); return err },
		flow.Retry(flow.Backoff{Attempts: 2}))
	ship := flow.Func("ship", func(ctx context.Context, _ none) (none, error) { return note(ctx, true) }, flow.Retry(flow.Backoff{Attempts: 3}))
	plan := compiled(t, flow.Linear("f", flow.Linear("g", pay, ship).WithRetry(flow.Times("r", rounds))))
	j := newJournal(newDetail())
	for token := uint64(1); ; token++ {
		j.left = updates
		end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: j.folded(kept), Journal: j, Workers: 1, Token: logbook.Token{Index: token}})
		if err == nil && end.Update != nil {
			j.left = -1
			err = j.apply(*end.Update)
		}
		if err == nil {
			return made, j.snapshot()
		}
		if !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
	}
}

// TestFoldedHistory: a folded history has the same effect as the complete one: keys, numbers
// and policies continue.
func TestFoldedHistory(t *testing.T) {
	const rounds = 40
	for _, updates := range []int{-1, 4, 7} {
		want, whole := callsOf(t, rounds, updates, 10_000)
		got, detail := callsOf(t, rounds, updates, 2*rounds+2)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("with %d updates under each claim:\ngot  %v\nwant %v", updates, got, want)
		}
		pay, _ := detail.Atom("pay")
		if all, _ := whole.Atom("pay"); len(all.Attempts) != len(pay.Attempts) || len(pay.Attempts) < 3*rounds {
			t.Errorf("%d attempts, and %d with a folded history", len(all.Attempts), len(pay.Attempts))
		}
		if detail.State != logbook.FlowReverted {
			t.Errorf("the flow is %s", detail.State)
		}
	}
}
