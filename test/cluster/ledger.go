package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// Event is the kind of a step's entry in the ledger.
type Event string

// The events of one execution or revert. If it is stopped, or its program is killed, it has
// only a begin event.
const (
	EventBegun  Event = "begun"
	EventDone   Event = "done"
	EventFailed Event = "failed"
)

// Entry is one line of a ledger.
type Entry struct {
	At      time.Time
	Place   string // the program that runs the step
	Flow    logbook.FlowID
	Step    string
	Action  logbook.Action
	Attempt int
	Key     string
	Token   logbook.Token
	// Run names one execution or revert. It is the result of the step, so the logbook shows
	// which run it has recorded.
	Run   string
	Event Event
	Kind  StepKind // of the step
	// Inputs are the runs whose results this run received, by the providing step.
	Inputs map[string]string
	Ahead  bool // it started before its cause was durable
}

// String shows an entry in one line.
func (e Entry) String() string {
	return fmt.Sprintf("%s %s %s: %s %s step %s attempt %d, token %v, run %s of %v",
		e.At.Format("15:04:05.000"), e.Place, e.Event, e.Action, e.Kind, e.Step, e.Attempt, e.Token, e.Run, e.Inputs)
}

// entryOf is the ledger entry of a call.
func entryOf(call *flow.Call, kind StepKind) Entry {
	return Entry{
		Flow: call.Flow, Step: call.Step, Action: call.Action, Attempt: call.Attempt,
		Key: call.Key(), Token: call.Token, Kind: kind, Inputs: InputsOf(call.Arguments),
	}
}

// InputsOf are the runs in the arguments of a step.
func InputsOf(arguments logbook.Values) map[string]string {
	inputs := map[string]string{}
	for step, value := range arguments {
		var result Result
		if err := json.Unmarshal(value, &result); err == nil && result.Run != "" {
			inputs[step] = result.Run
		}
	}
	return inputs
}

// Ledger is the system outside the cluster that the steps change.
type Ledger struct {
	// Strict: no two owners of a flow may overlap. A conductor stops its steps before another can
	// start, unless its process was paused.
	Strict bool

	mu      sync.Mutex
	entries map[logbook.FlowID][]Entry
	faults  []error
}

// NewLedger makes an empty ledger.
func NewLedger(strict bool) *Ledger {
	return &Ledger{Strict: strict, entries: map[logbook.FlowID][]Entry{}}
}

// ErrOldToken refuses an entry whose flow has shown a newer token.
var ErrOldToken = errors.New("the ledger has seen a newer token of this flow")

// Write appends an entry, unless alive returns false: a program that was killed
// writes nothing. An entry with an old token is refused, which a strict ledger
// reports as a fault.
func (l *Ledger) Write(e Entry, alive func() bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !alive() {
		return nil
	}
	before := l.entries[e.Flow]
	if n := len(before); n > 0 && e.Token.Compare(before[n-1].Token) < 0 {
		if l.Strict {
			l.faults = append(l.faults, fmt.Errorf("a step ran on under an old token: %s, after %s", e, before[n-1]))
		}
		return ErrOldToken
	}
	l.entries[e.Flow] = append(before, e)
	return nil
}

// Faults returns the faults that the ledger has found.
func (l *Ledger) Faults() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.faults...)
}

// Entries returns the entries of one flow, in order.
func (l *Ledger) Entries(id logbook.FlowID) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries[id])
}

// Forget drops the entries of a flow.
func (l *Ledger) Forget(id logbook.FlowID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, id)
}

// Result is the result of a step of a ledger's flow.
type Result struct {
	Run  string `json:"run"`  // differs in each execution
	Pick string `json:"pick"` // a side, for a decider
}

// Check compares the record of a finished flow with the ledger of its steps. Each result belongs to
// an existing run, the last one of its key. A reverted flow has reverted every started step, and a
// successful flow none. Early executions of repeatable steps, which checkExecutions allows, are
// counted.
func (l *Ledger) Check(detail logbook.FlowDetail) (Executions, error) {
	entries := l.Entries(detail.ID)
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, atom := range detail.Atoms {
		for _, attempt := range atom.Attempts {
			if attempt.Ended() && attempt.Failure == nil && attempt.Action == logbook.ActionExecute {
				checkResult(entries, atom.Name, attempt, fault)
			}
		}
	}
	last := map[string]Entry{}
	for _, entry := range entries {
		last[entry.Step] = entry
	}
	counted := checkExecutions(entries, &detail, fault)
	for name, entry := range last {
		undone := entry.Action == logbook.ActionRevert && entry.Event == EventDone
		done := entry.Action == logbook.ActionExecute && entry.Event == EventDone
		switch {
		case detail.State == logbook.FlowReverted && !undone && entry.Kind == RetriedStep:
			fault("the flow has reverted, and step %s is not undone", name)
		case detail.State == logbook.FlowSuccess && !done && entry.Kind != RepeatableStep:
			fault("the flow has succeeded, and step %s is not done", name)
		}
	}
	if detail.State != logbook.FlowReverted && detail.State != logbook.FlowSuccess {
		fault("the flow has ended in state %s: %v", detail.State, detail.Cause)
	}
	if len(faults) == 0 {
		return counted, nil
	}
	var lines strings.Builder
	for _, entry := range entries {
		lines.WriteString("\n  " + entry.String())
	}
	recorded, _ := json.Marshal(detail.Atoms)
	return counted, fmt.Errorf("flow %s: %s\nthe ledger:%s\nthe logbook: %s", detail.ID, strings.Join(faults, "; "), lines.String(), recorded)
}

// checkResult checks a recorded success: its run belongs to this attempt, and no later run of
// its key exists.
func checkResult(entries []Entry, step string, attempt logbook.Attempt, fault func(string, ...any)) {
	var result Result
	if err := json.Unmarshal(attempt.Result, &result); err != nil {
		fault("step %s has recorded %s: %v", step, attempt.Result, err)
		return
	}
	made := slices.IndexFunc(entries, func(e Entry) bool { return e.Run == result.Run && e.Event == EventDone })
	if made < 0 {
		fault("step %s has recorded run %s, which was never done", step, result.Run)
		return
	}
	run := entries[made]
	if run.Step != step || run.Token != attempt.Token || run.Attempt != attempt.Number || run.Action != attempt.Action {
		fault("step %s has recorded in attempt %d under token %v: %s", step, attempt.Number, attempt.Token, run)
	}
	for _, later := range entries[made+1:] {
		if later.Key == run.Key && later.Event == EventBegun {
			fault("step %s began again after its result was recorded: %s", step, later)
		}
	}
}
