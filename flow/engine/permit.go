package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/conductord/conductord/flow"
)

// permits is who the core asks before a step starts. The answer comes before
// the step's mark is written, so that a step that has to wait stays PENDING.
type permits interface {
	// obtain takes what a step needs; a key that is empty needs only a slot.
	obtain(key string, limit int) (*grant, permission)
	// news are the keys under which steps that have waited may start now.
	news() []string
	// lineUp waits for the next place under a key.
	lineUp(key string, limit int)
	// decline gives back a place that was set aside, and yield all that is: it
	// gives the keys that news would have given.
	decline(key string)
	yield() []string
}

// maxKey bounds what is kept of a key: longer ones stand for themselves by
// their hash.
const maxKey = 255

// emptyKey stands for a key without text, since that means that there is none.
const emptyKey = "\x00"

// parkedStep waits for its key. It is known by name: steps are numbered anew
// when a flow grows.
type parkedStep struct {
	name  string
	limit int
}

// admit asks whether a ready step may start.
func (c *core) admit(step int, p permits) (g *grant, answer permission) {
	s := c.plan.Step(step)
	if s.Task() == nil {
		return nil, permitted // decided by the loop itself
	}
	key := ""
	_, limit := s.Concurrency()
	if limit > 0 {
		key = c.keyOf(step)
	}
	if g, answer = p.obtain(key, limit); answer == noPlace {
		if c.parked == nil {
			c.parked = make(map[string]*queue[parkedStep])
		}
		if c.parked[key] == nil {
			c.parked[key] = &queue[parkedStep]{}
		}
		c.parked[key].push(parkedStep{name: s.Name(), limit: limit})
		c.waiting++
	}
	return g, answer
}

// keyOf is the concurrency key of a step with the values of its arguments.
func (c *core) keyOf(step int) string {
	s := c.plan.Step(step)
	key := s.ConcurrencyKey(func(argument string) (json.RawMessage, bool) {
		if value, ok := s.Injected(argument); ok {
			return value, true
		}
		wires := c.plan.Arguments(step)
		for i := range wires {
			if wires[i].Name == argument {
				return c.value(&wires[i])
			}
		}
		return nil, false
	})
	if key == "" {
		return emptyKey // of arguments that are all empty, which is no reason for not counting
	}
	if len(key) > maxKey {
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:])
	}
	return key
}

// unpark makes one step ready for each key under which there is a place now,
// and lines up for the next.
func (c *core) unpark(p permits) {
	for _, key := range p.news() {
		parked := c.parked[key]
		if parked == nil {
			p.decline(key) // it need not run any more
			continue
		}
		first, _ := parked.pop()
		c.waiting--
		if step, ok := c.plan.Find(first.name); ok {
			c.ready.pushFirst(step)
		}
		if parked.len() == 0 {
			delete(c.parked, key)
		} else {
			p.lineUp(key, parked.first().limit)
		}
	}
}

// yield gives back what nothing can be started with now. A place that came
// just now is given back too, unheard: whoever waits for it lines up again.
func (c *core) yield(p permits) {
	for _, key := range p.yield() {
		if parked := c.parked[key]; parked != nil && !c.suspended && !c.broken {
			p.lineUp(key, parked.first().limit)
		}
	}
}

// forget takes steps out of all that waits to start.
func (c *core) forget(bounds *flow.Scope) {
	c.ready.remove(bounds.Holds)
	c.due.remove(bounds.Holds)
	for key, parked := range c.parked {
		before := parked.len()
		parked.remove(func(p parkedStep) bool {
			step, ok := c.plan.Find(p.name)
			return !ok || bounds.Holds(step)
		})
		c.waiting -= before - parked.len()
		if parked.len() == 0 {
			delete(c.parked, key)
		}
	}
}

// The loop's answers. Without a pool, only Options.Workers bounds the steps;
// one for the run alone is made for the first step that has a key.

func (l *loop) obtain(key string, limit int) (*grant, permission) {
	if l.seat == nil {
		if key == "" {
			return nil, permitted
		}
		l.seat = NewPool(l.options.Workers).join()
	}
	answer := l.seat.obtain(key, limit)
	if answer != permitted {
		return nil, answer
	}
	return &grant{pool: l.seat.pool, key: key}, answer
}

func (l *loop) news() []string {
	if l.seat == nil {
		return nil
	}
	return l.seat.news()
}

func (l *loop) lineUp(key string, limit int) { l.seat.lineUp(key, limit) }

func (l *loop) decline(key string) { l.seat.decline(key) }

func (l *loop) yield() []string {
	if l.seat == nil {
		return nil
	}
	return l.seat.yield()
}
