package logbook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Limits are the configurable limits of a cluster. They are checked before a write reaches the log.
// They can be lowered, but not raised.
type Limits struct {
	Name    int // bytes of a name
	Value   int // bytes of one JSON value: a result, an argument, a job's details
	Command int // bytes of one encoded command
	Steps   int // atoms of one flow
}

// MaxLimits are the largest limits, and the defaults.
var MaxLimits = Limits{Name: 255, Value: 256 << 10, Command: 1 << 20, Steps: 10_000}

// WithDefaults returns a copy in which the limits of MaxLimits replace limits that are zero or too large.
func (l Limits) WithDefaults() Limits {
	bounded := func(value, most int) int {
		if value <= 0 || value > most {
			return most
		}
		return value
	}
	return Limits{bounded(l.Name, MaxLimits.Name), bounded(l.Value, MaxLimits.Value), bounded(l.Command, MaxLimits.Command), bounded(l.Steps, MaxLimits.Steps)}
}

// Encrypting is a store that encrypts values before it sends them to the cluster. Encrypted values are
// longer.
type Encrypting interface {
	// PlainLimits returns the limits before encryption, given the limits of the cluster. Without keys
	// they are equal. With keys they are lower.
	PlainLimits(cluster Limits) Limits
}

// PlainLimits returns the limits for the arguments of a store's methods: the limits of the cluster,
// unless the store is Encrypting.
func PlainLimits(store any, cluster Limits) Limits {
	if encrypting, ok := store.(Encrypting); ok {
		return encrypting.PlainLimits(cluster)
	}
	return cluster
}

// Limits that cannot be configured.
const (
	// MaxStderr is the number of bytes kept from the end of a handler's stderr. The end usually has
	// the reason of a failure.
	MaxStderr = 64 << 10
	// MaxJSONDepth bounds the nesting of a value, so that no value exhausts the stack of a reader.
	MaxJSONDepth = 64
	// MaxValues bounds the values of one store or meta.
	MaxValues = 1_000
	// MaxFailures bounds a failure with all its causes. A longer chain does not help the reader.
	MaxFailures = 100
	// MaxDetails bounds the details of one failure.
	MaxDetails = 16
	// MaxChangeAttempts bounds the attempts in one change of an atom. One outcome ends one attempt
	// and starts one. The cost of a change grows with the square of its attempts.
	MaxChangeAttempts = 100
	// KeptAttempts bounds the attempts kept for one atom. It covers all attempts that a policy counts:
	// 100 executions and 100 reverts, or 100 rounds of a retry with their reverts.
	KeptAttempts = 256
	// MaxTargets bounds the targets of one flow, because every claim returns them.
	MaxTargets = 100
	// MaxInterventions bounds the interventions in one flow, because all are kept.
	MaxInterventions = 1_000
	// MaxReason bounds the reason of an intervention, in bytes.
	MaxReason = 1 << 10
)

// CheckName refuses names that are empty, too long or not UTF-8, and names with control characters, which
// garble tables and logs. ErrInvalid or ErrLimit, with the given field.
func (l Limits) CheckName(field, name string) error {
	switch {
	case name == "":
		return &InvalidError{Field: field, Reason: "empty"}
	case len(name) > l.Name:
		return &LimitError{Field: field, Limit: int64(l.Name), Size: int64(len(name)), Unit: "bytes"}
	case !utf8.ValidString(name):
		return &InvalidError{Field: field, Reason: "not UTF-8"}
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return &InvalidError{Field: field, Reason: fmt.Sprintf("contains the control character %U", r)}
		}
	}
	return nil
}

// CheckValue refuses a value that is not exactly one JSON value within the limits. It accepts an empty
// value, which means "none". It also refuses values that JSON parsers read differently, as RFC 8259
// allows: a key twice in one object, a number that a 64-bit float cannot hold, and half of a surrogate
// pair. It checks all values of steps, jobs and flows, so every step can read the results of others.
// ErrInvalid or ErrLimit, with the given field.
func (l Limits) CheckValue(field string, value json.RawMessage) error {
	if len(value) > l.Value {
		return &LimitError{Field: field, Limit: int64(l.Value), Size: int64(len(value)), Unit: "bytes"}
	}
	if len(value) == 0 {
		return nil
	}
	if !utf8.Valid(value) {
		return &InvalidError{Field: field, Reason: "not UTF-8"}
	}
	depth, unclear := readAs(value)
	if depth > MaxJSONDepth {
		return &LimitError{Field: field, Limit: MaxJSONDepth, Size: int64(depth), Unit: "levels of nesting"}
	}
	if !json.Valid(value) {
		return &InvalidError{Field: field, Reason: "not a JSON value: " + jsonFault(value)}
	}
	if unclear != "" {
		return &InvalidError{Field: field, Reason: "programs read it differently, or not at all: it has " + unclear}
	}
	return nil
}

// CheckValues checks the names and values of a store or meta.
func (l Limits) CheckValues(field string, values Values) error {
	if len(values) > MaxValues {
		return &LimitError{Field: field, Limit: MaxValues, Size: int64(len(values)), Unit: "values"}
	}
	for name, value := range values {
		if err := l.CheckName(field+" name", name); err != nil {
			return err
		}
		if len(value) == 0 {
			return &InvalidError{Field: field + "." + name, Reason: "empty; write null for no value"}
		}
		if err := l.CheckValue(field+"."+name, value); err != nil {
			return err
		}
	}
	return nil
}

func jsonFault(value []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(value))
	var any json.RawMessage
	if err := decoder.Decode(&any); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("data follows after byte %d", decoder.InputOffset())
}

// CheckBook checks a book before it is saved.
func (l Limits) CheckBook(b *Book) error {
	if b.ID.IsZero() {
		return &InvalidError{Field: "book id", Reason: "unset"}
	}
	if err := l.CheckName("book name", b.Name); err != nil {
		return err
	}
	if err := l.CheckValues("book meta", b.Meta); err != nil {
		return err
	}
	if b.Board != "" {
		if err := l.CheckName("book board", b.Board); err != nil {
			return err
		}
	}
	seen := make(map[FlowID]bool, len(b.Flows))
	for i := range b.Flows {
		if seen[b.Flows[i].ID] {
			return &InvalidError{Field: "flow id", Reason: fmt.Sprintf("%s occurs twice in the book", b.Flows[i].ID)}
		}
		seen[b.Flows[i].ID] = true
		if err := l.checkFlow(&b.Flows[i]); err != nil {
			return err
		}
	}
	return nil
}

func (l Limits) checkFlow(f *FlowDetail) error {
	if f.ID.IsZero() {
		return &InvalidError{Field: "flow id", Reason: "unset"}
	}
	if err := l.CheckName("flow name", f.Name); err != nil {
		return err
	}
	if err := l.CheckName("flow factory", f.Factory.Name); err != nil {
		return err
	}
	if err := l.CheckValue("flow factory args", f.Factory.Args); err != nil {
		return err
	}
	if err := l.CheckValues("flow store", f.Store); err != nil {
		return err
	}
	if err := l.CheckValues("flow meta", f.Meta); err != nil {
		return err
	}
	if len(f.Atoms) > l.Steps {
		return &LimitError{Field: "flow atoms", Limit: int64(l.Steps), Size: int64(len(f.Atoms)), Unit: "steps"}
	}
	if len(f.Targets) > MaxTargets {
		return &LimitError{Field: "flow targets", Limit: MaxTargets, Size: int64(len(f.Targets)), Unit: "steps"}
	}
	for _, target := range f.Targets {
		if err := l.CheckName("flow target", target); err != nil {
			return err
		}
	}
	if err := f.OnFailure.check(); err != nil {
		return err
	}
	return f.OnChange.check()
}

// CheckUpdate checks an update before it is written.
func (l Limits) CheckUpdate(u *Update) error {
	if u.Flow.IsZero() {
		return &InvalidError{Field: "update flow", Reason: "unset"}
	}
	if len(u.Atoms) > l.Steps {
		return &LimitError{Field: "update atoms", Limit: int64(l.Steps), Size: int64(len(u.Atoms)), Unit: "steps"}
	}
	if err := l.CheckFailure("update cause", u.Cause); err != nil {
		return err
	}
	if err := l.checkDefinition(u.Definition); err != nil {
		return err
	}
	for i := range u.Atoms {
		if err := l.CheckName("atom name", u.Atoms[i].Name); err != nil {
			return err
		}
		if err := l.checkChange(&u.Atoms[i]); err != nil {
			return ofStep(u.Atoms[i].Name, err)
		}
	}
	return nil
}

func (l Limits) checkChange(c *AtomChange) error {
	if err := l.checkOptionalName("version", c.Version); err != nil {
		return err
	}
	if n := len(c.Attempts); n > MaxChangeAttempts {
		return &LimitError{Field: "attempts", Limit: MaxChangeAttempts, Size: int64(n), Unit: "attempts"}
	}
	if err := l.checkProgress(c.Progress); err != nil {
		return err
	}
	if n := len(c.Checkpoints); n > MaxCheckpoints {
		return &LimitError{Field: "checkpoints", Limit: MaxCheckpoints, Size: int64(n), Unit: "checkpoints"}
	}
	for i := range c.Checkpoints {
		if err := l.CheckCheckpoint(&c.Checkpoints[i]); err != nil {
			return err
		}
	}
	for i := range c.Attempts {
		if err := l.checkAttempt(&c.Attempts[i]); err != nil {
			return err
		}
	}
	return nil
}

// ofStep adds the name of a step to the field of an error. It builds no text without an error.
func ofStep(name string, err error) error {
	var invalid *InvalidError
	var limit *LimitError
	switch {
	case errors.As(err, &invalid):
		invalid.Field += " of " + name
	case errors.As(err, &limit):
		limit.Field += " of " + name
	}
	return err
}

// CheckFailure checks a failure and its causes. It accepts nil. Messages and stacks can contain any bytes.
// All messages, stacks and details together can be as long as one value.
func (l Limits) CheckFailure(field string, f *Failure) error {
	if f == nil {
		return nil
	}
	count, size := 0, 0
	rest := []*Failure{f}
	for len(rest) > 0 {
		next := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if err := l.CheckName(field+" kind", next.Kind); err != nil {
			return err
		}
		if err := l.checkOptionalName(field+" step", next.Step); err != nil {
			return err
		}
		if err := l.CheckDetails(field+" details", next.Details); err != nil {
			return err
		}
		count, size = count+1, size+len(next.Message)+len(next.Stack)+next.Details.Size()
		for i := range next.Causes {
			rest = append(rest, &next.Causes[i])
		}
	}
	switch {
	case count > MaxFailures:
		return &LimitError{Field: field, Limit: MaxFailures, Size: int64(count), Unit: "failures"}
	case size > l.Value:
		return &LimitError{Field: field, Limit: int64(l.Value), Size: int64(size), Unit: "bytes"}
	}
	return nil
}

// CheckDetails checks the details of a failure. It checks the size of each value by itself.
func (l Limits) CheckDetails(field string, details Values) error {
	if len(details) > MaxDetails {
		return &LimitError{Field: field, Limit: MaxDetails, Size: int64(len(details)), Unit: "values"}
	}
	return l.CheckValues(field, details)
}

func (l Limits) checkOptionalName(field, name string) error {
	if name == "" {
		return nil
	}
	return l.CheckName(field, name)
}

// before returns one failure with the attempt's Failures as causes, so that CheckFailure counts them
// together; nil if there are none.
func (a *Attempt) before() *Failure {
	if len(a.Failures) == 0 {
		return nil
	}
	return &Failure{Kind: FailureError, Causes: a.Failures}
}

func (l Limits) checkAttempt(a *Attempt) error {
	if err := l.CheckValue("result", a.Result); err != nil {
		return err
	}
	if err := l.CheckFailure("failure", a.Failure); err != nil {
		return err
	}
	if err := l.CheckFailure("earlier failure", a.before()); err != nil {
		return err
	}
	if err := l.checkWait(a.Wait); err != nil {
		return err
	}
	if err := l.checkSendsOf(a); err != nil {
		return err
	}
	if err := l.checkOptionalName("owner", a.Owner); err != nil {
		return err
	}
	if err := l.checkOptionalName("worker", a.Worker); err != nil {
		return err
	}
	if err := l.checkOptionalName("worker name", a.WorkerName); err != nil {
		return err
	}
	if a.Asked < 0 {
		return &InvalidError{Field: "attempt", Reason: fmt.Sprintf("asked is %d; it must not be negative", a.Asked)}
	}
	if len(a.Stderr) > MaxStderr {
		return &LimitError{Field: "stderr", Limit: MaxStderr, Size: int64(len(a.Stderr)), Unit: "bytes"}
	}
	return nil
}

func (l Limits) checkProgress(p *Progress) error {
	if p == nil {
		return nil
	}
	if p.Done < 0 || p.Total < 0 || p.Total > 0 && p.Done > p.Total {
		return &InvalidError{Field: "progress", Reason: fmt.Sprintf("%d of %d", p.Done, p.Total)}
	}
	return l.CheckValue("progress details", p.Details)
}

func (l Limits) checkDefinition(d *Definition) error {
	if d == nil {
		return nil
	}
	// The engine makes the hash, so a lower limit for names does not apply to it.
	if err := MaxLimits.CheckName("definition hash", d.Hash); err != nil {
		return err
	}
	if len(d.Packed) > l.Value {
		return &LimitError{Field: "definition steps", Limit: int64(l.Value), Size: int64(len(d.Packed)), Unit: "bytes"}
	}
	return nil
}

// CheckIntervention checks an intervention before it is written.
func (l Limits) CheckIntervention(i *Intervention) error {
	switch {
	case i.ID == uuid.Nil:
		return &InvalidError{Field: "intervention id", Reason: "unset"}
	case i.Flow.IsZero():
		return &InvalidError{Field: "intervention flow", Reason: "unset"}
	case len(i.Reason) > MaxReason:
		return &LimitError{Field: "intervention reason", Limit: MaxReason, Size: int64(len(i.Reason)), Unit: "bytes"}
	case !utf8.ValidString(i.Reason):
		return &InvalidError{Field: "intervention reason", Reason: "not UTF-8"}
	}
	if err := l.CheckName("intervention by", i.By); err != nil {
		return err
	}
	if err := i.Kind.check(i); err != nil {
		return err
	}
	if err := l.checkOptionalName("intervention step", i.Step); err != nil {
		return err
	}
	if err := l.checkOptionalName("intervention to", i.To); err != nil {
		return err
	}
	return l.CheckValue("intervention result", i.Result)
}
