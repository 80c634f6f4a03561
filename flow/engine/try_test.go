package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// TestTriesOfCalls checks the try number of each call of the step "pay". A crash adds an attempt but no
// try. A revert and each round start at one again. From the second try on, the call has the failure of the
// previous try.
func TestTriesOfCalls(t *testing.T) {
	three := flow.Retry(flow.Backoff{Attempts: 3})
	for _, row := range []struct {
		name    string
		policy  []flow.StepOption
		fails   int // the executions of pay that fail, first of all
		undos   int // the reverts of pay that fail, first of all
		ship    int // the executions of the step behind it that fail, first of all
		rounds  int // of a retry around both; 0: no retry
		crashes []int
		want    []string
	}{
		{name: "no retry", want: []string{"execute 1: try 1 of 1"}},
		{name: "a retry", policy: []flow.StepOption{three}, fails: 2,
			want: []string{"execute 1: try 1 of 3", "execute 2: try 2 of 3 after woot", "execute 3: try 3 of 3 after woot"}},
		{name: "a crash in the first try", policy: []flow.StepOption{three}, crashes: []int{1},
			want: []string{"execute 1: try 1 of 3", "execute 2: try 1 of 3"}},
		{name: "a crash in the second try, and one in its repetition", policy: []flow.StepOption{three}, fails: 1, crashes: []int{2, 1},
			want: []string{"execute 1: try 1 of 3", "execute 2: try 2 of 3 after woot", "execute 3: try 2 of 3 after woot", "execute 4: try 2 of 3 after woot"}},
		{name: "a revert has the same retry", policy: []flow.StepOption{three}, fails: 1, undos: 1, ship: 1,
			want: []string{"execute 1: try 1 of 3", "execute 2: try 2 of 3 after woot", "revert 1: try 1 of 3", "revert 2: try 2 of 3 after woot"}},
		{name: "another round", policy: []flow.StepOption{three}, fails: 1, ship: 1, rounds: 2,
			want: []string{"execute 1: try 1 of 3", "execute 2: try 2 of 3 after woot", "revert 1: try 1 of 3", "execute 3: try 1 of 3"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got []string
			left := map[logbook.Action]int{logbook.ActionExecute: row.fails, logbook.ActionRevert: row.undos}
			pay := func(ctx context.Context) error {
				c := flow.CallFrom(ctx)
				call := fmt.Sprintf("%s %d: try %d of %d", c.Action, c.Attempt, c.Try, c.Tries)
				if c.LastFailure != nil {
					call += " after " + c.LastFailure.Message
				}
				got = append(got, call)
				if left[c.Action]--; left[c.Action] >= 0 {
					return errors.New("woot")
				}
				return nil
			}
			root := flow.Linear("order",
				flow.FuncRevert("pay", func(ctx context.Context, _ none) (none, error) { return none{}, pay(ctx) },
					func(ctx context.Context, _ none, _ *none) error { return pay(ctx) }, row.policy...),
				act("ship", func(context.Context) error {
					if row.ship--; row.ship >= 0 {
						return errors.New("no boxes")
					}
					return nil
				}))
			if row.rounds > 0 {
				root = root.WithRetry(flow.Times("again", row.rounds))
			}
			j := newJournal(newDetail())
			for token := uint64(1); ; token++ {
				crashed := len(row.crashes) > 0
				if j.left = -1; crashed {
					j.left, row.crashes = row.crashes[0], row.crashes[1:]
				}
				end, err := engine.Run(t.Context(), engine.Options{Plan: compile(t, root), Detail: j.folded(few), Journal: j, Workers: 1, Token: logbook.Token{Index: token}})
				if err == nil && end.Update != nil {
					err = j.apply(*end.Update)
				}
				if crashed != errors.Is(err, errCrash) || !crashed && err != nil {
					t.Fatalf("the run ended with %v", err)
				}
				if !crashed {
					break
				}
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("the calls were\n%q\nwant\n%q", got, row.want)
			}
		})
	}
}
