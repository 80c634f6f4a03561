package tables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// blockBytes is the size at which a new block starts. Rewriting a block costs little more than
// copying it. Short blocks are better for rows that are written in random order.
const blockBytes = 4_000

// pageBytes is the page size of files that we make: room for two blocks, which is the minimum that
// bbolt puts on a page. If two blocks need more than one page, bbolt allocates memory for each such
// write.
const pageBytes = 8 << 10

// smallBlock is the size under which deletions make a block merge with the next block, so that many
// deletions do not leave many small blocks.
const smallBlock = blockBytes / 4

// Sizes of the parts of a block. A row starts before blockBytes are full, and a key is no longer
// than bbolt allows, so two bytes are enough for both.
const (
	blockHeader = 2     // number of rows
	rowHeader   = 2 + 2 // offset of the row after the headers, and length of its key
)

// block is a sequence of at least one row of a table, in the order of their keys, in one value of
// bbolt: the number of rows, a header for each row, and then each key with its value. The block's
// own key in the file is at least the key of its last row, and less than all keys in later blocks.
type block []byte

// rows returns the number of rows; 0 only for a nil block.
func (b block) rows() int {
	if len(b) == 0 {
		return 0
	}
	return int(binary.BigEndian.Uint16(b))
}

// start returns the offsets of a row and of its value.
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

// find returns the first row whose key is at least the given key, or the number of rows if there is
// none. found reports whether the keys are equal.
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

// get reads the value of a row; nil if the block does not contain the row, or is nil.
func (b block) get(key []byte) []byte {
	row, found := b.find(key)
	if !found {
		return nil
	}
	_, value := b.row(row)
	return value
}

// errBadBlock: the value is not a valid block.
var errBadBlock = errors.New("its rows are not at their offsets")

// check reports whether a value is a valid block for its key and follows the previous block's
// key.
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
			return fmt.Errorf("row %x comes after row %x, in a block that ends at %x", key, last, under)
		}
		last, end = key, middle
	}
	return nil
}

// row is a row for a new block.
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

// firstBlock returns the number of rows for the first block, if a block should have about the given
// size. A block with more than one row has at most blockBytes.
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

// CheckBlocks reads all blocks of a table, in a bucket of a file that is about to be opened.
// In a bad block, a cursor would panic or skip existing rows.
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
