package flow

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/conductord/conductord/logbook"
)

// Factory builds a flow from its arguments. It must build the same flow from
// the same arguments every time and everywhere: a flow that one conductor has
// begun is continued by another that has built it anew.
type Factory func(args json.RawMessage) (*Flow, error)

// Registry holds factories by the kind of flow that they build. Its methods may be called
// concurrently.
type Registry struct {
	mu        sync.RWMutex
	factories map[string]Factory
}

// NewRegistry makes an empty registry.
func NewRegistry() *Registry { return &Registry{factories: make(map[string]Factory)} }

// Register adds a factory. ErrDuplicate if the kind has one already, ErrInvalid if the kind
// is not a valid name or the factory is nil.
func (r *Registry) Register(kind string, factory Factory) error {
	if err := logbook.MaxLimits.CheckName("kind", kind); err != nil {
		return fmt.Errorf("cannot register a factory: %w: %w", ErrInvalid, err)
	}
	if factory == nil {
		return fmt.Errorf("cannot register kind %q: %w: no factory", kind, ErrInvalid)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.factories[kind]; ok {
		return fmt.Errorf("cannot register kind %q: %w", kind, ErrDuplicate)
	}
	r.factories[kind] = factory
	return nil
}

// Build builds a flow. ErrUnknownKind; ErrFactory if the factory fails, panics, or returns
// nil.
func (r *Registry) Build(kind string, args json.RawMessage) (*Flow, error) {
	r.mu.RLock()
	factory, ok := r.factories[kind]
	r.mu.RUnlock()
	if !ok {
		return nil, fmt.Errorf("cannot build a flow: %w: %q", ErrUnknownKind, kind)
	}
	built, err := callFactory(factory, args)
	if err == nil && built == nil {
		err = fmt.Errorf("it built nothing")
	}
	if err != nil {
		return nil, fmt.Errorf("%w of kind %q: %w", ErrFactory, kind, err)
	}
	return built, nil
}

func (r *Registry) knows(kind string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.factories[kind] != nil
}

// argumentsOf marshals a factory's arguments; nil for nil.
func argumentsOf(args any) (json.RawMessage, error) {
	if args == nil {
		return nil, nil
	}
	return json.Marshal(args)
}

// Kinds are the registered kinds in order.
func (r *Registry) Kinds() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.factories))
}

func callFactory(factory Factory, args json.RawMessage) (built *Flow, err error) {
	defer func() {
		if value := recover(); value != nil {
			built, err = nil, &PanicError{Value: value, Stack: string(debug.Stack())}
		}
	}()
	return factory(args)
}
