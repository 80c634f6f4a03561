package tables_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/conductord/conductord/fsm/tables"
)

// breakWrites makes every further write to an open file fail, while reads still work, as on a
// full or broken disk.
func breakWrites(t *testing.T, path string) {
	t.Helper()
	readable, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer readable.Close() //nolint:errcheck // it was read only
	const descriptors = "/proc/self/fd"
	entries, err := os.ReadDir(descriptors)
	if err != nil {
		t.Fatal(err)
	}
	broken := 0
	for _, entry := range entries {
		var number int
		if _, err := fmt.Sscan(entry.Name(), &number); err != nil {
			t.Fatal(err)
		}
		open, err := os.Readlink(filepath.Join(descriptors, entry.Name()))
		if err != nil || open != path || number == int(readable.Fd()) {
			continue
		}
		if err := unix.Dup3(int(readable.Fd()), number, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		broken++
	}
	if broken != 1 {
		t.Fatalf("%d files were broken, and not 1", broken)
	}
}

// TestFlushThatFails: earlier and later reads still see all commits, and no further commit
// succeeds.
func TestFlushThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tables.db")
	db, err := tables.Open(tables.Options{Path: path, Names: names, MemoryRows: 4})
	if err != nil {
		t.Fatal(err)
	}
	want := state{{}, {}}
	write := func(w *tables.Writer, n int) {
		want[0][keyOf(n)], want[0][keyOf(n+1)] = "1", "2"
		put(t, w, keyOf(n), "1")
		put(t, w, keyOf(n+1), "2")
		if n >= 2 {
			delete(want[0], keyOf(n-2))
			w.Delete(0, []byte(keyOf(n-2)))
		}
	}
	for n := 0; n < 20; n += 2 {
		commit(t, db, func(w *tables.Writer) { write(w, n) })
	}
	tables.Flushed(db)
	breakWrites(t, path)
	before, err := db.Reader()
	if err != nil {
		t.Fatal(err)
	}
	then := want.clone()
	commit(t, db, func(w *tables.Writer) { write(w, 20); write(w, 22) }) // the flush fails
	tables.Flushed(db)
	for range 2 {
		w, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		put(t, w, "more", "1")
		if err := w.Commit(); !errors.Is(err, unix.EBADF) {
			t.Errorf("a commit after a flush that failed: %v", err)
		}
		if _, err := db.Snapshot(); !errors.Is(err, unix.EBADF) {
			t.Errorf("a snapshot after a flush that failed: %v", err)
		}
		if err := db.Read(func(r *tables.Reader) error { return compare(r, want) }); err != nil {
			t.Error("a read that has begun afterwards: ", err)
		}
	}
	if err := errors.Join(compare(before, then), before.Close()); err != nil {
		t.Error("a read that had begun before: ", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
