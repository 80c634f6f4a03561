package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// transitions lists all changes of state, as drawn in the doc of jobs.State, except the reopening
// of failed jobs. A second state applies to a job whose flow has started.
var transitions = map[string]string{
	"held suspend":      "suspended",
	"held stop":         "completed",
	"held undo":         "completed claimable",
	"held release":      "claimable",
	"held late":         "completed claimable",
	"delayed suspend":   "suspended",
	"delayed stop":      "completed",
	"delayed undo":      "completed claimable",
	"delayed soon":      "claimable",
	"delayed due":       "claimable",
	"delayed late":      "completed claimable",
	"claimable claim":   "claimed",
	"claimable next":    "claimed",
	"claimable suspend": "suspended",
	"claimable stop":    "completed",
	"claimable undo":    "completed claimable",
	"claimable later":   "delayed",
	"claimable late":    "completed claimable",
	"cooling suspend":   "suspended",
	"cooling stop":      "completed",
	"cooling undo":      "completed claimable",
	"cooling later":     "delayed",
	"cooling due":       "claimable",
	"cooling late":      "completed claimable",
	"waiting suspend":   "suspended",
	"waiting stop":      "completed",
	"waiting undo":      "completed claimable",
	"waiting later":     "delayed",
	"waiting due":       "claimable",
	"waiting late":      "completed claimable",
	"claimed consume":   "completed",
	"claimed abandon":   "claimable",
	"claimed pause":     "cooling",
	"claimed wait":      "waiting",
	"claimed trash":     "trashed",
	"claimed close":     "claimable",
	"claimed expire":    "cooling",
	"claimed crash":     "trashed",
	"suspended resume":  "claimable",
	"suspended stop":    "completed",
	"suspended undo":    "completed claimable",
	"suspended late":    "completed claimable",
	"trashed retry":     "claimable",
}

// moves are all commands that could change the state of job "a", by the words
// of the table.
func moves(r *rig, begun bool) map[string]func() *v1.Command {
	token := r.job(id("a")).Token
	end := func(how func(*v1.Ending) *v1.Command, delay time.Duration) func() *v1.Command {
		return func() *v1.Command {
			e := ending("a", token)
			if delay > 0 {
				e.Delay = lasting(delay)
			}
			return how(e)
		}
	}
	done := func() *v1.Command {
		e := success("a", token)
		if begun {
			e.Update = update("flow of a", token, 2, "success")
		}
		return consume(e)
	}
	found := map[string]func() *v1.Command{
		"claim":   func() *v1.Command { return claim("bob", id("a"), "claim") },
		"next":    func() *v1.Command { return claimNext("bob", "next", 1, nil, nil) },
		"consume": done, "abandon": end(abandon, 0), "pause": end(abandon, time.Minute), "trash": end(trash, 0),
		"wait": end(func(e *v1.Ending) *v1.Command {
			e.Waits = true
			return abandon(e)
		}, time.Minute),
		"retry":  func() *v1.Command { return &v1.Command{Kind: &v1.Command_Retry{Retry: said()}} },
		"close":  func() *v1.Command { return closing("bob") },
		"expire": func() *v1.Command { return expire("bob", r.TimerEpoch(), time.Second, 0) },
		"crash":  func() *v1.Command { return expire("bob", r.TimerEpoch(), time.Second, 1) },
		"due": func() *v1.Command {
			r.now = start.Add(2 * time.Hour)
			return wake(r.TimerEpoch(), 10)
		},
		"late": func() *v1.Command {
			r.now = tomorrow
			return wake(r.TimerEpoch(), 10)
		},
	}
	for word := range wishes {
		found[word] = func() *v1.Command { return r.changed(word) }
	}
	for word, order := range orders {
		found[word] = order
	}
	return found
}

// TestTransitionsAreTotal tries every command in every state. The command makes the transition of
// the table. Without a transition, it is refused by name or changes nothing.
func TestTransitionsAreTotal(t *testing.T) {
	refusals := []string{"", "conflict", "unclaimable", "fenced", "invalid"}
	made := map[string]bool{}
	for _, state := range jobs.States {
		for _, begun := range []bool{false, true} {
			sample := broughtWith(t, state, begun, withDeadline)
			for word := range moves(sample, begun) {
				name := fmt.Sprint(state, " ", word)
				t.Run(fmt.Sprint(name, ", flow begun: ", begun), func(t *testing.T) {
					r := broughtWith(t, state, begun, withDeadline)
					result := r.do(moves(r, begun)[word]())[0]
					got := r.job(id("a")).State
					want := state
					if row := strings.Fields(transitions[name]); len(row) > 0 {
						made[name] = true
						if want = jobs.State(row[0]); begun && len(row) > 1 {
							want = jobs.State(row[1])
						}
						if result.GetError() != nil {
							t.Errorf("refused: %v", result.GetError())
						}
					}
					if got != want {
						t.Errorf("it becomes %s, not %s", got, want)
					}
					if code := result.GetError().GetCode(); !slices.Contains(refusals, code) {
						t.Errorf("refused with %q", code)
					}
				})
			}
		}
	}
	for name := range transitions {
		if !made[name] {
			t.Errorf("%q is no command in a state", name)
		}
	}
}
