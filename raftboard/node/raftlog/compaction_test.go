package raftlog_test

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/raftboard/node/raftlog"
)

// sink receives a snapshot, and may have no room for it.
type sink struct {
	bytes.Buffer
	full, unsynced error
}

func (s *sink) Write(data []byte) (int, error) {
	if s.full != nil {
		return 0, s.full
	}
	return s.Buffer.Write(data)
}
func (s *sink) ID() string    { return "" }
func (s *sink) Cancel() error { return nil }
func (s *sink) Close() error  { return s.unsynced }

// TestSnapshotsCountOnceTheyAreKept: a snapshot that could not be written does not shorten the
// log, and another is due. After the next snapshot, the log still reaches back to an existing
// snapshot.
func TestSnapshotsCountOnceTheyAreKept(t *testing.T) {
	machine, err := fsm.Open(fsm.Options{Path: filepath.Join(t.TempDir(), "state.db"), Generation: 1, MmapSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := machine.Close(); err != nil {
			t.Error(err)
		}
	})
	replica, due, kept := raftlog.NewReplica(machine, 100)
	index := uint64(0)
	apply := func() {
		index++
		// A change of members costs bytes, but does not change the state.
		replica.ApplyBatch([]*raft.Log{{Index: index, Term: 1, Type: raft.LogConfiguration, Data: make([]byte, 1<<20)}})
	}
	take := func() (raft.FSMSnapshot, uint64) {
		snapshot, err := replica.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		return snapshot, index
	}
	check := func(when string, wantDue bool, wantKept uint64) {
		t.Helper()
		if due() != wantDue || kept() != wantKept {
			t.Errorf("%s: due %t, and not %t; the latest snapshot reaches to entry %d, and not %d", when, due(), wantDue, kept(), wantKept)
		}
	}
	check("at first", false, 0)
	apply()
	check("after an entry", true, 0)
	refused := errors.New("no space left on device")
	for _, bad := range []*sink{{full: refused}, {unsynced: refused}} {
		snapshot, _ := take()
		if err := snapshot.Persist(bad); !errors.Is(err, refused) {
			t.Errorf("a snapshot without room was written: %v", err)
		}
		snapshot.Release()
		apply()
		check("after a snapshot without room", true, 0)
	}

	late, _ := take()
	good, at := take()
	to := &sink{}
	if err := good.Persist(to); err != nil {
		t.Fatal(err)
	}
	good.Release()
	check("after a snapshot", false, at)
	apply()
	check("after another entry", true, at)
	snapshot, end := take()
	apply() // while it is written
	if err := snapshot.Persist(&sink{}); err != nil {
		t.Fatal(err)
	}
	snapshot.Release()
	check("after an entry beside the snapshot", true, end)
	if err := late.Persist(&sink{}); err != nil {
		t.Fatal(err)
	}
	late.Release()
	check("after a snapshot that came late", true, end)
	if err := replica.Restore(io.NopCloser(&to.Buffer)); err != nil {
		t.Fatal(err)
	}
	check("after an earlier state was restored", false, at)
}
