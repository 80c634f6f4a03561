package spec

import (
	"maps"
	"slices"
	"strings"

	"github.com/conductord/conductord/internal/tomlpos"
	"github.com/conductord/conductord/logbook"
)

// reader makes a document of plain values.
type reader struct {
	faults *faults
	named  map[string]tomlpos.Position // all steps, flows and retries so far, of the document or of a part
	flows  map[string]Part
	steps  int
	level  *level   // the flow that is read
	inputs []string // names that a job supplies or can supply
	later  []func() // checks that need the whole document
}

// claim reserves a name for its first owner. The name belongs to an atom, or to a flow that links
// and conditions name.
func (r *reader) claim(t *table, key, name string) {
	if name == "" {
		return
	}
	if _, taken := r.named[name]; taken {
		t.fault(key, "another step has the same name")
		return
	}
	r.named[name] = r.faults.index.Of(t.pathOf(key))
}

// name reads a required name.
func (r *reader) name(t *table, key string) string {
	name := t.text(key)
	if t.failed(key) {
		return ""
	}
	if !t.has(key) {
		t.fault(key, "missing")
		return ""
	}
	r.checkSymbol(t, key, name)
	return name
}

func (r *reader) checkSymbol(t *table, key, name string) {
	if err := logbook.MaxLimits.CheckName(key, name); err != nil {
		t.fault(key, "%s is not a name: %s", quoted(name), reasonOf(err))
	}
}

// arguments reads a list of names, or a table of argument = "symbol".
func (r *reader) arguments(t *table, key string) Arguments {
	if !t.has(key) {
		return nil
	}
	arguments := Arguments{}
	if _, ok := t.values[key].(map[string]any); ok {
		arguments = r.renamed(t, key)
	} else {
		for _, name := range t.texts(key) {
			r.checkSymbol(t, key, name)
			arguments[name] = name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		if strings.HasPrefix(name, "$") {
			t.fault(key, "%s: names that begin with $ are reserved for the arguments of reverts", quoted(name))
		}
	}
	if len(arguments) == 0 {
		return nil
	}
	return arguments
}

// renamed reads a table of names, each with another.
func (r *reader) renamed(t *table, key string) map[string]string {
	values := t.table(key)
	if values == nil {
		return nil
	}
	names := make(map[string]string, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		symbol, ok := values[name].(string)
		if !ok {
			t.fault(key+"."+name, "must be the name of a value, not %s", kindOf(values[name]))
			symbol = name
		}
		r.checkSymbol(t, key, name)
		if symbol != name {
			r.checkSymbol(t, key, symbol)
		}
		names[name] = symbol
	}
	return names
}
