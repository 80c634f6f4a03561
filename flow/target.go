package flow

import (
	"slices"

	"github.com/conductord/conductord/logbook"
)

// Targeted is the plan for some of the steps: these steps, all steps that they wait for, and the
// retries around them. A retry starts the remaining part of its flow again. A decider is called
// if something that it decides about remains. Removed steps do not run, and their inputs are not
// required. Without steps, Targeted returns the plan unchanged. The error is ErrUnknownNode if
// there is no such step.
func (p *Plan) Targeted(steps ...string) (*Plan, error) {
	if len(steps) == 0 {
		return p, nil
	}
	how := p.how
	how.Targets = steps
	return how.Compile(p.root)
}

// Targets are the steps given to Targeted; none for the whole flow.
func (p *Plan) Targets() []string { return slices.Clone(p.how.Targets) }

// prune removes the vertices that no target waits for. The others keep their order, so
// consecutive ones stay consecutive.
func (c *compiler) prune() {
	if len(c.Targets) == 0 || c.template != nil {
		return
	}
	if len(c.Targets) > logbook.MaxTargets {
		c.fault(ErrTooLarge, "it has %d targets; the limit is %d", len(c.Targets), logbook.MaxTargets)
		return
	}
	kept := c.needed()
	// By vertex, how many before it are kept: the new number of a kept one.
	rank := make([]int, len(c.vertices)+1)
	for v, keep := range kept {
		if rank[v+1] = rank[v]; keep {
			rank[v+1]++
		}
	}
	c.pruneVertices(kept, rank)
	c.pruneSpans(kept, rank)
	c.pruneInstances(kept, rank)
	c.pruneFinals(kept, rank)
	c.pruneGroups(kept, rank)
	for i := range c.graphs {
		graph := &c.graphs[i]
		for child, gate := range graph.gates {
			if gate >= 0 && kept[gate] {
				graph.gates[child] = int32(rank[gate])
			} else {
				graph.gates[child] = -1
			}
			place := &graph.places[child]
			place.from, place.end = rank[place.from], rank[place.end]
		}
	}
}

// keeps reports whether a step is placed at all. A plan that grows keeps only the steps that
// remain in its template. Removed steps are passed over, because they may be between others:
// instances can wait for each other.
func (c *compiler) keeps(step *Step) bool {
	if c.template == nil {
		return true
	}
	_, left := c.template.index[step.name]
	return left
}

// needed marks the targets and all that they wait for.
func (c *compiler) needed() []bool {
	kept := make([]bool, len(c.vertices))
	found := make(map[string]bool, len(c.Targets))
	for v, step := range c.vertices {
		if step != nil && slices.Contains(c.Targets, step.name) {
			kept[v], found[step.name] = true, true
			for _, end := range c.ends[int32(v)] { // for an opening: its whole each
				kept[end] = true
			}
		}
	}
	for _, target := range c.Targets {
		if !found[target] {
			c.fault(ErrUnknownNode, "target %q is not a step of the flow", target)
		}
	}
	// Edges lead to vertices that were made later, so one pass from the back is enough.
	for v := len(c.vertices) - 1; v >= 0; v-- {
		kept[v] = kept[v] || slices.ContainsFunc(c.edges[v], func(next int32) bool { return kept[next] })
	}
	c.keepFinals(kept)
	return kept
}

func (c *compiler) pruneVertices(kept []bool, rank []int) {
	vertices, edges, instances := make([]*Step, 0, len(c.vertices)), make([][]int32, 0, len(c.vertices)), make([]int32, 0, len(c.vertices))
	for v, step := range c.vertices {
		if !kept[v] {
			continue
		}
		var next []int32
		for _, w := range c.edges[v] {
			if kept[w] {
				next = append(next, int32(rank[w]))
			}
		}
		vertices, edges, instances = append(vertices, step), append(edges, next), append(instances, c.instanceOf[v])
	}
	c.vertices, c.edges, c.instanceOf = vertices, edges, instances
}

// pruneInstances renumbers the instances. One without vertices stays, empty, and without its opening if that is removed.
func (c *compiler) pruneInstances(kept []bool, rank []int) {
	for i := range c.instances {
		r := &c.instances[i]
		if kept[r.opener] {
			r.opener = int32(rank[r.opener])
		} else {
			r.opener = removed
		}
		r.span.from, r.span.end = rank[r.span.from], rank[r.span.end]
	}
	var closings []closing
	for _, end := range c.closings {
		if kept[end.vertex] {
			end.vertex, end.opener = int32(rank[end.vertex]), int32(rank[end.opener])
			closings = append(closings, end)
		}
	}
	c.closings = closings
}

// pruneSpans drops the scopes in which nothing is left. The first vertex of a scope is
// the retry, and everything else in the scope waits for it.
func (c *compiler) pruneSpans(kept []bool, rank []int) {
	number := make([]int, len(c.spans))
	var spans []span
	for i, s := range c.spans {
		if !kept[s.from] {
			continue
		}
		number[i] = len(spans)
		if s.parent >= 0 {
			s.parent = number[s.parent]
		}
		s.from, s.end = rank[s.from], rank[s.end]
		spans = append(spans, s)
	}
	c.spans = spans
	for i := range c.nodes {
		c.nodes[i].from, c.nodes[i].end = rank[c.nodes[i].from], rank[c.nodes[i].end]
	}
}
