package flow

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/conductord/conductord/logbook"
)

// maxPassed bounds what a Checker remembers. A busy client posts the same few flows
// repeatedly; a flow that is no longer remembered is compiled again.
const maxPassed = 1_000

// Checker finds the faults of flows before they are posted or started: every fault that Compile
// reports. Its methods may be called concurrently.
type Checker struct {
	registry *Registry
	limits   logbook.Limits

	mu     sync.Mutex
	passed map[[sha256.Size]byte]bool // flows without faults; guarded by mu
}

// NewChecker makes a checker for the kinds of a registry, with the limits of a
// Compilation.
func NewChecker(registry *Registry, limits logbook.Limits) *Checker {
	return &Checker{registry: registry, limits: limits, passed: make(map[[sha256.Size]byte]bool)}
}

// Check builds and compiles the flow of a detail, with the names in its store and in a job's store.
// It accepts a kind that the registry lacks, because another conductor may have it. All faults come
// as one logbook.ErrInvalid. Check does not build a flow again that has passed.
func (c *Checker) Check(detail *logbook.FlowDetail, store logbook.Values) error {
	if !c.registry.knows(detail.Factory.Name) {
		return nil
	}
	names := slices.Sorted(maps.Keys(detail.Store))
	for name := range store {
		if _, ok := detail.Store[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	key := keyOf(detail, names)
	if c.hasPassed(key) {
		return nil
	}
	if _, err := c.registry.compile(c.limits, detail, names); err != nil {
		return &logbook.InvalidError{Field: fmt.Sprintf("flow %q", detail.Name), Reason: err.Error()}
	}
	c.pass(key)
	return nil
}

func (c *Checker) hasPassed(key [sha256.Size]byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed[key]
}

func (c *Checker) pass(key [sha256.Size]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.passed) >= maxPassed {
		clear(c.passed)
	}
	c.passed[key] = true
}

// keyOf is equal for flows of the same factory, arguments, targets and names.
func keyOf(detail *logbook.FlowDetail, names []string) (key [sha256.Size]byte) {
	var text []byte
	for _, list := range [][]string{{detail.Factory.Name, string(detail.Factory.Args)}, detail.Targets, names} {
		text = binary.AppendUvarint(text, uint64(len(list)))
		for _, part := range list {
			text = append(binary.AppendUvarint(text, uint64(len(part))), part...)
		}
	}
	return sha256.Sum256(text)
}

// Detail makes the detail of a new flow, to be posted with a job or saved in a book. The detail
// has a new id. It is checked here, so the caller finds faults before a conductor does.
//
// Args are the factory's arguments, as JSON or as a value that marshals to it. The store must
// hold all values that the flow requires. A value that only the job supplies can be null, because
// the job's value replaces it. Targets are as in Compilation. Errors: ErrUnknownKind, ErrFactory,
// and the errors of Compile.
func (r *Registry) Detail(name, kind string, args any, store logbook.Values, targets ...string) (logbook.FlowDetail, error) {
	failed := func(err error) (logbook.FlowDetail, error) {
		return logbook.FlowDetail{}, fmt.Errorf("cannot make the detail of flow %q: %w", name, err)
	}
	detail := logbook.FlowDetail{ID: logbook.NewFlowID(), Name: name, Factory: logbook.Factory{Name: kind},
		Store: maps.Clone(store), Targets: slices.Clone(targets), State: logbook.FlowPending}
	var err error
	if detail.Factory.Args, err = argumentsOf(args); err != nil {
		return failed(fmt.Errorf("%w: its arguments: %w", ErrInvalid, err))
	}
	_, err = r.compile(logbook.MaxLimits, &detail, slices.Sorted(maps.Keys(store)))
	book := logbook.Book{ID: logbook.NewBookID(), Name: name, Flows: []logbook.FlowDetail{detail}}
	if err = errors.Join(logbook.MaxLimits.CheckBook(&book), err); err != nil {
		return failed(err)
	}
	return detail, nil
}

func (r *Registry) compile(limits logbook.Limits, detail *logbook.FlowDetail, names []string) (*Plan, error) {
	built, err := r.Build(detail.Factory.Name, detail.Factory.Args)
	if err != nil {
		return nil, err
	}
	return Compilation{Limits: limits, Inputs: names, Targets: detail.Targets}.Compile(built)
}
