package fsm

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Sessions, entities and drains are read completely inside the node, and in pages of maxPageBytes
// for answers.

// Sessions reads the open sessions, sorted by id.
func (m *Machine) Sessions() ([]jobs.Session, error) {
	sessions, _, err := m.sessions(jobs.SessionID{}, Unbounded, 0)
	return sessions, err
}

// SessionPage reads a page of open sessions, sorted by id: sessions after the given id, at most limit (0: no limit).
// next is the last id of the page, or zero at the end.
func (m *Machine) SessionPage(after jobs.SessionID, limit int) (sessions []jobs.Session, next jobs.SessionID, err error) {
	return m.sessions(after, maxPageBytes, limit)
}

func (m *Machine) sessions(after jobs.SessionID, maxBytes, limit int) (sessions []jobs.Session, next jobs.SessionID, err error) {
	err = m.read(func(v *view) error {
		reached := v.page(tableSession, nil, after.UUID[:], maxBytes, limit, func(value []byte) {
			session := decode(value, &v1.Session{}, command.SessionFromProto)
			claims := v.claims(session.ID)
			session.Claims = len(claims.held)
			sessions = append(sessions, session)
		})
		copy(next.UUID[:], reached)
		return nil
	})
	return sessions, next, err
}

// Presence has the numbers of open sessions, registered conductors and drains.
type Presence struct{ Sessions, Conductors, Drains int }

// Presence counts the open sessions, the registered conductors, and the drains.
func (m *Machine) Presence() (p Presence, err error) {
	err = m.read(func(v *view) error {
		v.page(tableSession, nil, nil, Unbounded, 0, func([]byte) { p.Sessions++ })
		v.page(tableEntity, appendName(nil, jobs.EntityConductor), nil, Unbounded, 0, func([]byte) { p.Conductors++ })
		v.page(tableDrain, nil, nil, Unbounded, 0, func([]byte) { p.Drains++ })
		return nil
	})
	return p, err
}

// Entities reads the entities of a kind, sorted by kind and name. An empty kind means all kinds.
func (m *Machine) Entities(kind string) (entities []jobs.Entity, err error) {
	err = m.read(func(v *view) error {
		entities = v.entities(kind)
		return nil
	})
	return entities, err
}

// EntityPage reads a page of entities by kind, and by name unless that is empty. Entities are sorted by kind and name
// within the page. after is the next of the previous page; limit bounds the page (0: no limit). next is empty at the
// end. ErrInvalid if after is not a next.
func (m *Machine) EntityPage(kind, name, after string, limit int) (entities []jobs.Entity, next string, err error) {
	key, err := hex.DecodeString(after)
	if err != nil {
		return nil, "", &logbook.InvalidError{Field: "entities after", Reason: fmt.Sprintf("%.64q is not the cursor of an earlier page", after)}
	}
	err = m.read(func(v *view) error {
		var reached []byte
		entities, reached = v.entitiesAfter(kind, name, key, maxPageBytes, limit)
		next = hex.EncodeToString(reached)
		return nil
	})
	return entities, next, err
}

func (v *view) entities(kind string) []jobs.Entity {
	entities, _ := v.entitiesAfter(kind, "", nil, Unbounded, 0)
	return entities
}

func (v *view) entitiesAfter(kind, name string, after []byte, maxBytes, limit int) (entities []jobs.Entity, reached []byte) {
	if len(kind) > maxKeyName || len(name) > maxKeyName {
		return nil, nil // no such entity
	}
	var prefix []byte
	if kind != "" {
		prefix = appendName(nil, kind)
	}
	if kind != "" && name != "" {
		prefix = appendName(prefix, name)
	}
	reached = v.page(tableEntity, prefix, after, maxBytes, limit, func(value []byte) {
		entity := decode(value, &v1.Entity{}, command.EntityFromProto)
		entity.Held = len(v.claims(entity.Session).held)
		entities = append(entities, entity)
	})
	slices.SortStableFunc(entities, func(a, b jobs.Entity) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return entities, reached
}

// HeldOn counts the claims of a session on boards for which shows returns true.
func (m *Machine) HeldOn(id jobs.SessionID, shows func(board string) bool) (held int, err error) {
	err = m.read(func(v *view) error {
		for _, claim := range v.claims(id).held {
			if shows(v.job(claim.sequence).Board) {
				held++
			}
		}
		return nil
	})
	return held, err
}

// EntityCursor returns the next for a page with these entities. The pages follow the order of the keys, which is not
// the order of the names.
func EntityCursor(page []jobs.Entity) (next string) {
	for i := range page {
		next = max(next, hex.EncodeToString(entityKey(page[i].Kind, page[i].Name, page[i].Session)))
	}
	return next
}

// Drains reads all drains, sorted by name.
func (m *Machine) Drains() (drains []jobs.Drain, err error) {
	err = m.read(func(v *view) error {
		drains = v.drains()
		return nil
	})
	return drains, err
}

// DrainPage reads a page of drains, sorted by name: drains after the given name. next is the last name of the page, or
// empty at the end.
func (m *Machine) DrainPage(after string) (drains []jobs.Drain, next string, err error) {
	err = m.read(func(v *view) error {
		var reached []byte
		drains, reached = v.drainsAfter([]byte(after), maxPageBytes)
		next = string(reached)
		return nil
	})
	return drains, next, err
}

func (v *view) drains() []jobs.Drain {
	drains, _ := v.drainsAfter(nil, Unbounded)
	return drains
}

func (v *view) drainsAfter(after []byte, maxBytes int) (drains []jobs.Drain, reached []byte) {
	reached = v.page(tableDrain, nil, after, maxBytes, 0, func(value []byte) {
		drains = append(drains, decode(value, &v1.Drain{}, command.DrainFromProto))
	})
	return drains, reached
}

// page calls each for the rows of a table with a key prefix, after a key. It ends at maxBytes, or at limit rows (0: no
// limit). reached is the key of the last row if more rows follow, and nil otherwise.
func (v *view) page(from table, prefix, after []byte, maxBytes, limit int, each func(value []byte)) (reached []byte) {
	cursor := v.cursor(from)
	start := prefix
	if bytes.Compare(after, start) > 0 {
		start = after
	}
	key, value := cursor.Seek(start)
	if len(after) > 0 && bytes.Equal(key, after) {
		key, value = cursor.Next()
	}
	for size, rows := 0, 0; key != nil && bytes.HasPrefix(key, prefix); key, value = cursor.Next() {
		if maxBytes >= 0 && size >= maxBytes || limit > 0 && rows == limit {
			return reached
		}
		size, rows = size+len(key)+len(value), rows+1
		reached = append(reached[:0], key...)
		each(value)
	}
	return nil
}

// findSession reads an open session, if there is one.
func (v *view) findSession(id jobs.SessionID) (session jobs.Session, found bool) {
	value := v.get(tableSession, id.UUID[:])
	if value == nil {
		return jobs.Session{}, false
	}
	return decode(value, &v1.Session{}, command.SessionFromProto), true
}

// openedSession reads the open session that a command names. ErrSessionExpired.
func (v *view) openedSession(text string) (jobs.Session, error) {
	id, err := jobs.ParseSessionID(text)
	if err != nil {
		return jobs.Session{}, err
	}
	session, found := v.findSession(id)
	if !found {
		return jobs.Session{}, fmt.Errorf("session %s: %w", id, jobs.ErrSessionExpired)
	}
	return session, nil
}
