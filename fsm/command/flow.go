package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/logbook"
)

// FlowDetailToProto converts a flow and its atoms; nil stays nil.
func FlowDetailToProto(f *logbook.FlowDetail) *v1.FlowDetail {
	if f == nil {
		return nil
	}
	message := &v1.FlowDetail{
		Id:         idText(f.ID.UUID),
		Book:       idText(f.Book.UUID),
		Name:       f.Name,
		Factory:    factoryToProto(f.Factory),
		Store:      ValuesToProto(f.Store),
		Meta:       ValuesToProto(f.Meta),
		State:      string(f.State),
		Cause:      FailureToProto(f.Cause),
		CreatedAt:  TimeToProto(f.CreatedAt),
		UpdatedAt:  TimeToProto(f.UpdatedAt),
		Fence:      TokenToProto(f.Fence),
		Sequence:   f.Sequence,
		EndedToken: TokenToProto(f.Ended),
		BegunToken: TokenToProto(f.Begun),

		Targets:    f.Targets,
		OnChange:   string(f.OnChange),
		Definition: DefinitionToProto(f.Definition),
	}
	for i := range f.Interventions {
		message.Interventions = append(message.Interventions, InterventionToProto(&f.Interventions[i]))
	}
	for i := range f.Atoms {
		message.Atoms = append(message.Atoms, AtomDetailToProto(&f.Atoms[i]))
	}
	return message
}

// FlowDetailFromProto converts a flow and its atoms. Nil is the zero flow.
func FlowDetailFromProto(message *v1.FlowDetail) (logbook.FlowDetail, error) {
	var r reader
	f := logbook.FlowDetail{
		ID:        logbook.FlowID{UUID: r.id("flow id", message.GetId())},
		Book:      logbook.BookID{UUID: r.id("flow book", message.GetBook())},
		Name:      message.GetName(),
		Factory:   factoryFromProto(message.GetFactory()),
		Store:     ValuesFromProto(message.GetStore()),
		Meta:      ValuesFromProto(message.GetMeta()),
		State:     word(&r, "flow state", message.GetState(), knownFlowState),
		Cause:     FailureFromProto(message.GetCause()),
		CreatedAt: r.time("flow created_at", message.GetCreatedAt()),
		UpdatedAt: r.time("flow updated_at", message.GetUpdatedAt()),
		Fence:     TokenFromProto(message.GetFence()),
		Sequence:  message.GetSequence(),
		Ended:     TokenFromProto(message.GetEndedToken()),
		Begun:     TokenFromProto(message.GetBegunToken()),

		Targets:    message.GetTargets(),
		OnChange:   logbook.ChangePolicy(message.GetOnChange()),
		Definition: DefinitionFromProto(message.GetDefinition()),
	}
	for _, intervention := range message.GetInterventions() {
		converted, err := InterventionFromProto(intervention)
		f.Interventions = append(f.Interventions, keep(&r, converted, err))
	}
	for _, atom := range message.GetAtoms() {
		converted, err := AtomDetailFromProto(atom)
		f.Atoms = append(f.Atoms, keep(&r, converted, err))
	}
	if r.err != nil {
		return logbook.FlowDetail{}, r.err
	}
	return f, nil
}

// DefinitionToProto converts what a flow was built as; nil stays nil.
func DefinitionToProto(d *logbook.Definition) *v1.Definition {
	if d == nil {
		return nil
	}
	return &v1.Definition{Hash: d.Hash, Packed: d.Packed}
}

// DefinitionFromProto converts what a flow was built as; nil stays nil.
func DefinitionFromProto(message *v1.Definition) *logbook.Definition {
	if message == nil {
		return nil
	}
	return &logbook.Definition{Hash: message.GetHash(), Packed: message.GetPacked()}
}

func factoryToProto(f logbook.Factory) *v1.Factory {
	if f.Name == "" && len(f.Args) == 0 {
		return nil
	}
	return &v1.Factory{Name: f.Name, Args: ValueToProto(f.Args)}
}

func factoryFromProto(message *v1.Factory) logbook.Factory {
	return logbook.Factory{Name: message.GetName(), Args: ValueFromProto(message.GetArgs())}
}

// knownFlowState asks the table of transitions, which is the one list of
// states: every known state may stay.
func knownFlowState(s logbook.FlowState) bool { return s.Move(s) == nil }
