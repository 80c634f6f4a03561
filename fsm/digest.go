package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// Digest sums up the whole state: SHA-256 over every table in the order of
// their numbers and every key in order. Two machines that have applied the
// same entries have the same digest, though their files differ.
func (m *Machine) Digest() ([32]byte, error) {
	sum := sha256.New()
	err := m.read(func(v *view) error {
		for t := range tableNames {
			err := v.scan(table(t), nil, func(key, value []byte) (bool, error) {
				sumUp(sum, []byte(tableNames[t]), key, value)
				return true, nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return [32]byte(sum.Sum(nil)), err
}

// sumUp adds parts with their lengths, so that no two lists of parts are alike.
func sumUp(sum hash.Hash, parts ...[]byte) {
	for _, part := range parts {
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // a hash never fails
		sum.Write(part)
	}
}
