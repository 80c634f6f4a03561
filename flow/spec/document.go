// Package spec reads a flow that is written down as a document, in TOML or
// JSON, and builds it from the handlers of the daemon: a flow without a
// program.
//
// A document names its steps and the handlers that do them. What a step
// provides and what others require ties the steps together; after adds an
// order that no value expresses.
//
//	name    = "greet"
//	pattern = "graph"              # or linear, unordered; graph if not given
//	inputs  = ["guest"]            # what a job must bring
//
//	[store]                        # what a job may bring: these are the defaults
//	greeting = "Welcome"
//
//	[[steps]]
//	name     = "find-room"
//	handler  = "find-room"         # the step's name if not given
//	revert   = "release-room"      # undoes it; nothing if not given
//	requires = ["guest"]           # or {argument = "symbol"}
//	provides = "room"              # the whole result; ["a", "b"]: fields of it
//	timeout  = "30s"
//	retry    = {attempts = 3, delay = "1s", multiplier = 2, max_delay = "1m"}
//
//	[[steps]]
//	name     = "say-hello"
//	requires = {who = "guest", where = "room", words = "greeting"}
//	optional = ["language"]
//	at_most_once = true            # never started twice, even after a crash
//	version  = "2"
//
// A step that has steps of its own is a flow within the flow: it has a name,
// a description, a pattern, after, and steps, and nothing else.
//
// Parse reports all faults of a document at once, with their lines. What is
// unknown is refused: a misspelt key must not pass for a default.
package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/conductord/conductord/logbook"
)

// Kind is the name under which conductors register the factory of documents.
const Kind = "document"

// Pattern is how the steps of a flow are ordered.
type Pattern string

// The patterns.
const (
	Linear    Pattern = "linear"    // one after another, as they stand
	Unordered Pattern = "unordered" // in no order, at the same time
	Graph     Pattern = "graph"     // by what they require and provide, and by after
)

// Document is a flow as it is written down. Parse makes and checks it; it is
// not to be changed.
type Document struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Pattern     Pattern        `json:"pattern"`
	Inputs      []string       `json:"inputs,omitempty"` // values that a job must bring
	Store       logbook.Values `json:"store,omitempty"`  // values that a job may bring, with their defaults
	Steps       []Step         `json:"steps"`

	source string // where it was read, for messages
}

// Step is one step of a document, or, if it has Steps, a flow within the flow.
type Step struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	Handler     string    `json:"handler,omitempty"`
	Revert      string    `json:"revert,omitempty"`
	Requires    Arguments `json:"requires,omitempty"`
	Optional    Arguments `json:"optional,omitempty"`
	Provides    Provides  `json:"provides,omitzero"`
	After       []string  `json:"after,omitempty"`
	Timeout     Duration  `json:"timeout,omitzero"`
	Retry       *Retry    `json:"retry,omitempty"`
	AtMostOnce  bool      `json:"at_most_once,omitempty"`
	Version     string    `json:"version,omitempty"`

	Pattern Pattern `json:"pattern,omitempty"`
	Steps   []Step  `json:"steps,omitempty"`
}

// Nested tells whether the step is a flow within the flow.
func (s *Step) Nested() bool { return len(s.Steps) > 0 }

// Arguments are the names that a handler uses, each with the symbol whose
// value it gets.
type Arguments map[string]string

// Provides is what a step gives to others: its whole result under one
// symbol, or fields of it, each under its own name. Only one is set.
type Provides struct {
	Whole  string
	Fields []string
}

// IsZero tells whether nothing is provided.
func (p Provides) IsZero() bool { return p.Whole == "" && len(p.Fields) == 0 }

// MarshalJSON writes a string for the whole, a list for fields.
func (p Provides) MarshalJSON() ([]byte, error) {
	if p.Whole != "" {
		return json.Marshal(p.Whole)
	}
	return json.Marshal(p.Fields)
}

// Duration is a time as people write it: "30s", "1h30m".
type Duration time.Duration

// MarshalText writes the duration so that Parse reads it again.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Retry is how often a step is tried, and how long it waits between.
type Retry struct {
	Attempts   int      `json:"attempts"`
	Delay      Duration `json:"delay,omitzero"`
	Multiplier float64  `json:"multiplier,omitempty"`
	MaxDelay   Duration `json:"max_delay,omitzero"`
}

// JSON is the one form of the document whatever it was read from: the
// arguments of the factory as the logbook keeps them. Parse reads it again.
func (d *Document) JSON() json.RawMessage {
	text, err := encode(d)
	if err != nil {
		// Parse has checked all that could make this fail.
		panic(fmt.Sprintf("internal error: cannot encode the document %q: %v", d.Name, err))
	}
	return text
}

// encode leaves <, > and & as they are, which json.Marshal does not.
func encode(value any) (json.RawMessage, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(text.Bytes()), nil
}
