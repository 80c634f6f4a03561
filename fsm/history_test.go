package fsm_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/logbook"
)

// histories makes random attempts at an atom, and keeps the expected history.
type histories struct {
	*rig
	t       *testing.T
	random  *rand.Rand
	numbers map[string]uint32
	want    logbook.AtomDetail
}

// makes records a number of attempts at an action, each started and ended. The last one can be
// unfinished.
func (h *histories) makes(sequence uint64, state, action string, times int) {
	h.t.Helper()
	change := task("x", "")
	for i := range times {
		h.numbers[action]++
		attempt := &v1.Attempt{Action: action, Number: h.numbers[action], StartedAt: timestamppb.New(start)}
		known := logbook.Attempt{Action: logbook.Action(action), Number: int(attempt.Number), StartedAt: start}
		if i < times-1 || h.random.IntN(2) == 0 {
			attempt.EndedAt, known.EndedAt = attempt.StartedAt, start
		}
		change.Attempts = append(change.Attempts, attempt)
		h.want.Attempts = append(h.want.Attempts, known)
	}
	if result := h.do(updateFlow(update("f", logbook.Token{}, sequence, state, change)))[0]; result.Error != nil {
		h.t.Fatal(result)
	}
	h.want.Fold(logbook.KeptAttempts)
}

// TestHistoryHasNoLimit: the number of attempts at an atom is unlimited. Its oldest attempts are
// folded as in the logbook, and need no more space.
func TestHistoryHasNoLimit(t *testing.T) {
	for seed := range uint64(5) {
		h := &histories{newRig(t), t, rand.New(rand.NewPCG(seed, 0)), map[string]uint32{}, logbook.NewAtom("x", logbook.KindTask)}
		h.ok(saveBook(book("b", "f")))
		state, sequence, made := "running", uint64(0), 0
		for made <= 10_000 {
			// Some runs of one action are as long as the stored history.
			action := []string{"execute", "execute", "revert", "revert", "reset"}[h.random.IntN(5)]
			for range 1 + h.random.IntN(8)*h.random.IntN(2) {
				times := 1 + h.random.IntN(logbook.MaxChangeAttempts)
				sequence++
				h.makes(sequence, state, action, times)
				made, state = made+times, ""
			}
		}
		flow, _, err := h.Flow(flowID("f"), fsm.Part{MaxBytes: fsm.Unbounded})
		if err != nil {
			t.Fatal(err)
		}
		got, _ := json.Marshal([]any{flow.Atoms[0].Attempts, flow.Atoms[0].Folded})
		want, _ := json.Marshal([]any{h.want.Attempts, h.want.Folded})
		if string(got) != string(want) {
			t.Errorf("seed %d: got %s\nwant %s", seed, got, want)
		}
		if err := fsm.Verify(h.Machine); err != nil {
			t.Error(err)
		}
	}
}
