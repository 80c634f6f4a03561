package logbook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Values are named JSON values. The bytes are kept as they were given.
type Values map[string]json.RawMessage

// Size is how many bytes the names and the values have.
func (v Values) Size() (size int) {
	for name, value := range v {
		size += len(name) + len(value)
	}
	return size
}

// ValuesOf makes values of a map or a struct, or of any other Go value that becomes a JSON
// object: the members of the object are the values. ValuesOf(nil) is nil. ErrInvalid.
func ValuesOf(object any) (Values, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, &InvalidError{Field: "values", Reason: fmt.Sprintf("cannot become JSON: %v", err)}
	}
	var values Values
	if json.Unmarshal(raw, &values) != nil {
		return nil, &InvalidError{Field: "values", Reason: fmt.Sprintf("a %T does not become a JSON object", object)}
	}
	return values, nil
}

// Book is a named set of flow details.
type Book struct {
	ID        BookID       `json:"id"`
	Name      string       `json:"name"`
	Meta      Values       `json:"meta,omitempty"`
	CreatedAt time.Time    `json:"created_at"`
	UpdatedAt time.Time    `json:"updated_at"`
	Flows     []FlowDetail `json:"flows,omitempty"` // in the order in which they were added
	// Board is whose principals may see and use the book: that of the job with which it was
	// posted, or the one given to SaveBook when it was new.
	Board string `json:"board,omitempty"`
}

// Factory says how a flow is built: the registered name of a function, and
// its argument. A logbook never holds code.
type Factory struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

// FlowDetail is one flow: how it is built, its values, and how far it has come.
type FlowDetail struct {
	ID      FlowID  `json:"id"`
	Book    BookID  `json:"book"`
	Name    string  `json:"name"`
	Factory Factory `json:"factory"`
	Store   Values  `json:"store,omitempty"` // what the flow's steps may require; a job's store goes over it
	Meta    Values  `json:"meta,omitempty"`
	// Targets limit the run to these steps and what must be done before them. Empty: all steps.
	Targets []string `json:"targets,omitempty"`
	// OnChange is what happens when code that builds the flow differently continues it.
	// Empty: ChangeAdopt.
	OnChange ChangePolicy `json:"on_change,omitempty"`
	State    FlowState    `json:"state"`
	Cause    *Failure     `json:"cause,omitempty"` // why the flow reverts, has reverted, or has failed
	// Definition is how the flow was built when it began, or when a change was last adopted;
	// nil before.
	Definition *Definition `json:"definition,omitempty"`
	// Interventions are what operators have done to the flow after it had failed, oldest first.
	Interventions []Intervention `json:"interventions,omitempty"`
	CreatedAt     time.Time      `json:"created_at"`
	UpdatedAt     time.Time      `json:"updated_at"`

	// Fence is the token of the last update, and Sequence its number under
	// that token: the next update carries Sequence+1, or 1 under a new token.
	Fence    Token  `json:"fence"`
	Sequence uint64 `json:"sequence"`
	// Ended is the token under which the flow last ended: interventions before it have been
	// carried out or refused.
	Ended Token `json:"ended_token,omitzero"`
	// Begun is the token of a claim under which the first steps of the flow may have begun
	// although nothing of it is recorded; zero: there is none. The first update clears it,
	// because it records these steps.
	Begun Token `json:"begun_token,omitzero"`

	// Atoms are in the order in which they were first recorded.
	Atoms []AtomDetail `json:"atoms,omitempty"`
}

// Atom finds an atom by its name.
func (f *FlowDetail) Atom(name string) (*AtomDetail, bool) {
	for i := range f.Atoms {
		if f.Atoms[i].Name == name {
			return &f.Atoms[i], true
		}
	}
	return nil, false
}

// AtomKind is the kind of an atom.
type AtomKind string

// The kinds of atom.
const (
	KindTask  AtomKind = "task"
	KindRetry AtomKind = "retry"
	// KindEach opens a part of a flow that is run once for each element of a list. Its result
	// is the list.
	KindEach AtomKind = "each"
)

// Known reports whether the kind is one of these.
func (k AtomKind) Known() bool { return k == KindTask || k == KindRetry || k == KindEach }

// AtomDetail is the record of one step or retry of a flow.
type AtomDetail struct {
	Name      string    `json:"name"`
	Kind      AtomKind  `json:"kind"`
	Version   string    `json:"version,omitempty"`
	State     AtomState `json:"state"`
	Intention Intention `json:"intention"`
	// RetryAt is when a step is due that has failed, or has said "not yet".
	RetryAt time.Time `json:"retry_at,omitzero"`
	// Progress is the last report of the last attempt; nil if there was none.
	Progress *Progress `json:"progress,omitempty"`
	// Attempts are the executions and reverts, oldest first. An attempt begins once and ends
	// once; nothing is overwritten. If there are more than KeptAttempts, the oldest are folded.
	Attempts []Attempt `json:"attempts,omitempty"`
	Folded   Folded    `json:"folded,omitzero"`
}

// CutInstance cuts the last index off the name of an instance of a step, as in step[3], or off
// the indices alone, as in [2][3].
func CutInstance(name string) (base string, ok bool) {
	open := strings.LastIndexByte(name, '[')
	if open < 0 || !strings.HasSuffix(name, "]") {
		return name, false
	}
	digits := name[open+1 : len(name)-1]
	if index, err := strconv.Atoi(digits); err != nil || strconv.Itoa(index) != digits || index < 0 {
		return name, false
	}
	return name[:open], true
}

// Folded counts the oldest attempts at an atom, which are no longer kept. It
// holds what a conductor needs of them to number those that follow.
type Folded struct {
	Executions int `json:"executions,omitempty"`
	Reverts    int `json:"reverts,omitempty"`
	Resets     int `json:"resets,omitempty"`
	// Rounds is how often the atom began again among them: by an execution after a revert, or
	// by a reset.
	Rounds int `json:"rounds,omitempty"`
	// Undone: the last of them is a revert, so the next execution begins a round.
	Undone bool `json:"undone,omitempty"`
}

// Progress is how far an attempt has come, by its own report.
type Progress struct {
	Done    int64           `json:"done"`
	Total   int64           `json:"total,omitempty"`   // 0: not known
	Details json.RawMessage `json:"details,omitempty"` // anything, for people
	At      time.Time       `json:"at"`
}

// Action is what an attempt does.
type Action string

// The actions.
const (
	ActionExecute Action = "execute"
	ActionRevert  Action = "revert"
	// ActionReset executes and reverts nothing: an operator has had the atom begin again.
	// Earlier attempts are history only.
	ActionReset Action = "reset"
)

// Known reports whether the action is one of these.
func (a Action) Known() bool { return a == ActionExecute || a == ActionRevert || a == ActionReset }

// Attempt is one execution or one revert of an atom, or an operator's action in its place,
// with the token and the name of the Intervention.
type Attempt struct {
	Action Action `json:"action"`
	// Number counts from 1, separately for each action.
	Number    int       `json:"number"`
	Token     Token     `json:"token"`
	Owner     string    `json:"owner,omitempty"` // the conductor's name, or the person's, for people
	StartedAt time.Time `json:"started_at"`
	// EndedAt is zero while the attempt runs. It stays zero if the conductor died: then nobody
	// knows the outcome.
	EndedAt time.Time `json:"ended_at,omitzero"`
	// Asked counts how often the attempt has said "not yet". Until it is asked again, it is
	// open and nothing of it runs.
	Asked int `json:"asked,omitempty"`
	// Offered: the attempt is for a step worker. It goes on when its conductor dies. Worker is
	// the session of the worker that has it, recorded before the worker gets it; empty: none
	// has had it. WorkerName finds that worker again after its session has ended.
	Offered    bool   `json:"offered,omitempty"`
	Worker     string `json:"worker,omitempty"`
	WorkerName string `json:"worker_name,omitempty"`
	// Unbegun: the execution ended before its function or handler was called. See NeverBegan.
	Unbegun bool `json:"unbegun,omitempty"`
	// Result is the JSON value of a successful attempt.
	Result  json.RawMessage `json:"result,omitempty"`
	Failure *Failure        `json:"failure,omitempty"`
	// Stderr is the end of what a handler wrote to stderr.
	Stderr          string `json:"stderr,omitempty"`
	StderrTruncated bool   `json:"stderr_truncated,omitempty"`
	// Failures, in an attempt of a retry, are those of the steps under it (each has its Step)
	// since the attempt before, which led to this one. They are recorded with the next attempt
	// because an ended attempt never changes.
	Failures []Failure `json:"failures,omitempty"`
	// Shortened means that this answer omits the attempt's result, Stderr and the texts of its
	// failures, because those of its atom are too long together.
	Shortened bool `json:"shortened,omitempty"`
}

// Ended reports whether the outcome of the attempt is known.
func (a *Attempt) Ended() bool { return !a.EndedAt.IsZero() }

// IsUntaken reports whether the attempt waits for a worker to take it.
func (a *Attempt) IsUntaken() bool { return a.Offered && a.Worker == "" && !a.Ended() }

// AwaitsWorker reports whether the step waits for a worker: its open attempt is offered, and none has taken it.
func (a *AtomDetail) AwaitsWorker() bool {
	n := len(a.Attempts)
	return n > 0 && (a.State == AtomRunning || a.State == AtomReverting) && a.RetryAt.IsZero() && a.Attempts[n-1].IsUntaken()
}

// NeverBegan reports whether an execution has certainly done nothing, so that its revert must not be
// called: it ended before its function or handler was called, or no worker has had it.
func (a *Attempt) NeverBegan() bool {
	return a.Unbegun || a.Offered && a.Worker == "" && a.Asked == 0 && (a.Failure != nil || !a.Ended())
}

// Len is how many attempts are folded.
func (f *Folded) Len() int { return f.Executions + f.Reverts + f.Resets }

// Count is how many attempts at an action are folded.
func (f *Folded) Count(action Action) int {
	switch action {
	case ActionExecute:
		return f.Executions
	case ActionRevert:
		return f.Reverts
	}
	return f.Resets
}

// Add folds the next attempt after those that are folded.
func (f *Folded) Add(action Action) {
	switch action {
	case ActionExecute:
		f.Executions++
		if f.Undone {
			f.Rounds++
		}
		f.Undone = false
	case ActionRevert:
		f.Reverts++
		f.Undone = true
	case ActionReset:
		f.Resets++
		f.Rounds++
		f.Undone = false
	}
}

// Fold keeps the newest attempts, at most as many as given (two or more), and
// counts the older ones in Folded. The last execution is kept, because a conductor
// resumes from its outcome; the first revert after it, of the same round, is
// folded instead.
func (a *AtomDetail) Fold(most int) {
	for len(a.Attempts) > most {
		if last, ok := a.Last(ActionExecute); ok && last == &a.Attempts[0] {
			a.Folded.Reverts++
			a.Attempts = append([]Attempt{*last}, a.Attempts[2:]...)
			continue
		}
		a.Folded.Add(a.Attempts[0].Action)
		a.Attempts = a.Attempts[1:]
	}
}

// Holds reports whether an attempt of this number is kept or was folded.
func (a *AtomDetail) Holds(action Action, number int) bool {
	return number <= a.Folded.Count(action) || slices.ContainsFunc(a.Attempts, func(attempt Attempt) bool {
		return attempt.Action == action && attempt.Number == number
	})
}

// Number is the number of the latest attempt at an action, folded ones included; 0: there was
// none.
func (a *AtomDetail) Number(action Action) int {
	number := a.Folded.Count(action)
	for i := range a.Attempts {
		if a.Attempts[i].Action == action {
			number++
		}
	}
	return number
}

// Last returns the latest attempt at an action since the atom was last reset.
func (a *AtomDetail) Last(action Action) (*Attempt, bool) {
	for i := len(a.Attempts) - 1; i >= 0; i-- {
		switch a.Attempts[i].Action {
		case action:
			return &a.Attempts[i], true
		case ActionReset:
			return nil, false
		}
	}
	return nil, false
}

// Result is the value of the atom's last execution, if that succeeded and is not undone.
func (a *AtomDetail) Result() (json.RawMessage, bool) {
	if a.State != AtomSuccess && a.State != AtomReverting {
		return nil, false
	}
	last, ok := a.Last(ActionExecute)
	if !ok || !last.Ended() || last.Failure != nil {
		return nil, false
	}
	return last.Result, true
}

// IsKept reports whether the result of a task holds although its flow was reverted: its last execution
// has succeeded, and since then no revert has succeeded or was cut off.
func (a *AtomDetail) IsKept() bool {
	execution, ok := a.Last(ActionExecute)
	last := len(a.Attempts) - 1
	return ok && a.Kind == KindTask && execution.Ended() && execution.Failure == nil &&
		(a.Attempts[last].Action == ActionExecute || a.Attempts[last].Failure != nil)
}

// Failure is why the atom's last execution failed, if it did.
func (a *AtomDetail) Failure() *Failure {
	if last, ok := a.Last(ActionExecute); ok {
		return last.Failure
	}
	return nil
}
