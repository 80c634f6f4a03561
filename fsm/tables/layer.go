package tables

import (
	"unsafe"

	"github.com/tidwall/btree"
)

// degree is the degree of the trees in a layer. A commit copies each node that it changes, so the
// degree is lower than the best degree for reads.
const degree = 16

// rowOverhead is the approximate memory of a row, in addition to its key and its value.
const rowOverhead = 64

// tree contains the written rows of one table in a layer, by key. A nil value is a deleted row; an
// empty value is not.
type tree = btree.Map[string, []byte]

// layer contains the written rows of all tables since the last freeze. A published layer never
// changes: a Writer makes a new layer, which shares all unchanged nodes with the earlier layer.
type layer struct {
	trees []*tree // nil: nothing was written to the table
	rows  int     // number of writes
	bytes int     // bytes of all writes
	chunk []byte  // memory for keys and values, one after the other
}

// chunkSize is the size of one allocation for many keys and values. Separate allocations, and their
// collection, would cost more than the tree. A value larger than a part of a chunk has its own
// allocation.
const (
	chunkSize    = 64 << 10
	largestShare = chunkSize / 8
)

// keep copies bytes into the memory of the layer. The copy is not nil.
func (l *layer) keep(data []byte) []byte {
	if len(data) > largestShare {
		return append([]byte(nil), data...)
	}
	used := len(l.chunk)
	if l.chunk == nil || cap(l.chunk)-used < len(data) {
		l.chunk, used = make([]byte, 0, chunkSize), 0
	}
	l.chunk = append(l.chunk, data...)
	return l.chunk[used:len(l.chunk):len(l.chunk)]
}

func newTree() *tree { return btree.NewMap[string, []byte](degree) }

func newLayer(tables int) *layer { return &layer{trees: make([]*tree, tables)} }

// get returns the layer's value of a row; nil if the row is deleted. said is false if the layer
// does not contain the row.
func (l *layer) get(t Table, key []byte) (value []byte, said bool) {
	if l == nil || l.trees[t] == nil {
		return nil, false
	}
	return l.trees[t].Get(stringOf(key)) // the tree does not store a key that it only searches
}

// iter goes through a table of a layer; nil if nothing was written to it.
func (l *layer) iter(t Table) *btree.MapIter[string, []byte] {
	if l == nil || l.trees[t] == nil {
		return nil
	}
	iter := l.trees[t].Iter()
	return &iter
}

func (l *layer) empty() bool { return l.rows == 0 }

// stringOf returns the bytes as a string without a copy. The string is valid while the bytes do not
// change.
func stringOf(key []byte) string { return unsafe.String(unsafe.SliceData(key), len(key)) }

// bytesOf returns the string as bytes without a copy. The bytes must not be changed. They are never
// nil.
func bytesOf(key string) []byte {
	if key == "" {
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(key), len(key))
}
