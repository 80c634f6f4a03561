package logstore

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

// boltFile contains log, term and votes of a node with the log store bolt.
const boltFile = "raft.db"

// boltLog is raft-boltdb as an Engine.
type boltLog struct{ *raftboltdb.BoltStore }

func openBolt(path string) (Engine, error) {
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

// Offsets in a meta page of bbolt, after the page's header. Numbers are in the
// machine's own byte order.
const (
	boltPageHeader = 16
	boltPageSizeAt = 8
	boltRootAt     = 16 // the page of the root bucket
	boltPagesAt    = 40 // the number of the file's pages
	boltTxAt       = 48 // the transaction that wrote it; the next transaction writes the other page
	boltSumAt      = 56 // FNV-1a of all previous bytes
	boltMetaBytes  = 64
)

// boltMeta is a meta page: the root of the file's content after its transaction.
type boltMeta [boltMetaBytes]byte

func (m *boltMeta) number(at int) uint64 { return binary.NativeEndian.Uint64(m[at:]) }

func (m *boltMeta) whole() bool {
	sum := fnv.New64a()
	_, _ = sum.Write(m[:boltSumAt])
	return sum.Sum64() == m.number(boltSumAt)
}

// checkBolt refuses a bbolt file that has lost data. When a meta page is damaged, bbolt uses the
// other meta page, which is one write older: an append or a vote is silently lost. A crash never
// damages a meta page: bbolt writes the page alone, when everything else is on disk, and its
// content is within one sector. In a truncated file, bbolt would read beyond the end in its own
// goroutine, which ends the process with a stack.
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
		return err // empty: the first start was interrupted, and bbolt starts again
	}
	var pages [2]boltMeta
	pageSize := uint64(0) // according to the first meta page
	for i := range pages {
		at := boltPageHeader + int64(i)*int64(pageSize)
		if _, err := file.ReadAt(pages[i][:], at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !pages[i].whole() {
			return fmt.Errorf("meta page %d of %s is damaged, so the last write (an entry or a vote) can be lost: %s", i, path, StopForGood)
		}
		pageSize = uint64(binary.NativeEndian.Uint32(pages[0][boltPageSizeAt:]))
	}
	first, second := pages[0].number(boltTxAt), pages[1].number(boltTxAt)
	if max(first, second)-min(first, second) != 1 {
		return fmt.Errorf("the meta pages of %s are from writes %d and %d, which are not consecutive: %s", path, first, second, StopForGood)
	}
	newest := pages[0]
	if second > first {
		newest = pages[1]
	}
	if wants := int64(newest.number(boltPagesAt) * pageSize); about.Size() < wants {
		return cutShort(path, about.Size(), wants)
	}
	// Opening fails when another process has locked the file. raft-wal would wait for the lock
	// without limit.
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	all := boltPages{file: file, size: pageSize, count: newest.number(boltPagesAt)}
	if err := all.check(newest.number(boltRootAt)); err != nil {
		return fmt.Errorf("%s is damaged: %w: %s", path, err, StopForGood)
	}
	return nil
}

// Get reads a key. By raft's contract, a key that was never set is nil without an error. The
// guard uses no other read of the stable store.
func (b boltLog) Get(key []byte) ([]byte, error) {
	value, err := b.BoltStore.Get(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil
	}
	return value, err
}
