package flow

import "strings"

// Tree is a plan for display: flows and steps in the order in which they were written. Parts that
// targets removed are absent.
type Tree struct {
	Flow  *Flow   // nil: a step
	Step  *Step   // nil: a flow
	First int     // the number of the step, or of the flow's first step; -1: a flow without steps
	Only  string  // the conditions under which the step, or the part that starts with it, runs; empty: always
	Parts []*Tree // of a flow: its retry, the opening of an each, and its nodes
}

// Tree is the plan's flow as written: the body of an each occurs once.
func (p *Plan) Tree() *Tree {
	p = p.Template()
	only := map[int]string{}
	for i := range p.choices {
		first := p.choices[i].Target.First
		for j := range p.choices[i].Deciders {
			only[first] = strings.TrimPrefix(only[first]+" and "+p.choices[i].Deciders[j].Name, " and ")
		}
	}
	return p.tree(p.root, only)
}

func (p *Plan) tree(node Node, only map[int]string) *Tree {
	flow, ok := node.(*Flow)
	if !ok {
		number, left := p.index[node.Name()]
		if !left {
			return nil
		}
		return &Tree{Step: p.steps[number], First: number, Only: only[number]}
	}
	t := &Tree{Flow: flow, First: -1}
	add := func(node Node) {
		if part := p.tree(node, only); part != nil {
			if t.Parts = append(t.Parts, part); t.First < 0 || part.First >= 0 && part.First < t.First {
				t.First = part.First
			}
		}
	}
	if retry := flow.Retrier(); retry != nil {
		add(retry.step)
	}
	if flow.each != nil {
		add(flow.each.opener)
	}
	for _, child := range flow.children {
		add(child)
	}
	for _, step := range flow.late() {
		add(step)
	}
	if len(t.Parts) == 0 && len(p.how.Targets) > 0 {
		return nil
	}
	return t
}

// Name is the name of the step or flow.
func (t *Tree) Name() string {
	if t.Flow != nil {
		return t.Flow.name
	}
	return t.Step.name
}

// Visible are the parts to show in a picture. It leaves out flows without steps, and replaces the
// flow that an each repeats by the parts of that flow.
func (t *Tree) Visible() (parts []*Tree) {
	for _, part := range t.Parts {
		switch {
		case part.First < 0:
		case part.Flow != nil && t.Flow.each != nil:
			parts = append(parts, part.Visible()...)
		default:
			parts = append(parts, part)
		}
	}
	return parts
}
