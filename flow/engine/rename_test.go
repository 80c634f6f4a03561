package engine_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// renameRun counts the calls of steps, by action and first name.
type renameRun struct {
	mu    sync.Mutex
	calls map[string]int
	doom  bool // the last step fails, so the flow reverts
}

func (r *renameRun) count(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[call]++
}

func (r *renameRun) step(first, name string) *flow.Step {
	return flow.FuncRevert(name, func(context.Context, none) (int, error) {
		r.count("execute " + first)
		if r.doom && first == "last" {
			return 0, errors.New("doomed")
		}
		return 1, nil
	}, func(context.Context, none, *int) error {
		r.count("revert " + first)
		return nil
	})
}

// plan is the flow with other names of its steps.
func (r *renameRun) plan(t *testing.T, names map[string]string) *flow.Plan {
	name := func(first string) string {
		if name, ok := names[first]; ok {
			return name
		}
		return first
	}
	return compile(t, flow.Linear("f", r.step("first", name("first")),
		flow.Each(name("ship"), "list", "x", r.step("pack", name("pack"))), r.step("last", name("last"))), "list")
}

// renameEnded renames the steps of a flow that have ended, and notes them in renamed. It returns the names of the next
// definition.
func renameEnded(detail *logbook.FlowDetail, all map[string]string, renamed map[string]bool) map[string]string {
	names := make(map[string]string)
	for old, name := range all {
		i := logbook.Intervention{ID: uuid.New(), Kind: logbook.InterveneRename, Step: old, To: name, Token: logbook.Token{Index: 2}}
		if _, err := detail.Admit(&i); errors.Is(err, logbook.ErrNotFound) {
			names[old] = name // it has not started
			continue
		} else if err != nil {
			continue
		}
		names[old], renamed[old] = name, true
		detail.Interventions = append(detail.Interventions, i)
		renameAtoms(detail, &i)
	}
	return names
}

// renameAtoms does what the store does for an admitted intervention: a rename takes effect at once.
func renameAtoms(detail *logbook.FlowDetail, i *logbook.Intervention) {
	for n := range detail.Atoms {
		if name, ok := i.Renamed(detail.Atoms[n].Name); ok && i.Kind == logbook.InterveneRename {
			detail.Atoms[n].Name = name
		}
	}
}

// TestRenameAtEveryWrite: a conductor dies before any update. An operator renames the steps that have ended, and the
// flow continues with the new definition. Finished steps do not run again, and a revert calls their reverts once.
func TestRenameAtEveryWrite(t *testing.T) {
	all := map[string]string{"first": "begin", "ship": "send", "pack": "wrap", "last": "end"}
	renamed := make(map[string]bool)
	for _, doom := range []bool{false, true} {
		for crash := range 12 {
			r := &renameRun{calls: make(map[string]int), doom: doom}
			store := logbook.Values{"list": []byte("[7,8,9]")}
			run := func(j *journal, plan *flow.Plan, index uint64) error {
				end, err := engine.Run(context.Background(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Store: store, Workers: 1, Token: logbook.Token{Index: index}})
				if err == nil && end.Update != nil {
					err = j.apply(*end.Update)
				}
				return err
			}
			j := newJournal(newDetail())
			j.left = crash
			if err := run(j, r.plan(t, nil), 1); err != nil && !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			detail, done := j.snapshot(), maps.Clone(r.calls)
			if detail.State.Finished() {
				continue
			}
			names := renameEnded(&detail, all, renamed)
			ended := make(map[string]int) // executions that are recorded as ended, by old name
			before := j.snapshot()
			for n := range before.Atoms {
				if last, ok := before.Atoms[n].Last(logbook.ActionExecute); ok && last.Ended() {
					base, isInstance := logbook.CutInstance(before.Atoms[n].Name)
					if !isInstance {
						base = before.Atoms[n].Name
					}
					ended[base]++
				}
			}
			if err := run(newJournal(detail), r.plan(t, nil), 3); len(detail.Interventions) > 0 && !errors.Is(err, engine.ErrMismatch) {
				t.Errorf("crash %d: with the former names, the flow ended with %v", crash, err)
			}
			r.calls = maps.Clone(done)
			j = newJournal(detail)
			if err := run(j, r.plan(t, names), 4); err != nil {
				t.Fatalf("crash %d, doom %v, renamed %v: %v", crash, doom, names, err)
			}
			want := map[bool]logbook.FlowState{false: logbook.FlowSuccess, true: logbook.FlowReverted}[doom]
			if end := j.snapshot(); end.State != want {
				t.Errorf("crash %d, doom %v: the flow is %s", crash, doom, end.State)
			}
			for step, least := range map[string]int{"first": 1, "pack": 3, "last": 1} {
				if got := r.calls["execute "+step]; got < least || ended[step] == least && got != done["execute "+step] {
					t.Errorf("crash %d, doom %v: %s was executed %d times, and %d times before the rename", crash, doom, step, got, done["execute "+step])
				}
				if got := r.calls["revert "+step]; doom != (got > 0) {
					t.Errorf("crash %d, doom %v: %s was reverted %d times", crash, doom, step, got)
				}
			}
		}
	}
	for old := range all {
		if !renamed[old] {
			t.Errorf("%s was never renamed", old)
		}
	}
}
