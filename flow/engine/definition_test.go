package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// A flow changes while it runs: the conductor dies before any update, and the next one has
// other code and dies too. In every case, the adopted change is recorded, and the flow ends as
// it is built now.
func TestChangeAtEveryWrite(t *testing.T) {
	before := compile(t, flow.Linear("f", act("a", fine), act("b", fine), act("gone", fine)))
	after := compile(t, flow.Linear("f", act("a", fine), act("b", fine, flow.Version("")), act("new", fine), act("last", fine)))
	for first := range 3 { // later, "gone" has begun
		for second := range 6 {
			j := newJournal(newDetail())
			for claim, plan := range []*flow.Plan{before, after, after} {
				j.left = []int{first, second, -1}[claim]
				end, err := engine.Run(context.Background(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Token: logbook.Token{Index: uint64(claim + 1)}})
				if err == nil && end.Update != nil {
					err = j.apply(*end.Update)
				}
				if err != nil && !errors.Is(err, errCrash) {
					t.Fatalf("after crashes before updates %d and %d: %v", first, second, err)
				}
				j = newJournal(j.snapshot())
			}
			detail := j.snapshot()
			if detail.State != logbook.FlowSuccess || detail.Definition.Hash != after.Definition().Hash {
				t.Errorf("after crashes before updates %d and %d: the flow is %s with the definition %v", first, second, detail.State, detail.Definition)
			}
			if _, ok := detail.Atom("gone"); ok || len(detail.Atoms) != after.Len() {
				t.Errorf("after crashes before updates %d and %d: it has %d steps", first, second, len(detail.Atoms))
			}
		}
	}
}

// A definition that does not fit into a value is kept as its hash: then it is
// known that something has changed, and not what.
func TestDefinitionThatIsTooLong(t *testing.T) {
	limits := logbook.Limits{Value: 200}
	steps := func(last string) flow.Node {
		var row []flow.Node
		for i := range 10 {
			row = append(row, act(fmt.Sprintf("step-%d", i), fine))
		}
		return flow.Linear("f", append(row, act(last, fine))...)
	}
	for _, row := range []struct {
		policy logbook.ChangePolicy
		want   error
	}{{"", nil}, {logbook.ChangePin, engine.ErrPinned}, {logbook.ChangeRefuse, engine.ErrChanged}} {
		j := newJournal(newDetail())
		j.left = 2
		run := func(last string) error {
			detail := j.snapshot()
			detail.OnChange = row.policy
			_, err := engine.Run(context.Background(), engine.Options{Plan: compile(t, steps(last)), Detail: detail, Journal: j, Limits: limits, Token: logbook.Token{Index: detail.Fence.Index + 1}})
			return err
		}
		if err := run("x"); !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		if d := j.snapshot().Definition; d == nil || len(d.Packed) > 0 || d.Hash == "" {
			t.Errorf("the definition is %+v", d)
		}
		j.left = -1
		if err := run("y"); !errors.Is(err, row.want) {
			t.Errorf("%q: %v", row.policy, err)
		}
		if err := run("x"); row.want != nil && err != nil {
			t.Errorf("%q, as it was: %v", row.policy, err)
		}
	}
}

// An error names a limited number of differences, and counts the others.
func TestManyDifferences(t *testing.T) {
	steps := func(prefix string) *flow.Plan {
		var row []flow.Node
		for i := range 200 {
			row = append(row, act(fmt.Sprintf("%s%d", prefix, i), fine))
		}
		return compile(t, flow.Unordered("f", row...))
	}
	j := newJournal(newDetail())
	j.left = 1
	_, _ = engine.Run(context.Background(), engine.Options{Plan: steps("a"), Detail: j.snapshot(), Journal: j})
	detail := j.snapshot()
	detail.OnChange = logbook.ChangeRefuse
	_, err := engine.Run(context.Background(), engine.Options{Plan: steps("b"), Detail: detail, Journal: j})
	if !errors.Is(err, engine.ErrChanged) || !strings.HasSuffix(err.Error(), "and 300 more") {
		t.Errorf("%v", err)
	}
}
