package flow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/conductord/conductord/logbook"
)

// Inject gives arguments of this step constant values: JSON values, or values that marshal to
// them, by the step's names for its arguments. They replace values from earlier steps and the
// store, for execute and revert. Injected values are part of the step, like its code: they are
// not recorded, and changing them changes the flow's definition. A name that the step does not
// require is an error.
func Inject(values map[string]any) Option {
	return option(func(s *Step) {
		if s.injected == nil {
			s.injected = make(logbook.Values, len(values))
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			encoded, err := json.Marshal(values[name])
			if err != nil {
				s.fault("the value that it injects as %q: %w", name, err)
				continue
			}
			s.injected[name] = encoded
		}
	})
}

// Injected is the injected value of an argument.
func (s *Step) Injected(argument string) (json.RawMessage, bool) {
	value, ok := s.injected[argument]
	return value, ok
}

// checkInjected reports injected values that no argument takes.
func (s *Step) checkInjected() {
	known := slices.Concat(argumentNames(s.requires), argumentNames(s.revertRequires))
	for _, name := range slices.Sorted(maps.Keys(s.injected)) {
		if !slices.Contains(known, name) {
			s.fault("it injects %q, but does not require this argument", name)
		}
	}
}

// needs are the symbols of arguments that are not injected.
func (s *Step) needs() []string {
	var symbols []string
	for _, list := range [][]Argument{s.requires, s.revertArguments()} {
		for _, argument := range list {
			if _, own := s.injected[argument.Name]; !own {
				symbols = append(symbols, argument.Symbol)
			}
		}
	}
	return symbols
}

// Shadow is a value of the store that a step does not get, because an earlier step provides
// the same name.
type Shadow struct {
	Symbol   string
	Step     string // first step that does not get the value
	Provider string // step that provides the value instead
}

// String describes the shadow as a warning.
func (s Shadow) String() string {
	return fmt.Sprintf("the store has %q, but step %q gets the value of step %q", s.Symbol, s.Step, s.Provider)
}

// storedDefaults are the symbols with a value in the store that replaces the result of a step, if the step has not run.
func (p *Plan) storedDefaults() map[string]bool {
	symbols := make(map[string]bool)
	for step := range p.steps {
		for _, wires := range [][]Wire{p.wires[step], p.reverts[step]} {
			for i := range wires {
				if others := wires[i].Others; len(others) > 0 && others[len(others)-1].From == FromStore {
					symbols[wires[i].Symbol] = true
				}
			}
		}
	}
	return symbols
}

// Shadowed are the names in the inputs of Compile that steps hide from other steps, each once, in the order of the
// steps. A value of the store that replaces a missing result of a step is not a shadow. A shadow is allowed but rarely
// intended, so programs that show a plan should warn about it.
func (p *Plan) Shadowed() []Shadow {
	var shadows []Shadow
	seen := p.storedDefaults()
	for step := range p.steps {
		for _, wires := range [][]Wire{p.wires[step], p.reverts[step]} {
			for i := range wires {
				wire := &wires[i]
				if wire.From < 0 || !p.inputs[wire.Symbol] || seen[wire.Symbol] {
					continue
				}
				seen[wire.Symbol] = true
				shadows = append(shadows, Shadow{Symbol: wire.Symbol, Step: p.steps[step].name, Provider: p.steps[wire.From].name})
			}
		}
	}
	return shadows
}
