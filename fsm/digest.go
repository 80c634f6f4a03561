package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// Digest sums up the whole state: SHA-256 over every table in the order of
// their numbers and every key in order. Two machines that have applied the
// same entries have the same digest, though their files differ.
func (m *Machine) Digest() (sum [32]byte, err error) {
	err = m.read(func(v *view) error {
		sum, err = v.digest(func() error { return nil })
		return err
	})
	return sum, err
}

// Digest is the digest of the state that the snapshot holds. It reads all of it, and
// calls pause after every thousand rows; an error of that ends it.
func (s *Snapshot) Digest(pause func() error) ([32]byte, error) {
	return (&view{reader: s.tables.Reader()}).digest(pause)
}

func (v *view) digest(pause func() error) ([32]byte, error) {
	sum := sha256.New()
	for t, rows := 0, 0; t < len(tableNames); t++ {
		var err error
		v.scan(table(t), nil, func(key, value []byte) bool {
			sumUp(sum, []byte(tableNames[t]), key, value)
			if rows++; rows%1_000 == 0 {
				err = pause()
			}
			return err == nil
		})
		if err != nil {
			return [32]byte{}, err
		}
	}
	return [32]byte(sum.Sum(nil)), nil
}

// sumUp adds parts with their lengths, so that no two lists of parts are alike.
func sumUp(sum hash.Hash, parts ...[]byte) {
	for _, part := range parts {
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // a hash never fails
		sum.Write(part)
	}
}
