package command

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
)

// Version is the latest version of the vocabulary that this program knows. Raise it with every
// command, field or meaning that older programs would not apply in the same way: two nodes that
// apply an entry differently destroy the cluster, and a node that stops does not. The cluster uses
// a version only after a command has raised it to this version; see Needs.
const Version = 1

// magic is the first byte of every entry. It identifies bytes that are no entry.
const magic = 'C'

// Reasons why an entry of the log cannot be decoded. Each stops the node: an entry must never
// be skipped.
var (
	// ErrUnknownVersion: the entry was written by a newer program.
	ErrUnknownVersion = errors.New("unknown version of the log's commands")
	// ErrUnknownCommand: the version is known, but the entry has an unknown command or field.
	ErrUnknownCommand = errors.New("unknown command in the log")
	// ErrCorrupt: the bytes are not an entry.
	ErrCorrupt = errors.New("corrupt log entry")
)

// EncodeEntry encodes an entry of the log: the byte 'C', the version that its commands
// need, and the message in protobuf's deterministic form.
func EncodeEntry(entry *v1.Entry) ([]byte, error) {
	needs := byte(1)
	for _, c := range entry.GetCommands() {
		needs = max(needs, Needs(c))
	}
	data, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{magic, needs}, entry)
	if err != nil {
		return nil, fmt.Errorf("cannot encode an entry of %d commands: %w", len(entry.GetCommands()), err)
	}
	return data, nil
}

// DecodeEntry decodes what EncodeEntry wrote. The error is an
// ErrUnknownVersion, an ErrUnknownCommand or an ErrCorrupt.
func DecodeEntry(data []byte) (*v1.Entry, error) {
	if len(data) < 2 || data[0] != magic {
		return nil, fmt.Errorf("%w: %d bytes that do not start with %q and a version", ErrCorrupt, len(data), magic)
	}
	if data[1] < 1 || data[1] > Version {
		return nil, fmt.Errorf("%w: version %d, and this program supports versions up to %d: install a newer program", ErrUnknownVersion, data[1], Version)
	}
	entry := &v1.Entry{}
	if err := DecodeMessage(data[2:], entry); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	for i, c := range entry.GetCommands() {
		if c.GetKind() == nil {
			return nil, fmt.Errorf("%w: command %d of %d", ErrUnknownCommand, i+1, len(entry.GetCommands()))
		}
	}
	if name, found := entry.UnknownField(); found {
		return nil, fmt.Errorf("%w: a field in %s", ErrUnknownCommand, name)
	}
	return entry, nil
}
