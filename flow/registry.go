package flow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/conductord/conductord/logbook"
)

// Factory builds a flow from its arguments; Register makes one from a function with typed
// arguments. It must build the same flow from the same arguments every time and in every process:
// one conductor builds and starts a flow, and another builds it again and continues it.
type Factory func(args json.RawMessage) (*Flow, error)

// Registry holds factories by the kind of flow that they build. Its methods may be called
// concurrently.
type Registry struct {
	mu        sync.RWMutex
	factories map[string]Factory
}

// NewRegistry makes an empty registry.
func NewRegistry() *Registry { return &Registry{factories: make(map[string]Factory)} }

// Register adds a factory. Errors: ErrDuplicate if the kind has a factory already, ErrInvalid
// if the kind is not a valid name or the factory is nil.
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

// Register adds a factory with typed arguments. They are decoded from JSON as json.Unmarshal
// does; without arguments, build gets the zero value. A field that T does not have is an
// error, so that a misspelled argument does not pass for an absent one. The errors are those
// of (*Registry).Register.
func Register[T any](r *Registry, kind string, build func(args T) (*Flow, error)) error {
	if build == nil {
		return r.Register(kind, nil)
	}
	return r.Register(kind, func(text json.RawMessage) (*Flow, error) {
		var args T
		if len(text) > 0 {
			decoder := json.NewDecoder(bytes.NewReader(text))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&args); err != nil {
				return nil, fmt.Errorf("cannot read its arguments%s: %w", knownFields(reflect.TypeFor[T]()), err)
			}
		}
		return build(args)
	})
}

// knownFields names the fields of a struct, for an error.
func knownFields(t reflect.Type) string {
	if t = structOf(t); t == nil || marshalsItself(t) {
		return ""
	}
	var names []string
	for _, field := range jsonFields(t, nil) {
		names = append(names, field.name)
	}
	return fmt.Sprintf(" (known are %q)", names)
}

// Build builds a flow. Errors: ErrUnknownKind, and ErrFactory if the factory fails, panics, or
// returns nil.
func (r *Registry) Build(kind string, args json.RawMessage) (*Flow, error) {
	r.mu.RLock()
	factory, ok := r.factories[kind]
	r.mu.RUnlock()
	if !ok {
		return nil, fmt.Errorf("cannot build a flow: %w: %q", ErrUnknownKind, kind)
	}
	built, err := callFactory(factory, args)
	if err == nil && built == nil {
		err = fmt.Errorf("the factory returned no flow")
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
	defer CatchPanic(&err)
	return factory(args)
}
