package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// write makes files of a size below a directory.
func write(t *testing.T, dir string, files map[string]int) {
	t.Helper()
	for name, size := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSizes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]int{
		"raft.db": 100, "raft-wal/0001.wal": 200, "state.db": 40, "identity.json": 2, "snapshots/2-7-1/state.bin": 30, "snapshots/2-7-1/meta.json": 1,
	})
	got, err := sizesOf(dir)
	if want := (sizes{state: 42, log: 300, snapshots: 31}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := sizesOf(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there has sizes")
	}
}

// TestSnapshotsAreSeen follows a node's directory through two snapshots.
func TestSnapshotsAreSeen(t *testing.T) {
	dir := t.TempDir()
	w := &watched{dataDir: dir}
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	remove := func(name string) {
		if err := os.RemoveAll(filepath.Join(dir, snapshotDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []func(){
		func() {},
		func() {
			write(t, dir, map[string]int{"snapshots/2-70-1000.tmp/state.bin": 1, "snapshots/notes.txt": 1})
		},
		func() {},
		func() {
			remove("2-70-1000.tmp")
			write(t, dir, map[string]int{"snapshots/2-70-1000/state.bin": 1})
		},
		func() { write(t, dir, map[string]int{"snapshots/2-90-2000/state.bin": 1}) }, // between two looks
		func() { write(t, dir, map[string]int{"snapshots/3-95-3000.tmp/state.bin": 1}) },
	} {
		step()
		if err := w.look(at(i)); err != nil {
			t.Fatal(err)
		}
	}
	if want := []span{{at(1), at(3)}, {at(4), at(4)}}; !slices.Equal(w.spans, want) || !w.began.Equal(at(5)) || w.last != 90 {
		t.Errorf("written %v, the last of index %d, another since %v", w.spans, w.last, w.began)
	}
}

func TestPostsBesideSnapshots(t *testing.T) {
	at := func(milliseconds int64) time.Time { return time.UnixMilli(milliseconds) }
	spans := []span{{at(1_000), at(2_000)}, {at(1_500), at(3_000)}}
	took := 50 * time.Millisecond
	during, beside := split([]posted{
		{at(0), took}, {at(820), took}, // before
		{at(860), took},                                                                    // within the slack
		{at(1_400), took}, {at(2_990), took}, {at(500), 2 * second}, {at(900), 5 * second}, // within the snapshot's span, and partly outside it
		{at(3_000), took},
	}, spans)
	if len(during) != 5 || len(beside) != 3 {
		t.Errorf("%v during, %v beside", during, beside)
	}
}
