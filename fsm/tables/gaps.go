package tables

import (
	"strings"

	"github.com/tidwall/btree"
)

const (
	// learnFrom is how many deleted rows make a gap worth remembering.
	learnFrom = 8
	// maxGaps is how many are remembered of a table. A layer of
	// DefaultMemoryRows has room for fewer; if there are more, all are
	// forgotten, and learnt anew.
	maxGaps = 4_096
)

// gaps are stretches of keys in which a table has no row, as far as they have
// been met: who takes the first row of a queue again and again would otherwise
// come by all those that were taken before it, until they are flushed. They are
// the Writer's alone; the nil one knows nothing and learns nothing.
type gaps struct {
	of []*btree.Map[string, gapEnd] // by table; by where a gap begins
}

// gapEnd is the key before which a gap ends; open: it has no end.
type gapEnd struct {
	key  string
	open bool
}

func newGaps(tables int) gaps { return gaps{of: make([]*btree.Map[string, gapEnd], tables)} }

// at finds the gap in which a key is.
func (g *gaps) at(t Table, key string) (from string, end gapEnd, found bool) {
	if g == nil || g.of[t] == nil {
		return "", gapEnd{}, false
	}
	g.of[t].Descend(key, func(start string, e gapEnd) bool {
		from, end, found = start, e, e.open || key < e.key
		return false
	})
	return from, end, found
}

// end tells where the gap ends in which a key is: nil if no row follows.
func (g *gaps) end(t Table, key []byte) (end []byte, found bool) {
	_, to, found := g.at(t, stringOf(key))
	if !found || to.open {
		return nil, found
	}
	return bytesOf(to.key), true
}

// learn remembers that no row is between a key and the next one that was found,
// nil if none was, and that so many deleted ones are.
func (g *gaps) learn(t Table, key, next []byte, deleted int) {
	if g == nil {
		return
	}
	from, _, known := g.at(t, stringOf(key))
	switch {
	case known: // a gap that has grown at its end
	case deleted < learnFrom:
		return
	default:
		from = string(key)
	}
	if g.of[t] == nil || g.of[t].Len() >= maxGaps {
		g.of[t] = new(btree.Map[string, gapEnd])
	}
	end := gapEnd{key: string(next), open: next == nil}
	for _, inner := range g.within(t, from, end) {
		g.of[t].Delete(inner)
	}
	g.of[t].Set(from, end)
}

// within are where the gaps begin that a larger one takes up: no two may
// overlap, or a row that is written would end one of them only.
func (g *gaps) within(t Table, from string, end gapEnd) (starts []string) {
	g.of[t].Ascend(from, func(start string, _ gapEnd) bool {
		if !end.open && start >= end.key {
			return false
		}
		starts = append(starts, start)
		return true
	})
	return starts
}

// put tells of a row that was written: the gap in which it is becomes two.
func (g *gaps) put(t Table, key string) {
	from, end, found := g.at(t, key)
	if !found {
		return
	}
	key = strings.Clone(key) // a gap outlives the memory of a layer
	if from == key {
		g.of[t].Delete(from)
	} else {
		g.of[t].Set(from, gapEnd{key: key})
	}
	if behind := key + "\x00"; end.open || behind < end.key {
		g.of[t].Set(behind, end)
	}
}

// forget forgets all of them.
func (g *gaps) forget() {
	clear(g.of)
}
