package tables

// BreakFile closes the file behind the back of the DB.
func BreakFile(db *DB) error { return db.file.Close() }

// Flushed waits for the flush that is under way.
func Flushed(db *DB) { <-db.flushed }

// LearnFrom is how many deleted rows make a range.
const LearnFrom = learnFrom

// Tombstones is how many tombstones are known of a table.
func Tombstones(db *DB, t Table) int {
	if db.tombstones.of[t] == nil {
		return 0
	}
	return db.tombstones.of[t].Len()
}

// Blocks is in how many blocks the rows of a table stand that have been flushed.
func Blocks(db *DB, t Table) (many int, err error) {
	err = db.Read(func(r *Reader) error {
		return r.file(t).blocks.ForEach(func(_, _ []byte) error {
			many++
			return nil
		})
	})
	return many, err
}

// BlockBytes is how long a block becomes.
const BlockBytes = blockBytes

// RowSum is the hash of a row.
func RowSum(key, value string) uint64 { return rowSum([]byte(key), []byte(value)) }
