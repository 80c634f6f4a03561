package tables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// blockBytes is how long a block becomes before another one begins. To write one
// anew costs little more than to copy it, so it is the rows that are written at
// random which want it short.
const blockBytes = 4_000

// pageBytes is how long a page of the file is, if we make it: room for two blocks,
// which is the least that bbolt puts on a page. Where that takes more than one,
// bbolt makes memory anew for each that it writes.
const pageBytes = 8 << 10

// smallBlock is how short a block may become by deletions before it takes in the
// one behind it, so that what is left of many does not stay many.
const smallBlock = blockBytes / 4

// Sizes of the parts of a block. A row begins before blockBytes are full, and a
// key is not longer than bbolt's may be, so two bytes are enough for both.
const (
	blockHeader = 2     // how many rows there are
	rowHeader   = 2 + 2 // where the row begins behind the headers, and how long its key is
)

// block is some rows of a table, one behind the other in the order of their keys,
// as they stand in one value of bbolt's: the number of rows, a header for each,
// and then each key with its value. It holds one row at least. Its own key in the
// file is not before that of any of its rows, and before that of all rows in the
// blocks behind it.
type block []byte

// rows is how many there are; none only where there is no block.
func (b block) rows() int {
	if len(b) == 0 {
		return 0
	}
	return int(binary.BigEndian.Uint16(b))
}

// start is where a row begins, and where its value does.
func (b block) start(row int) (key, value int) {
	header := b[blockHeader+row*rowHeader:][:rowHeader]
	key = blockHeader + b.rows()*rowHeader + int(binary.BigEndian.Uint16(header))
	return key, key + int(binary.BigEndian.Uint16(header[2:]))
}

func (b block) key(row int) []byte {
	start, end := b.start(row)
	return b[start:end:end]
}

func (b block) row(row int) (key, value []byte) {
	start, middle := b.start(row)
	end := len(b)
	if row+1 < b.rows() {
		end, _ = b.start(row + 1)
	}
	return b[start:middle:middle], b[middle:end:end]
}

// find is the first row whose key is not before a key, the number of rows if none
// is; and whether it has that key.
func (b block) find(key []byte) (row int, found bool) {
	low, high := 0, b.rows()
	for low < high {
		middle := low + (high-low)/2
		switch bytes.Compare(b.key(middle), key) {
		case -1:
			low = middle + 1
		case 0:
			return middle, true
		default:
			high = middle
		}
	}
	return low, false
}

// get reads the value of a row; nil if it is not in the block, or if there is none.
func (b block) get(key []byte) []byte {
	row, found := b.find(key)
	if !found {
		return nil
	}
	_, value := b.row(row)
	return value
}

// errBadBlock: the value is no block.
var errBadBlock = errors.New("its rows are not where they should be")

// check reports whether a value is a block that may stand under a key, and behind a
// block under another key.
func (b block) check(before, under []byte) error {
	if len(b) < blockHeader || b.rows() == 0 || len(b) < blockHeader+b.rows()*rowHeader {
		return errBadBlock
	}
	last, end := before, blockHeader+b.rows()*rowHeader
	for row := range b.rows() {
		start, middle := b.start(row)
		if start < end || row == 0 && start != end || middle > len(b) {
			return errBadBlock
		}
		key := b[start:middle]
		if bytes.Compare(last, key) >= 0 || bytes.Compare(key, under) > 0 {
			return fmt.Errorf("row %x stands behind %x and in a block that ends at %x", key, last, under)
		}
		last, end = key, middle
	}
	return nil
}

// row is a row that is to stand in a block.
type row struct{ key, value []byte }

func (r row) size() int { return rowHeader + len(r.key) + len(r.value) }

func sizeOf(rows []row) int {
	size := blockHeader
	for _, r := range rows {
		size += r.size()
	}
	return size
}

// appendBlock puts rows into a block.
func appendBlock(to []byte, rows []row) []byte {
	to = binary.BigEndian.AppendUint16(to, uint16(len(rows)))
	start := 0
	for _, r := range rows {
		to = binary.BigEndian.AppendUint16(to, uint16(start))
		to = binary.BigEndian.AppendUint16(to, uint16(len(r.key)))
		start += len(r.key) + len(r.value)
	}
	for _, r := range rows {
		to = append(append(to, r.key...), r.value...)
	}
	return to
}

// firstBlock is how many of the rows are to stand in one block, if it is to have
// about so many bytes, and no more of them than blockBytes unless it is of one row.
func firstBlock(rows []row, about int) int {
	size := blockHeader
	for i, r := range rows {
		own := r.size()
		if i > 0 && (size+own > blockBytes || size+own/2 > about) {
			return i
		}
		size += own
	}
	return len(rows)
}

// CheckBlocks reads all blocks of a table, in a bucket of a file that is about to
// be opened. In a bad block, a cursor would panic, or skip rows that are there.
func CheckBlocks(bucket *bolt.Bucket) error {
	var before []byte
	return bucket.ForEach(func(key, value []byte) error {
		if err := block(value).check(before, key); err != nil {
			return fmt.Errorf("block %x: %w", key, err)
		}
		before = key
		return nil
	})
}
