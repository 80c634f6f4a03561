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
		r.refuse(DefinitionIDField, "is set, and so is the definition; set only one")
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
