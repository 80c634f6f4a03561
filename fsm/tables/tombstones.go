package tables

import (
	"strings"

	"github.com/tidwall/btree"
)

const (
	// learnFrom is the minimum number of deleted rows for a remembered range.
	learnFrom = 8
	// maxTombstones limits the remembered ranges of a table. A memtable of DefaultMemoryRows has
	// room for fewer. If there are more, all are forgotten and learned again.
	maxTombstones = 4_096
)

// tombstones caches ranges of keys that are known to hold only deleted rows. Without it, each
// read of a queue's first row would scan every row taken since the last flush. Only the Writer
// uses it; nil is an empty cache that learns nothing.
type tombstones struct {
	of []*btree.Map[string, rangeEnd] // by table, and by the start of the range
}

// rangeEnd is the key before which a range ends; open: it has no end.
type rangeEnd struct {
	key  string
	open bool
}

func newTombstones(tables int) tombstones {
	return tombstones{of: make([]*btree.Map[string, rangeEnd], tables)}
}

// at returns the range that contains a key.
func (g *tombstones) at(t Table, key string) (from string, end rangeEnd, found bool) {
	if g == nil || g.of[t] == nil {
		return "", rangeEnd{}, false
	}
	g.of[t].Descend(key, func(start string, e rangeEnd) bool {
		from, end, found = start, e, e.open || key < e.key
		return false
	})
	return from, end, found
}

// end returns the end of the range that contains a key: nil if no row follows.
func (g *tombstones) end(t Table, key []byte) (end []byte, found bool) {
	_, to, found := g.at(t, stringOf(key))
	if !found || to.open {
		return nil, found
	}
	return bytesOf(to.key), true
}

// learn remembers that the range from key to next contains only deleted rows. next is the next
// existing row; nil if there is none. deleted is the number of deleted rows.
func (g *tombstones) learn(t Table, key, next []byte, deleted int) {
	if g == nil {
		return
	}
	from, _, known := g.at(t, stringOf(key))
	switch {
	case known: // a range that grows at its end
	case deleted < learnFrom:
		return
	default:
		from = string(key)
	}
	if g.of[t] == nil || g.of[t].Len() >= maxTombstones {
		g.of[t] = new(btree.Map[string, rangeEnd])
	}
	end := rangeEnd{key: string(next), open: next == nil}
	for _, inner := range g.within(t, from, end) {
		g.of[t].Delete(inner)
	}
	g.of[t].Set(from, end)
}

// within returns the starts of the ranges that a larger range replaces. No two ranges may overlap:
// otherwise, a written row would split only one of them.
func (g *tombstones) within(t Table, from string, end rangeEnd) (starts []string) {
	g.of[t].Ascend(from, func(start string, _ rangeEnd) bool {
		if !end.open && start >= end.key {
			return false
		}
		starts = append(starts, start)
		return true
	})
	return starts
}

// put splits the range that contains a written row.
func (g *tombstones) put(t Table, key string) {
	from, end, found := g.at(t, key)
	if !found {
		return
	}
	key = strings.Clone(key) // a range outlives the memory of a layer
	if from == key {
		g.of[t].Delete(from)
	} else {
		g.of[t].Set(from, rangeEnd{key: key})
	}
	if behind := key + "\x00"; end.open || behind < end.key {
		g.of[t].Set(behind, end)
	}
}

// forget forgets all ranges.
func (g *tombstones) forget() {
	clear(g.of)
}
