package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/internal/tomlpos"
	"github.com/conductord/conductord/logbook"
)

// MaxPorts limits what all steps of a document require, provide, test and wait for, after parts
// are expanded: a small document must not expand to a large flow with many names that nobody
// wrote.
const MaxPorts = 100_000

// weight is the size of a part's expansion at each use.
type weight struct {
	steps, ports, depth int
}

// add adds a part, or a step, to the whole that contains it. Sums beyond every limit saturate
// instead of overflowing.
func (w *weight) add(inner weight) {
	const beyond = 1 << 30
	w.steps = min(w.steps+inner.steps, beyond)
	w.ports = min(w.ports+inner.ports, beyond)
	w.depth = max(w.depth, inner.depth)
}

// scale weighs the steps of a document before any of them is expanded: parts that use parts grow
// exponentially.
type scale struct {
	flows map[string]Part
	parts map[string]weight // that have been weighed
}

func (c *scale) weigh(steps []Step) weight {
	var all weight
	for i := range steps {
		s := &steps[i]
		one := weight{steps: 1, ports: 1 + len(s.Requires) + len(s.Optional) + len(s.Inject) + len(s.After) + len(testsOf(s.When)) + len(s.Provides.symbols()) + len(s.Each.provided())}
		switch {
		case s.Flow != "":
			inner := c.part(s.Flow)
			inner.depth++
			one.add(inner)
		case s.Nested():
			inner := c.weigh(withLate(s.Steps, s.Late))
			inner.depth++
			one.add(inner)
		}
		all.add(one)
	}
	return all
}

func (c *scale) part(name string) weight {
	if known, weighed := c.parts[name]; weighed {
		return known
	}
	part := c.flows[name]
	found := c.weigh(withLate(part.Steps, part.Late))
	c.parts[name] = found
	return found
}

// expand replaces the uses of parts by the parts. The document has been checked: every used part
// exists, and none uses itself.
func (d *Document) expand(f *faults) error {
	total := (&scale{flows: d.Flows, parts: map[string]weight{}}).weigh(withLate(d.Steps, d.Late))
	for _, bound := range []struct {
		size, limit int
		unit        string
	}{
		{total.steps, logbook.MaxLimits.Steps, "steps"},
		{total.ports, MaxPorts, "names that steps require, provide and wait for"},
		{total.depth, flow.MaxNesting, "flows in each other"},
	} {
		if bound.size > bound.limit {
			return fmt.Errorf("cannot use the document: %w", &logbook.LimitError{
				Field: d.source, Limit: int64(bound.limit), Size: int64(bound.size), Unit: bound.unit,
			})
		}
	}
	x := &expander{document: d, faults: f, provided: map[string]map[string]bool{}, told: map[withFault]bool{}}
	d.expanded, d.late = x.steps(d.Steps, scope{places: d.places}), x.late(d.Late, scope{places: d.places})
	x.check()
	return f.err()
}

// expander makes the steps of a document.
type expander struct {
	document *Document
	faults   *faults
	provided map[string]map[string]bool // by part, the values that it provides to its own steps

	names   []expandedName
	unnamed []unnamed
	told    map[withFault]bool
}

// unnamed is an argument in the list form, which cannot lead to an inner value: the argument would
// have no name of its own.
type unnamed struct {
	where  string
	symbol string           // as written
	made   string           // expanded
	at     tomlpos.Position // of the step
}

// expandedName is the name of a step of a part, and the use that made it.
type expandedName struct {
	name    string
	inner   tomlpos.Position // in the part
	outer   tomlpos.Position // of the step of the document that uses it
	foreign bool             // it comes from a part
}

// scope is the namespace in which steps are written.
type scope struct {
	prefix string // of names
	rename func(symbol string) string
	places map[string]tomlpos.Position // of the names without the prefix
	outer  tomlpos.Position            // of the step of the document that uses the part
}

// symbol is the document's name of a value.
func (s *scope) symbol(name string) string {
	if s.rename == nil || name == "" {
		return name
	}
	return s.rename(name)
}

func (x *expander) steps(steps []Step, in scope) []Step {
	made := make([]Step, len(steps))
	for i := range steps {
		made[i] = x.step(&steps[i], in)
	}
	return made
}

func (x *expander) step(s *Step, in scope) Step {
	made := *s
	made.Name = in.prefix + s.Name
	x.note(s.Name, in)
	made.After = prefixed(in.prefix, s.After)
	if s.SameWorkerAs != "" {
		made.SameWorkerAs = in.prefix + s.SameWorkerAs
	}
	made.When = slices.Clone(s.When)
	for i := range made.When {
		made.When[i] = made.When[i].copied(func(test *Condition) {
			if test.Step != "" {
				test.Step = in.prefix + test.Step
			}
			if test.Otherwise != "" {
				test.Otherwise = in.prefix + test.Otherwise
			}
			test.Input = in.symbol(test.Input)
		})
	}
	made.Requires, made.Optional = in.arguments(s.Requires), in.arguments(s.Optional)
	made.Provides = in.provides(s.Provides)
	made.Rounds, made.Each = x.rounds(s.Rounds, in), in.each(s.Each)
	x.checkSymbols(&made, in)
	x.noteUnnamed(s, &made, in)
	switch {
	case len(made.Name) > logbook.MaxLimits.Name: // a fault, and all within would be one
	case s.Flow != "":
		part := x.document.Flows[s.Flow]
		spoken := map[string]bool{}
		inner := x.inside(s, &part, in, spoken)
		made.Flow, made.With = "", nil
		made.Pattern, made.Rounds = part.Pattern, x.rounds(part.Retry, inner)
		made.OnTakeover, made.OnFailure, made.Enough = part.OnTakeover, part.OnFailure, part.Enough
		made.Steps, made.Late = x.steps(part.Steps, inner), x.late(part.Late, inner)
		if made.Each != nil {
			// The part's own retry is one for each instance.
			body := Step{Name: made.Name, Pattern: made.Pattern, Rounds: made.Rounds, Enough: made.Enough, Steps: made.Steps, Late: made.Late}
			made.Pattern, made.Rounds, made.Enough, made.Steps, made.Late = Linear, nil, 0, []Step{body}, Late{}
		}
		x.checkWith(s, in, spoken)
	case s.Nested():
		made.Steps, made.Late = x.steps(s.Steps, in), x.late(s.Late, in)
	}
	return made
}

// late expands the on_error and finally steps of a flow.
func (x *expander) late(late Late, in scope) Late {
	return Late{OnError: x.steps(late.OnError, in), Finally: x.steps(late.Finally, in)}
}

// inside is the scope of a part where a step uses it. The step's name precedes the names of
// values that the part provides. Values that the part takes from outside have the same name
// there, unless the step renames them. spoken records the names of values in the part.
func (x *expander) inside(s *Step, part *Part, in scope, spoken map[string]bool) scope {
	own := x.providedBy(s.Flow)
	outer := in.outer
	if in.rename == nil {
		outer = in.places[s.Name]
	}
	return scope{
		prefix: in.prefix + s.Name + ".",
		places: part.places,
		outer:  outer,
		rename: func(symbol string) string {
			name, path := flow.CutPath(symbol, func(name string) bool {
				_, renamed := s.With[name]
				return renamed || own[name]
			})
			spoken[name] = true
			if path != "" {
				path = "." + path
			}
			if called, ok := s.With[name]; ok {
				return in.symbol(called) + path
			}
			if own[name] {
				return in.symbol(s.Name+"."+name) + path
			}
			return in.symbol(symbol)
		},
	}
}

// checkWith checks that the part uses every value that its user renames.
func (x *expander) checkWith(s *Step, in scope, spoken map[string]bool) {
	for _, symbol := range slices.Sorted(maps.Keys(s.With)) {
		fault := withFault{s.Flow, in.places[s.Name], symbol}
		if spoken[symbol] || x.told[fault] {
			continue
		}
		x.told[fault] = true // once, however often the surrounding part is used
		x.faults.note(fault.at, Fault{
			Where: "step " + quoted(s.Name) + ", with",
			Reason: fmt.Sprintf("the flow %s neither requires nor provides %s%s",
				quoted(s.Flow), quoted(symbol), meant.Hint(symbol, slices.Sorted(maps.Keys(spoken)))),
		})
	}
}

// withFault is a renamed value that the part does not use.
type withFault struct {
	flow   string
	at     tomlpos.Position
	symbol string
}

// providedBy are the symbols that a part provides, by its own names.
func (x *expander) providedBy(name string) map[string]bool {
	if known, ok := x.provided[name]; ok {
		return known
	}
	part := x.document.Flows[name]
	own := map[string]bool{}
	if part.Retry != nil && part.Retry.Provides != "" {
		own[part.Retry.Provides] = true
	}
	eachStep(withLate(part.Steps, part.Late), func(s *Step) {
		for _, symbol := range slices.Concat(s.Provides.symbols(), s.Each.provided()) {
			own[symbol] = true
		}
		if s.OnFailure == ignoreFailure || s.late != "" {
			own[flow.FailureName(s.Name)] = true
		}
		if s.Rounds != nil && s.Rounds.Provides != "" {
			own[s.Rounds.Provides] = true
		}
		if s.Flow == "" {
			return
		}
		for symbol := range x.providedBy(s.Flow) {
			if called, ok := s.With[symbol]; ok {
				own[called] = true
			} else {
				own[s.Name+"."+symbol] = true
			}
		}
	})
	x.provided[name] = own
	return own
}

func (s *scope) arguments(arguments Arguments) Arguments {
	if s.rename == nil || arguments == nil {
		return arguments
	}
	made := make(Arguments, len(arguments))
	for name, symbol := range arguments {
		made[name] = s.rename(symbol)
	}
	return made
}

func (s *scope) provides(p Provides) Provides {
	if s.rename == nil || p.IsZero() {
		return p
	}
	if p.Whole != "" {
		return Provides{Whole: s.rename(p.Whole)}
	}
	made := Provides{As: make(map[string]string)}
	for _, field := range p.Fields {
		made.As[field] = s.rename(field)
	}
	for field, symbol := range p.As {
		made.As[field] = s.rename(symbol)
	}
	return made
}

func (x *expander) rounds(rounds *Rounds, in scope) *Rounds {
	if rounds == nil {
		return nil
	}
	made := *rounds
	made.Name = in.prefix + rounds.Name
	made.Provides, made.ForEach.Symbol = in.symbol(rounds.Provides), in.symbol(rounds.ForEach.Symbol)
	x.note(rounds.Name, in)
	return &made
}

// checkSymbols checks that the expanded names of a part's values are valid.
func (x *expander) checkSymbols(made *Step, in scope) {
	if in.rename == nil {
		return // the document has them, and they have been checked
	}
	symbols := slices.Concat(made.Provides.symbols(), made.Each.provided())
	for _, list := range []Arguments{made.Requires, made.Optional} {
		symbols = slices.AppendSeq(symbols, maps.Values(list))
	}
	slices.Sort(symbols)
	for _, symbol := range symbols {
		if err := logbook.MaxLimits.CheckName("value", symbol); err != nil {
			x.faults.note(in.outer, Fault{Reason: fmt.Sprintf("this part would have a value with the invalid name %s: %s", quoted(symbol), reasonOf(err))})
		}
	}
}

// noteUnnamed remembers the arguments in the list form whose names have dots.
func (x *expander) noteUnnamed(s, made *Step, in scope) {
	for _, list := range []struct {
		key         string
		given, made Arguments
	}{{"requires", s.Requires, made.Requires}, {"optional", s.Optional, made.Optional}} {
		for _, name := range slices.Sorted(maps.Keys(list.given)) {
			if list.given[name] == name && strings.Contains(name, ".") {
				x.unnamed = append(x.unnamed, unnamed{where: "step " + quoted(s.Name) + ", " + list.key, symbol: name, made: list.made[name], at: in.places[s.Name]})
			}
		}
	}
}

// checkUnnamed refuses inner values in the list form.
func (x *expander) checkUnnamed() {
	if len(x.unnamed) == 0 {
		return
	}
	known := map[string]bool{}
	for _, symbol := range x.document.Symbols() {
		known[symbol] = true
	}
	if retry := x.document.Retry; retry != nil {
		known[retry.Provides] = true
	}
	eachStep(withLate(x.document.expanded, x.document.late), func(s *Step) {
		for _, symbol := range slices.Concat(s.Provides.symbols(), s.Each.provided()) {
			known[symbol] = true
		}
		if s.OnFailure == ignoreFailure || s.late != "" {
			known[flow.FailureName(s.Name)] = true
		}
		if s.Rounds != nil {
			known[s.Rounds.Provides] = true
		}
	})
	for _, u := range x.unnamed {
		name, path := flow.CutPath(u.made, func(name string) bool { return known[name] })
		fault := withFault{u.where, u.at, u.symbol}
		if path == "" || x.told[fault] {
			continue
		}
		x.told[fault] = true
		x.faults.note(u.at, Fault{Where: u.where, Reason: fmt.Sprintf("%s is a value inside %s: give the argument a name, such as %s = {%s = %q}",
			quoted(u.symbol), quoted(name), u.where[strings.LastIndex(u.where, " ")+1:], fieldOf(path), u.symbol)})
	}
}

// fieldOf suggests a name for a value: the last field of its path.
func fieldOf(path string) string {
	parts := strings.Split(path, ".")
	for i := len(parts) - 1; i >= 0; i-- {
		if strings.Trim(parts[i], "0123456789") != "" {
			return parts[i]
		}
	}
	return "value"
}

func prefixed(prefix string, names []string) []string {
	if prefix == "" {
		return names
	}
	made := make([]string, len(names))
	for i, name := range names {
		made[i] = prefix + name
	}
	return made
}

func (x *expander) note(name string, in scope) {
	x.names = append(x.names, expandedName{name: in.prefix + name, inner: in.places[name], outer: in.outer, foreign: in.prefix != ""})
}

// check checks that the expanded names are valid and different, and that targets are among them.
// It notes their positions.
func (x *expander) check() {
	d := x.document
	x.checkUnnamed()
	for _, made := range x.names {
		if !made.foreign {
			continue
		}
		_, taken := d.places[made.name]
		switch err := logbook.MaxLimits.CheckName("name", made.name); {
		case err != nil:
			x.faults.note(made.outer, Fault{Reason: fmt.Sprintf("this part would have a step with the invalid name %s: %s", quoted(made.name), reasonOf(err))})
		case taken:
			x.faults.note(made.outer, Fault{Reason: fmt.Sprintf("this part would have the step %s, and another step has this name", quoted(made.name))})
		default:
			d.places[made.name] = made.inner
		}
	}
	for _, target := range d.Targets {
		if _, found := d.places[target]; !found {
			x.faults.add("targets", "targets", fmt.Sprintf("there is no step %s%s", quoted(target), meant.Hint(target, slices.Sorted(maps.Keys(d.places)))))
		}
	}
}
