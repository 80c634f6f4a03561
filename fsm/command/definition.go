package command

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/conductord/conductord/logbook"
)

// DefinitionID replaces a definition in an update. Zero: no definition.
type DefinitionID [16]byte

// DefinitionIDField is the name of the invalid field if an update names a definition that the
// state machine lacks. The writer then sends the definition itself.
const DefinitionIDField = "update definition_id"

// IsZero reports whether the id is unset.
func (id DefinitionID) IsZero() bool { return id == DefinitionID{} }

// DefinitionIDOf is the start of the SHA-256 of the hash's length (a varint), the hash and
// the packed steps. The hash alone is not enough: the writer supplies it, and could combine
// another flow's hash with its own steps.
func DefinitionIDOf(d *logbook.Definition) DefinitionID {
	var memory [512]byte
	content := append(append(binary.AppendUvarint(memory[:0], uint64(len(d.Hash))), d.Hash...), d.Packed...)
	sum := sha256.Sum256(content)
	return DefinitionID(sum[:len(DefinitionID{})])
}

// ParseDefinitionID reads an id; empty bytes are the zero one.
func ParseDefinitionID(bytes []byte) (DefinitionID, error) {
	if len(bytes) == 0 {
		return DefinitionID{}, nil
	}
	if len(bytes) != len(DefinitionID{}) {
		return DefinitionID{}, &logbook.InvalidError{Field: DefinitionIDField, Reason: fmt.Sprintf("%d bytes long, not %d", len(bytes), len(DefinitionID{}))}
	}
	id := DefinitionID(bytes)
	if id.IsZero() {
		return id, &logbook.InvalidError{Field: DefinitionIDField, Reason: "all zeros"}
	}
	return id, nil
}
