package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

const (
	// maxCrashes bounds the crashes of one test: each runs the flow again. If the
	// flow writes more often, the crashes are spread evenly.
	maxCrashes = 1_000
	// maxFaults bounds the faults that are reported: the first ones show the fault.
	maxFaults = 5
)

// CrashEverywhere runs a flow to its end, then once for each write of that run, with a crash
// before that write. It checks:
//
//   - The flow ends as it does without a crash, and each step has the same result. Only a flow
//     with an at-most-once step may be reverted instead, if the crash has cut off that step.
//   - No step whose result was recorded is executed again.
//   - Every Check passes, each time.
//
// All runs have one flow id, so flow.Call.Key is the same with a crash and without one.
//
// CrashEverywhere calls build at each start, also of the process that continues after a crash.
// build must build the same flow each time, so the flow must not hold anything that a process
// would lose. The result is the trace of the run without a crash.
//
// An attempt whose outcome is lost in a crash is repeated, and is not a failure. A step that fails
// a fixed number of times can therefore get further after a crash than without one. If the end of
// the flow depends on that, CrashEverywhere reports a difference.
func CrashEverywhere(t testing.TB, build func() *flow.Flow, store logbook.Values, options ...Option) *Trace {
	t.Helper()
	s := newSettings(options)
	whole, faults := s.explore(t, func() flow.Node { return build() }, store)
	for i, fault := range faults {
		if i == maxFaults {
			t.Errorf("and %d more faults after other crashes", len(faults)-maxFaults)
			break
		}
		t.Error(fault)
	}
	return whole
}

func (s *settings) explore(t testing.TB, build func() flow.Node, store logbook.Values) (*Trace, []string) {
	t.Helper()
	whole := s.series(t, build, store, noCrash)
	var faults []string
	for _, fault := range s.judge(whole) {
		faults = append(faults, fmt.Sprintf("without a crash: %v\n%s", fault, whole))
	}
	if len(faults) > 0 {
		return whole, faults // all others would tell the same
	}
	writes := len(whole.Updates)
	crashes := min(writes, maxCrashes)
	for i := range crashes {
		crashed := s.series(t, build, store, i*writes/crashes)
		found := s.judge(crashed)
		if crashed.Result.State.Finished() {
			found = append(found, differences(whole, crashed)...)
		}
		for _, fault := range found {
			faults = append(faults, fmt.Sprintf("after a crash: %v\nwithout it:\n%swith it:\n%s", fault, whole, crashed))
		}
	}
	return whole, faults
}

// differences compares a run with a crash with the run without one.
func differences(whole, crashed *Trace) []error {
	var faults []error
	for _, step := range repeated(crashed.Updates) {
		faults = append(faults, fmt.Errorf("step %q was executed again, although its result was recorded", step))
	}
	want, got := &whole.Result, &crashed.Result
	if got.State != want.State {
		cutOff := got.State == logbook.FlowReverted && got.Detail.Cause.Matches(logbook.FailureAtMostOnce)
		if !cutOff {
			faults = append(faults, fmt.Errorf("the flow is %s, and without the crash %s", got.State, want.State))
		}
		return faults
	}
	names := maps.Clone(want.Steps)
	maps.Copy(names, got.Steps)
	for _, step := range slices.Sorted(maps.Keys(names)) {
		if a, b := compact(want.Steps[step]), compact(got.Steps[step]); !bytes.Equal(a, b) {
			faults = append(faults, fmt.Errorf("the result of step %q is %s, and without the crash %s", step, b, a))
		}
	}
	return faults
}

// repeated finds the steps that were executed although the record had their result and the
// step was not undone.
func repeated(updates []logbook.Update) []string {
	var steps []string
	recorded, begun := make(map[string]bool), make(map[string]int)
	for i := range updates {
		for _, change := range updates[i].Atoms {
			switch change.State {
			case logbook.AtomReverted, logbook.AtomRetrying: // undone; or a retry that goes into its next round
				recorded[change.Name] = false
			}
			for _, attempt := range change.Attempts {
				if attempt.Action != logbook.ActionExecute {
					continue
				}
				if recorded[change.Name] && attempt.Number > begun[change.Name] {
					steps = append(steps, change.Name)
				}
				begun[change.Name], recorded[change.Name] = attempt.Number, attempt.Ended() && attempt.Failure == nil
			}
		}
	}
	return steps
}

// compact returns a JSON value without insignificant blanks, for comparison and display.
func compact(value json.RawMessage) []byte {
	if len(value) == 0 {
		return []byte("missing")
	}
	var out bytes.Buffer
	if err := json.Compact(&out, value); err != nil {
		return value
	}
	return out.Bytes()
}
