package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// permitSource grants permits to start steps. The core asks for a permit before it writes the
// step's mark, so a step that has to wait stays pending.
type permitSource interface {
	// obtain takes a permit for a step; with an empty key, only a worker.
	obtain(key string, limit int) (*permit, permission)
	// hold takes a permit of a key without a worker, whatever the limit.
	hold(key string) *permit
	// newKeys returns the keys under which a blocked step may start now.
	newKeys() []string
	// queueFor queues the run for the next permit of a key.
	queueFor(key string, limit int)
	// returnKey returns a reserved permit of a key.
	returnKey(key string)
	// returnReserved returns all reserved permits. Its result is the result that newKeys would
	// have had.
	returnReserved() []string
}

// maxKey bounds the bytes kept of a key; a longer one is replaced by its hash.
const maxKey = 255

// emptyKey represents a key that evaluates to "", because "" means that there is no key.
const emptyKey = "\x00"

// admit asks whether a ready step may start.
func (c *core) admit(step int, p permitSource) (granted *permit, answer permission) {
	s := c.plan.Step(step)
	if s.Task() == nil {
		return nil, permitted // decided by the loop itself
	}
	if held := c.vertices[step].key; held != nil {
		if granted, answer = p.obtain("", 0); answer == permitted {
			granted.key = held.key
			c.vertices[step].key, c.heldKeys = nil, c.heldKeys-1
		}
		return granted, answer
	}
	key := ""
	_, limit := s.Concurrency()
	if limit > 0 {
		key = c.keyOf(step)
	}
	if granted, answer = p.obtain(key, limit); answer == noKey {
		c.block(key, blockedStep{step: step, limit: limit})
	}
	return granted, answer
}

// keepsKey reports whether a step waits after NotYet with the permit of its key. An execution that
// will be reverted is not called again, and keeps nothing.
func (f *facts) keepsKey(step int) bool {
	v := &f.vertices[step]
	waits := v.phase == waiting && !v.isToUndo() || v.phase == toUndo
	return waits && v.attempt != nil && v.attempt.Asked > 0 && f.plan.Step(step).KeepsKey()
}

// keep keeps the key of an attempt that has ended or returned NotYet, or releases it.
func (c *core) keep(step int, held *permit) {
	if held == nil || held.key == "" || !c.keepsKey(step) {
		held.release()
		return
	}
	held.releaseWorker()
	c.vertices[step].key, c.heldKeys = held, c.heldKeys+1
}

// dropKey releases the key of a step that does not wait any more.
func (c *core) dropKey(step int) {
	if v := &c.vertices[step]; v.key != nil && !c.keepsKey(step) {
		v.key.release()
		v.key, c.heldKeys = nil, c.heldKeys-1
	}
}

// holdKeys takes the keys of the steps that waited when this run started. Their work outside continues
// meanwhile, so the limits may be exceeded.
func (c *core) holdKeys(p permitSource) {
	if c.holding {
		return
	}
	c.holding = true
	for step := range c.plan.Len() {
		if c.keepsKey(step) && c.vertices[step].key == nil {
			c.keep(step, p.hold(c.keyOf(step)))
		}
	}
}

// concurrencyKey is the concurrency key of a step with the values of its arguments. The error is
// about a value that is absent; the step fails with it when it starts.
func (f *facts) concurrencyKey(step int) (string, error) {
	s := f.plan.Step(step)
	return s.ConcurrencyKey(func(argument string) (json.RawMessage, bool) {
		if value, ok := s.Injected(argument); ok {
			return value, true
		}
		wires := f.plan.Arguments(step)
		for i := range wires {
			if wires[i].Name == argument {
				value, ok := f.value(&wires[i])
				if !ok || wires[i].Path == "" {
					return value, ok
				}
				inner, err := f.inner(&wires[i], value)
				return inner, err == nil
			}
		}
		return nil, false
	})
}

// keyOf is the concurrency key in the form that the pool knows.
func (f *facts) keyOf(step int) string {
	key, _ := f.concurrencyKey(step)
	if key == "" {
		return emptyKey // all its arguments are empty; the limit still applies
	}
	if len(key) > maxKey {
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:])
	}
	return key
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

func (l *loop) hold(key string) *permit {
	if l.inPool == nil {
		l.inPool = NewPool(l.options.Workers).join()
	}
	return l.inPool.hold(key)
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
