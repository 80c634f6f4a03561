package tables

import (
	"unsafe"

	"github.com/tidwall/btree"
)

// degree is that of the trees of a layer. A commit copies each node that it
// changes, so they are smaller than they would be for reading alone.
const degree = 16

// rowOverhead is about what a row takes in memory beside its key and its value.
const rowOverhead = 64

// tree is a table in a layer: what was written to it, by key. The value of a row
// that was deleted is nil; one that is empty is not.
type tree = btree.Map[string, []byte]

// layer is what was written to all tables in a while. One that has been
// published is not changed any more: a Writer makes another from it, which
// shares all nodes that it does not change.
type layer struct {
	trees []*tree // nil: nothing was written to the table
	rows  int     // that were written, each time
	bytes int     // of them
	chunk []byte  // where keys and values are put, one behind the other
}

// chunkSize is how much memory is taken at once for keys and values. To allocate and
// collect it for each of them would cost more than the tree does. A value that is larger
// than a part of a chunk has memory of its own.
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

// get tells what a layer says of a row: nothing, that it is deleted (nil), or
// what it is.
func (l *layer) get(t Table, key []byte) (value []byte, said bool) {
	if l == nil || l.trees[t] == nil {
		return nil, false
	}
	return l.trees[t].Get(stringOf(key)) // the tree does not keep a key that it only looks for
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

// stringOf is the same bytes as a string, which is good as long as nobody
// changes them.
func stringOf(key []byte) string { return unsafe.String(unsafe.SliceData(key), len(key)) }

// bytesOf is the same string as bytes, which must not be changed. It is not nil.
func bytesOf(key string) []byte {
	if key == "" {
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(key), len(key))
}
