package node_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/raftboard/node"
)

// payload is long and odd, so that it is found in the file.
var payload = []byte("the entry that a cosmic ray is going to hit 0123456789")

func entry(index uint64) *raft.Log {
	return &raft.Log{Index: index, Term: 3, Type: raft.LogCommand, Data: payload}
}

func TestLogDetectsDamage(t *testing.T) {
	dir := t.TempDir()
	log, err := node.OpenLog(dir, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	if err := log.StoreLogs([]*raft.Log{entry(1), entry(2)}); err != nil {
		t.Fatal(err)
	}
	var got raft.Log
	if err := log.GetLog(2, &got); err != nil || !bytes.Equal(got.Data, payload) {
		t.Fatalf("got %q, %v", got.Data, err)
	}
	if err := log.GetLog(3, &got); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("an entry that is not there: %v", err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(dir, "raft.db"), payload)

	var faults []error
	log, err = node.OpenLog(dir, func(err error) { faults = append(faults, err) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	damaged := 0
	for _, index := range []uint64{1, 2} {
		if err := log.GetLog(index, &got); err != nil {
			damaged++
			if !strings.Contains(err.Error(), "damaged on disk") {
				t.Errorf("entry %d: %v", index, err)
			}
		}
	}
	if damaged == 0 || len(faults) != damaged {
		t.Errorf("%d entries are damaged, and the end was called for %d times", damaged, len(faults))
	}
}

// flip changes one bit of every copy of the text in a file.
func flip(t *testing.T, path string, text []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for at := 0; ; found++ {
		next := bytes.Index(data[at:], text)
		if next < 0 {
			break
		}
		data[at+next+len(text)/2] ^= 0x10
		at += next + 1
	}
	if found == 0 {
		t.Fatal("the entry is not in the file")
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLogStopsAfterAFailedWrite(t *testing.T) {
	for _, row := range []struct {
		name  string
		write func(log raft.LogStore, stable raft.StableStore) error
	}{
		{"an entry", func(log raft.LogStore, _ raft.StableStore) error { return log.StoreLog(entry(1)) }},
		{"entries", func(log raft.LogStore, _ raft.StableStore) error { return log.StoreLogs([]*raft.Log{entry(1)}) }},
		{"a range", func(log raft.LogStore, _ raft.StableStore) error { return log.DeleteRange(1, 2) }},
		{"a vote", func(_ raft.LogStore, stable raft.StableStore) error { return stable.Set([]byte("vote"), nil) }},
		{"a term", func(_ raft.LogStore, stable raft.StableStore) error { return stable.SetUint64([]byte("term"), 7) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			var faults []error
			log, err := node.OpenLog(t.TempDir(), func(err error) { faults = append(faults, err) })
			if err != nil {
				t.Fatal(err)
			}
			if err := log.Close(); err != nil { // every write fails from here on
				t.Fatal(err)
			}
			if err := row.write(log, log); err == nil || len(faults) != 1 {
				t.Errorf("error %v, faults %v", err, faults)
			}
		})
	}
}

func TestLogIsOfOneProcess(t *testing.T) {
	dir := t.TempDir()
	log, err := node.OpenLog(dir, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	if _, err := node.OpenLog(dir, func(error) {}); err == nil || !strings.Contains(err.Error(), "another process uses this data directory") {
		t.Errorf("got %v", err)
	}
}

// TestLogCountsItsWrites holds that what costs fsyncs is counted, each once and
// only when the disk has it.
func TestLogCountsItsWrites(t *testing.T) {
	log, err := node.OpenLog(t.TempDir(), func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	writes := 0
	node.CountWrites(log, func() { writes++ })
	for _, row := range []struct {
		what  string
		write func() error
		want  int
	}{
		{"two entries", func() error { return log.StoreLogs([]*raft.Log{entry(1), entry(2)}) }, 1},
		{"one entry", func() error { return log.StoreLog(entry(3)) }, 2},
		{"a vote", func() error { return log.Set([]byte("vote"), []byte("n1")) }, 3},
		{"a term", func() error { return log.SetUint64([]byte("term"), 7) }, 4},
		{"a read", func() error { return log.GetLog(1, &raft.Log{}) }, 4},
		{"a trim", func() error { return log.DeleteRange(1, 2) }, 5},
	} {
		if err := row.write(); err != nil || writes != row.want {
			t.Errorf("after %s: %d writes, want %d (%v)", row.what, writes, row.want, err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := log.StoreLog(entry(4)); err == nil || writes != 5 {
		t.Errorf("a write to a closed log is counted: %d (%v)", writes, err)
	}
}
