package fsm

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// Flows that were built alike share one row of tableDefinition, since thousands of runs
// of one flow are the rule. Its id is a digest of its content, so no writer can put
// another definition in its place. tableDefinitionUse counts the flows: the last one that
// goes, or is built otherwise, takes the definition with it. The count has a row of its own
// because it changes with each run, and a definition may be long.

// planDefinition finds the id of the definition that an update brings, or names. It is zero
// if the update does neither.
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

// releaseDefinition takes one flow from those that were built so.
func (t *txn) releaseDefinition(id command.DefinitionID) {
	if !id.IsZero() && t.addCount(tableDefinitionUse, id[:], -1) == 0 {
		t.delete(tableDefinition, id[:])
	}
}

// definition reads what a flow was built as, and how many bytes that takes; nil
// if it has not begun.
func (v *view) definition(id command.DefinitionID) (definition *logbook.Definition, size int) {
	if id.IsZero() {
		return nil, 0
	}
	value := v.get(tableDefinition, id[:])
	if value == nil {
		panic(corrupt("definition %x is referred to, and does not exist", id))
	}
	stored := &v1.Definition{}
	if err := command.DecodeMessage(value, stored); err != nil {
		panic(corrupt("cannot decode definition %x: %w", id, err))
	}
	return command.DefinitionFromProto(stored), len(value)
}
