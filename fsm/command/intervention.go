package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/logbook"
)

// InterventionToProto converts what a person has done to a flow; nil stays nil.
func InterventionToProto(i *logbook.Intervention) *v1.Intervention {
	if i == nil {
		return nil
	}
	return &v1.Intervention{
		Id:     idText(i.ID),
		Flow:   idText(i.Flow.UUID),
		Kind:   string(i.Kind),
		Step:   i.Step,
		Result: ValueToProto(i.Result),
		By:     i.By,
		Reason: i.Reason,
		Hold:   i.Hold,
		At:     TimeToProto(i.At),
		Token:  TokenToProto(i.Token),
	}
}

// InterventionFromProto converts what a person has done to a flow. Nil is the
// zero intervention; whether its kind is known is for Check to say.
func InterventionFromProto(message *v1.Intervention) (logbook.Intervention, error) {
	var r reader
	i := logbook.Intervention{
		ID:     r.id("intervention id", message.GetId()),
		Flow:   logbook.FlowID{UUID: r.id("intervention flow", message.GetFlow())},
		Kind:   logbook.InterventionKind(message.GetKind()),
		Step:   message.GetStep(),
		Result: ValueFromProto(message.GetResult()),
		By:     message.GetBy(),
		Reason: message.GetReason(),
		Hold:   message.GetHold(),
		At:     r.time("intervention at", message.GetAt()),
		Token:  TokenFromProto(message.GetToken()),
	}
	if r.err != nil {
		return logbook.Intervention{}, r.err
	}
	return i, nil
}
