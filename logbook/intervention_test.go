package logbook_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/conductord/conductord/logbook"
)

// TestStepsThatHaveNotBegun: what a person says of them is admitted by what
// the flow began with, which does not tell the instances of an each.
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
