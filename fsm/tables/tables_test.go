package tables_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/conductord/conductord/fsm/tables"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var names = []string{"one", "two"}

func open(t testing.TB, rows int) *tables.DB {
	t.Helper()
	db, err := tables.Open(tables.Options{Path: filepath.Join(t.TempDir(), "tables.db"), Names: names, MemoryRows: rows})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// state is the expected content of the tables: by table, by key.
type state [2]map[string]string

func (s state) clone() state { return state{maps.Clone(s[0]), maps.Clone(s[1])} }

// compare compares reads with a state: row by row, from every key, backwards, and the sums.
func compare(r *tables.Reader, want state) error {
	for t, sum := range r.Sums() {
		for key, value := range want[t] {
			sum -= tables.RowSum(key, value)
		}
		if sum != 0 {
			return fmt.Errorf("the sum of table %d is off by %x", t, sum)
		}
	}
	for t := range want {
		keys := slices.Sorted(maps.Keys(want[t]))
		cursor := r.Cursor(tables.Table(t))
		var found []string
		for key, value := cursor.First(); key != nil; key, value = cursor.Next() {
			found = append(found, string(key))
			if want[t][string(key)] != string(value) {
				return fmt.Errorf("table %d, row %q is %q, and not %q", t, key, value, want[t][string(key)])
			}
		}
		if !slices.Equal(found, keys) {
			return fmt.Errorf("table %d has the rows %q, and not %q", t, found, keys)
		}
		found = nil
		for key, _ := cursor.Last(); key != nil; key, _ = cursor.Prev() {
			found = append(found, string(key))
		}
		slices.Reverse(found)
		if !slices.Equal(found, keys) {
			return fmt.Errorf("table %d backwards has the rows %q, and not %q", t, found, keys)
		}
		for n := range keyCount {
			if err := compareAt(r, tables.Table(t), keyOf(n), want[t], keys); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareAt gets a key, seeks it, and moves forward and back from it.
func compareAt(r *tables.Reader, t tables.Table, key string, rows map[string]string, keys []string) error {
	value, there := rows[key]
	if got := r.Get(t, []byte(key)); string(got) != value || (got != nil) != there {
		return fmt.Errorf("table %d, row %q is %q, and not %q (%t)", t, key, got, value, there)
	}
	at, _ := slices.BinarySearch(keys, key)
	expect := func(step string, got []byte, at int) error {
		switch {
		case at < 0 || at >= len(keys):
			if got != nil {
				return fmt.Errorf("table %d, %s of %q: %q, and there is none", t, step, key, got)
			}
		case string(got) != keys[at]:
			return fmt.Errorf("table %d, %s of %q: %q, and not %q", t, step, key, got, keys[at])
		}
		return nil
	}
	before, _ := r.Cursor(t).Before([]byte(key))
	if err := expect("before", before, at-1); err != nil {
		return err
	}
	for _, road := range [][]int{{0, 1, 2, 1}, {0, -1, 0}, {0, 1, 0, -1, -2}} {
		cursor, place := r.Cursor(t), at
		got, _ := cursor.Seek([]byte(key))
		if err := expect("seek", got, place); err != nil {
			return err
		}
		for _, step := range road[1:] {
			if got == nil {
				break // the cursor cannot move further from an end
			}
			next := at + step
			if next > place {
				got, _ = cursor.Next()
			} else {
				got, _ = cursor.Prev()
			}
			place = next
			if err := expect(fmt.Sprintf("%+d", step), got, place); err != nil {
				return err
			}
		}
	}
	return nil
}

const keyCount = 40

func keyOf(n int) string { return fmt.Sprintf("key-%02d", n) }

// TestAgreesWithMaps: after any writes, commits, rollbacks, flushes and restores, reads agree
// with plain maps. An earlier read agrees with the maps at its start.
func TestAgreesWithMaps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		db := open(t, rapid.IntRange(1, 60).Draw(rt, "rows in memory"))
		want := state{{}, {}}
		var held sync.WaitGroup
		defer held.Wait()
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(rt *rapid.T) {
				w, err := db.Begin()
				if err != nil {
					rt.Fatal(err)
				}
				next := want.clone()
				for range rapid.IntRange(0, 30).Draw(rt, "rows") {
					table, n := rapid.IntRange(0, 1).Draw(rt, "table"), rapid.IntRange(0, keyCount-1).Draw(rt, "key")
					switch rapid.IntRange(0, 9).Draw(rt, "what") {
					case 0, 1, 2: // a run of rows from the first one, like the consumption of a queue
						cursor := w.Cursor(tables.Table(table))
						if first, _ := cursor.First(); first != nil {
							delete(next[table], string(first))
							w.Delete(tables.Table(table), bytes.Clone(first))
						}
					case 3, 4:
						delete(next[table], keyOf(n))
						w.Delete(tables.Table(table), []byte(keyOf(n)))
					default:
						value := rapid.SampledFrom([]string{"", "a", "b", strings.Repeat("some text ", 30), strings.Repeat("a longer text ", 100), strings.Repeat("more than a block has ", 300)}).Draw(rt, "value")
						next[table][keyOf(n)] = value
						if err := w.Put(tables.Table(table), []byte(keyOf(n)), []byte(value)); err != nil {
							rt.Fatal(err)
						}
					}
				}
				if err := compare(&w.Reader, next); err != nil {
					rt.Fatal("while writing: ", err)
				}
				if rapid.IntRange(0, 9).Draw(rt, "roll back") == 0 {
					if err := w.Rollback(); err != nil {
						rt.Fatal(err)
					}
					return
				}
				if err := w.Commit(); err != nil {
					rt.Fatal(err)
				}
				want = next
			},
			"hold a read": func(*rapid.T) {
				then, ready, goOn := want.clone(), make(chan struct{}), make(chan struct{})
				held.Add(1)
				go func() {
					defer held.Done()
					err := db.Read(func(r *tables.Reader) error {
						close(ready)
						<-goOn
						return compare(r, then)
					})
					if err != nil {
						t.Error("a read that was held: ", err)
					}
				}()
				<-ready
				defer close(goOn) // the flush runs in parallel with the next writes
			},
			"snapshot": func(rt *rapid.T) {
				s, err := db.Snapshot()
				if err != nil {
					rt.Fatal(err)
				}
				path := filepath.Join(t.TempDir(), "snapshot.db")
				if err := errors.Join(save(s, path), s.Close()); err != nil {
					rt.Fatal(err)
				}
				if err := compareFile(path, want); err != nil {
					rt.Fatal("a snapshot: ", err)
				}
			},
			"": func(rt *rapid.T) {
				if err := db.Read(func(r *tables.Reader) error { return compare(r, want) }); err != nil {
					rt.Fatal(err)
				}
			},
		})
	})
}

func save(s *tables.Snapshot, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = s.WriteTo(file)
	return errors.Join(err, file.Close())
}

// compareFile opens a snapshot.
func compareFile(path string, want state) error {
	file, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	err = file.View(func(tx *bolt.Tx) error {
		for _, name := range names {
			if err := tables.CheckBlocks(tx.Bucket([]byte(name))); err != nil {
				return fmt.Errorf("table %s: %w", name, err)
			}
		}
		return nil
	})
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	db, err := tables.Open(tables.Options{Path: path, Names: names})
	if err != nil {
		return err
	}
	return errors.Join(db.Read(func(r *tables.Reader) error { return compare(r, want) }), db.Close())
}

func commit(t testing.TB, db *tables.DB, write func(w *tables.Writer)) {
	t.Helper()
	w, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	write(w)
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, w *tables.Writer, key, value string) {
	t.Helper()
	if err := w.Put(0, []byte(key), []byte(value)); err != nil {
		t.Error(err)
	}
}

// TestQueueOfDeletedRows: a read of a queue's first row skips earlier deleted rows without a
// scan, and sees a row that is inserted among them.
func TestQueueOfDeletedRows(t *testing.T) {
	db := open(t, 1_000)
	first := func(w *tables.Writer) string {
		key, _ := w.Cursor(0).First()
		return string(key)
	}
	commit(t, db, func(w *tables.Writer) {
		for n := range 100 {
			put(t, w, fmt.Sprintf("%03d", n), "")
		}
	})
	for n := range 50 {
		commit(t, db, func(w *tables.Writer) {
			if want := fmt.Sprintf("%03d", n); first(w) != want {
				t.Fatalf("the first row is %q, and not %q", first(w), want)
			}
			w.Delete(0, []byte(first(w)))
		})
	}
	if tombstones := tables.Tombstones(db, 0); tombstones != 1 {
		t.Errorf("%d tombstones are known after 50 rows were taken one by one, and not 1", tombstones)
	}
	for _, row := range []struct{ put, first string }{{"060x", "050"}, {"020", "020"}, {"010", "010"}, {"", "010"}} {
		commit(t, db, func(w *tables.Writer) {
			if row.put != "" {
				put(t, w, row.put, "")
			}
			if first(w) != row.first {
				t.Errorf("after %q was put the first row is %q, and not %q", row.put, first(w), row.first)
			}
		})
	}
	commit(t, db, func(w *tables.Writer) {
		for first(w) != "" {
			w.Delete(0, []byte(first(w)))
		}
	})
	commit(t, db, func(w *tables.Writer) {
		put(t, w, "999", "")
		if first(w) != "999" {
			t.Errorf("behind the last range the first row is %q", first(w))
		}
	})
}

// TestCursorSeesWritesWhenItSeeks: a range learned from an older tree would hide rows from the
// Writer until the next flush.
func TestCursorSeesWritesWhenItSeeks(t *testing.T) {
	db := open(t, 1_000)
	commit(t, db, func(w *tables.Writer) {
		for n := range 2 * tables.LearnFrom {
			put(t, w, fmt.Sprintf("%03d", n), "")
			if n < tables.LearnFrom {
				w.Delete(0, fmt.Appendf(nil, "%03d", n))
			}
		}
	})
	commit(t, db, func(w *tables.Writer) {
		early := w.Cursor(0)
		put(t, w, "005", "")
		for _, cursor := range []*tables.Cursor{early, w.Cursor(0)} {
			if first, _ := cursor.First(); string(first) != "005" {
				t.Errorf("the first row is %q, not the written row", first)
			}
		}
	})
}

func TestFileThatCannotBeWritten(t *testing.T) {
	db := open(t, 2)
	commit(t, db, func(w *tables.Writer) { put(t, w, "before", "1") })
	if err := tables.BreakFile(db); err != nil {
		t.Fatal(err)
	}
	if w, err := db.Begin(); err == nil {
		_ = w.Rollback()
		t.Fatal("a writer began though the file is closed")
	}
	if _, err := db.Snapshot(); !errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		t.Errorf("a snapshot of what cannot be flushed: %v", err)
	}
}

func TestBounds(t *testing.T) {
	for _, options := range []tables.Options{{}, {Path: "p"}, {Names: names}, {Path: "p", Names: names, MemoryRows: -1}} {
		if db, err := tables.Open(options); err == nil {
			t.Errorf("%+v was opened", options)
			_ = db.Close()
		}
	}
	db := open(t, 0)
	w, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []int{0, bolt.MaxKeySize + 1} {
		if err := w.Put(0, make([]byte, key), nil); err == nil {
			t.Errorf("a key of %d bytes was put", key)
		}
	}
	if err := w.Put(0, make([]byte, bolt.MaxKeySize), nil); err != nil {
		t.Error(err)
	}
	if err := w.Commit(); err != nil {
		t.Error(err)
	}
	if err := w.Rollback(); err != nil {
		t.Error("to roll back what is committed does nothing: ", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if _, err := db.Begin(); !errors.Is(err, tables.ErrClosed) {
		t.Errorf("a writer of closed tables: %v", err)
	}
	if err := db.Read(func(*tables.Reader) error { return nil }); !errors.Is(err, tables.ErrClosed) {
		t.Errorf("a read of closed tables: %v", err)
	}
	if _, err := db.Snapshot(); !errors.Is(err, tables.ErrClosed) {
		t.Errorf("a snapshot of closed tables: %v", err)
	}
}

// A node must not count space as free if rows in memory take it at the next flush.
func TestRowsInMemoryTakeSpace(t *testing.T) {
	db := open(t, 0)
	const bytes = 1 << 20
	before := db.Reusable()
	w, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Put(0, []byte("key"), make([]byte, bytes)), w.Commit()); err != nil {
		t.Fatal(err)
	}
	if taken := before - db.Reusable(); taken < bytes {
		t.Errorf("a row of %d bytes in memory takes %d", bytes, taken)
	}
}

// TestCloseWaitsForNoRead: an open read continues after Close.
func TestCloseWaitsForNoRead(t *testing.T) {
	db := open(t, 2)
	commit(t, db, func(w *tables.Writer) { put(t, w, "a", "1"); put(t, w, "b", "2") })
	err := db.Read(func(r *tables.Reader) error {
		if err := db.Close(); err != nil {
			return err
		}
		if value := r.Get(0, []byte("a")); string(value) != "1" {
			return fmt.Errorf("row a is %q", value)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
