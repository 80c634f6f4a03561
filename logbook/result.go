package logbook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Values are what the steps of the flow that have succeeded, and its retries, provide, by symbol. If
// several of them provide a symbol, its value is that of the one that comes after all others; without
// such a one it is left out. A list that an each gathers is left out until all its values are known.
//
// The values are found by the recorded Definition, so no code of the flow is needed. None if the
// flow has not begun; an error if its definition was too long to be kept.
func (f *FlowDetail) Values() (Values, error) {
	if f.Definition == nil {
		return Values{}, nil
	}
	steps, err := f.Definition.Steps()
	if err == nil && steps == nil {
		err = fmt.Errorf("its definition was too long to be kept; read the results of its steps")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the results of flow %s: %w", f.ID, err)
	}
	r := recorded{atoms: make(map[string]*AtomDetail, len(f.Atoms))}
	for i := range f.Atoms {
		r.atoms[f.Atoms[i].Name] = &f.Atoms[i]
	}
	values, providers := make(Values), make(map[string][]string)
	for i := range steps {
		for _, provided := range steps[i].Provides {
			source := provided.DefinedSource
			if source.Step == "" {
				source.Step = steps[i].Name
			}
			value, known := r.value(&source, "")
			if !known {
				continue
			}
			delete(values, provided.Symbol) // that of an earlier step
			if value != nil && !provided.isBeside(providers[provided.Symbol]) {
				values[provided.Symbol] = value
			}
			providers[provided.Symbol] = append(providers[provided.Symbol], steps[i].Name)
		}
	}
	return values, nil
}

// Decode reads one of Values into a variable, as json.Unmarshal does. ErrNotFound if there is none
// of this symbol.
func (f *FlowDetail) Decode(symbol string, into any) error {
	values, err := f.Values()
	if err != nil {
		return err
	}
	return values.Decode(symbol, into)
}

// Decode reads the value of a symbol into a variable, as json.Unmarshal does. ErrNotFound if there
// is none.
func (v Values) Decode(symbol string, into any) error {
	value, ok := v[symbol]
	if !ok {
		return fmt.Errorf("cannot read the value %q: %w", symbol, ErrNotFound)
	}
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("cannot read the value %q: %w", symbol, err)
	}
	return nil
}

// isBeside reports whether any of the steps that provide the symbol too is in Beside.
func (v *DefinedValue) isBeside(others []string) bool {
	return len(others) > 0 && slices.Contains(v.Beside, BesideAny) ||
		slices.ContainsFunc(others, func(name string) bool { return slices.Contains(v.Beside, name) })
}

// recorded are the atoms of a flow by name.
type recorded struct{ atoms map[string]*AtomDetail }

// value is the value of a source in the instance whose indexes are at, such as "[3]". It is nil if
// the step was ignored or its result lacks the field, and known is false if it has not succeeded.
func (r *recorded) value(source *DefinedSource, at string) (value json.RawMessage, known bool) {
	name, index := source.Step+at, -1
	if source.Element || source.Index { // of the list behind the last index
		outer, last, ok := cutIndex(at)
		if !ok {
			return nil, false
		}
		name, index = source.Step+outer, last
	}
	atom, ok := r.atoms[name]
	if !ok || atom.State != AtomSuccess {
		return nil, ok && atom.State == AtomIgnored && at != ""
	}
	result, ok := atom.Result()
	switch {
	case !ok:
		return nil, false
	case source.Each == nil && index < 0:
		return fieldOf(result, source.Field), true
	case source.Index:
		return strconv.AppendInt(nil, int64(index), 10), true
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(result, &elements); err != nil || index >= len(elements) {
		return nil, false
	}
	if source.Element {
		return elements[index], true
	}
	for i := range elements {
		if elements[i], known = r.value(source.Each, at+"["+strconv.Itoa(i)+"]"); !known {
			return nil, false
		}
	}
	value, err := json.Marshal(elements)
	return value, err == nil
}

func cutIndex(at string) (outer string, index int, ok bool) {
	for i := len(at) - 1; i >= 0; i-- {
		if at[i] == '[' {
			index, err := strconv.Atoi(at[i+1 : len(at)-1])
			return at[:i], index, err == nil
		}
	}
	return at, 0, false
}

func fieldOf(result json.RawMessage, field string) json.RawMessage {
	if field == "" {
		return result
	}
	var fields Values
	if err := json.Unmarshal(result, &fields); err != nil {
		return nil // nobody requires the field, or the step would have failed
	}
	return fields[field]
}
