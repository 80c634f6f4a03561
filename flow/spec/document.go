// Package spec reads a flow from a document, in TOML or JSON, and builds it from the daemon's
// handlers: a flow without a program.
//
// A document names its steps and their handlers. The values that steps provide and require
// connect the steps; after adds an order that no value expresses.
//
//	name    = "greet"
//	pattern = "graph"              # or linear, unordered; default: graph
//	inputs  = ["guest"]            # values that a job must supply
//	timeout = "30m"                # of one run of the flow; default: none
//	deadline = "2h"                # of the job, from its posting; default: none
//
//	[job]                          # defaults for the posting of the job
//	attempts = 3                   # also key, on_failure, priority, labels, retention
//
//	[store]                        # values that a job can supply, with their defaults
//	greeting = "Welcome"
//
//	[[steps]]
//	name     = "find-room"
//	handler  = "find-room"         # default: the step's name
//	revert   = "release-room"      # undoes the step; default: none
//	requires = ["guest"]           # or {argument = "symbol"}
//	provides = "room"              # the whole result; ["a", "b"]: fields of it
//	timeout  = "30s"
//	retry    = {attempts = 3, delay = "1s", backoff_percent = 200, max_delay = "1m"}
//
//	[[steps]]
//	name     = "say-hello"
//	requires = {who = "guest", where = "room", words = "greeting"}
//	optional = ["language"]
//	argv     = ["--in={where}"]    # arguments on the command line, besides those on stdin
//	at_most_once = true            # never started twice, even after a crash
//	point_of_no_return = true      # the flow cannot revert past it, once it has succeeded
//	uninterruptible = true         # finishes when its flow is undone or suspended meanwhile
//	repeatable = false             # true: may run again after a crash, with other inputs
//	version  = "2"
//	on_failure = "ignore"          # the flow continues after a permanent failure
//	default  = []                  # the result after such a failure
//
// A symbol can lead to a value inside another one, by fields and indexes: see flow.Rebind. Braces in
// argv, worker_labels and a concurrency key can do the same with an argument.
//
//	requires = {price = "order.items.0.price"}
//
// A step that contains steps is a nested flow: it has a name, a description, a pattern, after, when, retry,
// on_takeover, on_failure, steps, on_error and finally, and nothing else.
//
// The retry of a flow, or of the document, decides about the whole flow when one of its steps has
// failed permanently. It is not the retry of a step:
//
//	retry = {times = 3, delay = "1s", jitter_percent = 20}
//	retry = {for_each = ["eu", "us"], provides = "region", permanent = "retry"}
//
// Every retry can select failures, by their kinds and exit statuses:
//
//	retry = {attempts = 3, only = ["timeout", 75]}
//	retry = {times = 3, never = ["card.declined"]}
//
// A step or flow of a graph can have conditions on earlier results. The set of conditions is
// closed, because a document has no code: see Condition.
//
//	when = {step = "check", field = "total", is = "over", value = 100}
//	when = {any = [{input = "env", is = "equals", value = "prod"}, {not = {step = "check", is = "exists"}}]}
//
// Finally steps run when all other steps have ended or are undone:
//
//	[[finally]]
//	name     = "close-room"
//	optional = ["room"]            # find-room may not have run
//
// A nested flow can run once for each element of a list:
//
//	each = {over = "orders", as = "order", gather = {receipt = "receipts"}}
//
// A step can continue the job with another iteration of the flow:
//
//	[[steps]]
//	name     = "next-month"
//	again    = {after = "24h"}
//	requires = {month = "following"} # the input month of the next iteration
//
// Several steps can use a flow that is written once:
//
//	[[steps]]
//	name = "hotel"
//	flow = "booking"
//	with = {city = "to"}           # the city of the flow is the value to
//
//	[flows.booking]                # has a pattern, a retry and steps
//
// Parse reports all faults of a document at once, with their positions. It refuses unknown keys,
// so that a misspelt key does not pass for a default.
package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/tomlpos"
	"github.com/conductord/conductord/logbook"
)

// Kind is the name under which conductors register the factory of documents.
const Kind = "document"

// Pattern is the order of a flow's steps.
type Pattern string

// The patterns.
const (
	Linear    Pattern = "linear"    // one after another, as listed
	Unordered Pattern = "unordered" // in parallel
	Graph     Pattern = "graph"     // by required and provided values, and by after
)

// Document is a flow as written in a file. Parse makes and checks it. Do not change it.
type Document struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Pattern     Pattern        `json:"pattern"`
	Inputs      []string       `json:"inputs,omitempty"` // values that a job must supply
	Store       logbook.Values `json:"store,omitempty"`  // values that a job can supply, with their defaults
	Retry       *Rounds        `json:"retry,omitempty"`  // of the flow as a whole

	Timeout  Duration `json:"timeout,omitzero"`  // of one run: see flow.Flow.Timeout
	Deadline Duration `json:"deadline,omitzero"` // of the job, as jobs.Posting.DeadlineAfter
	Job      *Job     `json:"job,omitempty"`

	// Targets and OnChange are passed on to the document's flow detail: see Document.Detail.
	Targets  []string             `json:"targets,omitempty"`
	OnChange logbook.ChangePolicy `json:"on_change,omitempty"`

	OnTakeover flow.TakeoverPolicy `json:"on_takeover,omitempty"`
	OnFailure  flow.FailurePolicy  `json:"on_failure,omitempty"`

	Flows map[string]Part `json:"flows,omitempty"` // flows that steps use by name
	Steps []Step          `json:"steps"`
	Late

	source   string                      // where it was read, for messages
	expanded []Step                      // Steps, with used parts expanded
	late     Late                        // Late, in the same form
	places   map[string]tomlpos.Position // of the expanded steps, flows and retries, by name
}

// Late are the steps of a flow that run at its end, in order.
type Late struct {
	OnError []Step `json:"on_error,omitempty"` // see flow.Flow.OnError
	Finally []Step `json:"finally,omitempty"`  // see flow.Flow.Finally
}

// Part is a flow that is written once and used by steps. Each use gives it a name and values. The
// name of the using step precedes the names of the part's steps: the step "reserve" of the part
// that "hotel" uses is "hotel.reserve".
type Part struct {
	Description string  `json:"description,omitempty"`
	Pattern     Pattern `json:"pattern"`
	Retry       *Rounds `json:"retry,omitempty"`
	Enough      int     `json:"enough,omitempty"` // see flow.Flow.Enough; 0: all steps must succeed
	Steps       []Step  `json:"steps"`
	Late

	OnTakeover flow.TakeoverPolicy `json:"on_takeover,omitempty"`
	OnFailure  flow.FailurePolicy  `json:"on_failure,omitempty"`

	places map[string]tomlpos.Position // of its steps, flows and retries
}

// Step is one step of a document. With Steps, it is a nested flow; with a Flow, the use of a
// part.
type Step struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Handler     string `json:"handler,omitempty"`
	Revert      string `json:"revert,omitempty"`
	// Worker gives the step to a worker; Handler and Revert are then types of steps.
	Worker          bool           `json:"worker,omitempty"`
	WorkerLabels    []string       `json:"worker_labels,omitempty"`
	NoWorkerTimeout Duration       `json:"no_worker_timeout,omitzero"`
	SameWorkerAs    string         `json:"same_worker_as,omitempty"`
	Requires        Arguments      `json:"requires,omitempty"`
	Optional        Arguments      `json:"optional,omitempty"`
	Provides        Provides       `json:"provides,omitzero"`
	Inject          logbook.Values `json:"inject,omitempty"`
	Argv            []string       `json:"argv,omitempty"` // see handler.Argv
	After           []string       `json:"after,omitempty"`
	// When are the conditions of the step or flow. All must be true.
	When       []Condition `json:"when,omitempty"`
	Timeout    Duration    `json:"timeout,omitzero"`
	Deadline   Deadline    `json:"deadline,omitzero"`
	Retry      *Backoff    `json:"retry,omitempty"`
	AtMostOnce bool        `json:"at_most_once,omitempty"`
	// PointOfNoReturn keeps the flow from reverting once the step has succeeded: see
	// flow.PointOfNoReturn.
	PointOfNoReturn bool `json:"point_of_no_return,omitempty"`
	// Uninterruptible lets the step finish when its flow is undone or suspended meanwhile.
	Uninterruptible bool `json:"uninterruptible,omitempty"`
	// Repeatable lets the step start before the earlier results are durable: see flow.Repeatable.
	Repeatable bool   `json:"repeatable,omitempty"`
	Version    string `json:"version,omitempty"`
	// WaitAtMost limits how long an attempt may answer "not yet".
	WaitAtMost Duration `json:"wait_at_most,omitzero"`
	// Wait is the wait of the step for a signal or a time; nil: it does not wait.
	Wait *Wait `json:"wait,omitempty"`
	// Approve is the approval for which the step waits; nil: it waits for none.
	Approve *Approve `json:"approve,omitempty"`
	// Again continues the job with another iteration of the flow; nil: the job ends with the flow.
	Again *Again `json:"again,omitempty"`
	// Sleep is a time or a moment for which the step waits without a signal.
	Sleep string `json:"sleep,omitempty"`
	// Default is the result of a step whose failure is ignored; nil: none.
	Default     json.RawMessage `json:"default,omitempty"`
	Concurrency *Concurrency    `json:"concurrency,omitempty"`
	// Send are the signals that the step sends to jobs when it succeeds.
	Send     []Send `json:"send,omitempty"`
	Priority int    `json:"priority,omitempty"`

	// Each runs a nested flow, or the use of a part, once for each element of a list.
	Each *Each `json:"each,omitempty"`

	// For the use of a part: the part's name, and the names of its symbols here.
	Flow string    `json:"flow,omitempty"`
	With Arguments `json:"with,omitempty"`

	// For a nested flow. In a document its Rounds are called retry.
	Pattern Pattern `json:"pattern,omitempty"`
	Rounds  *Rounds `json:"-"`
	Enough  int     `json:"enough,omitempty"` // see flow.Flow.Enough; 0: all steps must succeed
	Steps   []Step  `json:"steps,omitempty"`
	Late

	OnTakeover flow.TakeoverPolicy `json:"on_takeover,omitempty"`
	OnFailure  flow.FailurePolicy  `json:"on_failure,omitempty"` // of a nested flow; of a step: ignoreFailure

	late string // the key of the list in Late that holds it; empty: none
}

// ignoreFailure is the policy of a step whose failure is ignored. A flow cannot have it.
const ignoreFailure flow.FailurePolicy = "ignore"

// MarshalJSON writes the retry of a flow under its key in documents.
func (s Step) MarshalJSON() ([]byte, error) {
	type plain Step
	if s.Rounds == nil {
		return logbook.EncodeJSON(plain(s))
	}
	return logbook.EncodeJSON(struct {
		plain
		Rounds *Rounds `json:"retry"`
	}{plain(s), s.Rounds})
}

// Nested reports whether the step is a nested flow.
func (s *Step) Nested() bool { return len(s.Steps) > 0 }

// Each is the list for which a flow runs, once for each element.
type Each struct {
	Over   string    `json:"over"` // the symbol of the list
	As     string    `json:"as"`   // of the element, for the steps of the flow
	Place  string    `json:"place,omitempty"`
	AtOnce int       `json:"at_once,omitempty"` // 0: all
	Gather Arguments `json:"gather,omitempty"`  // values that the instances provide, with the names of their lists
	// MaxFailures limits the elements that may fail: a number, or a share such as "10%"; nil: the
	// each ignores no failure.
	MaxFailures json.RawMessage `json:"max_failures,omitempty"`
	Failures    string          `json:"failures,omitempty"` // the symbol of their list
	Enough      int             `json:"enough,omitempty"`   // see flow.Flow.Enough; 0: all elements must succeed
}

// provided are the symbols that an each gives to its instances and to others.
func (e *Each) provided() []string {
	if e == nil {
		return nil
	}
	provided := slices.AppendSeq([]string{e.As}, maps.Values(e.Gather))
	if e.Place != "" {
		provided = append(provided, e.Place)
	}
	if e.Failures != "" {
		provided = append(provided, e.Failures)
	}
	return provided
}

// Arguments are the names that a handler uses, each with the symbol of its value. In With, they
// are the symbols of a part.
type Arguments map[string]string

// Provides are the values that a step gives to others: its whole result under one symbol, or
// fields of it, each under its own name or another. Only one of the three is set.
type Provides struct {
	Whole  string
	Fields []string
	As     map[string]string // field to symbol
}

// IsZero reports whether the step provides nothing.
func (p Provides) IsZero() bool { return p.Whole == "" && len(p.Fields) == 0 && len(p.As) == 0 }

// symbols are all that is provided.
func (p Provides) symbols() []string {
	symbols := slices.AppendSeq(slices.Clone(p.Fields), maps.Values(p.As))
	if p.Whole != "" {
		symbols = append(symbols, p.Whole)
	}
	return symbols
}

// MarshalJSON writes a string for the whole, a list for fields under their own names, and an
// object for fields under other names.
func (p Provides) MarshalJSON() ([]byte, error) {
	if p.Whole != "" {
		return logbook.EncodeJSON(p.Whole)
	}
	if len(p.As) > 0 {
		return logbook.EncodeJSON(p.As)
	}
	return logbook.EncodeJSON(p.Fields)
}

// Duration is a time in the form of documents: "30s", "1h30m".
type Duration time.Duration

// MarshalText writes the duration so that Parse reads it again.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Backoff is a flow.Backoff and a logbook.RetryFilter in the form of documents.
type Backoff struct {
	Attempts       int      `json:"attempts,omitempty"` // unset for the rounds of a flow
	Delay          Duration `json:"delay,omitzero"`
	BackoffPercent int      `json:"backoff_percent,omitempty"`
	MaxDelay       Duration `json:"max_delay,omitzero"`
	JitterPercent  int      `json:"jitter_percent,omitempty"`
	Only           []string `json:"only,omitempty"` // see logbook.RetryFilter
	Never          []string `json:"never,omitempty"`
}

// Rounds is the retry of a flow. It decides whether the whole flow starts again after one of its steps has failed
// permanently. Set one of Times, ForEach, AlwaysRevert and AlwaysRevertAll.
type Rounds struct {
	Name            string `json:"name"`
	Times           int    `json:"times,omitempty"`
	ForEach         List   `json:"for_each,omitzero"`
	AlwaysRevert    bool   `json:"always_revert,omitempty"`
	AlwaysRevertAll bool   `json:"always_revert_all,omitempty"`

	Provides string `json:"provides,omitempty"` // the value of a round
	Backoff
	Permanent    string `json:"permanent,omitempty"` // "retry": another round after permanent failures too
	RevertingAll bool   `json:"reverting_all,omitempty"`
	Version      string `json:"version,omitempty"`
}

// List is a list of values, or the symbol of one.
type List struct {
	Values []json.RawMessage
	Symbol string
}

// IsZero reports whether there is no list.
func (l List) IsZero() bool { return l.Symbol == "" && len(l.Values) == 0 }

// MarshalJSON writes a string for a symbol, a list for values.
func (l List) MarshalJSON() ([]byte, error) {
	if l.Symbol != "" {
		return logbook.EncodeJSON(l.Symbol)
	}
	return logbook.EncodeJSON(l.Values)
}

// JSON is the canonical form of the document, from TOML or JSON: the arguments of the factory as
// the logbook keeps them. Parse reads it again.
func (d *Document) JSON() json.RawMessage {
	text, err := logbook.EncodeJSON(d)
	if err != nil {
		// Parse has checked all that could make this fail.
		panic(fmt.Sprintf("internal error: cannot encode the document %q: %v", d.Name, err))
	}
	return text
}
