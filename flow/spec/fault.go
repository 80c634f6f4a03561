package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/conductord/conductord/internal/tomlpos"
	"github.com/conductord/conductord/logbook"
)

// Fault is one error in a document.
type Fault struct {
	Line   int    `json:"line,omitempty"`   // 0: unknown
	Column int    `json:"column,omitempty"` // in bytes, from 1; 0: unknown
	Where  string `json:"where,omitempty"`  // such as: step "book-flight", timeout
	Reason string `json:"reason"`
	Err    error  `json:"-"` // the error, for a fault of the flow as a whole; else nil
}

func (f Fault) String() string {
	if f.Where == "" {
		return f.Reason
	}
	return f.Where + ": " + f.Reason
}

// MaxFaults limits the reported faults of one document.
const MaxFaults = 50

// FaultError has all faults of a document, in the order of its lines. It is a logbook.ErrInvalid.
type FaultError struct {
	Source string
	Faults []Fault
	More   int // faults beyond MaxFaults
}

// Error has a line for each fault, in the form of a compiler's messages.
func (e *FaultError) Error() string {
	lines := make([]string, 0, len(e.Faults)+1)
	for _, fault := range e.Faults {
		place := e.Source
		if fault.Line > 0 {
			place = fmt.Sprintf("%s:%d", e.Source, fault.Line)
		}
		if fault.Line > 0 && fault.Column > 0 {
			place = fmt.Sprintf("%s:%d", place, fault.Column)
		}
		lines = append(lines, place+": "+fault.String())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("%s: and %d more faults", e.Source, e.More))
	}
	return strings.Join(lines, "\n")
}

// Is makes errors.Is(err, logbook.ErrInvalid) hold.
func (e *FaultError) Is(target error) bool { return target == logbook.ErrInvalid }

// Unwrap returns the errors of package flow.
func (e *FaultError) Unwrap() []error {
	var found []error
	for _, fault := range e.Faults {
		if fault.Err != nil {
			found = append(found, fault.Err)
		}
	}
	return found
}

// faults collects the faults, and the position of each key of the document.
type faults struct {
	source string
	index  tomlpos.Index
	found  []Fault
	more   int
}

// add notes a fault at a path, or at the nearest parent whose position is known.
func (f *faults) add(path, where, reason string) {
	f.note(f.index.Of(path), Fault{Where: where, Reason: reason})
}

func (f *faults) note(at tomlpos.Position, fault Fault) {
	if len(f.found) == MaxFaults {
		f.more++
		return
	}
	fault.Line, fault.Column = at.Line, at.Column
	f.found = append(f.found, fault)
}

func (f *faults) err() error {
	if len(f.found) == 0 {
		return nil
	}
	slices.SortStableFunc(f.found, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &FaultError{Source: f.source, Faults: f.found, More: f.more}
}
