package command

import (
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// OpeningToProto converts an opening; nil stays nil.
func OpeningToProto(o *jobs.Opening) *v1.Opening {
	if o == nil {
		return nil
	}
	return &v1.Opening{
		Id:   idText(o.ID.UUID),
		Name: o.Name,
		Host: o.Host,
		Pid:  numberOf(o.PID),
		Ttl:  DurationToProto(o.TTL),
	}
}

// OpeningFromProto converts an opening. Nil is the zero opening.
func OpeningFromProto(message *v1.Opening) (jobs.Opening, error) {
	var r reader
	o := jobs.Opening{
		ID:   jobs.SessionID{UUID: r.id("session id", message.GetId())},
		Name: message.GetName(),
		Host: message.GetHost(),
		PID:  int(message.GetPid()),
		TTL:  r.duration("session ttl", message.GetTtl()),
	}
	if r.err != nil {
		return jobs.Opening{}, r.err
	}
	return o, nil
}

// SessionToProto converts a session; nil stays nil.
func SessionToProto(s *jobs.Session) *v1.Session {
	if s == nil {
		return nil
	}
	return &v1.Session{
		Id:       idText(s.ID.UUID),
		Name:     s.Name,
		Host:     s.Host,
		Pid:      numberOf(s.PID),
		Ttl:      DurationToProto(s.TTL),
		OpenedAt: TimeToProto(s.OpenedAt),
		Claims:   countOf(s.Claims),

		Principal: s.Principal,
	}
}

// SessionFromProto converts a session. Nil is the zero session.
func SessionFromProto(message *v1.Session) (jobs.Session, error) {
	var r reader
	s := jobs.Session{
		ID:       jobs.SessionID{UUID: r.id("session id", message.GetId())},
		Name:     message.GetName(),
		Host:     message.GetHost(),
		PID:      int(message.GetPid()),
		TTL:      r.duration("session ttl", message.GetTtl()),
		OpenedAt: r.time("session opened_at", message.GetOpenedAt()),
		Claims:   r.count("session claims", message.GetClaims()),

		Principal: message.GetPrincipal(),
	}
	if r.err != nil {
		return jobs.Session{}, r.err
	}
	return s, nil
}

// EntityToProto converts an entity; nil stays nil.
func EntityToProto(e *jobs.Entity) *v1.Entity {
	if e == nil {
		return nil
	}
	return &v1.Entity{
		Kind:         e.Kind,
		Name:         e.Name,
		Boards:       slices.Clone(e.Boards),
		JobKinds:     slices.Clone(e.JobKinds),
		MaxJobs:      countOf(e.MaxJobs),
		Host:         e.Host,
		Pid:          numberOf(e.PID),
		Labels:       slices.Clone(e.Labels),
		Metadata:     ValuesToProto(e.Metadata),
		Session:      idText(e.Session.UUID),
		RegisteredAt: TimeToProto(e.RegisteredAt),
		Claims:       countOf(e.Held),
	}
}

// EntityFromProto converts an entity. Nil is the zero entity.
func EntityFromProto(message *v1.Entity) (jobs.Entity, error) {
	var r reader
	e := jobs.Entity{
		Kind:         message.GetKind(),
		Name:         message.GetName(),
		Boards:       slices.Clone(message.GetBoards()),
		JobKinds:     slices.Clone(message.GetJobKinds()),
		MaxJobs:      r.count("entity max_jobs", message.GetMaxJobs()),
		Host:         message.GetHost(),
		PID:          int(message.GetPid()),
		Labels:       slices.Clone(message.GetLabels()),
		Metadata:     ValuesFromProto(message.GetMetadata()),
		Session:      jobs.SessionID{UUID: r.id("entity session", message.GetSession())},
		RegisteredAt: r.time("entity registered_at", message.GetRegisteredAt()),
		Held:         r.count("entity claims", message.GetClaims()),
	}
	if r.err != nil {
		return jobs.Entity{}, r.err
	}
	return e, nil
}
