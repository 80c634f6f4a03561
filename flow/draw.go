package flow

import (
	"fmt"
	"strings"
	"time"
)

// Outline is the plan as indented text: flows with their patterns, steps with their numbers in a
// possible order of execution, and the connections between them.
func (p *Plan) Outline() string {
	p = p.Template()
	var out strings.Builder
	p.outline(&out, p.Tree(), "")
	if inputs := p.Inputs(); len(inputs) > 0 {
		fmt.Fprintf(&out, "inputs: %s\n", strings.Join(inputs, ", "))
	}
	return out.String()
}

func (p *Plan) outline(out *strings.Builder, t *Tree, indent string) {
	if t.Step != nil {
		fmt.Fprintf(out, "%s%d. %s%s\n", indent, t.First+1, t.Step.name, p.describe(t.First))
		return
	}
	fmt.Fprintf(out, "%s%s (%s)%s%s\n", indent, t.Flow.name, t.Flow.pattern, map[TakeoverPolicy]string{
		UndoLast: "; undoes its last steps at a takeover", TakeoverContinue: "; continues at a takeover"}[t.Flow.onTakeover],
		map[FailurePolicy]string{HoldOnFailure: "; holds at a failure", RevertOnFailure: "; reverts after a failure"}[t.Flow.onFailure])
	for _, part := range t.Parts {
		p.outline(out, part, indent+"  ")
	}
}

// notes describe an each.
func (e *each) notes() []string {
	notes := []string{"once for each " + e.as}
	if e.atOnce > 0 {
		notes = append(notes, fmt.Sprintf("%d at once", e.atOnce))
	}
	for _, g := range e.gathers {
		notes = append(notes, fmt.Sprintf("gathers %s as %s", g.symbol, g.as))
	}
	switch {
	case e.ignores.percent > 0:
		notes = append(notes, fmt.Sprintf("failures of up to %d%% of the elements are ignored", e.ignores.percent))
	case e.ignores.given:
		notes = append(notes, fmt.Sprintf("failures of up to %d elements are ignored", e.ignores.count))
	}
	if e.told != "" {
		notes = append(notes, "lists its failures as "+e.told)
	}
	return notes
}

// Remark sets a text that Plan.Outline shows with the step.
func Remark(text string) StepOption { return stepOption(func(s *Step) { s.remark = text }) }

// describe lists the properties of a step in one line.
func (p *Plan) describe(number int) string {
	if notes := p.Notes(number); len(notes) > 0 {
		return ": " + strings.Join(notes, "; ")
	}
	return ""
}

// Notes are the properties of a step as Outline lists them.
func (p *Plan) Notes(number int) (notes []string) {
	step := p.steps[number]
	note := func(format string, arguments ...any) { notes = append(notes, fmt.Sprintf(format, arguments...)) }
	for i := range p.choices {
		if choice := &p.choices[i]; choice.Target.First == number {
			note("%s only if %s", choice.Target.described(), choice.described())
		}
	}
	if step.retrier {
		note("decides about failures here")
	}
	if step.opens != nil {
		notes = append(notes, step.opens.notes()...)
	}
	for _, wire := range p.wires[number] {
		note("%s ← %s", wire.Name, p.Source(wire))
	}
	if names := provisionNames(step.provides); len(names) > 0 {
		note("provides %s", strings.Join(names, ", "))
	}
	if _, ok := step.Reverter(); ok {
		note("can be undone")
	}
	if step.timeout > 0 {
		note("timeout %s", step.timeout)
	}
	if step.deadline > 0 {
		note("deadline %s after it begins", step.deadline)
	}
	if step.pause != nil {
		note("%s between rounds", step.pause.Delay.Round(time.Millisecond))
	}
	if step.retry.Attempts > 1 {
		note("up to %d attempts, %s apart", step.retry.Attempts, step.retry.Delay.Round(time.Millisecond))
	}
	for _, condition := range step.filter.Notes() {
		note("retry %s", condition)
	}
	if step.retryPermanent {
		note("retry after permanent failures too")
	}
	if step.waitAtMost > 0 {
		note("may say \"not yet\" for %s", step.waitAtMost)
	}
	if step.wait != nil {
		note("%s", step.wait.note())
	}
	if step.concurrency.given {
		note("%s", &step.concurrency)
	}
	if step.priority != 0 {
		note("priority %d", step.priority)
	}
	notes = append(notes, step.rules()...)
	if step.remark != "" {
		notes = append(notes, step.remark)
	}
	return notes
}

// rules describe how the step may run and fail.
func (s *Step) rules() (notes []string) {
	note := func(format string, arguments ...any) { notes = append(notes, fmt.Sprintf(format, arguments...)) }
	if s.atMostOnce {
		note("at most once")
	}
	if s.noReturn {
		note("point of no return")
	}
	if s.uninterruptible {
		note("never interrupted")
	}
	if s.repeatable {
		note("repeatable")
	}
	switch {
	case s.defaultResult != nil:
		note("its failure is ignored, with the result %.80s", s.defaultResult)
	case s.ignoresFailure:
		note("its failure is ignored")
	}
	return notes
}

// Source names the source of a value for display: "store", "store.city", "book-car.price".
func (p *Plan) Source(wire Wire) string {
	if len(wire.Others) > 0 {
		return p.sourceNames(wire)
	}
	if wire.Path != "" {
		path := wire.Path
		if wire.Name, wire.Path = "", ""; wire.From == FromStore || wire.From >= 0 && wire.Part == PartWhole {
			return p.Source(wire) + "." + path
		}
		return path + " of " + p.Source(wire)
	}
	switch {
	case wire.From == FromNowhere:
		return "nothing"
	case wire.From == FromStep:
		return "a value of its own"
	case wire.From == FromEach && wire.Gathered.Failures:
		return "the failures of each " + p.steps[wire.Gathered.Each].name
	case wire.From == FromEach:
		return fmt.Sprintf("%s of each %s", wire.Gathered.Items[0].Symbol, p.steps[wire.Gathered.Each].name)
	case wire.Part == PartElement:
		return "an element of " + p.steps[wire.From].name
	case wire.Part == PartIndex:
		return "its place in " + p.steps[wire.From].name
	case wire.Part == PartFailure:
		return "the failure of " + p.steps[wire.From].name
	case wire.From == FromStore && wire.Symbol == wire.Name:
		return "store"
	case wire.From == FromStore:
		return "store." + wire.Symbol
	case wire.Field != "":
		return p.steps[wire.From].name + "." + wire.Field
	default:
		return p.steps[wire.From].name
	}
}

// language holds the format strings of a graph language. A cluster and a step take
// indentation, number and name; an edge takes its two steps and its label.
type language struct {
	begin, cluster, endCluster, step, retry, edge, labelled, end string
	quote                                                        func(text string) string
}

// Graphviz is the plan in the DOT language: the steps, and the values between them.
func (p *Plan) Graphviz() string {
	return p.draw(language{
		begin:   "digraph flow {\n  rankdir=LR;\n  node [shape=box];\n",
		cluster: "%[1]ssubgraph cluster_%[2]d {\n%[1]s  label=%[3]s;\n", endCluster: "%s}\n",
		step: "%sn%d [label=%s];\n", retry: "%sn%d [label=%s, shape=diamond];\n",
		edge: "  n%d -> n%d;\n", labelled: "  n%d -> n%d [label=%s];\n", end: "}\n", quote: dotText,
	})
}

// Mermaid is the plan as a Mermaid flowchart.
func (p *Plan) Mermaid() string {
	return p.draw(language{
		begin:   "flowchart LR\n",
		cluster: "%ssubgraph f%d[\"%s\"]\n", endCluster: "%send\n",
		step: "%sn%d[\"%s\"]\n", retry: "%sn%d{\"%s\"}\n",
		edge: "  n%d --> n%d\n", labelled: "  n%d -->|\"%[3]s\"| n%[2]d\n", quote: mermaidText,
	})
}

func (p *Plan) draw(l language) string {
	p = p.Template()
	var out strings.Builder
	out.WriteString(l.begin)
	flows := 0
	var draw func(t *Tree, indent string)
	draw = func(t *Tree, indent string) {
		if t.Step != nil {
			format := map[bool]string{false: l.step, true: l.retry}[t.Step.retrier]
			fmt.Fprintf(&out, format, indent, t.First, l.quote(t.Step.name))
			return
		}
		fmt.Fprintf(&out, l.cluster, indent, flows, l.quote(t.Flow.name))
		flows++
		for _, part := range t.Parts {
			draw(part, indent+"  ")
		}
		fmt.Fprintf(&out, l.endCluster, indent)
	}
	draw(p.Tree(), "  ")
	for from := range p.steps {
		for _, to := range p.Successors(from) {
			if label := strings.Join(p.labels(from, to), ", "); label != "" {
				fmt.Fprintf(&out, l.labelled, from, to, l.quote(label))
			} else {
				fmt.Fprintf(&out, l.edge, from, to)
			}
		}
	}
	out.WriteString(l.end)
	return out.String()
}

// labels are the names of the values that one step gets from another, and of the deciders
// between them.
func (p *Plan) labels(from, to int) []string {
	var labels []string
	for _, wire := range p.wires[to] {
		for _, source := range wire.Sources() {
			if source.isFrom(from) {
				labels = append(labels, wire.Reference())
			}
		}
	}
	for i := range p.choices {
		choice := &p.choices[i]
		for j := range choice.Deciders {
			if choice.Target.holds(to) && choice.Deciders[j].asks(from) {
				labels = append(labels, "if "+choice.Deciders[j].Name)
			}
		}
	}
	return labels
}

func dotText(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}

// mermaidText writes what would end a label or start markup as character codes.
func mermaidText(text string) string {
	return strings.NewReplacer(`"`, "#quot;", "#", "#35;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "`", "#96;", "\n", " ").Replace(text)
}
