package flow

import (
	"slices"

	"github.com/conductord/conductord/logbook"
)

// Question decides whether a child of a graph runs, like the decider of a link: see Decide. It can
// also take values, and steps outside the graph.
type Question struct {
	Name  string // for display
	Depth Depth  // limits the steps that a no excludes
	// Steps are children of the graph, or steps outside the graph. The child waits for them. Compile reports an outside
	// step that does not always come before the child.
	Steps []string
	// Values are required values, and Optional are values that may be missing. Like the symbols of
	// Rebind, they can lead to inner values. The child waits for the steps that provide them.
	Values, Optional []string
	// Decide decides by the results and values. The rules of a Decider apply to it.
	Decide func(Found) (bool, error)
}

// Found are the results and values by which a Question decides. Results of ignored steps, values of
// ignored steps, and inner values that do not exist are absent.
type Found struct {
	Steps  logbook.Values // results, by step name
	Values logbook.Values // by the names in the Question
}

// Ask puts a question before the child with a name, and returns the graph. If the answer is no, the child is
// ignored: see Decide. If all steps of a question, and all providers of its values, were ignored, the question is
// not evaluated, and does not apply.
func (f *Flow) Ask(child string, question Question) *Flow {
	f.links = append(f.links, link{to: child, name: question.Name, depth: question.Depth, question: &question})
	return f
}

// arguments are the values of the question.
func (q *Question) arguments() []Argument {
	return addArguments(addArguments(nil, false, q.Values), true, q.Optional)
}

// asked are the names of the values that questions take, by child.
func (c *compiler) asked(flow *Flow) map[string][]string {
	var asked map[string][]string
	for child, links := range decidingLinks(flow) {
		for _, l := range links {
			for _, question := range l.questions() {
				for _, argument := range question.arguments() {
					if asked == nil {
						asked = make(map[string][]string)
					}
					name, _ := c.cut(argument.Symbol)
					asked[child] = append(asked[child], name)
				}
			}
		}
	}
	return asked
}

// with is the interface of a node that also requires other values.
func (i *interfaceOf) with(symbols []string) *interfaceOf {
	if len(symbols) == 0 {
		return i
	}
	more := &interfaceOf{requires: make(map[string]bool), provides: i.provides}
	for symbol := range i.requires {
		more.requires[symbol] = true
	}
	for _, symbol := range symbols {
		more.requires[symbol] = true
	}
	return more
}

// connectQuestion has the child of a question wait for the children that the question asks.
func (c *compiler) connectQuestion(flow *Flow, w *wiring, index map[string]int, l link) {
	to, ok := index[l.to]
	if !ok {
		c.fault(ErrUnknownNode, "graph %q has question %q before %q, which is not in the graph", flow.name, l.name, l.to)
		return
	}
	c.checkLink(flow, l)
	for _, name := range l.question.Steps {
		if from, inGraph := index[name]; inGraph {
			w.connect(from, to)
		}
	}
}

func (c *compiler) checkQuestion(flow *Flow, l link) {
	q := l.question
	if err := c.limits.CheckName("question", q.Name); err != nil {
		c.fault(ErrInvalid, "graph %q before %q: %w", flow.name, l.to, err)
	}
	switch {
	case q.Depth < DepthAll || q.Depth > DepthAtom:
		c.fault(ErrInvalid, "question %q of graph %q has the unknown %s", q.Name, flow.name, q.Depth)
	case q.Decide == nil:
		c.fault(ErrInvalid, "question %q of graph %q has no function Decide", q.Name, flow.name)
	}
}

// questions are the questions that decide about the node at the end of the link.
func (l *link) questions() (questions []*Question) {
	if l.question != nil {
		questions = append(questions, l.question)
	}
	for i := range l.of {
		questions = append(questions, l.of[i].questions()...)
	}
	return questions
}

// starts are the nodes that decide at the start of the link.
func (l *link) starts() []string {
	if l.question != nil {
		return l.question.Steps
	}
	return []string{l.from}
}

// inside are the steps in the graph that the question asks. The steps outside it, and the sources of
// the values, are found with the sources of the arguments.
func (q *Question) inside(graph *choiceGraph, index map[string]int) []Steps {
	var inside []Steps
	for _, name := range q.Steps {
		if child, inGraph := index[name]; inGraph {
			inside = append(inside, graph.places[child])
		}
	}
	return inside
}

// findAsked finds the steps outside their graphs that questions ask. finish then computes what
// comes after them.
func (r *resolver) findAsked() {
	p := r.compiler.plan
	for i := range p.choices {
		choice := &p.choices[i]
		for _, decider := range choice.leaves() {
			if decider.question == nil {
				continue
			}
			for _, name := range decider.question.Steps {
				if choice.hasChild(name) {
					continue
				}
				step, ok := p.stepAround(name, choice.id.at)
				if !ok {
					r.compiler.fault(ErrUnknownNode, "%s tests step %q, which is not in the flow", choice.node(), name)
					continue
				}
				r.column[step] = 0 // numbered by finish
				decider.outside = append(decider.outside, step)
			}
		}
	}
}

// answer finds the sources of the values that questions take, and checks that the steps that they
// ask come first.
func (r *resolver) answer() {
	p := r.compiler.plan
	p.asked = make(map[int][]Wire)
	for i := range p.choices {
		choice := &p.choices[i]
		for _, decider := range choice.leaves() {
			for _, step := range decider.outside {
				if !r.before[choice.Gate].has(r.column[step]) {
					r.compiler.fault(ErrInvalid, "%s tests step %q, which does not always come first: make the step with the condition wait for that step", choice.node(), p.steps[step].name)
				}
				decider.From = append(decider.From, Steps{First: step, End: step + 1})
			}
			if decider.question == nil {
				continue
			}
			for _, argument := range decider.question.arguments() {
				decider.Values = append(decider.Values, r.asked(choice, argument))
			}
			p.asked[choice.Target.First] = append(p.asked[choice.Target.First], decider.Values...)
		}
	}
}

// asked is the wire of a value that a question takes. The first step of the target takes its place: it
// comes directly after the choice.
func (r *resolver) asked(choice *Choice, argument Argument) Wire {
	argument.Symbol, argument.Path = r.compiler.cut(argument.Symbol)
	wire := Wire{Argument: argument, From: FromNowhere}
	step := choice.Target.First
	switch found, stored := r.allSources(step, int32(choice.instance), argument, choice.node()); {
	case len(found) > MaxSources:
		r.compiler.fault(ErrTooLarge, "%s tests %s, which more than %d steps can provide", choice.node(), described(argument), MaxSources)
	case len(found) > 0:
		lead(&wire, found, stored)
		if len(found) > 1 {
			r.join(step, found)
		}
	case r.compiler.plan.inputs[argument.Symbol]:
		wire.From = FromStore
	case !argument.Optional:
		r.compiler.fault(ErrMissing, "%s tests %s, which no earlier step provides and the store does not have", choice.node(), described(argument))
	}
	return wire
}

func (c *Choice) node() string { return quoted(c.id.graph.children[c.child]) }

func (c *Choice) hasChild(name string) bool {
	return slices.ContainsFunc(c.id.graph.children, func(child Node) bool { return child.Name() == name })
}

// stepAround finds a step in an instance, or in one around it.
func (p *Plan) stepAround(name, at string) (step int, ok bool) {
	for {
		if step, ok = p.index[name+at]; ok || at == "" {
			return step, ok
		}
		at, _ = logbook.CutInstance(at)
	}
}

// asks reports whether the decider takes something from a step.
func (v *LinkDecider) asks(step int) bool {
	return slices.ContainsFunc(v.Leaves(), func(leaf *LinkDecider) bool {
		return slices.ContainsFunc(leaf.From, func(from Steps) bool { return from.holds(step) }) ||
			slices.ContainsFunc(leaf.Values, func(wire Wire) bool {
				return slices.ContainsFunc(wire.Sources(), func(source Wire) bool { return source.isFrom(step) })
			})
	})
}

// isFrom reports whether a source takes something from a step.
func (w *Wire) isFrom(step int) bool {
	return w.From == step || w.From == FromEach && !w.Gathered.Failures && w.Gathered.Items[0].From == step
}
