package raftboard_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestDefinitionsAreSentOnce: a client sends a flow's definition once, and then its id. If the
// cluster no longer has the definition, the client repeats only that command, with the definition.
func TestDefinitionsAreSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		built := &logbook.Definition{Hash: "h", Packed: []byte("steps")}
		var came []string
		has, next := false, uint64(1) // of the flow, whose updates arrive in order
		s := &script{refuses: func(c *v1.Command) error {
			update := c.GetUpdateFlow()
			if update == nil {
				update = c.GetConsume().GetUpdate()
			}
			how := "nothing"
			switch {
			case update.GetDefinition() != nil:
				how, has = "whole", true
			case len(update.GetDefinitionId()) > 0:
				how = "id"
			}
			came = append(came, fmt.Sprint(update.GetSequence(), " ", how))
			switch {
			case how == "id" && !has:
				return &logbook.InvalidError{Field: command.DefinitionIDField, Reason: "no flow has it"}
			case update.GetSequence() > next:
				return logbook.ErrConflict
			}
			next = max(next, update.GetSequence()+1)
			return nil
		}}
		client := open(t, time.Minute, start(t, s, "a")...)
		flow := logbook.NewFlowID()
		update := func(n uint64, d *logbook.Definition) logbook.Update {
			return logbook.Update{Flow: flow, Token: logbook.Token{Generation: 1, Index: 1}, Sequence: n, Definition: d}
		}
		write := func(updates ...logbook.Update) {
			t.Helper()
			verdicts, err := client.Update(t.Context(), updates...)
			if err != nil || slices.ContainsFunc(verdicts, func(err error) bool { return err != nil }) {
				t.Errorf("got %v, %v", verdicts, err)
			}
		}
		wants := func(want ...string) {
			t.Helper()
			if !slices.Equal(came, want) {
				t.Errorf("the node got %q, want %q", came, want)
			}
			came = nil
		}
		write(update(1, built))
		write(update(2, built), update(3, nil))
		wants("1 whole", "2 id", "3 nothing")
		has = false
		write(update(4, nil), update(5, built), update(6, nil))
		wants("4 nothing", "5 id", "6 nothing", "5 whole", "6 nothing")
		end := update(7, built)
		if err := client.Consume(t.Context(), jobs.Ending{Job: jobs.NewJobID(), Token: logbook.Token{Generation: 1, Index: 1}, Outcome: jobs.OutcomeSuccess, Update: &end}); err != nil {
			t.Error(err)
		}
		wants("7 id")
	})
}
