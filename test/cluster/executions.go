package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/conductord/conductord/logbook"
)

// Executions counts the executions of repeatable steps, including early executions, which
// other steps must not have.
type Executions struct {
	Begun       int
	Ahead       int // started before its causes were durable; only the harness's conductors know
	Again       int // of a step that had started before
	OtherInputs int // used a result that a crash has lost
	LeftOut     int // the record says that the step never ran
}

// String shows the counts in one line.
func (e Executions) String() string {
	return fmt.Sprintf("repeatable steps: %d executions, %d of them ahead of the record (counted in the harness's own conductors), %d again, %d with inputs that were lost, %d left out of the record",
		e.Begun, e.Ahead, e.Again, e.OtherInputs, e.LeftOut)
}

func (e *Executions) add(more Executions) {
	e.Begun += more.Begun
	e.Ahead += more.Ahead
	e.Again += more.Again
	e.OtherInputs += more.OtherInputs
	e.LeftOut += more.LeftOut
}

// checkExecutions checks that no step began before its causes were durable, unless it is
// repeatable: the record must have its attempt and its inputs. For every step, the inputs of a
// recorded result must be recorded too. These flows never start again, so each step has at
// most one result.
func checkExecutions(entries []Entry, detail *logbook.FlowDetail, fault func(string, ...any)) (counted Executions) {
	results, states := map[string]Result{}, map[string]logbook.AtomState{}
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		results[atom.Name], states[atom.Name] = recordedResult(atom), atom.State
	}
	begun := map[string]int{}
	for _, entry := range entries {
		if entry.Event != EventBegun {
			continue
		}
		recorded := results[entry.Step].Run == entry.Run
		var lost []string
		for _, step := range slices.Sorted(maps.Keys(entry.Inputs)) {
			if results[step].Run != entry.Inputs[step] {
				lost = append(lost, fmt.Sprintf("run %s of step %s, where the record has run %q", entry.Inputs[step], step, results[step].Run))
			}
			if side := entry.Step; recorded && (side == Left || side == Right) && results[step].Pick != side {
				fault("step %s has a result, and the record has picked %q: %s", side, results[step].Pick, entry)
			}
		}
		if entry.Kind == RepeatableStep {
			counted.note(&entry, begun, lost != nil, states[entry.Step])
			if recorded && lost != nil {
				fault("step %s has a result that was made of %s: %s", entry.Step, lost, entry)
			}
			if detail.State == logbook.FlowSuccess && states[entry.Step] != logbook.AtomSuccess && states[entry.Step] != logbook.AtomIgnored {
				fault("the flow has succeeded, and step %s is %q: %s", entry.Step, states[entry.Step], entry)
			}
			continue
		}
		if lost != nil {
			fault("step %s is not repeatable, and took %s: %s", entry.Step, lost, entry)
		}
		if !marked(detail, &entry) {
			fault("step %s is not repeatable, and began without a mark: %s", entry.Step, entry)
		}
		if entry.Kind == OnceStep && entry.Action == logbook.ActionExecute {
			if begun[entry.Step]++; begun[entry.Step] > 1 {
				fault("step %s is to run at most once, and began %d times: %s", entry.Step, begun[entry.Step], entry)
			}
		}
	}
	return counted
}

// note counts an execution of a repeatable step.
func (e *Executions) note(entry *Entry, begun map[string]int, lost bool, state logbook.AtomState) {
	e.Begun++
	if begun[entry.Step]++; begun[entry.Step] > 1 {
		e.Again++
	}
	if entry.Ahead {
		e.Ahead++
	}
	if lost {
		e.OtherInputs++
	}
	if state == logbook.AtomIgnored || state == "" || state == logbook.AtomPending {
		e.LeftOut++
	}
}

// recordedResult is the result of a step; empty: none is recorded.
func recordedResult(atom *logbook.AtomDetail) (result Result) {
	for _, attempt := range atom.Attempts {
		if attempt.Action == logbook.ActionExecute && attempt.Ended() && attempt.Failure == nil {
			_ = json.Unmarshal(attempt.Result, &result) // checkResult reports the fault
		}
	}
	return result
}

// marked reports whether the record has the attempt of an entry. This is also true for the first
// steps of a flow: the claim is their mark, and the next owner records them under that claim's
// token.
func marked(detail *logbook.FlowDetail, entry *Entry) bool {
	atom, found := detail.Atom(entry.Step)
	return found && slices.ContainsFunc(atom.Attempts, func(a logbook.Attempt) bool {
		return a.Action == entry.Action && a.Number == entry.Attempt && a.Token == entry.Token
	})
}
