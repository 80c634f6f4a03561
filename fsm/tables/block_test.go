package tables_test

import (
	"errors"
	"fmt"
	"math/rand"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/conductord/conductord/fsm/tables"
)

// openBolt opens a file without tables.
func openBolt(t *testing.T, path string) *bolt.DB {
	t.Helper()
	file, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestBadBlocks(t *testing.T) {
	const two = "\x00\x02" + "\x00\x00\x00\x01" + "\x00\x03\x00\x01" + "a10" + "b2"
	for _, row := range []struct {
		name, before, key, value string
		good                     bool
	}{
		{name: "two rows", key: "b", value: two, good: true},
		{name: "under a later key", key: "c", value: two, good: true},
		{name: "behind another block", before: "Z", key: "b", value: two, good: true},
		{name: "under an earlier key", key: "a", value: two},
		{name: "not behind another block", before: "a", key: "b", value: two},
		{name: "nothing", key: "b"},
		{name: "half a number", key: "b", value: two[:1]},
		{name: "no rows", key: "b", value: "\x00\x00"},
		{name: "half a header", key: "b", value: two[:8]},
		{name: "half a key", key: "b", value: two[:13]},
		{name: "three rows", key: "b", value: "\x00\x03" + two[2:]},
		{name: "a row within another's header", key: "b", value: "\x00\x02" + "\x00\x00\x00\x01" + "\x00\x00\x00\x01" + "a10" + "b2"},
		{name: "bytes before the first row", key: "b", value: "\x00\x01" + "\x00\x01\x00\x01" + " b"},
		{name: "an empty key", key: "b", value: "\x00\x01" + "\x00\x00\x00\x00" + "b"},
		{name: "the same key twice", key: "b", value: "\x00\x02" + "\x00\x00\x00\x01" + "\x00\x03\x00\x01" + "b10" + "b2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			file := openBolt(t, filepath.Join(t.TempDir(), "rows.db"))
			err := file.Update(func(tx *bolt.Tx) error {
				bucket, err := tx.CreateBucket([]byte("one"))
				if err != nil {
					return err
				}
				if row.before != "" {
					if err := bucket.Put([]byte(row.before), []byte("\x00\x01"+"\x00\x00\x00\x01"+row.before[:1])); err != nil {
						return err
					}
				}
				if err := bucket.Put([]byte(row.key), []byte(row.value)); err != nil {
					return err
				}
				if err := tables.CheckBlocks(bucket); (err == nil) != row.good {
					t.Errorf("good: %t, and found %v", row.good, err)
				}
				return nil
			})
			if err := errors.Join(err, file.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBlocksAreFull: rows added in order fill their blocks completely, and rows added in
// random order fill them by half. Blocks that deletions have emptied are merged.
func TestBlocksAreFull(t *testing.T) {
	const rows, size = 20_000, 12 + 8 + 4 // key, value, and their header in a block
	random := rand.New(rand.NewSource(1)) //nolint:gosec // the same sequence in every run
	inOrder := make([]int, rows)
	for n := range rows {
		inOrder[n] = n
	}
	anyhow := slices.Clone(inOrder)
	random.Shuffle(rows, func(i, j int) { anyhow[i], anyhow[j] = anyhow[j], anyhow[i] })
	for _, row := range []struct {
		name string
		keys []int
		full float64 // minimum
	}{{"in order", inOrder, 0.95}, {"anyhow", anyhow, 0.55}} {
		t.Run(row.name, func(t *testing.T) {
			db := open(t, 500)
			each := func(keys []int, do func(w *tables.Writer, key []byte)) int {
				for some := range slices.Chunk(keys, 100) {
					commit(t, db, func(w *tables.Writer) {
						for _, n := range some {
							do(w, fmt.Appendf(nil, "key %08d", n))
						}
					})
				}
				s, err := db.Snapshot() // a snapshot flushes
				if err != nil {
					t.Fatal(err)
				}
				blocks, err := tables.Blocks(db, 0)
				if err := errors.Join(err, s.Close()); err != nil {
					t.Fatal(err)
				}
				return blocks
			}
			blocks := each(row.keys, func(w *tables.Writer, key []byte) { put(t, w, string(key), "12345678") })
			if full := rows * size / float64(blocks*tables.BlockBytes); full < row.full || full > 1 {
				t.Errorf("%d blocks are full by %.2f", blocks, full)
			}
			gone := slices.DeleteFunc(slices.Clone(row.keys), func(n int) bool { return n%100 == 0 })
			left := each(gone, func(w *tables.Writer, key []byte) { w.Delete(0, key) })
			if most := blocks / 10; left > most {
				t.Errorf("a hundredth of the rows is in %d blocks of %d, not in %d", left, blocks, most)
			}
			if left := each(row.keys, func(w *tables.Writer, key []byte) { w.Delete(0, key) }); left != 0 {
				t.Errorf("%d blocks contain no rows", left)
			}
		})
	}
}

// TestPagesOfAnotherSize: a file keeps the page size with which it was created.
func TestPagesOfAnotherSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tables.db")
	file, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: 4 << 10, NoSync: true})
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	db, err := tables.Open(tables.Options{Path: path, Names: names, MemoryRows: 10})
	if err != nil {
		t.Fatal(err)
	}
	want := state{{}, {}}
	for n := range keyCount {
		want[0][keyOf(n)] = fmt.Sprint(n)
		commit(t, db, func(w *tables.Writer) { put(t, w, keyOf(n), want[0][keyOf(n)]) })
	}
	if err := errors.Join(db.Read(func(r *tables.Reader) error { return compare(r, want) }), db.Close()); err != nil {
		t.Error(err)
	}
}
