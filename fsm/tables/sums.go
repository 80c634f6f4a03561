package tables

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
	bolt "go.etcd.io/bbolt"
)

// The sum of a table is the sum of the hashes of its rows, modulo 2^64. It depends only on the
// rows, not on the order of their writes or on their blocks. A flush sees the old and the new value
// of each row that it writes. It therefore updates the sums of the file at the cost of two hashes
// per row. A Reader adds the rows in memory.
//
// The sums detect nodes that have applied the same entries with different results. They do not
// protect against forged rows.

// sumsBucket has the sum of each table in the file, by table name. It contains no rows.
var sumsBucket = []byte("\x00sums")

// rowSum is the hash of a row.
func rowSum(key, value []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(xxhash.Sum64(key))
	_, _ = d.Write(value) // a hash never fails
	return d.Sum64()
}

// addSum changes the sum of a table in the file.
func addSum(tx *bolt.Tx, name string, change uint64) error {
	if change == 0 {
		return nil
	}
	sums := tx.Bucket(sumsBucket)
	sum := binary.BigEndian.AppendUint64(nil, storedSum(sums, name)+change)
	if err := sums.Put([]byte(name), sum); err != nil {
		return fmt.Errorf("cannot store the checksum of table %s: %w", name, err)
	}
	return nil
}

func storedSum(sums *bolt.Bucket, name string) uint64 {
	if stored := sums.Get([]byte(name)); len(stored) == 8 {
		return binary.BigEndian.Uint64(stored)
	}
	return 0
}

// Sums are the sums of all tables. It reads every row in memory.
func (r *Reader) Sums() []uint64 {
	sums := make([]uint64, len(r.db.options.Names))
	stored := r.tx.Bucket(sumsBucket)
	for t := range sums {
		sums[t] = storedSum(stored, r.db.options.Names[t])
		for i, l := range []*layer{r.recent, r.frozen} {
			iter := l.iter(Table(t))
			if iter == nil {
				continue
			}
			for more := iter.First(); more; more = iter.Next() {
				key, value := bytesOf(iter.Key()), iter.Value()
				if i > 0 {
					if _, said := r.recent.get(Table(t), key); said {
						continue // the recent layer takes precedence
					}
				}
				_, found := r.file(Table(t)).lookup.Seek(key)
				if old := block(found).get(key); old != nil {
					sums[t] -= rowSum(key, old)
				}
				if value != nil {
					sums[t] += rowSum(key, value)
				}
			}
		}
	}
	return sums
}
