package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// Digest returns a SHA-256 of the whole state: all tables in the order of their numbers, with all keys in order.
// Machines that have applied the same entries have equal digests, although their files differ.
func (m *Machine) Digest() (sum [32]byte, err error) {
	err = m.read(func(v *view) error {
		sum, err = v.digest(func() error { return nil })
		return err
	})
	return sum, err
}

// Digest returns the digest of the snapshot's state. It reads the whole state, and calls pause after every thousand
// rows. An error of pause ends it.
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

// sumUp adds parts with their lengths, so different lists of parts have different sums.
func sumUp(sum hash.Hash, parts ...[]byte) {
	for _, part := range parts {
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // a hash never fails
		sum.Write(part)
	}
}
