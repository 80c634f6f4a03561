package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// maxAtomBytes limits the attempts of one atom in an answer. Over the limit, earlier attempts are
// shortened. With the longest latest attempts, the atom still fits into a message of 4 MiB.
const maxAtomBytes = 512 << 10

const atomPrefixSize = 4 + 4

func decodeAtom(value []byte) *atomRecord {
	if len(value) < atomPrefixSize {
		panic(corrupt("a stored atom has %d bytes", len(value)))
	}
	detail := decode(value[atomPrefixSize:], &v1.AtomDetail{}, command.AtomDetailFromProto)
	a := &atomRecord{
		number: binary.BigEndian.Uint32(value), attempts: binary.BigEndian.Uint32(value[4:]),
		before: detail.State, detail: detail,
	}
	a.waited = a.openWait()
	if latest := min(a.attempts, 1); int(latest) != len(detail.Attempts) {
		panic(corrupt("atom %q is stored with %d attempts instead of %d", detail.Name, len(detail.Attempts), latest))
	}
	if a.attempts > 0 {
		a.places = []uint32{a.attempts - 1}
	}
	return a
}

// atomNumber reads the number of a stored atom, without decoding the rest.
func atomNumber(value []byte) uint32 {
	if len(value) < atomPrefixSize {
		panic(corrupt("a stored atom has %d bytes", len(value)))
	}
	return binary.BigEndian.Uint32(value)
}

// planAtom reads the atom of a change, or makes a new one for a first change.
func (t *txn) planAtom(flow *flowRecord, change *logbook.AtomChange) (*atomRecord, error) {
	switch {
	case change.Name == "":
		return nil, &logbook.InvalidError{Field: "atom name", Reason: "empty"}
	case len(change.Name) > maxKeyName:
		return nil, &logbook.LimitError{Field: "atom name", Limit: maxKeyName, Size: int64(len(change.Name)), Unit: "bytes"}
	}
	if a := flow.running; a != nil && a.detail.Name == change.Name {
		flow.running = nil
		if known := t.flows[flow.ID]; known != nil {
			known.running = nil
		}
		a.before = a.detail.State
		return a, nil
	}
	if value := t.get(tableAtom, atomKey(flow.ID, change.Name)); value != nil {
		return decodeAtom(value), nil
	}
	if change.Kind == "" {
		return nil, &logbook.InvalidError{Field: "atom kind", Reason: fmt.Sprintf("unset for the new atom %q", change.Name)}
	}
	a := &atomRecord{number: flow.atoms, detail: logbook.NewAtom(change.Name, change.Kind)}
	a.before = a.detail.State
	flow.atoms++
	return a, nil
}

// advanceAtom applies a change to an atom. It first reads the attempts of the change, which
// logbook.AtomDetail.Advance needs.
func (t *txn) advanceAtom(flow logbook.FlowID, a *atomRecord, change *logbook.AtomChange) error {
	for i := range change.Attempts {
		t.loadAttempt(flow, a, change.Attempts[i].Action, change.Attempts[i].Number)
	}
	if err := a.joinWaits(change); err != nil {
		return err
	}
	had := a.detail.Checkpoints != nil
	if err := a.detail.Advance(change); err != nil {
		return err
	}
	if had && a.detail.Checkpoints == nil {
		a.dropped, a.recorded = true, nil
	}
	if err := t.planCheckpoints(flow, a, change); err != nil {
		return err
	}
	for len(a.places) < len(a.detail.Attempts) {
		a.places = append(a.places, a.attempts)
		a.attempts++
	}
	return change.CheckNumbers(func(action logbook.Action, number int) bool {
		return t.placeOf(flow, a, action, number) != noPlace || number <= a.detail.Folded.Count(action)
	})
}

// loadAttempt adds an earlier attempt to the detail, unless the detail has it.
func (t *txn) loadAttempt(flow logbook.FlowID, a *atomRecord, action logbook.Action, number int) {
	for i := range a.detail.Attempts {
		if a.detail.Attempts[i].Action == action && a.detail.Attempts[i].Number == number {
			return
		}
	}
	value := t.get(tableAttempt, attemptKey(flow, a.number, action, number))
	if value == nil {
		return
	}
	place, attempt := decodeAttempt(value)
	a.detail.Attempts = slices.Insert(a.detail.Attempts, 0, attempt)
	a.places = slices.Insert(a.places, 0, place)
}

// saveAtom writes an atom with its latest attempt, and the other attempts of the update under their own
// keys.
func (t *txn) saveAtom(flow logbook.FlowID, a *atomRecord) {
	small := a.detail
	small.Attempts = nil
	for i := range a.detail.Attempts {
		attempt := &a.detail.Attempts[i]
		if a.places[i] == a.attempts-1 {
			small.Attempts = a.detail.Attempts[i : i+1]
			continue
		}
		key := attemptKey(flow, a.number, attempt.Action, attempt.Number)
		command.FillAttempt(&t.messages.attempt, attempt)
		t.putMessage(tableAttempt, key, binary.BigEndian.AppendUint32(make([]byte, 0, attemptPrefixSize), a.places[i]), &t.messages.attempt)
	}
	t.foldAttempts(flow, a, &small.Folded)
	prefix := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(make([]byte, 0, atomPrefixSize), a.number), a.attempts)
	a.detail.Folded = small.Folded
	command.FillAtomDetail(&t.messages.atom, &small)
	t.putMessage(tableAtom, atomKey(flow, a.detail.Name), prefix, &t.messages.atom)
}

// foldAttempts has the effect of logbook.AtomDetail.Fold, and reads only the oldest attempt with each
// action. One write folds as many attempts as it adds.
func (t *txn) foldAttempts(flow logbook.FlowID, a *atomRecord, folded *logbook.Folded) {
	for int(a.attempts)-folded.Len() > logbook.KeptAttempts {
		oldest, place := logbook.ActionExecute, uint32(noPlace)
		var resets bool
		for _, action := range [...]logbook.Action{logbook.ActionExecute, logbook.ActionRevert, logbook.ActionReset} {
			at := t.placeOf(flow, a, action, folded.Count(action)+1)
			if at < place {
				oldest, place = action, at
			}
			resets = action == logbook.ActionReset && at != noPlace
		}
		if oldest == logbook.ActionExecute && !resets {
			next := t.placeOf(flow, a, oldest, folded.Executions+2)
			if next == noPlace { // the last execution stays
				folded.Reverts++
				t.delete(tableAttempt, attemptKey(flow, a.number, logbook.ActionRevert, folded.Reverts))
				continue
			}
		}
		folded.Add(oldest)
		t.delete(tableAttempt, attemptKey(flow, a.number, oldest, folded.Count(oldest)))
	}
}

// noPlace is the place of an attempt that is not stored.
const noPlace = math.MaxUint32

// placeOf returns the index of an attempt among all attempts of its atom.
func (t *txn) placeOf(flow logbook.FlowID, a *atomRecord, action logbook.Action, number int) uint32 {
	for i := range a.detail.Attempts {
		if a.detail.Attempts[i].Action == action && a.detail.Attempts[i].Number == number {
			return a.places[i]
		}
	}
	value := t.get(tableAttempt, attemptKey(flow, a.number, action, number))
	if value == nil {
		return noPlace
	}
	return attemptPlace(value)
}

const attemptPrefixSize = 4

// attemptPlace reads the place of a stored attempt, without decoding the rest.
func attemptPlace(value []byte) uint32 {
	if len(value) < attemptPrefixSize {
		panic(corrupt("a stored attempt has %d bytes", len(value)))
	}
	return binary.BigEndian.Uint32(value)
}

func decodeAttempt(value []byte) (place uint32, attempt logbook.Attempt) {
	place = attemptPlace(value)
	attempt = decode(value[attemptPrefixSize:], &v1.Attempt{}, command.AttemptFromProto)
	return place, attempt
}

// wholeAtom reads an atom with all its attempts, oldest first, and returns its stored size. Above
// maxAtomBytes, it shortens earlier attempts. An atom with very many attempts must fit into an answer,
// because otherwise its flow could not be resumed.
func (v *view) wholeAtom(flow logbook.FlowID, value []byte) (atom logbook.AtomDetail, size int) {
	record := decodeAtom(value)
	size = len(value)
	if record.attempts < 2 {
		return record.detail, size
	}
	stored := v.earlierAttempts(flow, record)
	latest := record.detail.Attempts[0]
	attempts := make([]logbook.Attempt, len(stored)+1)
	attempts[len(stored)] = latest
	seen := map[logbook.Action]bool{latest.Action: true}
	for i := len(stored) - 1; i >= 0; i-- {
		_, attempt := decodeAttempt(stored[i])
		// A conductor resumes from the latest attempt with each action, so these are not shortened.
		if whole := size + len(stored[i]); whole <= maxAtomBytes || !seen[attempt.Action] {
			size = whole
		} else {
			size += shorten(&attempt, record.detail.Kind)
		}
		attempts[i], seen[attempt.Action] = attempt, true
	}
	record.detail.Attempts = attempts
	return record.detail, size
}

// earlierAttempts reads the kept attempts of an atom in stored form, oldest first, without the latest one.
// The slices point into bbolt's memory.
func (v *view) earlierAttempts(flow logbook.FlowID, record *atomRecord) [][]byte {
	var stored [][]byte
	v.scan(tableAttempt, attemptPrefix(flow, record.number), func(_, value []byte) bool {
		if place := attemptPlace(value); place >= record.attempts-1 {
			panic(corrupt("attempt %d of atom %q is stored, of %d", place, record.detail.Name, record.attempts))
		}
		stored = append(stored, value)
		return true
	})
	if kept := int(record.attempts) - record.detail.Folded.Len(); len(stored)+1 != kept {
		panic(corrupt("atom %q should have %d stored attempts, and has %d", record.detail.Name, kept, len(stored)+1))
	}
	slices.SortFunc(stored, func(a, b []byte) int { return bytes.Compare(a[:attemptPrefixSize], b[:attemptPrefixSize]) })
	for i := 1; i < len(stored); i++ {
		if bytes.Equal(stored[i-1][:attemptPrefixSize], stored[i][:attemptPrefixSize]) {
			panic(corrupt("two attempts of atom %q have the same position", record.detail.Name))
		}
	}
	return stored
}

// shorten removes the long fields of an attempt, and returns its approximate remaining size. The attempt
// keeps its action, its end and the kind of its failure. Values of a retry are short and stay: a retry would
// reuse values that are missing from its history.
func shorten(a *logbook.Attempt, kind logbook.AtomKind) int {
	const about = 128 // bytes of numbers, token and times
	a.Shortened, a.StderrTruncated = true, a.StderrTruncated || a.Stderr != ""
	a.Stderr = ""
	if kind != logbook.KindRetry {
		a.Result = nil
	}
	size := about + len(a.Owner) + len(a.Result)
	for i := range a.Failures {
		size += shortenFailure(&a.Failures[i])
	}
	if a.Failure != nil {
		short := *a.Failure
		size += shortenFailure(&short)
		a.Failure = &short
	}
	return size
}

func shortenFailure(f *logbook.Failure) int {
	*f = logbook.Failure{
		Kind: f.Kind, Step: f.Step, Code: f.Code, Permanent: f.Permanent,
		Message: "omitted: the attempts at this step are too long for one answer",
	}
	return len(f.Kind) + len(f.Step) + len(f.Message)
}
