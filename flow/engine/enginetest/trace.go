package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// Trace is the history of a run.
type Trace struct {
	Result engine.Result
	// Err is the error of engine.Local.Run: nil if the flow succeeded.
	Err error
	// Updates are the writes to the logbook, in order, of all runs.
	Updates []logbook.Update
	// Took is the time from the first start to the end.
	Took time.Duration

	faults []error // of the messages from outside
	crash  int     // the updates before the crash; noCrash: there was none
}

// String shows a trace, a line for each update:
//
//	1: flow running, a running E1?
//	2: a success E1+, b running E1?
//	3: b pending E1- again in 10s
//	-- crash --
//	4: b running E2?
//	5: flow reverting (b: error), b failure (to revert) E2-, a (to revert), …
//	   …
//	took: 10s
//	end: reverted (b: error)
//
// E1 is the first execution of a step and R1 its first revert: ? means started, + succeeded, -
// failed. The kind of a failure follows in brackets unless it is "error". One event can cause
// several updates, and one update can contain several steps. The line "took" is left out if no
// time has passed.
func (t *Trace) String() string {
	var out strings.Builder
	for i := range t.Updates {
		if i == t.crash {
			out.WriteString("-- crash --\n")
		}
		fmt.Fprintf(&out, "%d:%s\n", i+1, formatUpdate(&t.Updates[i]))
	}
	if len(t.Updates) == t.crash {
		out.WriteString("-- crash --\n")
	}
	if took := t.Took.Round(time.Millisecond); took > 0 {
		fmt.Fprintf(&out, "took: %s\n", took)
	}
	if t.Result.State.Finished() {
		fmt.Fprintf(&out, "end: %s%s\n", t.Result.State, formatFailure(t.Result.Detail.Cause))
	} else {
		fmt.Fprintf(&out, "error: %s\n", strings.ReplaceAll(fmt.Sprint(t.Err), t.Result.Flow.String(), "ID"))
	}
	return out.String()
}

// Want compares the trace with a text in the form of String. It ignores blanks around
// lines, and empty lines.
func (t *Trace) Want(test testing.TB, text string) {
	test.Helper()
	got, want := trimmedLines(t.String()), trimmedLines(text)
	for i := range max(len(got), len(want)) {
		if g, w := line(got, i), line(want, i); g != w {
			test.Errorf("line %d of the trace is\n\t%s\nand should be\n\t%s\nThe whole trace:\n%s", i+1, g, w, t)
			return
		}
	}
}

// WantState checks the state in which the flow ended, such as logbook.FlowReverted.
func (t *Trace) WantState(test testing.TB, state logbook.FlowState) {
	test.Helper()
	if t.Result.State != state {
		test.Errorf("the flow is %s and should be %s. The whole trace:\n%s", t.Result.State, state, t)
	}
}

// WantResult checks the value that the flow provides under a symbol: the JSON of want.
func (t *Trace) WantResult(test testing.TB, symbol string, want any) {
	test.Helper()
	encoded, err := json.Marshal(want)
	if got := compact(t.Result.Values[symbol]); err != nil || !bytes.Equal(got, encoded) {
		test.Errorf("the result %q is %s and should be %s (%v). The whole trace:\n%s", symbol, got, encoded, err, t)
	}
}

func trimmedLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func line(lines []string, i int) string {
	if i >= len(lines) {
		return "(missing)"
	}
	return lines[i]
}

func formatUpdate(u *logbook.Update) string {
	var parts []string
	if u.State != "" {
		parts = append(parts, fmt.Sprintf(" flow %s%s", u.State, formatFailure(u.Cause)))
	}
	for i := range u.Atoms {
		parts = append(parts, formatChange(&u.Atoms[i]))
	}
	return strings.Join(parts, ",")
}

func formatChange(change *logbook.AtomChange) string {
	var out strings.Builder
	out.WriteString(" " + change.Name)
	if change.State != "" {
		fmt.Fprintf(&out, " %s", change.State)
	}
	if change.Intention == logbook.IntendRevert {
		out.WriteString(" (to revert)")
	}
	if change.Intention == logbook.IntendDrop {
		out.WriteString(" (to drop)")
	}
	var ended time.Time
	for i := range change.Attempts {
		out.WriteString(" " + formatAttempt(&change.Attempts[i]))
		ended = change.Attempts[i].EndedAt
	}
	if p := change.Progress; p != nil {
		fmt.Fprintf(&out, " at %d/%d%s", p.Done, p.Total, p.Details)
	}
	switch {
	case change.RetryAt.IsZero():
	case !ended.IsZero():
		fmt.Fprintf(&out, " again in %s", change.RetryAt.Sub(ended).Round(time.Millisecond))
	case len(change.Attempts) > 0:
		out.WriteString(" not yet")
	}
	return out.String()
}

func formatAttempt(a *logbook.Attempt) string {
	mark := "?"
	if a.Asked > 0 {
		mark += fmt.Sprintf("(%d)", a.Asked)
	}
	switch {
	case a.Ended() && a.Failure == nil:
		mark = "+"
	case a.Ended():
		mark = "-"
	}
	text := fmt.Sprintf("%s%d%s", strings.ToUpper(string(a.Action[:1])), a.Number, mark)
	if a.Failure != nil && a.Failure.Kind != logbook.FailureError {
		text += "[" + a.Failure.Kind + "]"
	}
	return text
}

func formatFailure(f *logbook.Failure) string {
	if f == nil {
		return ""
	}
	text := fmt.Sprintf(" (%s: %s)", f.Step, f.Kind)
	if f.Step == "" {
		text = fmt.Sprintf(" (%s)", f.Kind)
	}
	for i := range f.Causes {
		if f.Causes[i].Step != "" {
			text += " after" + formatFailure(&f.Causes[i])
		}
	}
	return text
}
