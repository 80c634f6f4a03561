package fsm

import (
	"fmt"
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// findPrincipal reads a principal. ErrNotFound.
func (v *view) findPrincipal(name string) (access.Principal, error) {
	value := v.get(tablePrincipal, []byte(name))
	if value == nil {
		return access.Principal{}, fmt.Errorf("principal %q: %w", name, jobs.ErrNotFound)
	}
	return decode(value, &v1.Principal{}, command.PrincipalFromProto), nil
}

// putPrincipal writes a principal that the current command has changed.
func (t *txn) putPrincipal(p *access.Principal) {
	p.UpdatedAt, p.By = t.now, t.by
	t.putMessage(tablePrincipal, []byte(p.Name), nil, command.PrincipalToProto(p))
	t.AccessIndex = t.Index
}

// savePrincipal creates a principal, or replaces its grants. A repeat changes nothing, whatever its revision.
func (t *txn) savePrincipal(c *v1.SavePrincipalCommand) error {
	given := command.SavedPrincipal(c)
	if len(given.Name) > maxKeyName {
		return &logbook.LimitError{Field: "principal", Limit: maxKeyName, Size: int64(len(given.Name)), Unit: "bytes"}
	}
	known, err := t.findPrincipal(given.Name)
	switch {
	case err == nil && slices.Equal(known.Grants, given.Grants) && known.HideValues == given.HideValues && slices.Equal(known.Approves, given.Approves):
		return nil
	case c.Revision != nil && known.Revision != c.GetRevision():
		return changedMeanwhile(&known, given.Name, c.GetRevision())
	case err != nil && t.Principals >= access.MaxPrincipals:
		return &logbook.LimitError{Field: "principals", Limit: access.MaxPrincipals, Size: int64(t.Principals) + 1, Unit: "principals"}
	case err != nil:
		t.Principals++
		known = access.Principal{Name: given.Name, CreatedAt: t.now}
	}
	known.Grants, known.HideValues, known.Approves, known.Revision = given.Grants, given.HideValues, given.Approves, t.Index
	t.putPrincipal(&known)
	return nil
}

// changedMeanwhile refuses a save of a principal that has another revision than the saver has read.
func changedMeanwhile(known *access.Principal, name string, read uint64) error {
	const advice = "read it again with `conductord access list`, and repeat the change"
	switch {
	case known.Name == "":
		return fmt.Errorf("cannot save principal %q: %w: it was deleted after revision %d: %s", name, jobs.ErrConflict, read, advice)
	case read == 0:
		return fmt.Errorf("cannot save principal %q: %w: it exists, with revision %d: %s", name, jobs.ErrConflict, known.Revision, advice)
	}
	return fmt.Errorf("cannot save principal %q: %w: it has changed since revision %d, and now has revision %d: %s", name, jobs.ErrConflict, read, known.Revision, advice)
}

// deletePrincipal removes a principal and its tokens.
func (t *txn) deletePrincipal(c *v1.DeletePrincipalCommand) error {
	if _, err := t.findPrincipal(c.GetName()); err != nil {
		return fmt.Errorf("cannot delete: %w", err)
	}
	t.delete(tablePrincipal, []byte(c.GetName()))
	t.Principals--
	t.AccessIndex = t.Index
	return nil
}

// addAccessToken adds a token to a principal, and removes expired tokens.
func (t *txn) addAccessToken(c *v1.AddAccessTokenCommand) error {
	token, err := command.AddedToken(c)
	if err != nil {
		return err
	}
	known, err := t.findPrincipal(c.GetPrincipal())
	if err != nil {
		return fmt.Errorf("cannot add a token: %w", err)
	}
	for _, other := range known.Tokens {
		switch {
		case other.ID != token.ID:
		case other.Hash == token.Hash && other.Expires.Equal(token.Expires):
			return nil
		default:
			return fmt.Errorf("cannot add a token: %w: the id belongs to another token; use a new id", jobs.ErrConflict)
		}
	}
	known.Tokens = slices.DeleteFunc(known.Tokens, func(other access.Token) bool {
		return !other.Expires.IsZero() && !other.Expires.After(t.now)
	})
	if n := len(known.Tokens); n >= access.MaxTokens {
		return &logbook.LimitError{Field: "tokens", Limit: access.MaxTokens, Size: int64(n) + 1, Unit: "tokens"}
	}
	token.CreatedAt, token.By = t.now, t.by
	known.Tokens = append(known.Tokens, token)
	t.putPrincipal(&known)
	return nil
}

// revokeAccessToken removes a token of a principal.
func (t *txn) revokeAccessToken(c *v1.RevokeAccessTokenCommand) error {
	id, err := command.RevokedToken(c)
	if err != nil {
		return err
	}
	known, err := t.findPrincipal(c.GetPrincipal())
	if err != nil {
		return fmt.Errorf("cannot revoke a token: %w", err)
	}
	at := slices.IndexFunc(known.Tokens, func(token access.Token) bool { return token.ID == id })
	if at < 0 {
		return fmt.Errorf("cannot revoke a token: token %s of principal %q: %w", id, known.Name, jobs.ErrNotFound)
	}
	known.Tokens = slices.Delete(known.Tokens, at, at+1)
	t.putPrincipal(&known)
	return nil
}

// noteTokenUses records when tokens were last used. It changes no permission, so AccessIndex stays.
func (t *txn) noteTokenUses(c *v1.NoteTokenUsesCommand) error {
	for _, use := range c.GetUses() {
		id, err := command.TokenUseOf(use)
		if err != nil {
			return err
		}
		known, err := t.findPrincipal(use.GetPrincipal())
		if err != nil {
			continue // deleted since
		}
		at := slices.IndexFunc(known.Tokens, func(token access.Token) bool { return token.ID == id })
		if at < 0 || t.now.Sub(known.Tokens[at].LastUsed) < access.TokenUseInterval {
			continue
		}
		known.Tokens[at].LastUsed = t.now
		t.putMessage(tablePrincipal, []byte(known.Name), nil, command.PrincipalToProto(&known))
	}
	return nil
}

// ownSession reads the session that a command names. ErrSessionExpired, also for the session of another
// principal.
func (t *txn) ownSession(text string) (jobs.Session, error) {
	session, err := t.openedSession(text)
	if err == nil && !t.mayUse(session) {
		return jobs.Session{}, fmt.Errorf("session %s: %w", session.ID, jobs.ErrSessionExpired)
	}
	return session, err
}

// mayUse reports whether the principal of the current command may use a session.
func (t *txn) mayUse(session jobs.Session) bool {
	return t.by == "" || session.Principal == "" || t.by == session.Principal
}

// checkBoardOf refuses a principal's use of a book of another board than the given one, as if the book did not exist.
func (t *txn) checkBoardOf(book *logbook.Book, board string) error {
	if t.by != "" && book.Board != board {
		return errNoBook(book.ID, board)
	}
	return nil
}

func errNoBook(id logbook.BookID, board string) error {
	return fmt.Errorf("book %s: %w on board %q", id, logbook.ErrNotFound, board)
}

// AccessIndex returns the index of the last entry that changed a principal.
func (m *Machine) AccessIndex() uint64 { return m.status.Load().AccessIndex }

// Principals reads all principals, sorted by name, with their AccessIndex.
func (m *Machine) Principals() (all []access.Principal, index uint64, err error) {
	err = m.read(func(v *view) error {
		present, err := v.ledgerOf()
		if err != nil {
			return err
		}
		index = present.AccessIndex
		v.page(tablePrincipal, nil, nil, Unbounded, 0, func(value []byte) {
			all = append(all, decode(value, &v1.Principal{}, command.PrincipalFromProto))
		})
		return nil
	})
	return all, index, err
}

// PrincipalPage reads a page of principals, sorted by name. after is the next of the previous page. next is
// empty at the end.
func (m *Machine) PrincipalPage(after string) (page []access.Principal, next string, err error) {
	err = m.read(func(v *view) error {
		next = string(v.page(tablePrincipal, nil, []byte(after), maxPageBytes, 0, func(value []byte) {
			page = append(page, decode(value, &v1.Principal{}, command.PrincipalFromProto))
		}))
		return nil
	})
	return page, next, err
}

// BoardOfJob returns the board of a job; false if there is no such job.
func (m *Machine) BoardOfJob(id jobs.JobID) (board string, found bool, err error) {
	err = m.read(func(v *view) error {
		if j, err := v.jobByID(id); err == nil {
			board, found = j.Board, true
		}
		return nil
	})
	return board, found, err
}

// BoardOfBook returns the board of a book, or an empty name if it has none; false if there is no such book.
func (m *Machine) BoardOfBook(id logbook.BookID) (board string, found bool, err error) {
	err = m.read(func(v *view) error {
		var book logbook.Book
		book, found = v.book(id)
		board = book.Board
		return nil
	})
	return board, found, err
}

// BoardOfFlow returns the board of the flow's book.
func (m *Machine) BoardOfFlow(id logbook.FlowID) (board string, found bool, err error) {
	err = m.read(func(v *view) error {
		if record := v.flow(id); record != nil {
			var book logbook.Book
			book, found = v.book(record.Book)
			board = book.Board
		}
		return nil
	})
	return board, found, err
}

// BoardOfWork returns the board of the flow's last job, under whose claim the flow is updated. For a flow without
// a job, it returns the board of the flow's book.
func (m *Machine) BoardOfWork(id logbook.FlowID) (board string, found bool, err error) {
	err = m.read(func(v *view) error {
		if record := v.flow(id); record != nil {
			if j := v.lastJob(record); j != nil {
				board, found = j.Board, true
			}
		}
		return nil
	})
	if err != nil || found {
		return board, found, err
	}
	return m.BoardOfFlow(id)
}

// JobOfFlow returns the last job that referred to the flow; zero if there is none.
func (m *Machine) JobOfFlow(id logbook.FlowID) (job jobs.JobID, err error) {
	err = m.read(func(v *view) error {
		if record := v.flow(id); record != nil {
			if j := v.lastJob(record); j != nil {
				job = j.ID
			}
		}
		return nil
	})
	return job, err
}
