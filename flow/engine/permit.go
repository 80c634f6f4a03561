package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/conductord/conductord/flow"
)

// permitSource is what the core asks before a step starts. It asks before it writes
// the step's mark, so a step that has to wait stays pending.
type permitSource interface {
	// obtain takes a permit for a step; with an empty key, only a worker.
	obtain(key string, limit int) (*permit, permission)
	// newKeys returns the keys under which a blocked step may start now.
	newKeys() []string
	// queueFor queues the run for the next permit of a key.
	queueFor(key string, limit int)
	// returnKey returns a reserved permit of a key.
	returnKey(key string)
	// returnReserved returns all that is reserved. Its result is what newKeys
	// would have returned.
	returnReserved() []string
}

// maxKey bounds the bytes kept of a key; a longer one is replaced by its hash.
const maxKey = 255

// emptyKey stands for a key that evaluates to "", because "" means that there is
// no key.
const emptyKey = "\x00"

// blockedStep waits for its key. It is known by name, because steps are numbered
// anew when a flow grows.
type blockedStep struct {
	name  string
	limit int
}

// admit asks whether a ready step may start.
func (c *core) admit(step int, p permitSource) (granted *permit, answer permission) {
	s := c.plan.Step(step)
	if s.Task() == nil {
		return nil, permitted // decided by the loop itself
	}
	key := ""
	_, limit := s.Concurrency()
	if limit > 0 {
		key = c.keyOf(step)
	}
	if granted, answer = p.obtain(key, limit); answer == noKey {
		if c.blocked == nil {
			c.blocked = make(map[string]*queue[blockedStep])
		}
		if c.blocked[key] == nil {
			c.blocked[key] = &queue[blockedStep]{}
		}
		c.blocked[key].push(blockedStep{name: s.Name(), limit: limit})
		c.blockedSteps++
	}
	return granted, answer
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
		return emptyKey // all its arguments are empty; the limit holds all the same
	}
	if len(key) > maxKey {
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:])
	}
	return key
}

// unblock makes one step ready for each key that has a new permit, and queues for
// the next permit.
func (c *core) unblock(p permitSource) {
	for _, key := range p.newKeys() {
		blocked := c.blocked[key]
		if blocked == nil {
			p.returnKey(key) // the steps that waited for it need not run any more
			continue
		}
		first, _ := blocked.pop()
		c.blockedSteps--
		if step, ok := c.plan.Find(first.name); ok {
			c.ready.pushFirst(step)
		}
		if blocked.len() == 0 {
			delete(c.blocked, key)
		} else {
			p.queueFor(key, blocked.first().limit)
		}
	}
}

// returnReserved returns permits that no step can use now. It may return one that was
// reserved just now for a blocked step: then the run queues for that key again.
func (c *core) returnReserved(p permitSource) {
	for _, key := range p.returnReserved() {
		if blocked := c.blocked[key]; blocked != nil && !c.suspended && !c.broken {
			p.queueFor(key, blocked.first().limit)
		}
	}
}

// forget removes the steps of a scope from all queues.
func (c *core) forget(bounds *flow.Scope) {
	c.ready.remove(bounds.Holds)
	c.due.remove(bounds.Holds)
	for key, blocked := range c.blocked {
		before := blocked.len()
		blocked.remove(func(p blockedStep) bool {
			step, ok := c.plan.Find(p.name)
			return !ok || bounds.Holds(step)
		})
		c.blockedSteps -= before - blocked.len()
		if blocked.len() == 0 {
			delete(c.blocked, key)
		}
	}
}

// The loop is the core's permitSource. Without Options.Pool, only Options.Workers
// bounds the steps; the first step with a key makes a pool for this run alone.

func (l *loop) obtain(key string, limit int) (*permit, permission) {
	if l.inPool == nil {
		if key == "" {
			return nil, permitted
		}
		l.inPool = NewPool(l.options.Workers).join()
	}
	answer := l.inPool.obtain(key, limit)
	if answer != permitted {
		return nil, answer
	}
	return &permit{pool: l.inPool.pool, key: key}, answer
}

func (l *loop) newKeys() []string {
	if l.inPool == nil {
		return nil
	}
	return l.inPool.newKeys()
}

func (l *loop) queueFor(key string, limit int) { l.inPool.queueFor(key, limit) }

func (l *loop) returnKey(key string) { l.inPool.returnKey(key) }

func (l *loop) returnReserved() []string {
	if l.inPool == nil {
		return nil
	}
	return l.inPool.returnReserved()
}
