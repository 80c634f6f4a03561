package tables

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// CheckBlocks tells what is wrong with the blocks of a table, which stand in a
// bucket of a file that is about to be opened. A cursor would panic, or pass by
// rows that are there.
func CheckBlocks(bucket *bolt.Bucket) error {
	var before []byte
	return bucket.ForEach(func(key, value []byte) error {
		if err := block(value).check(before, key); err != nil {
			return fmt.Errorf("block %x: %w", key, err)
		}
		before = key
		return nil
	})
}

// Convert makes a file of tables of one in which each row is a row of bbolt's, as
// it was before there were blocks. Tables that are not there are not made.
func Convert(from, to string, names []string) (err error) {
	source, err := bolt.Open(from, 0, &bolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return fmt.Errorf("cannot open the tables to convert: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := openFile(to, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	return source.View(func(tx *bolt.Tx) error {
		for _, name := range names {
			rows := tx.Bucket([]byte(name))
			if rows == nil {
				continue
			}
			if err := convertTable(rows, target, []byte(name)); err != nil {
				return fmt.Errorf("cannot convert table %s: %w", name, err)
			}
		}
		return nil
	})
}

// convertTable writes the rows of a table as blocks, in transactions as large as
// those of a flush.
func convertTable(from *bolt.Bucket, to *bolt.DB, name []byte) error {
	cursor := from.Cursor()
	key, value := cursor.First()
	for first := true; first || key != nil; first = false {
		m := merge{atEnd: true}
		for size := 0; key != nil && size < DefaultMemoryBytes; key, value = cursor.Next() {
			m.add(key, value)
			size += len(key) + len(value)
		}
		m.replace()
		err := to.Update(func(tx *bolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists(name)
			if err != nil {
				return err
			}
			return m.apply(bucket)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
