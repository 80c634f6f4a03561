package flow

import (
	"fmt"
	"slices"
)

// Enough lets the flow continue when n of its members have succeeded, and returns the flow. The members of an
// Unordered flow or a Graph are its children. The members of an Each are its instances, so the first n instances
// that succeed decide. All members run in parallel, and none waits for another.
//
// When n members have succeeded, all other members are dropped: running steps are interrupted, steps that have
// not started are ignored, and started steps are reverted. Then the flow continues. The values of dropped members
// are absent, like the values of ignored steps. A dropped member is reverted, even if its last step still
// succeeds.
//
// A member has failed when one of its steps has failed permanently, and no retry inside the member runs it again.
// Such a failure is ignored while n members can still succeed. Otherwise the flow fails: the retry around it
// decides, or everything is reverted or held.
//
// Compile refuses conditions that can skip a whole member, and members that are points of no return or Repeatable. It
// also refuses a flow with Enough or MaxFailures inside another. An Each whose list has fewer than n elements fails.
func (f *Flow) Enough(n int) *Flow {
	f.enough, f.selects = n, true
	if f.each != nil {
		f.each.enough = n
	}
	return f
}

// Needed is the number of members that must succeed, as set by Enough; 0: all.
func (f *Flow) Needed() int {
	if !f.selects {
		return 0
	}
	return f.enough
}

// selection describes Enough for display; empty: all members must succeed.
func (f *Flow) selection() string {
	switch {
	case !f.selects:
		return ""
	case f.each != nil:
		return fmt.Sprintf("continues when %d elements have succeeded", f.enough)
	}
	return fmt.Sprintf("continues when %d of %d members have succeeded", f.enough, len(f.children))
}

// isTolerant reports whether members of the flow may fail.
func (f *Flow) isTolerant() bool { return f.selects || f.each != nil && f.each.ignores.given }

// surveyEnough checks a flow whose members may fail, the last flow of the path.
func (c *compiler) surveyEnough(flow *Flow, path []Node) {
	for _, around := range path[:len(path)-1] {
		if outer, ok := around.(*Flow); ok && outer.isTolerant() && flow.isTolerant() {
			c.fault(ErrInvalid, "%s ignores failures of its members, and is inside %s, which also ignores failures", quoted(flow), quoted(outer))
		}
	}
	if !flow.selects {
		return
	}
	members := fmt.Sprintf("its %d members", len(flow.children))
	most := len(flow.children)
	if flow.each != nil {
		members, most = fmt.Sprintf("at most %d elements", MaxElements), MaxElements
	}
	switch {
	case flow.enough < 1:
		c.fault(ErrInvalid, "enough of %s is %d; at least 1 member must succeed", quoted(flow), flow.enough)
	case flow.enough > most:
		c.fault(ErrInvalid, "enough of %s is %d, which is more than %s", quoted(flow), flow.enough, members)
	case flow.pattern == PatternLinear:
		c.fault(ErrInvalid, "%s is linear and has enough; members that run one after another cannot be selected: make it unordered", quoted(flow))
	case len(flow.links) > 0:
		c.fault(ErrInvalid, "%s has enough, and its members wait for each other or have conditions; put them into a flow inside the member", quoted(flow))
	case flow.each != nil && flow.each.ignores.given:
		c.fault(ErrInvalid, "%s has both enough and a maximum of failures; enough already ignores the failures of the other elements", quoted(flow))
	}
	for _, child := range flow.children {
		if step, ok := child.(*Step); ok && step != nil && step.ignoresFailure {
			c.fault(ErrInvalid, "step %q ignores its failure and is a member of %s; a failed member never counts as enough", step.name, quoted(flow))
		}
	}
}

// checkMember reports a step that cannot be in a flow whose members may fail.
func (c *compiler) checkMember(step *Step, path []Node) {
	for _, around := range path {
		f, ok := around.(*Flow)
		switch {
		case !ok || !f.isTolerant():
		case step.noReturn && f.selects:
			c.fault(ErrInvalid, "step %q is a point of no return in %s, which has enough and reverts the members that it does not need", step.name, quoted(f))
		case step.noReturn:
			c.fault(ErrInvalid, "step %q is a point of no return in %s, which ignores failures; an unknown outcome could hide that the flow has passed it", step.name, quoted(f))
		case step.repeatable && f.selects:
			c.fault(ErrInvalid, "step %q is repeatable in %s, which has enough; after a crash, other members could be selected", step.name, quoted(f))
		}
	}
}

// Group is a flow whose members may fail: a flow with Enough, or an Each with MaxFailures.
type Group struct {
	Name       string
	First, End int // its members in TolerantElements
	Most       int // members that may fail
	Enough     int // members that must succeed; 0: the group waits for all members
	Opening    int // of an each, whose instances are the members; -1: a flow
	Gate       int // with Enough: the vertex after all members; steps after the group wait for it
}

// Groups are the flows whose members may fail. The slice belongs to the plan: do not write to it.
func (p *Plan) Groups() []Group { return p.groups }

// GroupAt returns the index of the group with Enough that ends at a gate.
func (p *Plan) GroupAt(gate int) (int, bool) {
	group, ok := p.groupAt[gate]
	return group, ok
}

// Member is the index in TolerantElements of the member of a group with Enough that contains a vertex.
func (p *Plan) Member(vertex int) (member int, ok bool) {
	member, ok = p.ElementOf(vertex)
	return member, ok && p.groups[p.elements[member].Group].Enough > 0
}

// Selection is the group with Enough that contains a vertex; false: there is none.
func (p *Plan) Selection(vertex int) (group int, ok bool) {
	element, ok := p.ElementOf(vertex)
	if !ok || p.groups[p.elements[element].Group].Enough == 0 {
		return 0, false
	}
	return p.elements[element].Group, true
}

// placedGroup is a Group by its vertices.
type placedGroup struct {
	flow      *Flow
	at        string
	opener    int32 // of an each
	gate      int32 // -1: none
	members   []span
	instances []int32 // of an each, instead of members
}

// isSelecting reports whether a flow that is placed has the gate of Enough. Targets can have removed it.
func (c *compiler) isSelecting(flow *Flow) bool {
	return flow.selects && (c.template == nil || c.template.selecting[flow])
}

// placeGroup puts the gate after the members of a flow with Enough.
func (c *compiler) placeGroup(flow *Flow, members []span, end []int32) []int32 {
	if !c.isSelecting(flow) {
		return end
	}
	for i, member := range members {
		if c.template == nil && !c.holdsStep(member) {
			c.fault(ErrInvalid, "member %q of %s has no steps", flow.children[i].Name(), quoted(flow))
		}
	}
	gate := c.vertex(nil, end)
	c.groups = append(c.groups, placedGroup{flow: flow, at: c.at, gate: gate, members: members})
	return []int32{gate}
}

// placeEachGroup records an each whose instances may fail, and puts the gate of Enough after them.
func (c *compiler) placeEachGroup(flow *Flow, opener int32, instances, end []int32) []int32 {
	group := placedGroup{flow: flow, at: c.at, opener: opener, gate: -1, instances: instances}
	if c.isSelecting(flow) {
		group.gate = c.vertex(nil, end)
		end = []int32{group.gate}
	}
	c.groups = append(c.groups, group)
	return end
}

// pruneGroups drops the groups with Enough after which nothing is left: the remaining members all run.
func (c *compiler) pruneGroups(kept []bool, rank []int) {
	groups := c.groups[:0]
	for _, group := range c.groups {
		if group.gate >= 0 && !kept[group.gate] || group.flow.each != nil && !kept[group.opener] {
			continue
		}
		if group.gate >= 0 {
			group.gate = int32(rank[group.gate])
		}
		group.opener = int32(rank[group.opener])
		for i := range group.members {
			group.members[i].from, group.members[i].end = rank[group.members[i].from], rank[group.members[i].end]
		}
		groups = append(groups, group)
	}
	c.groups = groups
}

// numberGroups records the groups and their members in the plan.
func (c *compiler) numberGroups(numbers []int32) {
	p := c.plan
	p.selecting, p.groupAt = make(map[*Flow]bool), make(map[int]int)
	if len(c.groups) == 0 {
		return
	}
	p.elementOf = make([]int32, len(numbers))
	for v := range p.elementOf {
		p.elementOf[v] = -1
	}
	for i := range c.groups {
		placed := &c.groups[i]
		members := placed.members
		for _, instance := range placed.instances {
			members = append(members, c.instances[instance].span)
		}
		group := Group{Name: placed.flow.name + placed.at, Opening: -1, First: len(p.elements), Gate: -1}
		for index, member := range members {
			if member.from == member.end { // without steps, it is pruned
				continue
			}
			for v := member.from; v < member.end; v++ {
				p.elementOf[numbers[v]] = int32(len(p.elements))
			}
			p.elements = append(p.elements, Element{Group: len(p.groups), Index: index, Bounds: boundsOf(member, numbers, p.Len())})
		}
		if group.End = len(p.elements); placed.gate >= 0 {
			group.Gate, group.Enough = int(numbers[placed.gate]), placed.flow.enough
			group.Most = max(0, group.End-group.First-group.Enough)
			p.groupAt[group.Gate], p.selecting[placed.flow] = len(p.groups), true
		} else {
			group.Most = placed.flow.each.ignores.of(len(members))
		}
		if placed.flow.each != nil {
			group.Opening = int(numbers[placed.opener])
		}
		p.groups = append(p.groups, group)
	}
}

// checkMembers reports the members of a flow with Enough that contain finally or on_error steps, and the members that
// conditions can leave out as a whole: such a member would neither succeed nor fail.
func (r *resolver) checkMembers() {
	p := r.compiler.plan
	for i := range p.elements {
		element := &p.elements[i]
		if p.groups[element.Group].Enough == 0 {
			continue
		}
		for final := range p.finals {
			if element.Bounds.Holds(p.finals[final].Start) {
				r.compiler.fault(ErrInvalid, "flow %q has %s steps, and is in a member of flow %q, which has enough and would drop the member without these steps; give the steps to flow %q or to a flow around it",
					p.finals[final].Flow, p.finals[final].word(), p.groups[element.Group].Name, p.groups[element.Group].Name)
			}
		}
		left := element.Bounds.End - element.Bounds.Retry
		ignored := make(map[int]bool)
		for choice := range p.choices {
			if !element.Bounds.Holds(p.choices[choice].Gate) {
				continue
			}
			for _, decider := range p.choices[choice].Deciders {
				for _, step := range p.Ignored(choice, decider.Depth) {
					ignored[step] = ignored[step] || element.Bounds.Holds(step)
				}
			}
		}
		for step, inside := range ignored {
			if inside && step >= 0 {
				left--
			}
		}
		if left == 0 {
			r.compiler.fault(ErrInvalid, "conditions can skip all steps of a member of flow %q, which has enough: step %q and the steps after it; add a step without a condition",
				p.groups[element.Group].Name, p.steps[element.Bounds.Retry].name)
		}
	}
}

// dropped reports whether all sources of a wire can be in dropped members of one flow with Enough, while its
// step runs.
func (r *resolver) dropped(step int, wire *Wire) (group *Group, yes bool) {
	p := r.compiler.plan
	var members []int
	for _, source := range wire.Sources() {
		provider, ok := source.Provider()
		if !ok {
			return nil, false
		}
		number, ok := p.Selection(provider)
		if !ok || group != nil && group != &p.groups[number] {
			return nil, false
		}
		group = &p.groups[number]
		if member, _ := p.ElementOf(provider); !slices.Contains(members, member) {
			members = append(members, member)
		}
	}
	if group == nil || len(p.groups) == 0 {
		return nil, false
	}
	own, inside := p.ElementOf(step)
	if inside && own >= group.First && own < group.End {
		return nil, false
	}
	return group, len(members) <= group.Most
}
