package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// TestElementFailsBeforeACrash: a crash can lose that steps are left out, if an update was split. They are
// left out by the next owner, and what waits for the each runs.
func TestElementFailsBeforeACrash(t *testing.T) {
	called := ""
	act := func(name string) *flow.Step {
		return flow.Func(name, func(context.Context, none) (none, error) {
			if called += name; name == "a" {
				return none{}, errors.New("woot")
			}
			return none{}, nil
		})
	}
	body := flow.Linear("body", act("a"), act("b"), act("c"))
	plan, err := flow.Compile(flow.Linear("f", flow.Each("e", "list", "x", body, flow.MaxFailurePercent(100)), act("d")), "list")
	if err != nil {
		t.Fatal(err)
	}
	run := func(j *journal, claim uint64) error {
		end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Store: logbook.Values{"list": json.RawMessage("[1]")},
			Token: logbook.Token{Index: claim}, Owner: "o"})
		if err == nil && end.Update != nil {
			err = j.apply(*end.Update)
		}
		return err
	}
	j := newJournal(newDetail())
	j.left = 2
	if err := run(j, 1); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	detail := j.snapshot()
	detail.Atoms = slices.DeleteFunc(detail.Atoms, func(a logbook.AtomDetail) bool { return a.State == logbook.AtomIgnored || a.Name == "d" })
	j = newJournal(detail)
	if err := run(j, 2); err != nil {
		t.Fatal(err)
	}
	detail = j.snapshot()
	for _, name := range []string{"b[0]", "c[0]"} {
		if atom, ok := detail.Atom(name); !ok || atom.State != logbook.AtomIgnored {
			t.Errorf("%s is %+v", name, atom)
		}
	}
	if failed, _ := detail.Atom("a[0]"); !failed.FailureIgnored() || detail.State != logbook.FlowSuccess || called != "add" && called != "ad" {
		t.Errorf("the flow is %s; called are %s:\n%s", detail.State, called, dump(detail))
	}
}
