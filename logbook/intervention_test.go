package logbook_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/logbook"
)

// TestStepsThatHaveNotBegun: interventions in steps that have not started are checked against the
// flow's recorded definition. It does not contain the instances of an each.
func TestStepsThatHaveNotBegun(t *testing.T) {
	without := []logbook.DefinedStep{{Name: "a"}, {Name: "r", Kind: logbook.KindRetry}}
	with := append([]logbook.DefinedStep{{Name: "e", Kind: logbook.KindEach}}, without...)
	for _, row := range []struct {
		steps []logbook.DefinedStep
		kind  logbook.InterventionKind
		step  string
		want  error
	}{
		{without, logbook.InterveneRerun, "a", nil},
		{without, logbook.InterveneRerun, "r", nil},
		{without, logbook.InterveneRerun, "a[0]", logbook.ErrNotFound},
		{without, logbook.InterveneComplete, "a", nil},
		{without, logbook.InterveneComplete, "r", logbook.ErrConflict},
		{without, logbook.InterveneSkip, "a", logbook.ErrConflict},
		{with, logbook.InterveneRerun, "e", nil},
		{with, logbook.InterveneRerun, "a[0]", nil},
		{with, logbook.InterveneRerun, "a[0][17]", nil},
		{with, logbook.InterveneRerun, "a[0", logbook.ErrNotFound},
		{with, logbook.InterveneRerun, "a[x]", logbook.ErrNotFound},
		{with, logbook.InterveneRerun, "b[0]", logbook.ErrNotFound},
		{with, logbook.InterveneRerun, "[0]", logbook.ErrNotFound},
		{with, logbook.InterveneComplete, "a[3]", nil},
		{[]logbook.DefinedStep{{Name: "a", Approves: true}}, logbook.InterveneComplete, "a", logbook.ErrConflict},
		{[]logbook.DefinedStep{{Name: "a", Approves: true}}, logbook.InterveneRerun, "a", nil},
		{[]logbook.DefinedStep{{Name: "e", Kind: logbook.KindEach}, {Name: "a", Approves: true}}, logbook.InterveneComplete, "a[3]", logbook.ErrConflict},
		{with, logbook.InterveneComplete, "e", logbook.ErrConflict},
		{with, logbook.InterveneComplete, "e[1]", logbook.ErrConflict},
		{with, logbook.InterveneComplete, "r[1]", logbook.ErrConflict},
	} {
		packed, err := logbook.PackSteps(row.steps)
		if err != nil {
			t.Fatal(err)
		}
		detail := logbook.FlowDetail{State: logbook.FlowFailure, Definition: &logbook.Definition{Hash: "h", Packed: packed}}
		i := logbook.Intervention{ID: uuid.New(), Kind: row.kind, Step: row.step, By: "ada"}
		if _, err := detail.Admit(&i); !errors.Is(err, row.want) {
			t.Errorf("%s %s of %d steps: %v, want %v", row.kind, row.step, len(row.steps), err, row.want)
		}
	}
}

// TestWordsThatAreTakenBack: each row is a sequence of interventions, by kind and step.
// Interventions after the bar are pending and new.
func TestWordsThatAreTakenBack(t *testing.T) {
	for _, row := range []struct {
		said  string
		stays string
		want  error // of the last intervention
	}{
		{"| skip:a complete:b", "skip:a complete:b", nil},
		{"| skip:a take-back:", "", nil},
		{"| skip:a complete:b take-back:a", "complete:b", nil},
		{"| skip:a complete:a rerun: take-back:a", "rerun:", nil},
		{"| skip:a take-back: skip:a", "skip:a", nil},
		{"| skip:a take-back: skip:b take-back:b", "", nil},
		{"| take-back:", "", logbook.ErrConflict},
		{"| skip:a take-back:b", "skip:a", logbook.ErrConflict},
		{"| rerun: take-back:b", "rerun:", logbook.ErrConflict},
		{"skip:a | take-back:", "", logbook.ErrConflict},
		{"skip:a | take-back:a", "", logbook.ErrConflict},
		{"skip:a | rerun: take-back:", "", nil},
		{"skip:a take-back:a | complete:a", "complete:a", nil},
	} {
		detail := logbook.FlowDetail{State: logbook.FlowFailure, Atoms: []logbook.AtomDetail{
			{Name: "a", Kind: logbook.KindTask, State: logbook.AtomRevertFailure}, {Name: "b", Kind: logbook.KindTask, State: logbook.AtomRevertFailure},
		}}
		var err error
		for n, word := range strings.Fields(row.said) {
			if word == "|" {
				detail.Fence.Index = uint64(n) + 1 // newer than all before
				continue
			}
			kind, step, _ := strings.Cut(word, ":")
			i := logbook.Intervention{ID: uuid.New(), Kind: logbook.InterventionKind(kind), Step: step, By: "ada", Token: logbook.Token{Index: uint64(n) + 1}}
			if _, err = detail.Admit(&i); err == nil {
				detail.Interventions = append(detail.Interventions, i)
			}
		}
		var stays []string
		for _, i := range detail.Pending() {
			stays = append(stays, string(i.Kind)+":"+i.Step)
		}
		if !errors.Is(err, row.want) || strings.Join(stays, " ") != row.stays {
			t.Errorf("after %q: %v; %q is pending, not %q", row.said, err, stays, row.stays)
		}
	}
}

// TestPointOfNoReturn: when a point of no return has succeeded, a flow continues forwards only.
func TestPointOfNoReturn(t *testing.T) {
	packed, err := logbook.PackSteps([]logbook.DefinedStep{{Name: "a"}, {Name: "p", NoReturn: true}, {Name: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	done := []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, EndedAt: time.Unix(1, 0)}}
	undo := append(done[:1:1], logbook.Attempt{Action: logbook.ActionRevert, Number: 1, EndedAt: time.Unix(1, 0), Failure: &logbook.Failure{Kind: "error"}})
	for _, row := range []struct {
		name     string
		state    logbook.AtomState
		attempts []logbook.Attempt
		passed   bool
	}{
		{"p", logbook.AtomSuccess, done, true}, {"p[3]", logbook.AtomSuccess, done, true}, {"p", logbook.AtomRevertFailure, undo, true},
		{"p", logbook.AtomFailure, done, false}, {"p", logbook.AtomReverted, undo, false}, {"b", logbook.AtomSuccess, done, false},
	} {
		detail := logbook.FlowDetail{State: logbook.FlowFailure, Definition: &logbook.Definition{Hash: "h", Packed: packed},
			Atoms: []logbook.AtomDetail{{Name: "a", Kind: logbook.KindTask, State: logbook.AtomRevertFailure}, {Name: row.name, Kind: logbook.KindTask, State: row.state, Attempts: row.attempts}}}
		if passed := detail.Passed(); (passed == row.name) != row.passed {
			t.Errorf("%s is %s, and the flow has passed %q", row.name, row.state, passed)
		}
		for kind, backwards := range map[string]bool{"retry-revert:": true, "revert:": true, "skip:a": true, "rerun:": true, "rerun:a": false, "complete:a": false} {
			word, step, _ := strings.Cut(kind, ":")
			i := logbook.Intervention{ID: uuid.New(), Kind: logbook.InterventionKind(word), Step: step, By: "ada"}
			if _, err := detail.Admit(&i); errors.Is(err, logbook.ErrConflict) != (backwards && row.passed) {
				t.Errorf("%s while %s is %s: %v", kind, row.name, row.state, err)
			}
		}
	}
}

// TestRename: a rename concerns a step and its instances. It is refused if the names or the state of the flow do not fit.
func TestRename(t *testing.T) {
	atoms := []logbook.AtomDetail{
		{Name: "a", Kind: logbook.KindTask, State: logbook.AtomSuccess}, {Name: "e[0]", Kind: logbook.KindTask, State: logbook.AtomFailure},
		{Name: "e[1][2]", Kind: logbook.KindTask, State: logbook.AtomPending}, {Name: "b", Kind: logbook.KindTask, State: logbook.AtomSuccess},
		{Name: "w", Kind: logbook.KindTask, State: logbook.AtomPending, Attempts: []logbook.Attempt{
			{Action: logbook.ActionExecute, Number: 1, Asked: 1, Wait: &logbook.Wait{Signals: []string{"paid"}}}}},
		{Name: "r", Kind: logbook.KindTask, State: logbook.AtomPending, Attempts: []logbook.Attempt{{Action: logbook.ActionReset, Number: 1}}},
		{Name: "stuck", Kind: logbook.KindTask, State: logbook.AtomRevertFailure},
		{Name: "o", Kind: logbook.KindTask, State: logbook.AtomRunning, Attempts: []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, Offered: true}}},
	}
	for _, row := range []struct {
		step, to string
		policy   logbook.ChangePolicy
		names    string // renamed atoms
		want     error
	}{
		{"a", "x", "", "x", nil},
		{"e", "x", logbook.ChangeAdopt, "x[0] x[1][2]", nil},
		{"e", strings.Repeat("x", logbook.MaxLimits.Name-4), "", "", logbook.ErrLimit},
		{"a", "b", "", "", logbook.ErrConflict},
		{"a", "e", "", "", logbook.ErrConflict},
		{"w", "x", "", "", logbook.ErrConflict},
		{"o", "x", "", "", logbook.ErrConflict},
		{"r", "x", "", "x", nil},
		{"stuck", "x", "", "", logbook.ErrConflict},
		{"a", "x", logbook.ChangePin, "", logbook.ErrConflict},
		{"a", "x", logbook.ChangeRefuse, "", logbook.ErrConflict},
		{"missing", "x", "", "", logbook.ErrNotFound},
		{"e[0]", "x", "", "", logbook.ErrInvalid},
		{"a", "x[0]", "", "", logbook.ErrInvalid},
		{"a", "a", "", "", logbook.ErrInvalid},
		{"a", "", "", "", logbook.ErrInvalid},
		{"", "x", "", "", logbook.ErrInvalid},
	} {
		detail := logbook.FlowDetail{State: logbook.FlowRunning, OnChange: row.policy, Atoms: atoms}
		i := logbook.Intervention{ID: uuid.New(), Flow: logbook.NewFlowID(), Kind: logbook.InterveneRename, Step: row.step, To: row.to, By: "ada"}
		err := logbook.MaxLimits.CheckIntervention(&i)
		if err == nil {
			_, err = detail.Admit(&i)
		}
		var names []string
		for n := range atoms {
			if name, ok := i.Renamed(atoms[n].Name); ok && err == nil {
				names = append(names, name)
			}
		}
		if !errors.Is(err, row.want) || strings.Join(names, " ") != row.names {
			t.Errorf("%s to %.20s: %v (%v), want %q (%v)", row.step, row.to, names, err, row.names, row.want)
		}
	}
	for _, row := range []struct {
		renames string // earlier ones, as old:new
		step    string
		to      string
		want    error
	}{
		{"a:b", "b", "a", nil},
		{"a:b b:c", "c", "a", nil},
		{"a:b b:c", "c", "b", nil},
		{"a:b", "x", "a", logbook.ErrConflict},
		{"a:b b:a", "a", "b", nil},
		{"a:b b:c c:a", "x", "b", logbook.ErrConflict},
	} {
		detail := logbook.FlowDetail{State: logbook.FlowRunning, Atoms: []logbook.AtomDetail{{Name: row.step, Kind: logbook.KindTask, State: logbook.AtomSuccess}}}
		for _, pair := range strings.Fields(row.renames) {
			old, name, _ := strings.Cut(pair, ":")
			detail.Interventions = append(detail.Interventions, logbook.Intervention{ID: uuid.New(), Kind: logbook.InterveneRename, Step: old, To: name})
		}
		if _, err := detail.Admit(&logbook.Intervention{ID: uuid.New(), Kind: logbook.InterveneRename, Step: row.step, To: row.to}); !errors.Is(err, row.want) {
			t.Errorf("after %s, %s to %s: %v, want %v", row.renames, row.step, row.to, err, row.want)
		}
	}
	pending := logbook.FlowDetail{State: logbook.FlowFailure, Atoms: atoms, Interventions: []logbook.Intervention{{Kind: logbook.InterveneRerun, Token: logbook.Token{Index: 1}}}}
	if _, err := pending.Admit(&logbook.Intervention{ID: uuid.New(), Kind: logbook.InterveneRename, Step: "a", To: "x"}); !errors.Is(err, logbook.ErrConflict) {
		t.Errorf("beside a pending intervention: %v", err)
	}
	renamed := logbook.FlowDetail{Interventions: []logbook.Intervention{{Kind: logbook.InterveneRename, Token: logbook.Token{Index: 1}}}}
	if renamed.Resumable() || len(renamed.Pending()) > 0 {
		t.Error("a rename is pending")
	}
	if err := logbook.MaxLimits.CheckIntervention(&logbook.Intervention{ID: uuid.New(), Flow: logbook.NewFlowID(), Kind: logbook.InterveneRerun, To: "x", By: "ada"}); !errors.Is(err, logbook.ErrInvalid) {
		t.Errorf("a rerun with a new name: %v", err)
	}
}
