package fsm

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// Flows with equal definitions share one row of tableDefinition, because a flow usually runs thousands of
// times. The id of the row is a digest of its content, so no writer can replace the definition.
// tableDefinitionUse counts the flows of a definition. When the last flow is removed or gets another
// definition, the definition is removed. The count has its own row, because it changes with each run, and
// a definition can be long.

// planDefinition returns the id of the definition that an update has or names; zero if it does neither.
func (t *txn) planDefinition(u *logbook.Update, named []byte) (command.DefinitionID, error) {
	if u.Definition != nil {
		return command.DefinitionIDOf(u.Definition), nil
	}
	id, err := command.ParseDefinitionID(named)
	if err != nil || id.IsZero() {
		return id, err
	}
	if t.storedCount(tableDefinitionUse, id[:]) == 0 {
		return id, &logbook.InvalidError{Field: command.DefinitionIDField, Reason: "no flow has this definition now: send the definition itself"}
	}
	return id, nil
}

// setDefinition gives a flow the definition of an update. The caller saves the flow.
func (t *txn) setDefinition(plan *flowUpdate) {
	flow, id := plan.flow, plan.built
	if id.IsZero() || id == flow.built {
		return
	}
	if t.addCount(tableDefinitionUse, id[:], 1) == 1 {
		t.putMessage(tableDefinition, id[:], nil, command.DefinitionToProto(plan.definition))
	}
	t.releaseDefinition(flow.built)
	flow.built = id
}

// releaseDefinition counts one flow less for a definition, and removes an unused definition.
func (t *txn) releaseDefinition(id command.DefinitionID) {
	if !id.IsZero() && t.addCount(tableDefinitionUse, id[:], -1) == 0 {
		t.delete(tableDefinition, id[:])
	}
}

// definition reads a definition with its stored size; nil for the zero id of a flow that has not started.
func (v *view) definition(id command.DefinitionID) (definition *logbook.Definition, size int) {
	if id.IsZero() {
		return nil, 0
	}
	value := v.get(tableDefinition, id[:])
	if value == nil {
		panic(corrupt("a row refers to definition %x, which does not exist", id))
	}
	stored := &v1.Definition{}
	if err := command.DecodeMessage(value, stored); err != nil {
		panic(corrupt("cannot decode definition %x: %w", id, err))
	}
	return command.DefinitionFromProto(stored), len(value)
}
