package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/logbook"
)

// UpdateToProto converts an update; nil stays nil.
func UpdateToProto(u *logbook.Update) *v1.Update {
	if u == nil {
		return nil
	}
	message := &v1.Update{
		Flow:     idText(u.Flow.UUID),
		Token:    TokenToProto(u.Token),
		Sequence: u.Sequence,
		State:    string(u.State),
		Cause:    FailureToProto(u.Cause),

		Definition: DefinitionToProto(u.Definition),
	}
	for i := range u.Atoms {
		message.Atoms = append(message.Atoms, AtomChangeToProto(&u.Atoms[i]))
	}
	return message
}

// UpdateFromProto converts an update. Nil is the zero update.
func UpdateFromProto(message *v1.Update) (logbook.Update, error) {
	var r reader
	u := logbook.Update{
		Flow:     logbook.FlowID{UUID: r.id("update flow", message.GetFlow())},
		Token:    TokenFromProto(message.GetToken()),
		Sequence: message.GetSequence(),
		State:    word(&r, "update state", message.GetState(), knownFlowState),
		Cause:    FailureFromProto(message.GetCause()),

		Definition: DefinitionFromProto(message.GetDefinition()),
	}
	named, err := ParseDefinitionID(message.GetDefinitionId())
	if keep(&r, named, err) != (DefinitionID{}) && u.Definition != nil {
		r.refuse(DefinitionIDField, "set beside a definition")
	}
	if n := len(message.GetAtoms()); n > 0 {
		u.Atoms = make([]logbook.AtomChange, 0, n)
	}
	for _, change := range message.GetAtoms() {
		converted, err := AtomChangeFromProto(change)
		u.Atoms = append(u.Atoms, keep(&r, converted, err))
	}
	if r.err != nil {
		return logbook.Update{}, r.err
	}
	return u, nil
}

// AtomChangeToProto converts what an update does to one atom; nil stays nil.
func AtomChangeToProto(c *logbook.AtomChange) *v1.AtomChange {
	if c == nil {
		return nil
	}
	return &v1.AtomChange{
		Name:      c.Name,
		Kind:      string(c.Kind),
		Version:   c.Version,
		State:     string(c.State),
		Intention: string(c.Intention),
		RetryAt:   TimeToProto(c.RetryAt),
		Attempts:  attemptsInto(nil, c.Attempts),
		Progress:  progressToProto(c.Progress),
	}
}

// AtomChangeFromProto converts what an update does to one atom. Nil is the
// zero change.
func AtomChangeFromProto(message *v1.AtomChange) (logbook.AtomChange, error) {
	var r reader
	c := logbook.AtomChange{
		Name:      message.GetName(),
		Kind:      word(&r, "atom kind", message.GetKind(), knownAtomKind),
		Version:   message.GetVersion(),
		State:     word(&r, "atom state", message.GetState(), knownAtomState),
		Intention: word(&r, "atom intention", message.GetIntention(), knownIntention),
		RetryAt:   r.time("atom retry_at", message.GetRetryAt()),
		Attempts:  r.attempts(message.GetAttempts()),
		Progress:  r.progress(message.GetProgress()),
	}
	if r.err != nil {
		return logbook.AtomChange{}, inAtom(message.GetName(), r.err)
	}
	return c, nil
}
