package flow

import (
	"context"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// RevertPlan is the JSON output of flow plan --revert.
type RevertPlan struct {
	Flow  string       `json:"flow"`
	State string       `json:"state"`
	Steps []RevertStep `json:"steps"` // in the order in which one worker undoes them
}

// RevertStep is one step of a RevertPlan.
type RevertStep struct {
	Name            string `json:"name"`
	State           string `json:"state"`
	Reverts         bool   `json:"reverts"` // it has a revert
	Uninterruptible bool   `json:"uninterruptible"`
	AwaitsWorker    bool   `json:"awaits_worker"`     // no worker has taken it
	Finally         bool   `json:"finally,omitempty"` // it is a finally step, which runs
}

func planRevert(ctx context.Context, p *cli.Program, argument string) error {
	id, err := logbook.ParseID("job or flow id", argument)
	if err != nil {
		return err
	}
	return p.With(ctx, func(ctx context.Context, cluster cli.Cluster) error {
		detail, err := cli.FindFlow(ctx, cluster, id)
		if err != nil {
			return err
		}
		plan := spec.PlanOf(&detail)
		if plan == nil {
			return fmt.Errorf("cannot plan the revert of flow %s: this requires an unencrypted flow document, and the flow's factory is %s", detail.ID, cli.Quoted(detail.Factory.Name))
		}
		undos, err := engine.PlanRevert(engine.Options{Plan: plan, Detail: detail, Store: storeOf(ctx, cluster, id, &detail)})
		if err != nil {
			return err
		}
		return writeRevertPlan(p, &detail, undos)
	})
}

// storeOf returns the store of a flow. If the given id is a job's, the job's values replace the flow's.
func storeOf(ctx context.Context, cluster jobs.Reader, id uuid.UUID, detail *logbook.FlowDetail) logbook.Values {
	store := make(logbook.Values)
	maps.Copy(store, detail.Store)
	if job, err := cluster.Job(ctx, jobs.JobID{UUID: id}); err == nil {
		maps.Copy(store, job.Store)
	}
	return store
}

// UndoText describes the effect of a revert on a step.
func UndoText(undo *engine.Undo) string {
	if undo.Finally {
		return "it runs, as a finally step"
	}
	text := "its revert runs"
	if !undo.Reverts {
		text = "nothing: the step has no revert, or has not started"
	}
	switch {
	case undo.AwaitsWorker:
		return "its offer to workers is withdrawn; then " + text
	case undo.State != logbook.AtomRunning:
		return text
	case undo.Uninterruptible:
		return "it finishes; then " + text
	}
	return "it is interrupted; then " + text
}

func writeRevertPlan(p *cli.Program, detail *logbook.FlowDetail, undos []engine.Undo) error {
	document := RevertPlan{Flow: detail.ID.String(), State: string(detail.State), Steps: []RevertStep{}}
	var rows [][]string
	for i, undo := range undos {
		document.Steps = append(document.Steps, RevertStep{undo.Step, string(undo.State), undo.Reverts, undo.Uninterruptible, undo.AwaitsWorker, undo.Finally})
		state := undo.State
		if undo.AwaitsWorker {
			state = tree.WaitsForWorker
		}
		rows = append(rows, []string{fmt.Sprint(i + 1), undo.Step, string(state), UndoText(&undo)})
	}
	if p.JSON() {
		return p.WriteJSON(document)
	}
	if len(rows) == 0 {
		p.Note("nothing would be reverted: the flow is %s", detail.State)
		return nil
	}
	return p.WriteTable([]string{"ORDER", "STEP", "STATE", "UNDO"}, rows)
}
