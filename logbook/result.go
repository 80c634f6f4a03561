package logbook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Values returns the values that the succeeded steps of the flow, and its retries, provide, by symbol.
// If several steps provide a symbol, the value comes from the step that is after all others. Without
// such a step, the symbol is omitted. The list of an each is omitted until all its values exist.
//
// Values uses the recorded Definition, and needs no code of the flow. If the flow has not started, there
// are no values. If its definition was too long to be kept, Values returns an error.
func (f *FlowDetail) Values() (Values, error) {
	if f.Definition == nil {
		return Values{}, nil
	}
	steps, err := f.Definition.Steps()
	if err == nil && steps == nil {
		err = fmt.Errorf("its definition was too long to store; read the results of its steps instead")
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
			delete(values, provided.Symbol) // the value of an earlier step
			if value != nil && !provided.isBeside(providers[provided.Symbol]) {
				values[provided.Symbol] = value
			}
			providers[provided.Symbol] = append(providers[provided.Symbol], steps[i].Name)
		}
	}
	return values, nil
}

// Decode decodes the value of a symbol, as json.Unmarshal does: see Values. ErrNotFound if the flow
// has no value of this symbol.
func (f *FlowDetail) Decode(symbol string, into any) error {
	values, err := f.Values()
	if err != nil {
		return err
	}
	return values.Decode(symbol, into)
}

// Decode decodes the value of a symbol, as json.Unmarshal does. ErrNotFound if there is no such
// value.
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

// isBeside reports whether one of the other providers of the symbol is in Beside.
func (v *DefinedValue) isBeside(others []string) bool {
	return len(others) > 0 && slices.Contains(v.Beside, BesideAny) ||
		slices.ContainsFunc(others, func(name string) bool { return slices.Contains(v.Beside, name) })
}

// recorded are the atoms of a flow by name.
type recorded struct{ atoms map[string]*AtomDetail }

// value returns the value of a source in the instance with the indexes at, such as "[3]". It is nil if the instance was
// ignored, failed without a default, or its result lacks the field. known is false if the step has not succeeded.
func (r *recorded) value(source *DefinedSource, at string) (value json.RawMessage, known bool) {
	name, index := source.Step+at, -1
	if source.Element || source.Index { // of the list, at the last index
		outer, last, ok := cutIndex(at)
		if !ok {
			return nil, false
		}
		name, index = source.Step+outer, last
	}
	atom, ok := r.atoms[name]
	if ok && atom.lacksResult() && source.Else != nil {
		return r.value(source.Else, at)
	}
	if !ok || atom.State != AtomSuccess && !atom.FailureIgnored() {
		return nil, ok && atom.State == AtomIgnored && at != ""
	}
	result, ok := atom.Result()
	switch {
	case !ok:
		return nil, atom.FailureIgnored() && at != ""
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
		return nil // no step requires the field; otherwise the step would have failed
	}
	return fields[field]
}
