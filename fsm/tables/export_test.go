package tables

// BreakFile closes the file behind the back of the DB.
func BreakFile(db *DB) error { return db.file.Close() }

// Flushed waits for the flush in progress.
func Flushed(db *DB) { <-db.flushed }

// LearnFrom is the number of deleted rows that make a range.
const LearnFrom = learnFrom

// Tombstones is the number of known tombstones of a table.
func Tombstones(db *DB, t Table) int {
	if db.tombstones.of[t] == nil {
		return 0
	}
	return db.tombstones.of[t].Len()
}

// Blocks is the number of blocks of a table's flushed rows.
func Blocks(db *DB, t Table) (many int, err error) {
	err = db.Read(func(r *Reader) error {
		return r.file(t).blocks.ForEach(func(_, _ []byte) error {
			many++
			return nil
		})
	})
	return many, err
}

// BlockBytes is the maximum size of a block.
const BlockBytes = blockBytes

// RowSum is the hash of a row.
func RowSum(key, value string) uint64 { return rowSum([]byte(key), []byte(value)) }
