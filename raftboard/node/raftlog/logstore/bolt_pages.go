package logstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// boltPages checks the pages of a bbolt file before bbolt opens it. bbolt trusts the offsets and
// sizes in a page: after a wrong bit there it reads foreign memory, or panics in its own
// goroutine, which ends the process with a stack. So boltPages checks every offset, size and
// order that a raft log store uses: a root bucket that holds only buckets, which hold only
// values.
type boltPages struct {
	file  io.ReaderAt
	size  uint64 // of a page
	count uint64 // number of the file's pages
	seen  uint64 // pages visited; more than count means that they form a circle
}

const (
	boltBranch, boltLeaf = 1, 2 // flags of a page
	boltElementBytes     = 16
	boltBucketBytes      = 16 // bytes of a bucket's value before an inline page
	// boltEntries is the bucket in which raft-boltdb keeps the entries, by index.
	boltEntries = "logs"
)

// boltElement is a key of a page, with its value or the page that it leads to.
type boltElement struct {
	key, value []byte
	page       uint64 // of a branch
	isBucket   bool   // of a leaf
}

// boltVisit is called for each value of a bucket in the order of the keys;
// before is the last key, nil at the first.
type boltVisit func(before []byte, e boltElement) error

// check visits all pages, from the root bucket's page.
func (b *boltPages) check(root uint64) error {
	return b.walk(root, new([]byte), func(_ []byte, e boltElement) error {
		if !e.isBucket || len(e.value) < boltBucketBytes {
			return fmt.Errorf("%.32q is not a bucket", e.key)
		}
		visit := func(before []byte, v boltElement) error {
			if v.isBucket || string(e.key) == boltEntries && before != nil && !follows(before, v.key) {
				return fmt.Errorf("in %.32q, key %.32x comes after %.32x", e.key, v.key, before)
			}
			return nil
		}
		if page := binary.NativeEndian.Uint64(e.value); page != 0 {
			return b.walk(page, new([]byte), visit)
		}
		return b.elements(e.value[boltBucketBytes:], new([]byte), visit)
	})
}

// follows reports whether two keys are the indexes of neighbouring entries.
func follows(before, key []byte) bool {
	return len(before) == 8 && len(key) == 8 && binary.BigEndian.Uint64(key) == binary.BigEndian.Uint64(before)+1
}

// walk reads a page and visits the values in it and below it. last is the last visited key of the
// bucket.
func (b *boltPages) walk(id uint64, last *[]byte, visit boltVisit) error {
	if b.seen++; b.seen > b.count || id < 2 || id >= b.count {
		return fmt.Errorf("page %d is not one of the %d pages", id, b.count)
	}
	header := make([]byte, boltPageHeader)
	if _, err := b.file.ReadAt(header, int64(id*b.size)); err != nil {
		return err
	}
	more := uint64(binary.NativeEndian.Uint32(header[12:]))
	if binary.NativeEndian.Uint64(header) != id || id+more >= b.count {
		return fmt.Errorf("page %d contains the number of another page, or is too long", id)
	}
	page := make([]byte, (more+1)*b.size)
	if _, err := b.file.ReadAt(page, int64(id*b.size)); err != nil {
		return err
	}
	if err := b.elements(page, last, visit); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// elements visits the values of a leaf, or walks the pages of a branch.
func (b *boltPages) elements(page []byte, last *[]byte, visit boltVisit) error {
	if len(page) < boltPageHeader {
		return fmt.Errorf("%d bytes are too few for a page", len(page))
	}
	kind, count := binary.NativeEndian.Uint16(page[8:]), int(binary.NativeEndian.Uint16(page[10:]))
	if kind != boltBranch && kind != boltLeaf || boltPageHeader+count*boltElementBytes > len(page) {
		return fmt.Errorf("%d elements of kind %d", count, kind)
	}
	before := last // the keys of a bucket's leaves have one order, and the keys of a branch another
	if kind == boltBranch {
		before = new([]byte)
	}
	for i := range count {
		e, err := boltElementAt(page, boltPageHeader+i*boltElementBytes, kind)
		switch {
		case err != nil:
		case *before != nil && bytes.Compare(*before, e.key) >= 0:
			err = fmt.Errorf("key %.32x comes after %.32x", e.key, *before)
		case kind == boltBranch:
			err = b.walk(e.page, last, visit)
		default:
			err = visit(*before, e)
		}
		if err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
		*before = e.key
	}
	return nil
}

// boltElementAt reads the element that a page describes at an offset.
func boltElementAt(page []byte, at int, kind uint16) (e boltElement, err error) {
	number := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(page[at+4*i:])) }
	from, keyBytes, valueBytes := uint64(at)+number(0), number(1), uint64(0)
	if kind == boltLeaf {
		e.isBucket = number(0) == 1
		if number(0) > 1 {
			return e, fmt.Errorf("flags %d", number(0))
		}
		from, keyBytes, valueBytes = uint64(at)+number(1), number(2), number(3)
	} else {
		e.page = binary.NativeEndian.Uint64(page[at+8:])
	}
	if from+keyBytes+valueBytes > uint64(len(page)) {
		return e, fmt.Errorf("%d bytes at %d of %d", keyBytes+valueBytes, from, len(page))
	}
	e.key, e.value = page[from:from+keyBytes], page[from+keyBytes:from+keyBytes+valueBytes]
	return e, nil
}
