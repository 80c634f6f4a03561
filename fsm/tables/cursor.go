package tables

import (
	"bytes"

	"github.com/tidwall/btree"
)

// Cursor goes through the rows of one table in the order of their keys. Keys and values are
// valid as long as the Reader, and must not be changed. A nil key means that no rows follow.
type Cursor struct {
	reader *Reader
	table  Table

	layers  [2]layerCursor // the recent layer first: it takes precedence
	recent  *tree          // tree of layers[0]; replaced by a Writer's first write to the table
	file    fileCursor
	fileKey []byte // nil at the end
	fileRow []byte

	key      []byte // the cursor's position; nil at an end
	backward bool   // the sources are at or before key, not at or after it
}

// layerCursor goes through a table of one layer.
type layerCursor struct {
	iter *btree.MapIter[string, []byte] // nil: nothing was written to the table
	key  []byte                         // nil at the end
}

func (l *layerCursor) stand(found bool) {
	l.key = nil
	if found {
		l.key = bytesOf(l.iter.Key())
	}
}

// First moves to the first row.
func (c *Cursor) First() (key, value []byte) { return c.Seek(nil) }

// Seek moves to a key, or to the next key if it does not exist.
func (c *Cursor) Seek(key []byte) (found, value []byte) {
	start, known := c.reader.tombstones.end(c.table, key)
	if known {
		if start == nil {
			return c.atEnd()
		}
		c.seek(start)
	} else {
		c.seek(key)
	}
	found, value, deleted := c.forward()
	if deleted > 0 {
		c.reader.tombstones.learn(c.table, key, found, deleted)
	}
	return found, value
}

// look switches to the Writer's current tree. In an older tree, rows written since would be
// missing, and the cursor would learn a range of tombstones that contains them.
func (c *Cursor) look() {
	if now := c.reader.recent.trees[c.table]; now != c.recent {
		c.recent, c.layers[0].iter = now, c.reader.recent.iter(c.table)
	}
}

// atEnd moves the cursor after the last row.
func (c *Cursor) atEnd() (key, value []byte) {
	c.key, c.fileKey, c.backward = nil, nil, false
	for i := range c.layers {
		c.layers[i].key = nil
	}
	return nil, nil
}

// seek moves every source to a key or, if it lacks the key, to its next key.
func (c *Cursor) seek(key []byte) {
	c.backward = false
	c.look()
	c.fileKey, c.fileRow = c.file.Seek(key)
	for i := range c.layers {
		if l := &c.layers[i]; l.iter != nil {
			l.stand(l.iter.Seek(stringOf(key)))
		}
	}
}

// Next moves to the next row. After the end it returns nil.
func (c *Cursor) Next() (key, value []byte) {
	switch {
	case c.key == nil:
		return nil, nil
	case c.backward:
		c.seek(c.key)
	}
	c.leave(c.key)
	key, value, _ = c.forward()
	return key, value
}

// leave moves the sources that are at a key forward by one row.
func (c *Cursor) leave(key []byte) {
	if bytes.Equal(c.fileKey, key) && c.fileKey != nil {
		c.fileKey, c.fileRow = c.file.Next()
	}
	for i := range c.layers {
		if l := &c.layers[i]; l.key != nil && bytes.Equal(l.key, key) {
			l.stand(l.iter.Next())
		}
	}
}

// forward moves to the first row that is not deleted, and returns the number of deleted rows before
// it.
func (c *Cursor) forward() (key, value []byte, deleted int) {
	for {
		key, value = c.fileKey, c.fileRow
		live := true
		for i := len(c.layers) - 1; i >= 0; i-- {
			if l := &c.layers[i]; l.key != nil && (key == nil || bytes.Compare(l.key, key) <= 0) {
				key, value = l.key, l.iter.Value()
				live = value != nil
			}
		}
		if c.key = key; key == nil || live {
			return key, value, deleted
		}
		deleted++
		c.leave(key)
	}
}

// Last moves to the last row.
func (c *Cursor) Last() (key, value []byte) {
	c.backward = true
	c.fileKey, c.fileRow = c.file.Last()
	for i := range c.layers {
		if l := &c.layers[i]; l.iter != nil {
			l.stand(l.iter.Last())
		}
	}
	return c.back()
}

// Before moves to the last row before a key.
func (c *Cursor) Before(key []byte) (found, value []byte) {
	c.seekBefore(key)
	return c.back()
}

// Prev moves to the previous row. After the start it returns nil.
func (c *Cursor) Prev() (key, value []byte) {
	switch {
	case c.key == nil:
		return nil, nil
	case !c.backward:
		c.seekBefore(c.key)
	default:
		c.leaveBack(c.key)
	}
	return c.back()
}

// seekBefore moves every source before a key.
func (c *Cursor) seekBefore(key []byte) {
	c.backward = true
	if c.fileKey, _ = c.file.Seek(key); c.fileKey == nil {
		c.fileKey, c.fileRow = c.file.Last()
	} else {
		c.fileKey, c.fileRow = c.file.Prev()
	}
	for i := range c.layers {
		switch l := &c.layers[i]; {
		case l.iter == nil:
		case l.iter.Seek(stringOf(key)):
			l.stand(l.iter.Prev())
		default:
			l.stand(l.iter.Last())
		}
	}
}

// leaveBack moves the sources that are at a key back by one row.
func (c *Cursor) leaveBack(key []byte) {
	if bytes.Equal(c.fileKey, key) && c.fileKey != nil {
		c.fileKey, c.fileRow = c.file.Prev()
	}
	for i := range c.layers {
		if l := &c.layers[i]; l.key != nil && bytes.Equal(l.key, key) {
			l.stand(l.iter.Prev())
		}
	}
}

// back moves to the last existing row.
func (c *Cursor) back() (key, value []byte) {
	for {
		key, value = c.fileKey, c.fileRow
		live := true
		for i := len(c.layers) - 1; i >= 0; i-- {
			if l := &c.layers[i]; l.key != nil && (key == nil || bytes.Compare(l.key, key) >= 0) {
				key, value = l.key, l.iter.Value()
				live = value != nil
			}
		}
		if c.key = key; key == nil || live {
			return key, value
		}
		c.leaveBack(key)
	}
}
