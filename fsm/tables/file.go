package tables

import (
	bolt "go.etcd.io/bbolt"
)

// fileCursor goes through the rows of a table that are in the file.
type fileCursor struct {
	blocks  *bolt.Cursor
	present block // nil at an end
	at      int   // index of the current row
}

// enter moves to the first or the last row of a block.
func (c *fileCursor) enter(value []byte, last bool) (key, row []byte) {
	if c.present = value; value == nil {
		return nil, nil
	}
	if c.at = 0; last {
		c.at = c.present.rows() - 1
	}
	return c.present.row(c.at)
}

// Seek moves to a key, or to the next key if it does not exist.
func (c *fileCursor) Seek(key []byte) (found, value []byte) {
	_, c.present = c.blocks.Seek(key)
	if c.present == nil {
		return nil, nil
	}
	if c.at, _ = c.present.find(key); c.at < c.present.rows() {
		return c.present.row(c.at)
	}
	_, next := c.blocks.Next() // the last rows of the block were deleted
	return c.enter(next, false)
}

// Next moves to the next row.
func (c *fileCursor) Next() (key, value []byte) {
	if c.present == nil {
		return nil, nil
	}
	if c.at++; c.at < c.present.rows() {
		return c.present.row(c.at)
	}
	_, next := c.blocks.Next()
	return c.enter(next, false)
}

// Prev moves to the previous row.
func (c *fileCursor) Prev() (key, value []byte) {
	if c.present == nil {
		return nil, nil
	}
	if c.at--; c.at >= 0 {
		return c.present.row(c.at)
	}
	_, before := c.blocks.Prev()
	return c.enter(before, true)
}

// Last moves to the last row.
func (c *fileCursor) Last() (key, value []byte) {
	_, last := c.blocks.Last()
	return c.enter(last, true)
}
