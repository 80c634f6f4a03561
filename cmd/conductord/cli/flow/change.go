package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// changeFlags are the flags of flow change.
type changeFlags struct {
	names      []string // old=new
	by, reason string
	dry        bool
}

// changeCommand gives started steps the names that they have in a new definition of their flow.
func changeCommand(p *cli.Program) *cobra.Command {
	var f changeFlags
	cmd := &cobra.Command{
		Use:   "change FLOW|JOB --map OLD=NEW",
		Short: "Rename started steps, so that a flow can adopt a definition with other names",
		Long: "Rename started steps of a flow, with all their instances in loops. Then the flow can adopt a definition in which\n" +
			"the steps have these names. Steps that have not started need no mapping. The job must be suspended, held, parked,\n" +
			"trashed or completed. Name the flow by its id or its job's id.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return change(cmd.Context(), p, args[0], &f) },
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.names, "map", nil, "old and new name of a step, as OLD=NEW; repeatable")
	flags.StringVar(&f.by, "by", cli.OperatorName(), "name of the operator")
	flags.StringVar(&f.reason, "reason", "", "reason, in one sentence")
	flags.BoolVar(&f.dry, "dry-run", false, "list the recorded steps to rename, and change nothing")
	return cmd
}

// renames reads --map.
func (f *changeFlags) renames(flow logbook.FlowID) ([]logbook.Intervention, error) {
	if len(f.names) == 0 {
		return nil, cli.UsageError(errors.New("--map is missing: give --map OLD=NEW for each step with another name"))
	}
	targets, renames := make(map[string]string), make([]logbook.Intervention, 0, len(f.names))
	for _, pair := range f.names {
		old, name, ok := strings.Cut(pair, "=")
		if !ok || old == "" || name == "" {
			return nil, cli.UsageError(fmt.Errorf("--map %q is not OLD=NEW", pair))
		}
		if first, twice := targets[name]; twice {
			return nil, cli.UsageError(fmt.Errorf("--map gives steps %q and %q the same name, %q", first, old, name))
		}
		targets[name] = old
		renames = append(renames, logbook.Intervention{
			ID: uuid.New(), Flow: flow, Kind: logbook.InterveneRename, Step: old, To: name, By: f.by, Reason: f.reason,
		})
	}
	return renames, nil
}

// change renames steps one after another. It first checks all renames, so that usually all or none take effect.
func change(ctx context.Context, p *cli.Program, target string, f *changeFlags) error {
	id, err := logbook.ParseID("job or flow id", target)
	if err != nil {
		return err
	}
	return p.With(ctx, func(ctx context.Context, cluster cli.Cluster) error {
		detail, err := cli.FindFlow(ctx, cluster, id)
		if err != nil {
			return err
		}
		renames, err := f.renames(detail.ID)
		if err != nil {
			return err
		}
		renamed, err := renamedSteps(&detail, renames)
		if err != nil {
			return err
		}
		noteUnknownNames(p, &detail, renames)
		for i := 0; i < len(renames) && !f.dry; i++ {
			if _, err := cluster.Intervene(ctx, renames[i]); err != nil {
				return cli.Because(err, "rename step %s in flow %s", renames[i].Step, detail.ID)
			}
		}
		return writeRenames(p, &detail, renames, renamed, f.dry)
	})
}

// renamedSteps checks renames against the record, and returns a line for each recorded step or instance.
func renamedSteps(detail *logbook.FlowDetail, renames []logbook.Intervention) (lines []string, err error) {
	after := *detail
	after.Atoms, after.Interventions = slices.Clone(detail.Atoms), slices.Clone(detail.Interventions)
	for i := range renames {
		if err := logbook.MaxLimits.CheckIntervention(&renames[i]); err != nil {
			return nil, err
		}
		if _, err := after.Admit(&renames[i]); err != nil {
			return nil, err
		}
		for n := range after.Atoms {
			if name, ok := renames[i].Renamed(after.Atoms[n].Name); ok {
				lines = append(lines, cli.Clean(after.Atoms[n].Name)+" → "+cli.Clean(name))
				after.Atoms[n].Name = name
			}
		}
		after.Interventions = append(after.Interventions, renames[i]) // a later rename must not reuse the former name
	}
	return lines, nil
}

// noteUnknownNames warns of new names that the document of a flow lacks. The definition of such a flow can change only
// with a release of conductord.
func noteUnknownNames(p *cli.Program, detail *logbook.FlowDetail, renames []logbook.Intervention) {
	plan := spec.PlanOf(detail)
	if plan == nil {
		return
	}
	last := make(map[string]bool) // false for names that a later rename replaces
	for i := range renames {
		delete(last, renames[i].Step)
		last[renames[i].To] = true
	}
	for i := range renames {
		if _, found := plan.Template().Find(renames[i].To); !found && last[renames[i].To] {
			p.Note("the job keeps its document, which has no step %q: the flow does not continue while a started step has this name", cli.Clean(renames[i].To))
		}
	}
}

func writeRenames(p *cli.Program, detail *logbook.FlowDetail, renames []logbook.Intervention, lines []string, dry bool) error {
	if p.JSON() {
		shown := struct {
			Flow    string     `json:"flow"`
			DryRun  bool       `json:"dry_run"`
			Renames []cli.Part `json:"renames"`
		}{Flow: detail.ID.String(), DryRun: dry}
		for i := range renames {
			shown.Renames = append(shown.Renames, cli.Part{Message: command.InterventionToProto(&renames[i])})
		}
		return p.WriteJSON(shown)
	}
	what := "renamed"
	if dry {
		what = "renames"
	}
	return p.WriteFields([]cli.Field{{"flow", detail.ID.String()}, {what, strings.Join(lines, "\n")}})
}
