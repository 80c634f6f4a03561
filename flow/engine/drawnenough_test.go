package engine_test

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// enough draws a flow that needs only some of its members. Steps behind it do not see the values of members, because
// members can be dropped. Which members count is a matter of chance.
func (d *drawing) enough(name string) flow.Node {
	d.has("enough")
	retry, leave := d.retry(name)
	defer leave()
	f := flow.Unordered(name)
	for i := range rapid.IntRange(2, 3).Draw(d.rt, "members") {
		f.Add(d.memberOf(fmt.Sprintf("%s.%d", name, i)))
	}
	f.Enough(rapid.IntRange(1, len(f.Children())).Draw(d.rt, "needed"))
	if retry != nil {
		d.has("enough under a retry")
		f.WithRetry(retry)
	}
	d.handles(f)
	d.finals(f)
	return d.policy(f)
}

// memberOf draws a member of a flow with enough: a step, or a flow of two steps, perhaps under a retry.
func (d *drawing) memberOf(name string) flow.Node {
	seen := len(d.gives)
	d.member, d.tolerant, d.uneven, d.parallel, d.world.omits = true, true, true, true, true
	defer func() { d.member, d.tolerant, d.gives = false, false, d.gives[:seen] }()
	if rapid.Bool().Draw(d.rt, "member is a step") {
		return d.leaf()
	}
	retry, leave := d.retry(name)
	defer leave()
	f := flow.Linear(name)
	if rapid.Bool().Draw(d.rt, "in parallel") {
		f = flow.Unordered(name)
	}
	for range 2 {
		before := d.gives
		f.Add(d.leaf())
		if f.Pattern() == flow.PatternUnordered {
			d.gives = before
		}
	}
	if retry != nil {
		f.WithRetry(retry)
	}
	return f
}

// dropped counts the members that were not needed.
func (c *trial) dropped(atom *logbook.AtomDetail) {
	if isDropped(atom) {
		c.has("leaves " + string(atom.Kind) + " dropped")
	}
}
