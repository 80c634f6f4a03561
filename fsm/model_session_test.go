package fsm_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// Sessions.

func (m *model) open(c *v1.Opening) (string, error) {
	if m.ended[c.Id] {
		return "", jobs.ErrSessionExpired
	}
	switch known := m.sessions[c.Id]; {
	case known == nil:
		if q := m.quotas[access.Subject{Principal: m.by}]; q != nil && q.Limits.Sessions > 0 && m.used(q).Sessions >= q.Limits.Sessions {
			return "", jobs.ErrLimit
		}
		m.sessions[c.Id] = &modelSession{name: c.Name, principal: m.by, nonces: map[string]bool{}}
	case m.by != "" && known.principal != "" && m.by != known.principal:
		return "", jobs.ErrConflict
	}
	return fmt.Sprint("session with ", len(m.heldBy(c.Id)), " claims"), nil
}

// heldBy are the jobs of a session in the order of their claims.
func (m *model) heldBy(session string) []*modelJob {
	return m.list(func(j *modelJob) bool { return j.Claim != nil && j.Claim.Session.String() == session }, func(a, b *modelJob) int {
		return cmp.Or(a.Token.Compare(b.Token), bySequence(a, b))
	})
}

func (m *model) close(session string) error {
	if m.sessions[session] == nil {
		return jobs.ErrSessionExpired
	}
	for _, j := range m.heldBy(session) {
		m.mayHaveBegun(j)
		m.letGo(j, "lost")
		j.Reason = "closed"
		m.settle(j, 0)
	}
	m.over(session)
	return nil
}

func (m *model) expire(c *v1.ExpireSessionCommand) error {
	switch {
	case c.TimerEpoch != m.epoch:
		return jobs.ErrConflict
	case m.sessions[c.Session] == nil:
		return jobs.ErrSessionExpired
	}
	for _, j := range m.heldBy(c.Session) {
		m.crash(j, c.CoolDown.AsDuration(), int(c.MaxCrashes))
	}
	m.over(c.Session)
	return nil
}

func (m *model) crash(j *modelJob, coolDown time.Duration, maxCrashes int) {
	m.mayHaveBegun(j)
	m.letGo(j, "lost")
	j.Crashes++
	j.Reason = "vanished"
	if most := cmp.Or(j.MaxCrashes, maxCrashes); most > 0 && j.Crashes >= most {
		j.Failure = &logbook.Failure{Kind: logbook.FailureCrash}
		m.finish(j, jobs.StateTrashed)
		return
	}
	m.settle(j, coolDown)
}

func (m *model) held(job string, token *v1.Token) (*modelJob, error) {
	j := m.jobs[job]
	switch {
	case j == nil:
		return nil, jobs.ErrNotFound
	case j.Claim == nil || j.Claim.Token != command.TokenFromProto(token):
		return nil, jobs.ErrFenced
	}
	return j, nil
}

func (m *model) extend(c *v1.ExtendClaimCommand) error {
	j, err := m.held(c.Job, c.Token)
	if err == nil {
		j.Claim.Expiry = c.Expiry.AsDuration()
		j.Claim.Extensions++
	}
	return err
}

func (m *model) expireClaim(c *v1.ExpireClaimCommand) error {
	if c.TimerEpoch != m.epoch {
		return jobs.ErrConflict
	}
	j, err := m.held(c.Job, c.Token)
	switch {
	case err != nil:
		return err
	case j.Claim.Expiry == 0 || j.Claim.Extensions != int(c.Extensions):
		return jobs.ErrConflict
	}
	m.crash(j, c.CoolDown.AsDuration(), int(c.MaxCrashes))
	return nil
}

func (m *model) over(session string) {
	delete(m.sessions, session)
	maps.DeleteFunc(m.entities, func(_ string, e *modelEntity) bool { return e.Session.String() == session })
	m.ended[session] = true
}

// modelEntity is an entity that its session has registered.
type modelEntity struct{ jobs.Entity }

func (m *model) register(c *v1.RegisterCommand) error {
	if m.sessions[c.Session] == nil {
		return jobs.ErrSessionExpired
	}
	entity, err := command.EntityFromProto(c.Entity)
	if err != nil {
		panic(err)
	}
	entity.Session, entity.RegisteredAt = parsedSession(c.Session), m.now
	key := c.Session + entity.Kind + entity.Name
	if known := m.entities[key]; known != nil && known.MaxJobs == entity.MaxJobs {
		return nil
	}
	m.entities[key] = &modelEntity{entity}
	return nil
}

// lives reports whether a conductor of a name is registered, in one session or any.
func (m *model) lives(conductor, session string) bool {
	for _, e := range m.entities {
		if e.Kind == jobs.EntityConductor && e.Name == conductor && (session == "" || e.Session.String() == session) {
			return true
		}
	}
	return false
}

func (m *model) drain(c *v1.DrainCommand) error {
	standing := m.drains[c.Conductor]
	switch {
	case standing != nil && standing.Finish == c.Finish:
		return nil
	case standing == nil && !c.Absent && !m.lives(c.Conductor, ""):
		return jobs.ErrNotFound
	}
	m.drains[c.Conductor] = &jobs.Drain{Conductor: c.Conductor, Finish: c.Finish, At: m.now}
	return nil
}

func (m *model) undrain(conductor string) error {
	if m.drains[conductor] == nil && !m.lives(conductor, "") {
		return jobs.ErrNotFound
	}
	delete(m.drains, conductor)
	return nil
}

// drained reports whether a conductor of a session is to claim nothing.
func (m *model) drained(session string) bool {
	for conductor := range m.drains {
		if m.lives(conductor, session) {
			return true
		}
	}
	return false
}

func drainLine(d *jobs.Drain) string {
	return fmt.Sprint("drained ", d.Conductor, ", to finish: ", d.Finish, ", since ", ago(d.At))
}

func (m *model) sessionLines() []string {
	var lines []string
	var open []jobs.Session
	for id, s := range m.sessions {
		open = append(open, jobs.Session{ID: parsedSession(id), Name: s.name, Claims: len(m.heldBy(id))})
	}
	slices.SortFunc(open, func(a, b jobs.Session) int { return bytes.Compare(a.ID.UUID[:], b.ID.UUID[:]) })
	for _, s := range open {
		lines = append(lines, sessionLine(s))
	}
	for _, e := range m.entities {
		lines = append(lines, entityLine(e.Entity))
	}
	slices.Sort(lines[len(open):])
	for _, conductor := range slices.Sorted(maps.Keys(m.drains)) {
		lines = append(lines, drainLine(m.drains[conductor]))
	}
	return lines
}
