package logstore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"sync"
)

// termsKey is the store's only key: a node's term, vote and mark, with a checksum. They share a
// record, so that none of them can change or vanish alone. Without the record there is no term, and
// the node does not start.
var termsKey = []byte("ConductordTerms")

// markEvery is the number of entries between two marks. A mark costs two fsyncs,
// which is little for so many entries.
const markEvery = 4096

// terms is the record that a node stores in addition to its entries.
type terms struct {
	Values map[string][]byte `json:"values"` // raft's own: term and vote
	// Mark is the index of an entry up to which the log was on disk. The node writes it every
	// markEvery entries and at an orderly stop, and lowers it before it truncates the log. A log
	// that ends before its mark has lost entries.
	Mark uint64 `json:"mark"`
}

// keptTerms are the terms in a store and in memory.
type keptTerms struct {
	engine Engine
	mu     sync.Mutex
	now    terms // as on disk; guarded by mu
}

// loadTerms reads and verifies them.
func loadTerms(engine Engine) (*keptTerms, error) {
	k := &keptTerms{engine: engine, now: terms{Values: map[string][]byte{}}}
	record, err := engine.Get(termsKey)
	if err != nil || len(record) == 0 {
		return k, err
	}
	body := record[:max(len(record)-crc32.Size, 0)]
	if string(record[len(body):]) != string(sumOf(body)) || json.Unmarshal(body, &k.now) != nil {
		return nil, errors.New("its term and vote are damaged on disk: " + StopForGood)
	}
	last, err := engine.LastIndex()
	if err == nil && last < k.now.Mark {
		err = fmt.Errorf("it ends with entry %d, but once contained entry %d: %s", last, k.now.Mark, StopForGood)
	}
	return k, err
}

func sumOf(body []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli))
}

func (k *keptTerms) get(key []byte) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now.Values[string(key)]
}

func (k *keptTerms) set(key, value []byte) error {
	return k.change(func(next *terms) { next.Values[string(key)] = bytes.Clone(value) })
}

// change writes a changed copy, which takes effect when it is on disk.
func (k *keptTerms) change(do func(next *terms)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := terms{Values: maps.Clone(k.now.Values), Mark: k.now.Mark}
	do(&next)
	body, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := k.engine.Set(termsKey, append(body, sumOf(body)...)); err != nil {
		return err
	}
	k.now = next
	return nil
}

// stored marks the last written entry, when a mark is due.
func (k *keptTerms) stored(last uint64) error {
	if last < k.mark()+markEvery {
		return nil
	}
	return k.setMark(last)
}

func (k *keptTerms) mark() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now.Mark
}

func (k *keptTerms) setMark(index uint64) error {
	return k.change(func(next *terms) { next.Mark = index })
}
