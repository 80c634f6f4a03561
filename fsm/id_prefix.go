package fsm

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/conductord/conductord/fsm/tables"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

const (
	// maxIDsExamined bounds the ids that one search reads, even if the caller may see none of them. A longer
	// prefix reads fewer ids.
	maxIDsExamined = 100_000
	// maxEndsExamined bounds the ids whose last digits one search compares. Last digits have no
	// index, so the search takes about 10 ms. It starts with the latest ids.
	maxEndsExamined = 100_000
)

// FindIDs reads the ids that start with a prefix, and recent ids that end with it, if the caller
// may see them. It calls shows with the board of each id; for a session, with access.AllBoards and
// the session's principal.
func (m *Machine) FindIDs(prefix jobs.IDPrefix, shows func(board, principal string) bool) (found jobs.IDMatches, err error) {
	first, err := hex.DecodeString(prefix.Digits + strings.Repeat("0", max(2*idSize-len(prefix.Digits), 0)))
	if err != nil {
		return found, fmt.Errorf("%w: prefix of an id: %w", jobs.ErrInvalid, err)
	}
	where := map[jobs.IDNoun]table{jobs.IDOfJob: tableJobID, jobs.IDOfBook: tableBook, jobs.IDOfFlow: tableFlow, jobs.IDOfSession: tableSession}
	err = m.read(func(v *view) error {
		cursor := v.cursor(where[prefix.Noun])
		key, _ := cursor.Seek(first)
		for examined := 0; key != nil && strings.HasPrefix(hex.EncodeToString(key), prefix.Digits); key, _ = cursor.Next() {
			if examined++; examined > maxIDsExamined {
				found.More = true
				return nil
			}
			id := uuid.UUID(key)
			if !shows(v.whereIs(prefix.Noun, id)) {
				continue
			}
			if found.More = len(found.IDs) == jobs.MaxIDMatches; found.More {
				return nil
			}
			found.IDs = append(found.IDs, id)
		}
		v.findEnds(cursor, prefix, shows, &found, maxEndsExamined)
		return nil
	})
	return found, err
}

// findEnds adds the ids that end with the digits, from a limited number of the latest ids. more: no id
// starts with the digits, and older ids were not compared.
func (v *view) findEnds(cursor *tables.Cursor, prefix jobs.IDPrefix, shows func(board, principal string) bool, found *jobs.IDMatches, latest int) {
	if n := len(prefix.Digits); n < jobs.MinIDEnd || n == 2*idSize {
		return
	}
	begin, examined, text := len(found.IDs), 0, make([]byte, 2*idSize)
	for key, _ := cursor.Last(); key != nil; key, _ = cursor.Prev() {
		if examined++; examined > latest {
			found.More = begin == 0
			return
		}
		hex.Encode(text, key)
		if !bytes.HasSuffix(text, []byte(prefix.Digits)) || bytes.HasPrefix(text, []byte(prefix.Digits)) || !shows(v.whereIs(prefix.Noun, uuid.UUID(key))) {
			continue
		}
		if found.More = len(found.IDs) == jobs.MaxIDMatches; found.More {
			return
		}
		found.IDs = append(found.IDs, uuid.UUID(key))
	}
}

// whereIs finds the board of an object with this id, and the principal of a session.
func (v *view) whereIs(noun jobs.IDNoun, id uuid.UUID) (board, principal string) {
	book := logbook.BookID{UUID: id}
	switch noun {
	case jobs.IDOfSession:
		session, _ := v.findSession(jobs.SessionID{UUID: id})
		return access.AllBoards, session.Principal
	case jobs.IDOfJob:
		if j, err := v.jobByID(jobs.JobID{UUID: id}); err == nil {
			return j.Board, ""
		}
	case jobs.IDOfFlow:
		book = v.existingFlow(logbook.FlowID{UUID: id}).Book
	}
	head, _ := v.book(book)
	return head.Board, ""
}
