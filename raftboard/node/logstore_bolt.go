package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// boltFile holds log, term and votes of a node whose log store is bolt.
const boltFile = "raft.db"

// boltLog is raft-boltdb as a logEngine.
type boltLog struct{ *raftboltdb.BoltStore }

func openBolt(path string) (logEngine, error) {
	if err := checkBolt(path); err != nil {
		return nil, err
	}
	store, err := raftboltdb.New(raftboltdb.Options{
		Path:        path,
		BoltOptions: &bbolt.Options{Timeout: lockTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
	})
	if err != nil {
		return nil, err
	}
	return boltLog{store}, nil
}

// Where the two meta pages of bbolt have what is looked at: a page begins with a
// header, and the numbers are in the machine's own order.
const (
	boltPageHeader = 16
	boltPageSizeAt = 8
	boltRootAt     = 16 // the page of the root bucket
	boltPagesAt    = 40 // how many pages the file has
	boltTxAt       = 48 // the transaction that wrote it; each writes the other page
	boltSumAt      = 56 // FNV-1a of all before it
	boltMetaBytes  = 64
)

// boltMeta is a meta page: the root of all that its transaction has left.
type boltMeta [boltMetaBytes]byte

func (m *boltMeta) number(at int) uint64 { return binary.NativeEndian.Uint64(m[at:]) }

func (m *boltMeta) whole() bool {
	sum := fnv.New64a()
	_, _ = sum.Write(m[:boltSumAt])
	return sum.Sum64() == m.number(boltSumAt)
}

// checkBolt refuses a file of bbolt that has lost something. With a damaged meta
// page bbolt goes back to the other, which is one write older: an append, or a
// vote, is gone without a word. No crash leaves that: the page is written alone,
// when all else is on disk, and what counts of it lies within one sector. Of a
// file that was cut short bbolt would read beyond the end, in a goroutine of its
// own, and the process would end with a stack.
func checkBolt(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	about, err := file.Stat()
	if err != nil || about.Size() == 0 {
		return err // the first start was cut off: bbolt makes it
	}
	var pages [2]boltMeta
	for i := range pages {
		at := int64(boltPageHeader)
		if i == 1 {
			at += int64(binary.NativeEndian.Uint32(pages[0][boltPageSizeAt:]))
		}
		if _, err := file.ReadAt(pages[i][:], at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !pages[i].whole() {
			return fmt.Errorf("meta page %d of %s is damaged, and the last write may be gone with it, be it an entry or a vote: %s", i, path, remedy)
		}
	}
	first, second := pages[0].number(boltTxAt), pages[1].number(boltTxAt)
	if max(first, second)-min(first, second) != 1 {
		return fmt.Errorf("the meta pages of %s are of writes %d and %d, and not of the last two: %s", path, first, second, remedy)
	}
	newest := pages[0]
	if second > first {
		newest = pages[1]
	}
	if wants := int64(newest.number(boltPagesAt)) * int64(binary.NativeEndian.Uint32(newest[boltPageSizeAt:])); about.Size() < wants {
		return cutShort(path, about.Size(), wants)
	}
	// The lock says whether another process writes the file now. raft-wal would
	// wait for it for ever.
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	all := boltPages{file: file, size: uint64(binary.NativeEndian.Uint32(newest[boltPageSizeAt:])), count: newest.number(boltPagesAt)}
	if err := all.check(newest.number(boltRootAt)); err != nil {
		return fmt.Errorf("%s is damaged: %w: %s", path, err, remedy)
	}
	return nil
}

// Get reads a key. raft's contract wants nothing, and not an error, for one
// that was never set.
func (b boltLog) Get(key []byte) ([]byte, error) {
	value, err := b.BoltStore.Get(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil
	}
	return value, err
}

// GetUint64 reads a number; 0 if it was never set.
func (b boltLog) GetUint64(key []byte) (uint64, error) {
	value, err := b.BoltStore.GetUint64(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return 0, nil
	}
	return value, err
}
