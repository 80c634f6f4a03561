package logbook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Values are named JSON values. A store keeps the bytes of each value unchanged.
type Values map[string]json.RawMessage

// Size returns the total bytes of names and values.
func (v Values) Size() (size int) {
	for name, value := range v {
		size += len(name) + len(value)
	}
	return size
}

// ValuesOf makes values from a Go value that encodes to a JSON object, such as a map or a struct. The
// members of the object are the values. ValuesOf(nil) is nil. ErrInvalid if the value does not encode to
// an object.
func ValuesOf(object any) (Values, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, &InvalidError{Field: "values", Reason: fmt.Sprintf("cannot be encoded as JSON: %v", err)}
	}
	var values Values
	if json.Unmarshal(raw, &values) != nil {
		return nil, &InvalidError{Field: "values", Reason: fmt.Sprintf("a %T is not encoded as a JSON object", object)}
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
	Flows     []FlowDetail `json:"flows,omitempty"` // in the order of their addition
	// Board is the board whose roles apply to the book: the board of the job that was posted with the
	// book, or the Board of the first SaveBook.
	Board string `json:"board,omitempty"`
}

// Factory is the registered name of the function that builds a flow, and its arguments. A logbook
// contains no code.
type Factory struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

// FlowDetail is the record of one flow: its factory, its values, its state and its atoms.
type FlowDetail struct {
	ID      FlowID  `json:"id"`
	Book    BookID  `json:"book"`
	Name    string  `json:"name"`
	Factory Factory `json:"factory"`
	Store   Values  `json:"store,omitempty"` // inputs of the flow's steps; values of the job's store override them
	Meta    Values  `json:"meta,omitempty"`
	// Targets limit the run to these steps and the steps that they need. Empty: all steps.
	Targets []string `json:"targets,omitempty"`
	// OnChange decides whether the flow continues with a changed definition. Empty: ChangeAdopt.
	OnChange ChangePolicy `json:"on_change,omitempty"`
	// OnFailure replaces the failure policies in the flow's definition. Empty: it replaces none.
	OnFailure FailurePolicy `json:"on_failure,omitempty"`
	State     FlowState     `json:"state"`
	Cause     *Failure      `json:"cause,omitempty"` // why the flow is reverting, reverted or in failure
	// Definition is the definition with which the flow started, or the latest adopted definition;
	// nil before the flow starts.
	Definition *Definition `json:"definition,omitempty"`
	// Interventions are all interventions in the flow, oldest first.
	Interventions []Intervention `json:"interventions,omitempty"`
	CreatedAt     time.Time      `json:"created_at"`
	UpdatedAt     time.Time      `json:"updated_at"`

	// Fence is the token of the latest update, and Sequence its number under that token. The next
	// update has number Sequence+1, or 1 under a new token.
	Fence    Token  `json:"fence"`
	Sequence uint64 `json:"sequence"`
	// Ended is the token under which the flow last ended. Interventions with older tokens have been
	// performed or refused.
	Ended Token `json:"ended_token,omitzero"`
	// Begun is the token of a claim under which steps of the flow may have started without a record: its first steps,
	// or the steps after a wait that a signal has ended; zero: none. The next update records these steps, and clears Begun.
	Begun Token `json:"begun_token,omitzero"`

	// Iteration is the number of the iteration of a flow that continues (flow.Again), from 2; 0: the first.
	Iteration int `json:"iteration,omitempty"`
	// Previous is the flow of the previous iteration; zero: none is kept.
	Previous FlowID `json:"previous,omitzero"`
	// Origin is the flow of the first iteration; zero: this flow. The encryption of Factory, Store and Meta is bound to
	// it, because the cluster copies them from one iteration to the next.
	Origin FlowID `json:"origin,omitzero"`
	// Continued: a later iteration exists. No job and no intervention can run this flow again.
	Continued bool `json:"continued,omitempty"`

	// Atoms are in the order of their first record.
	Atoms []AtomDetail `json:"atoms,omitempty"`
}

// Atom returns the atom with this name.
func (f *FlowDetail) Atom(name string) (*AtomDetail, bool) {
	for i := range f.Atoms {
		if f.Atoms[i].Name == name {
			return &f.Atoms[i], true
		}
	}
	return nil, false
}

// Held reports whether the flow is in failure without a failed revert: a step has failed, and its policy is
// HoldOnFailure. The flow must have its atoms.
func (f *FlowDetail) Held() bool {
	return f.State == FlowFailure && !slices.ContainsFunc(f.Atoms, func(a AtomDetail) bool { return a.State == AtomRevertFailure })
}

// Passed returns the first step that is a point of no return, according to the flow's definition, and that
// has succeeded; empty if there is none, or if the definition has no steps. The flow must have the atoms of
// these steps.
func (f *FlowDetail) Passed() string {
	points := f.Definition.Points()
	for i := range f.Atoms {
		if name := f.Atoms[i].Name; len(points) > 0 && f.Atoms[i].Stands() && IsPoint(points, name) {
			return name
		}
	}
	return ""
}

// IsPoint reports whether a step, or the template step of an instance, is among the names that
// Definition.Points or Definition.Finals returns.
func IsPoint(points map[string]bool, step string) bool {
	for ok := true; ok; step, ok = CutInstance(step) {
		if points[step] {
			return true
		}
	}
	return false
}

// IgnoredFailures returns the failures that the flow ignores, each with its Step. The flow must have its
// atoms.
func (f *FlowDetail) IgnoredFailures() (failures []Failure) {
	for i := range f.Atoms {
		if failure := f.Atoms[i].Failure(); failure != nil && f.Atoms[i].FailureIgnored() {
			ignored := *failure
			ignored.Step = f.Atoms[i].Name
			failures = append(failures, ignored)
		}
	}
	return failures
}

// AtomKind is the kind of an atom.
type AtomKind string

// The kinds of atom.
const (
	KindTask  AtomKind = "task"
	KindRetry AtomKind = "retry"
	// KindEach starts a part of a flow that runs once for each element of a list. Its result is the
	// list.
	KindEach AtomKind = "each"
)

// Known reports whether the kind is one of the constants.
func (k AtomKind) Known() bool { return k == KindTask || k == KindRetry || k == KindEach }

// AtomDetail is the record of one step or retry of a flow.
type AtomDetail struct {
	Name      string    `json:"name"`
	Kind      AtomKind  `json:"kind"`
	Version   string    `json:"version,omitempty"`
	State     AtomState `json:"state"`
	Intention Intention `json:"intention"`
	// RetryAt is the time of the next attempt after a failure, or of the next call after a "not yet".
	RetryAt time.Time `json:"retry_at,omitzero"`
	// Progress is the latest report of the latest attempt; nil if there was none.
	Progress *Progress `json:"progress,omitempty"`
	// Checkpoints count the checkpoints of this round; nil: none.
	Checkpoints *Checkpoints `json:"checkpoints,omitempty"`
	// Attempts are the executions and reverts, oldest first. An attempt starts once and ends once; an
	// ended attempt never changes. Above KeptAttempts, the oldest attempts are folded.
	Attempts []Attempt `json:"attempts,omitempty"`
	Folded   Folded    `json:"folded,omitzero"`
}

// CutInstance removes the last index from the name of a step's instance, such as step[3], or from
// indexes alone, such as [2][3]. ok is false if there is no index.
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

// Folded counts the oldest attempts of an atom, which are no longer kept. A conductor needs these
// numbers to number later attempts and rounds.
type Folded struct {
	Executions int `json:"executions,omitempty"`
	Reverts    int `json:"reverts,omitempty"`
	Resets     int `json:"resets,omitempty"`
	// Rounds counts the folded attempts that started a new round: executions after a revert, and
	// resets.
	Rounds int `json:"rounds,omitempty"`
	// Undone: the latest folded attempt is a revert, so the next execution starts a round.
	Undone bool `json:"undone,omitempty"`
}

// Progress is a progress report of an attempt.
type Progress struct {
	Done    int64           `json:"done"`
	Total   int64           `json:"total,omitempty"`   // 0: unknown
	Details json.RawMessage `json:"details,omitempty"` // any JSON value, for display
	At      time.Time       `json:"at"`
}

// Action is the kind of an attempt.
type Action string

// The actions.
const (
	ActionExecute Action = "execute"
	ActionRevert  Action = "revert"
	// ActionReset executes and reverts nothing. It records that an operator restarted the atom.
	// Earlier attempts are only history then.
	ActionReset Action = "reset"
)

// Known reports whether the action is one of the constants.
func (a Action) Known() bool { return a == ActionExecute || a == ActionRevert || a == ActionReset }

// Attempt is one execution or one revert of an atom, or an operator's action instead. For an operator's
// action, Token and Owner come from the Intervention.
type Attempt struct {
	Action Action `json:"action"`
	// Number counts from 1, separately for each action.
	Number    int       `json:"number"`
	Token     Token     `json:"token"`
	Owner     string    `json:"owner,omitempty"` // name of the conductor or the operator, for display
	StartedAt time.Time `json:"started_at"`
	// EndedAt is zero while the attempt runs. It stays zero if the conductor died, because the
	// outcome is unknown.
	EndedAt time.Time `json:"ended_at,omitzero"`
	// Asked counts the "not yet" results of the attempt. After a "not yet", the attempt stays open, and nothing
	// runs until the next call.
	Asked int `json:"asked,omitempty"`
	// Offered: the attempt is for a step worker, and continues when its conductor dies. Worker is the
	// session of the worker that has the attempt, recorded before the worker gets it; empty: no worker
	// has had it. WorkerName identifies the worker after its session has ended.
	Offered    bool   `json:"offered,omitempty"`
	Worker     string `json:"worker,omitempty"`
	WorkerName string `json:"worker_name,omitempty"`
	// Unbegun: the execution ended before its function or handler was called: see NeverBegan. A revert
	// with Unbegun had nothing to undo, and was not called.
	Unbegun bool `json:"unbegun,omitempty"`
	// Wait is the wait of an execution for a signal or a time; nil: it does not wait.
	Wait *Wait `json:"wait,omitempty"`
	// Sends are the signals that a successful execution sends to other jobs.
	Sends []Sending `json:"sends,omitempty"`
	// Result is the JSON value of a successful attempt, or the default result of an execution whose
	// failure is ignored.
	Result  json.RawMessage `json:"result,omitempty"`
	Failure *Failure        `json:"failure,omitempty"`
	// Stderr is the end of the handler's stderr.
	Stderr          string `json:"stderr,omitempty"`
	StderrTruncated bool   `json:"stderr_truncated,omitempty"`
	// Failures are only in attempts of a retry: the failures of the retry's steps that led to this
	// attempt, each with its Step. They are part of this attempt and not of the previous one, because
	// an ended attempt never changes.
	Failures []Failure `json:"failures,omitempty"`
	// Shortened: this answer omits the result, Stderr, and texts and details of failures, because the
	// attempts of the atom are too long together.
	Shortened bool `json:"shortened,omitempty"`
}

// Ended reports whether the outcome of the attempt is known.
func (a *Attempt) Ended() bool { return !a.EndedAt.IsZero() }

// IsUntaken reports whether the attempt is open, and no worker has taken it.
func (a *Attempt) IsUntaken() bool { return a.Offered && a.Worker == "" && !a.Ended() }

// AwaitsWorker reports whether the step waits for a worker to take its open attempt.
func (a *AtomDetail) AwaitsWorker() bool {
	n := len(a.Attempts)
	return n > 0 && (a.State == AtomRunning || a.State == AtomReverting) && a.RetryAt.IsZero() && a.Attempts[n-1].IsUntaken()
}

// NeverBegan reports whether an execution certainly did nothing. It ended before its function or handler
// was called, or no worker has had it. The revert of such an execution must not be called.
func (a *Attempt) NeverBegan() bool {
	return a.Unbegun || a.Offered && a.Worker == "" && a.Asked == 0 && (a.Failure != nil || !a.Ended())
}

// Len returns the number of folded attempts.
func (f *Folded) Len() int { return f.Executions + f.Reverts + f.Resets }

// Count returns the number of folded attempts with an action.
func (f *Folded) Count(action Action) int {
	switch action {
	case ActionExecute:
		return f.Executions
	case ActionRevert:
		return f.Reverts
	}
	return f.Resets
}

// Add counts one more folded attempt, which must be the oldest kept one.
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

// Fold keeps the latest attempts, up to the limit most (at least two), and counts the others in
// Folded. It always keeps the latest execution, because a conductor resumes from its outcome. If the
// latest execution is the oldest kept attempt, Fold counts the revert after it instead.
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

// Holds reports whether an attempt with this number is kept or folded.
func (a *AtomDetail) Holds(action Action, number int) bool {
	return number <= a.Folded.Count(action) || slices.ContainsFunc(a.Attempts, func(attempt Attempt) bool {
		return attempt.Action == action && attempt.Number == number
	})
}

// Number returns the number of the latest attempt with an action, including folded attempts; 0 if there was
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

// Last returns the latest kept attempt with an action since the latest reset.
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

// Result returns the result of the latest execution, if the execution succeeded and is not undone. If
// its failure is ignored, Result returns the step's default result, if there is one.
func (a *AtomDetail) Result() (json.RawMessage, bool) {
	ignored := a.FailureIgnored()
	if a.State != AtomSuccess && a.State != AtomReverting && !ignored {
		return nil, false
	}
	last, ok := a.Last(ActionExecute)
	if !ok || !last.Ended() || (last.Failure != nil) != ignored || ignored && len(last.Result) == 0 {
		return nil, false
	}
	return last.Result, true
}

// FailureIgnored reports whether the step has failed permanently, and its flow continues.
func (a *AtomDetail) FailureIgnored() bool {
	return a.State == AtomFailure && a.Intention == IntendIgnore
}

// IsDropped reports whether the step reverts or has reverted, because enough other members of its flow have
// succeeded.
func (a *AtomDetail) IsDropped() bool { return a.Intention == IntendDrop }

// lacksResult reports whether the step has no result because it was skipped, or because its failure is
// ignored without a default.
func (a *AtomDetail) lacksResult() bool {
	_, ok := a.Result()
	return a.State == AtomIgnored || a.FailureIgnored() && !ok
}

// IsKept reports whether the result of a task is still valid although its flow was reverted. Its latest
// execution succeeded, and since then no revert has succeeded or was cut off.
func (a *AtomDetail) IsKept() bool {
	execution, ok := a.Last(ActionExecute)
	last := len(a.Attempts) - 1
	return ok && a.Kind == KindTask && execution.Ended() && execution.Failure == nil &&
		(a.Attempts[last].Action == ActionExecute || a.Attempts[last].Failure != nil)
}

// Stands reports whether a task has succeeded and is not undone: its flow does not revert, its revert has
// failed, or its revert has not started.
func (a *AtomDetail) Stands() bool {
	return a.State == AtomSuccess && a.Kind == KindTask || (a.State == AtomRevertFailure || a.State == AtomReverting) && a.IsKept()
}

// NothingUndone reports whether the atom is reverted although no revert was called: its step has no revert, or no
// execution has started.
func (a *AtomDetail) NothingUndone() bool {
	n := len(a.Attempts)
	return a.State == AtomReverted && (n == 0 || a.Attempts[n-1].Action == ActionExecute || a.Attempts[n-1].Unbegun)
}

// Failure returns the failure of the latest execution; nil if it did not fail.
func (a *AtomDetail) Failure() *Failure {
	if last, ok := a.Last(ActionExecute); ok {
		return last.Failure
	}
	return nil
}
