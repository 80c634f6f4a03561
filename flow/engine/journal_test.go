package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/conductord/conductord/logbook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errCrash = errors.New("the conductor has crashed")

// journal applies updates to a flow detail as a store does, with the
// logbook's own rules, and can die before any update.
type journal struct {
	mu      sync.Mutex
	detail  logbook.FlowDetail
	updates []logbook.Update
	index   map[string]int
	saved   map[string]logbook.Values // checkpoints, by step
	left    int                       // updates that are still taken; negative: all
	limits  logbook.Limits
	opens   func(atom *logbook.AtomDetail) // called when a wait for a signal or an approval begins; nil: nothing comes
}

func newJournal(detail logbook.FlowDetail) *journal {
	j := &journal{detail: detail, left: -1, limits: logbook.MaxLimits, index: make(map[string]int), saved: make(map[string]logbook.Values)}
	for i := range detail.Atoms {
		j.index[detail.Atoms[i].Name] = i
	}
	return j
}

// next is the journal of the next claim, which finds a flow and the recorded checkpoints.
func (j *journal) next(detail logbook.FlowDetail) *journal {
	next := newJournal(detail)
	next.saved, next.opens = j.saved, j.opens
	return next
}

// Record applies at once: an earlier crash covers the case of later durability.
func (j *journal) Record(update logbook.Update) <-chan error {
	done := make(chan error, 1)
	done <- j.apply(update)
	return done
}

func (j *journal) apply(update logbook.Update) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.left == 0 {
		return errCrash
	}
	if j.left > 0 {
		j.left--
	}
	if err := j.limits.CheckUpdate(&update); err != nil {
		return err
	}
	if verdict, err := j.detail.Judge(&update); err != nil || verdict != logbook.Fresh {
		return fmt.Errorf("update %d is judged %v: %w", update.Sequence, verdict, err)
	}
	for i := range update.Atoms { // a refused update changes nothing
		if at, ok := j.index[update.Atoms[i].Name]; ok {
			if _, err := joinWaits(&j.detail.Atoms[at], &update.Atoms[i]); err != nil {
				return err
			}
		}
	}
	for i := range update.Atoms {
		change := &update.Atoms[i]
		at, ok := j.index[change.Name]
		if !ok {
			at = len(j.detail.Atoms)
			j.index[change.Name] = at
			j.detail.Atoms = append(j.detail.Atoms, logbook.NewAtom(change.Name, change.Kind))
		}
		if change, err := joinWaits(&j.detail.Atoms[at], change); err != nil {
			return err
		} else if err := j.detail.Atoms[at].Advance(change); err != nil {
			return err
		}
		j.open(&j.detail.Atoms[at], update.Sequence)
		if err := j.save(&j.detail.Atoms[at], change); err != nil {
			return err
		}
	}
	if err := j.detail.Advance(&update, time.Time{}); err != nil {
		return err
	}
	j.updates = append(j.updates, update)
	return nil
}

// joinWaits keeps the signal of an open wait, because the engine may not know the signal. Like the board, joinWaits
// refuses the end of the wait without the signal.
func joinWaits(atom *logbook.AtomDetail, change *logbook.AtomChange) (*logbook.AtomChange, error) {
	joined := *change
	joined.Attempts = slices.Clone(change.Attempts)
	for i := range joined.Attempts {
		attempt := &joined.Attempts[i]
		n := slices.IndexFunc(atom.Attempts, func(old logbook.Attempt) bool {
			return old.Action == attempt.Action && old.Number == attempt.Number && old.Wait != nil
		})
		switch {
		case n < 0:
		case !attempt.Ended():
			attempt.Wait = atom.Attempts[n].Wait
			if attempt.Wait.Signal != nil {
				joined.RetryAt = time.Time{}
			}
		case atom.Attempts[n].Wait.Signal != nil && (attempt.Wait == nil || attempt.Wait.Signal == nil):
			return nil, logbook.ErrSignalled
		}
	}
	return &joined, nil
}

// open numbers a wait that has begun.
func (j *journal) open(atom *logbook.AtomDetail, sequence uint64) {
	wait := atom.OpenWait()
	if j.opens == nil || !wait.Open() || wait.Number != 0 {
		return
	}
	begun := *wait
	begun.Number = sequence
	atom.Attempts[len(atom.Attempts)-1].Wait = &begun
	j.opens(atom)
}

// save keeps the checkpoints of a change.
func (j *journal) save(atom *logbook.AtomDetail, change *logbook.AtomChange) error {
	if atom.Checkpoints == nil {
		delete(j.saved, atom.Name)
	}
	for i := range change.Checkpoints {
		checkpoint, replaced := &change.Checkpoints[i], -1
		if earlier, ok := j.saved[atom.Name][checkpoint.Name]; ok {
			replaced = len(checkpoint.Name) + len(earlier)
		}
		if err := atom.CountCheckpoint(checkpoint, replaced); err != nil {
			return err
		}
		if j.saved[atom.Name] == nil {
			j.saved[atom.Name] = make(logbook.Values)
		}
		j.saved[atom.Name][checkpoint.Name] = checkpoint.Value
	}
	return nil
}

// checkpoints implements engine.Options.Checkpoints.
func (j *journal) checkpoints(_ context.Context, step string) (logbook.Values, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.saved[step]), nil
}

// allow accepts a number of further updates, unless the journal has died already.
func (j *journal) allow(updates int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.left < 0 || j.left > updates {
		j.left = updates
	}
}

// snapshot is the flow as a new conductor would find it.
func (j *journal) snapshot() logbook.FlowDetail {
	j.mu.Lock()
	defer j.mu.Unlock()
	detail := j.detail
	detail.Atoms = slices.Clone(detail.Atoms)
	for i := range detail.Atoms {
		detail.Atoms[i].Attempts = slices.Clone(detail.Atoms[i].Attempts)
	}
	return detail
}

// few are as many attempts at an atom as the policies and retries of most tests
// can count.
const few = 8

// folded is the flow as read from a store that keeps a limited number of attempts per atom.
func (j *journal) folded(most int) logbook.FlowDetail {
	detail := j.snapshot()
	for i := range detail.Atoms {
		detail.Atoms[i].Fold(most)
	}
	return detail
}

// lost is the flow as the board has it when the claim has ended under which it
// was run, and nothing that is not in the journal was said to be recorded.
func (j *journal) lost(token logbook.Token, begins bool) logbook.FlowDetail {
	detail := j.snapshot()
	if begins && detail.Fence != token && (detail.State == logbook.FlowPending || detail.State == logbook.FlowRunning) && detail.Begun.IsZero() {
		detail.Begun = token
	}
	return detail
}

func (j *journal) trace() []logbook.Update {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.updates)
}

func newDetail() logbook.FlowDetail {
	return logbook.FlowDetail{ID: logbook.NewFlowID(), Name: "f", State: logbook.FlowPending}
}
