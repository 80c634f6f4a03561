package fsm

import (
	"bytes"

	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/fsm/tables"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// view is the tables in one state, to be read.
type view struct {
	reader *tables.Reader
	caches
}

// get reads a value; nil if there is none. It is good until the end of the
// view, and must not be changed.
func (v *view) get(t table, key []byte) []byte { return v.reader.Get(t, key) }

func (v *view) cursor(t table) *tables.Cursor { return v.reader.Cursor(t) }

// scan calls a function with every key that has the prefix, in order, until
// the function says that it has seen enough. It must not write to the table.
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

// encode gives a message the same bytes on every node: without it the order of
// a map's entries would be random.
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

// maxKnownHeads bounds the memory for boards; jobs.MaxKeptBoards may be stored.
const maxKnownHeads = 1_024

// heads are the stored boards that have been looked at, by name, as they are
// after the last command. Each posting looks at its board several times, and to
// decode it again each time was a quarter of what applying a posting costs. Only
// the machine's writers have them; what they hold must not be changed.
type heads map[string]*jobs.BoardStatus

func (h heads) keep(board jobs.BoardStatus) {
	if len(h) >= maxKnownHeads {
		clear(h)
	}
	h[board.Name] = &board
}

// maxExamined bounds the jobs that one page of a listing looks at: a rare kind
// among millions of jobs must not hold a read open for seconds, since that
// keeps the database from reusing its pages.
const maxExamined = 20_000

// badCursor refuses an After that no page has said.
func badCursor(what string) error {
	return &logbook.InvalidError{Field: what + " after", Reason: "not the next of a page before"}
}

// maxPageBytes is where a page ends, as stored: failures, reasons and the steps
// of an event may be long, and a page must fit into an answer.
const maxPageBytes = 1 << 20

// Unbounded, as a number of bytes, is no bound.
const Unbounded = -1

func pageSize(limit int) int {
	if limit <= 0 || limit > logbook.MaxPage {
		return logbook.MaxPage
	}
	return limit
}
