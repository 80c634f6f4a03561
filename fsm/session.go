package fsm

import (
	"fmt"
	"reflect"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const (
	// maxSessions bounds the open sessions. The leader has a timer and receives keep-alives
	// for each session.
	maxSessions = 10_000
	// maxEntities bounds the entities of a session, so that the end of a session is a small write.
	maxEntities = 256
	// maxEnded is the number of ended sessions that are remembered. A late repeat of an opening
	// must not open an ended session again: no client would keep it alive.
	maxEnded = 10_000
)

// openSession opens a session. A repeat returns the session in its current state.
func (t *txn) openSession(c *v1.Opening) (*v1.Result, error) {
	opening, err := command.OpeningFromProto(c)
	if err != nil {
		return nil, err
	}
	if opening.TTL == 0 {
		opening.TTL = jobs.DefaultTTL
	}
	session, found := t.findSession(opening.ID)
	switch {
	case found && (!opens(session, opening) || !t.mayUse(session)):
		return nil, fmt.Errorf("cannot open session %s: %w: the id belongs to another session; use a new id", opening.ID, jobs.ErrConflict)
	case found:
		return t.sessionResult(session), nil
	case opening.ID.IsZero():
		return nil, &logbook.InvalidError{Field: "session id", Reason: "unset"}
	case t.get(tableEnded, opening.ID.UUID[:]) != nil:
		return nil, fmt.Errorf("cannot open session %s: %w", opening.ID, jobs.ErrSessionExpired)
	case t.OpenSessions >= maxSessions:
		return nil, &logbook.LimitError{Field: "sessions", Limit: maxSessions, Size: int64(t.OpenSessions) + 1, Unit: "sessions"}
	}
	if err := t.roomForSession(); err != nil {
		return nil, err
	}
	session = jobs.Session{
		ID: opening.ID, Name: opening.Name, Host: opening.Host, PID: opening.PID, TTL: opening.TTL, OpenedAt: t.now, Principal: t.by,
	}
	t.putMessage(tableSession, session.ID.UUID[:], nil, command.SessionToProto(&session))
	t.OpenSessions++
	t.countSession(session.Principal, 1)
	t.changes.Opened = append(t.changes.Opened, session)
	t.record(jobs.Event{Kind: jobs.EventSessionOpened, Session: session.ID, Owner: session.Name})
	return t.sessionResult(session), nil
}

func opens(s jobs.Session, o jobs.Opening) bool {
	return o == jobs.Opening{ID: s.ID, Name: s.Name, Host: s.Host, PID: s.PID, TTL: s.TTL}
}

func (t *txn) sessionResult(session jobs.Session) *v1.Result {
	if !t.answered {
		return nil
	}
	session.Claims = len(t.claims(session.ID).held)
	return &v1.Result{Kind: &v1.Result_Session{Session: command.SessionToProto(&session)}}
}

// closeSession ends a session for its owner. Its jobs are claimable at once.
func (t *txn) closeSession(c *v1.CloseSessionCommand) error {
	session, claims, err := t.endingSession(c.GetSession())
	if err != nil {
		return fmt.Errorf("cannot close: %w", err)
	}
	for _, j := range claims {
		t.noteBegun(j)
		t.release(j, endLost)
		j.Reason = "the session of its owner was closed"
		completed := t.settle(j, 0)
		if completed {
			continue
		}
		t.event(jobs.EventAbandoned, j, jobs.Event{Owner: j.LastOwner, Token: j.Token, Reason: j.Reason})
	}
	t.endSession(session, jobs.EventSessionClosed)
	return nil
}

// expireSession ends a session without keep-alives. Its jobs cool down, so that work of the lost owner in the outside
// world can end. A job that has lost too many owners is trashed.
func (t *txn) expireSession(c *v1.ExpireSessionCommand) error {
	coolDown, err := command.DurationFromProto("cool_down", c.GetCoolDown())
	if err != nil {
		return err
	}
	if err := t.checkEpoch(c.GetTimerEpoch()); err != nil {
		return fmt.Errorf("cannot expire session %s: %w", c.GetSession(), err)
	}
	session, claims, err := t.endingSession(c.GetSession())
	if err != nil {
		return fmt.Errorf("cannot expire: %w", err)
	}
	for _, j := range claims {
		t.crash(j, lapse{coolDown, int(c.GetMaxCrashes()), "its owner " + j.Claim.Owner + " vanished"})
	}
	t.endSession(session, jobs.EventSessionExpired)
	return nil
}

// lapse has the settings for a claim that ends because its session or its own TTL expired.
type lapse struct {
	coolDown   time.Duration
	maxCrashes int
	reason     string
}

// crash ends the claim of a lost owner, or a claim whose own TTL has passed.
func (t *txn) crash(j *jobRecord, how lapse) {
	maxCrashes := how.maxCrashes
	t.noteBegun(j)
	t.release(j, endLost)
	j.Crashes++
	if j.MaxCrashes > 0 {
		maxCrashes = j.MaxCrashes
	}
	if maxCrashes > 0 && j.Crashes >= maxCrashes {
		j.Reason = fmt.Sprintf("its owner was lost %d times; the last owner was %s", j.Crashes, j.LastOwner)
		t.setEvidence(j, &logbook.Failure{Kind: logbook.FailureCrash, Message: j.Reason, Permanent: true})
		t.closeJob(j, jobs.StateTrashed)
		t.event(jobs.EventTrashed, j, jobs.Event{Owner: j.LastOwner, Token: j.Token, Reason: j.Reason})
		t.detach(j)
		t.recordError(j, jobs.HowCrashed, &logbook.Failure{Kind: logbook.FailureCrash, Message: j.Reason, Permanent: true})
		return
	}
	j.Reason = how.reason
	completed := t.settle(j, how.coolDown)
	if !completed {
		t.event(jobs.EventExpired, j, jobs.Event{Owner: j.LastOwner, Token: j.Token, Reason: j.Reason})
	}
	t.recordError(j, jobs.HowCrashed, &logbook.Failure{Kind: logbook.FailureCrash, Message: how.reason})
}

// endingSession reads a session and its claimed jobs, in the order of the claims.
func (t *txn) endingSession(text string) (jobs.Session, []*jobRecord, error) {
	session, err := t.ownSession(text)
	if err != nil {
		return jobs.Session{}, nil, err
	}
	claims := t.claims(session.ID)
	held := make([]*jobRecord, len(claims.held))
	for i, claim := range claims.held {
		held[i] = t.job(claim.sequence)
		if held[i].Claim == nil || held[i].Claim.Token != claim.token {
			panic(corrupt("session %s has a claim of job %s, and the job has no such claim", session.ID, held[i].ID))
		}
	}
	return session, held, nil
}

// endSession removes a session, its claims and its entities, and remembers its id.
func (t *txn) endSession(session jobs.Session, how jobs.EventKind) {
	id := session.ID.UUID[:]
	t.deletePrefix(tableClaim, id)
	delete(t.claimants, session.ID)
	for _, presence := range t.keys(tablePresence, id) {
		key := presence[idSize:]
		kind, name := entityOfKey(key)
		t.delete(tableEntity, key)
		t.delete(tablePresence, presence)
		t.record(jobs.Event{Kind: jobs.EventGone, Session: session.ID, Owner: session.Name, EntityKind: kind, Entity: name})
	}
	t.delete(tableSession, id)
	t.record(jobs.Event{Kind: how, Session: session.ID, Owner: session.Name})
	t.OpenSessions--
	t.countSession(session.Principal, -1)
	t.changes.Ended = append(t.changes.Ended, session.ID)

	t.SessionEnds++
	t.put(tableEnded, id, sequenceKey(t.SessionEnds))
	t.put(tableEndedOrder, sequenceKey(t.SessionEnds), id)
	if t.KeptEnds++; t.KeptEnds > maxEnded {
		oldest := sequenceKey(t.SessionEnds - maxEnded)
		if forgotten := t.get(tableEndedOrder, oldest); forgotten != nil {
			t.delete(tableEnded, append([]byte(nil), forgotten...))
		}
		t.delete(tableEndedOrder, oldest)
		t.KeptEnds--
	}
}

// register adds or replaces an entity. A repeat changes nothing.
func (t *txn) register(c *v1.RegisterCommand) error {
	session, err := t.ownSession(c.GetSession())
	if err != nil {
		return fmt.Errorf("cannot register: %w", err)
	}
	entity, err := command.EntityFromProto(c.GetEntity())
	if err != nil {
		return err
	}
	if len(entity.Kind) > maxKeyName || len(entity.Name) > maxKeyName {
		return &logbook.LimitError{
			Field: "entity", Limit: maxKeyName, Size: int64(max(len(entity.Kind), len(entity.Name))), Unit: "bytes",
		}
	}
	entity.Session, entity.RegisteredAt, entity.Held = session.ID, t.now, 0
	key := entityKey(entity.Kind, entity.Name, session.ID)
	switch old := t.get(tableEntity, key); {
	case old != nil:
		known := decode(old, &v1.Entity{}, command.EntityFromProto)
		known.RegisteredAt = entity.RegisteredAt
		if reflect.DeepEqual(known, entity) {
			return nil
		}
	case len(t.keys(tablePresence, session.ID.UUID[:])) >= maxEntities:
		return &logbook.LimitError{Field: "entities", Limit: maxEntities, Size: maxEntities + 1, Unit: "entities"}
	}
	t.putMessage(tableEntity, key, nil, command.EntityToProto(&entity))
	t.put(tablePresence, presenceKey(session.ID, key), nil)
	t.record(jobs.Event{Kind: jobs.EventRegistered, Session: session.ID, Owner: session.Name, EntityKind: entity.Kind, Entity: entity.Name})
	return nil
}
