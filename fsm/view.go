package fsm

import (
	"bytes"

	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/fsm/tables"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// view reads the tables in one state.
type view struct {
	reader *tables.Reader
	caches
}

// get reads a value; nil if there is none. The value is valid until the end of the view, and must not be changed.
func (v *view) get(t table, key []byte) []byte { return v.reader.Get(t, key) }

func (v *view) cursor(t table) *tables.Cursor { return v.reader.Cursor(t) }

// scan calls each for every key with the prefix, in order, until each returns false. each must not write to the table.
func (v *view) scan(t table, prefix []byte, each func(key, value []byte) (more bool)) {
	cursor := v.cursor(t)
	for key, value := cursor.Seek(prefix); key != nil && bytes.HasPrefix(key, prefix); key, value = cursor.Next() {
		if !each(key, value) {
			return
		}
	}
}

// keys copies the keys that have the prefix, so that they can be deleted.
func (v *view) keys(t table, prefix []byte) [][]byte {
	var found [][]byte
	cursor := v.cursor(t)
	for key, _ := cursor.Seek(prefix); key != nil && bytes.HasPrefix(key, prefix); key, _ = cursor.Next() {
		found = append(found, bytes.Clone(key))
	}
	return found
}

// encode encodes a message with the same bytes on every node. Other encodings have a random order of map entries.
func encode(prefix []byte, message proto.Message) []byte {
	value, err := command.AppendMessage(prefix, message, command.SizeOf(message))
	if err != nil {
		panic(unencodable(message, err))
	}
	return value
}

func unencodable(message proto.Message, err error) *fault {
	return corrupt("cannot encode a %s: %w", message.ProtoReflect().Descriptor().Name(), err)
}

// decode reads a stored message into a domain value. Messages are checked before they are
// stored, so an error means that the storage is bad.
func decode[M proto.Message, T any](value []byte, message M, convert func(M) (T, error)) T {
	converted, err := convert(decodeMessage(value, message))
	if err != nil {
		panic(corrupt("cannot read a stored %s: %w", message.ProtoReflect().Descriptor().Name(), err))
	}
	return converted
}

func decodeMessage[M proto.Message](value []byte, message M) M {
	if err := command.DecodeMessage(value, message); err != nil {
		panic(corrupt("cannot decode a stored %s: %w", message.ProtoReflect().Descriptor().Name(), err))
	}
	return message
}

// maxKnownHeads bounds the cache of boards. Up to jobs.MaxKeptBoards boards can be stored.
const maxKnownHeads = 1_024

// heads caches boards by name, in their current state. Each posting reads its board several times. Decoding it each
// time was a quarter of the cost of a posting. Only the machine's writer has the cache. The cached values must not be
// changed.
type heads map[string]*jobs.BoardStatus

func (h heads) keep(board jobs.BoardStatus) {
	if len(h) >= maxKnownHeads {
		clear(h)
	}
	h[board.Name] = &board
}

// maxExamined bounds the jobs that are read for one page of a list. A search for a rare kind among millions of jobs must
// not keep a read open for seconds, because the database cannot reuse pages during a read.
const maxExamined = 20_000

// badCursor refuses an After that is not the Next of a page.
func badCursor(what string) error {
	return &logbook.InvalidError{Field: what + " after", Reason: "not the value next of an earlier page"}
}

// maxPageBytes is the stored size at which a page ends. Failures, reasons and the steps of an event can be long, and a
// page must fit into an answer.
const maxPageBytes = 1 << 20

// Unbounded means no limit for a number of bytes.
const Unbounded = -1

func pageSize(limit int) int {
	if limit <= 0 || limit > logbook.MaxPage {
		return logbook.MaxPage
	}
	return limit
}
