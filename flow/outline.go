package flow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/internal/duration"
)

// Entry is a step or a flow of a plan, as Outline lists it.
type Entry struct {
	Part  *Tree
	Depth int // the number of flows around it
	// Level is 1 for a step that waits for no step, else 1 more than the highest level of the steps
	// that it waits for. Steps of one level do not wait for each other. The level of a flow is the
	// lowest level of its steps; 0: it has no steps.
	Level int
	// After are the names of the steps and flows of the same flow for which the entry waits. In a linear flow, After is
	// empty, because the order shows them.
	After []string
	// OnlyIf is the condition, and the consequence of a no; empty: none.
	OnlyIf string
	// Notes are all properties in words.
	Notes []string
}

// Entries are the flows and steps of the plan in reading order: a flow before its parts, and the
// parts of a flow by level. Parts of one level have the order in which they were written. The body of
// an each occurs once.
func (p *Plan) Entries() []Entry {
	p = p.Template()
	o := outliner{plan: p, levels: make([]int, len(p.next)), around: map[*Tree]*Tree{}, leaves: map[int]*Tree{}}
	root := p.Tree()
	if root == nil {
		return nil
	}
	o.place(root)
	o.add(root, 0)
	return o.entries
}

// Outline is the plan as indented text: an entry on each line, steps with their levels.
func (p *Plan) Outline() string {
	var out strings.Builder
	levels, parallel := map[int]bool{}, false
	for _, entry := range p.Entries() {
		indent, notes := strings.Repeat("  ", entry.Depth), ""
		if len(entry.Notes) > 0 {
			notes = ": " + strings.Join(entry.Notes, "; ")
		}
		if flow := entry.Part.Flow; flow != nil {
			fmt.Fprintf(&out, "%s%s (%s)%s\n", indent, flow.name, flow.pattern, notes)
			continue
		}
		fmt.Fprintf(&out, "%s%d. %s%s\n", indent, entry.Level, entry.Part.Step.name, notes)
		parallel = parallel || levels[entry.Level]
		levels[entry.Level] = true
	}
	if parallel {
		out.WriteString("steps with the same number do not wait for each other\n")
	}
	if inputs := p.Inputs(); len(inputs) > 0 {
		fmt.Fprintf(&out, "inputs: %s\n", strings.Join(inputs, ", "))
	}
	return out.String()
}

// outliner makes the entries of a plan.
type outliner struct {
	plan    *Plan
	levels  []int // by vertex; 0: not computed yet
	around  map[*Tree]*Tree
	leaves  map[int]*Tree // by step
	entries []Entry
}

// place records the positions of the parts of a flow.
func (o *outliner) place(t *Tree) {
	if t.Step != nil {
		o.leaves[t.First] = t
	}
	for _, part := range t.Parts {
		o.around[part] = t
		o.place(part)
	}
}

func (o *outliner) add(t *Tree, depth int) {
	entry := Entry{Part: t, Depth: depth, Level: o.levelOf(t), After: o.after(t), OnlyIf: o.onlyIf(t)}
	switch {
	case t.Flow != nil:
		entry.Notes = t.Flow.policyNotes()
	case entry.After != nil:
		entry.After = o.withoutSources(entry.After, t.First)
	}
	if len(entry.After) > 0 {
		entry.Notes = append(entry.Notes, "after "+strings.Join(entry.After, ", "))
	}
	if entry.OnlyIf != "" {
		entry.Notes = append(entry.Notes, entry.OnlyIf)
	}
	if t.Step != nil {
		entry.Notes = append(entry.Notes, o.plan.notesOf(t.First)...)
	}
	o.entries = append(o.entries, entry)
	parts := slices.Clone(t.Parts)
	slices.SortStableFunc(parts, func(a, b *Tree) int { return o.levelOf(a) - o.levelOf(b) })
	for _, part := range parts {
		o.add(part, depth+1)
	}
}

func (o *outliner) levelOf(t *Tree) int {
	if t.First < 0 {
		return 0
	}
	return o.level(t.First)
}

// level is the number of steps in the longest chain that ends with a vertex.
func (o *outliner) level(vertex int) int {
	if o.levels[vertex] == 0 {
		highest := 0
		for _, before := range o.plan.previous[vertex] {
			highest = max(highest, o.level(int(before)))
		}
		if vertex < o.plan.Len() {
			highest++
		}
		o.levels[vertex] = highest
	}
	return o.levels[vertex]
}

// after are the other parts of a graph for which a part waits. It omits the retry and the opening of an each, because
// all other parts of their flow wait for them. It also omits on_error and finally steps, which wait for all others. The
// waits of a flow are listed at the flow, and not at its parts.
func (o *outliner) after(t *Tree) (names []string) {
	flow := o.around[t]
	if flow == nil || t.First < 0 || flow.Flow.pattern == PatternLinear || t.Step != nil && t.Step.IsLate() {
		return nil
	}
	waits := map[*Tree]bool{}
	for _, before := range o.plan.Predecessors(t.First) {
		part := o.leaves[before]
		for part != nil && o.around[part] != flow {
			part = o.around[part]
		}
		waits[part] = true
	}
	for _, part := range flow.Parts {
		if waits[part] && (part.Flow != nil || !part.Step.retrier && part.Step.opens == nil) {
			names = append(names, part.Name())
		}
	}
	return names
}

// withoutSources leaves out the steps whose values a step takes: its arguments show them.
func (o *outliner) withoutSources(names []string, step int) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(o.plan.wires[step], func(wire Wire) bool {
			return slices.ContainsFunc(wire.Sources(), func(source Wire) bool {
				provider, is := source.Provider()
				return is && o.plan.steps[provider].name == name
			})
		})
	})
}

// policyNotes are the policies that a flow sets for its steps.
func (f *Flow) policyNotes() (notes []string) {
	if f.timeout > 0 {
		notes = append(notes, "timeout "+duration.Text(f.timeout))
	}
	switch f.onTakeover {
	case UndoLast:
		notes = append(notes, "undoes its last steps at a takeover")
	case TakeoverContinue:
		notes = append(notes, "continues at a takeover")
	}
	switch f.onFailure {
	case HoldOnFailure:
		notes = append(notes, "holds at a failure")
	case RevertOnFailure:
		notes = append(notes, "reverts after a failure")
	}
	if selection := f.selection(); selection != "" {
		notes = append(notes, selection)
	}
	return notes
}

// onlyIf is the condition of a step or flow in words.
func (o *outliner) onlyIf(t *Tree) string {
	for i := range o.plan.choices {
		choice := &o.plan.choices[i]
		if flow := o.around[t]; flow != nil && flow.Flow == choice.id.graph && choice.id.graph.children[choice.child].Name() == t.Name() {
			behind := len(o.plan.reached(i, DepthAll)) > choice.Target.End-choice.Target.First
			return "only if " + choice.described(t.Name(), behind)
		}
	}
	return ""
}

// described lists the deciders of a choice about a node. If steps follow the node, it adds the
// consequence of a no. Deciders of one depth share the consequence.
func (c *Choice) described(node string, behind bool) string {
	depth := c.Deciders[0].Depth
	same := !behind || !slices.ContainsFunc(c.Deciders, func(d LinkDecider) bool { return d.Depth != depth })
	conditions := make([]string, len(c.Deciders))
	for i := range c.Deciders {
		conditions[i] = c.Deciders[i].Name
		if !same {
			conditions[i] += " (if not, " + c.Deciders[i].Depth.consequence(node) + ")"
		}
	}
	text := strings.Join(conditions, " and ")
	if same && behind {
		text += "; if not, " + depth.consequence(node)
	}
	return text
}

// consequence is the reach of a no in words.
func (d Depth) consequence(node string) string {
	switch d {
	case DepthFlow:
		return "all steps of the same flow that wait for " + node + " are skipped too"
	case DepthNeighbors:
		return "the steps that wait directly for " + node + " are skipped too"
	case DepthAtom:
		return "only " + node + " is skipped"
	}
	return "all steps that wait for " + node + " are skipped too"
}

// notes describe an each.
func (e *each) notes() []string {
	notes := []string{"once for each " + e.as}
	if e.atOnce > 0 {
		notes = append(notes, fmt.Sprintf("%d in parallel", e.atOnce))
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

// notesOf are the properties of a step.
func (p *Plan) notesOf(number int) (notes []string) {
	step := p.steps[number]
	note := func(format string, arguments ...any) { notes = append(notes, fmt.Sprintf(format, arguments...)) }
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
	notes = append(notes, p.workerNotes(number)...)
	if step.timeout > 0 {
		note("timeout %s", duration.Text(step.timeout))
	}
	if text := step.DeadlineText(); text != "" {
		note("deadline %s", text)
	}
	if step.pause != nil {
		note("%s between rounds", duration.Text(step.pause.Delay.Round(time.Millisecond)))
	}
	if step.retry.Attempts > 1 {
		note("up to %d attempts, %s apart", step.retry.Attempts, duration.Text(step.retry.Delay.Round(time.Millisecond)))
	}
	for _, condition := range step.filter.Notes() {
		note("retry %s", condition)
	}
	if step.retryPermanent {
		note("retry after permanent failures too")
	}
	if step.waitAtMost > 0 {
		note("may say \"not yet\" for %s", duration.Text(step.waitAtMost))
	}
	if step.wait != nil {
		note("%s", step.wait.note())
	}
	for i := range step.sends {
		note("%s", step.sends[i].note())
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

// workerNotes describe the worker that a step needs.
func (p *Plan) workerNotes(number int) (notes []string) {
	work, is := p.steps[number].WorkerStep()
	if !is {
		return nil
	}
	wanted := "needs a worker of type " + work.Type
	if len(work.Labels) > 0 {
		wanted += " with labels " + strings.Join(work.Labels, ", ")
	}
	notes = append(notes, wanted)
	if work.Revert != "" {
		notes = append(notes, "its revert needs a worker of type "+work.Revert)
	}
	if earlier, bound := p.SameWorkerAs(number); bound {
		notes = append(notes, "needs the worker of "+p.steps[earlier].name)
	}
	if work.Patience > 0 {
		notes = append(notes, "fails after "+duration.Text(work.Patience)+" without a worker")
	}
	return notes
}

// rules describe how the step may run and fail.
func (s *Step) rules() (notes []string) {
	note := func(format string, arguments ...any) { notes = append(notes, fmt.Sprintf(format, arguments...)) }
	if s.final {
		note("finally")
	}
	if s.onError {
		note("on_error")
	}
	if s.again != nil {
		note("%s", s.again.note())
	}
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
	case s.ignoresFailure && !s.IsLate():
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
		return "the value that the step injects"
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
