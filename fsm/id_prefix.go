package fsm

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// maxIDsExamined bounds the ids that one search reads: a longer prefix reads fewer.
const maxIDsExamined = 1_000

// FindIDs reads the ids that begin with a prefix, and that the caller may see: shows is asked
// with the board of each; for a session, with access.AllBoards and its principal.
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
		return nil
	})
	return found, err
}

// whereIs finds the board of what has an id, and the principal of a session.
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
