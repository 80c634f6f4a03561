package flow

import (
	"slices"

	"github.com/conductord/conductord/logbook"
)

// Question decides whether a child of a graph runs, like the decider of a link: see Decide. It can
// also take values, and steps outside the graph.
type Question struct {
	Name  string // for display
	Depth Depth  // how far a no reaches
	// Steps are children of the graph, which the child then waits for, or steps outside it. Compile
	// reports a step outside that does not always come before the child.
	Steps []string
	// Values are required values, and Optional are values that may be missing. Like the symbols of
	// Rebind, they can lead to inner values. The child waits for the steps that provide them.
	Values, Optional []string
	// Decide gets the answers. The rules of a Decider apply to it.
	Decide func(Found) (bool, error)
}

// Found are the results and values by which a Question decides. Results of ignored steps, values of
// ignored steps, and inner values that do not exist are absent.
type Found struct {
	Steps  logbook.Values // results, by step name
	Values logbook.Values // by the names in the Question
}

// Ask puts a question before the child with a name, and returns the graph. If the answer is no, the
// child is ignored: see Decide. A question is not asked and does not count if all steps that it
// asks, and all steps that provide its values, were ignored.
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
	for _, l := range flow.links {
		if l.question == nil {
			continue
		}
		for _, argument := range l.question.arguments() {
			if asked == nil {
				asked = make(map[string][]string)
			}
			name, _ := c.cut(argument.Symbol)
			asked[l.to] = append(asked[l.to], name)
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
		c.fault(ErrUnknownNode, "graph %q has question %q before %q, which it does not have", flow.name, l.name, l.to)
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
		c.fault(ErrInvalid, "question %q of graph %q has the %s, which there is not", q.Name, flow.name, q.Depth)
	case q.Decide == nil:
		c.fault(ErrInvalid, "question %q of graph %q has nothing to decide by", q.Name, flow.name)
	}
}

// questioned is a question at its choice. The steps outside the graph, and the sources of the
// values, are found with the sources of the arguments.
func (c *compiler) questioned(q *Question, graph *choiceGraph, index map[string]int) LinkDecider {
	decider := LinkDecider{Name: q.Name, Depth: q.Depth, question: q}
	for _, name := range q.Steps {
		if child, inGraph := index[name]; inGraph {
			decider.From = append(decider.From, graph.places[child])
		}
	}
	return decider
}

// findAsked finds the steps outside their graphs that questions ask. finish then computes what
// comes after them.
func (r *resolver) findAsked() {
	p := r.compiler.plan
	for i := range p.choices {
		for j := range p.choices[i].Deciders {
			choice, decider := &p.choices[i], &p.choices[i].Deciders[j]
			if decider.question == nil {
				continue
			}
			for _, name := range decider.question.Steps {
				if choice.hasChild(name) {
					continue
				}
				step, ok := p.stepAround(name, choice.id.at)
				if !ok {
					r.compiler.fault(ErrUnknownNode, "%s asks step %q, which is not in the flow", choice.node(), name)
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
	for i := range p.choices {
		choice := &p.choices[i]
		for j := range choice.Deciders {
			decider := &choice.Deciders[j]
			for _, step := range decider.outside {
				if !r.before[choice.Gate].has(r.column[step]) {
					r.compiler.fault(ErrInvalid, "%s asks step %q, which does not always come before it: have it wait for that step", choice.node(), p.steps[step].name)
				}
				decider.From = append(decider.From, Steps{First: step, End: step + 1})
			}
			if decider.question == nil {
				continue
			}
			for _, argument := range decider.question.arguments() {
				decider.Values = append(decider.Values, r.asked(choice, argument))
			}
		}
	}
}

func (r *resolver) asked(choice *Choice, argument Argument) Wire {
	argument.Symbol, argument.Path = r.compiler.cut(argument.Symbol)
	wire := Wire{Argument: argument, From: FromNowhere}
	switch found := r.nearest(choice.Gate, int32(choice.instance), argument, choice.node()); {
	case found != nil:
		found.lead(&wire)
	case r.compiler.plan.inputs[argument.Symbol]:
		wire.From = FromStore
	case !argument.Optional:
		r.compiler.fault(ErrMissing, "%s asks for %s, which nothing before it provides and the store does not hold", choice.node(), described(argument))
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
	return slices.ContainsFunc(v.From, func(from Steps) bool { return from.holds(step) }) ||
		slices.ContainsFunc(v.Values, func(wire Wire) bool {
			return wire.From == step || wire.From == FromEach && wire.Gathered.Items[0].From == step
		})
}
