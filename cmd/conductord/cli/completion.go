package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

const (
	// completionTime limits a completion, because a user waits for it.
	completionTime = time.Second
	// maxCompletions limits the offered completions.
	maxCompletions = 100
)

// fixedNames are the words that need no server.
var fixedNames = map[string][]string{
	"state": Texts(jobs.States), "outcome": Texts(Outcomes), "output": {"table", "json"},
	"priority": {"very-low", "low", "normal", "high", "very-high"}, "format": {"dot", "mermaid", "text"},
	"order": {"posted", "claim"}, "on-failure": {"complete", "retry", "park"}, "overlap": {"skip", "queue", "cancel", "allow"},
	"how": {"abandoned", "crashed", "trashed", "reverted", "failed"}, "log-level": {"trace", "debug", "info", "warn", "error"},
}

// completeNames makes all commands below a command complete the arguments and flags whose kinds are
// known here.
func (p *Program) completeNames(cmd *cobra.Command) {
	for _, below := range cmd.Commands() {
		p.completeNames(below)
	}
	if cmd.ValidArgsFunction == nil && cmd.HasParent() && argumentName(cmd, 0, 1) != "" {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			return p.complete(cmd, argumentName(cmd, len(args), len(args)+1), args, begun)
		}
	}
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		what := flagNames[flag.Name]
		switch { // some flags have another meaning in other commands
		case fixedNames[flag.Name] != nil:
			what = flag.Name
		case flag.Name == "from" && cmd.Name() == "rerun":
			what = "step"
		case flag.Name == "to" && cmd.Name() == "transfer":
			what = "conductor"
		}
		if what != "" { // the only error is a repeated registration
			_ = cmd.RegisterFlagCompletionFunc(flag.Name, func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
				return p.complete(cmd, what, args, begun)
			})
		}
	})
}

// complete offers names with the given prefix. If no answer arrives in time, it offers nothing
// and prints no error.
func (p *Program) complete(cmd *cobra.Command, what string, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	names, fixed := fixedNames[what]
	switch {
	case !fixed && strings.Contains(cmd.Use, "FILE|JOB"):
		return nil, cobra.ShellCompDirectiveDefault
	case !fixed && what != "":
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		if cluster, err := p.connect(ctx, completionTime, completionTime); err == nil {
			defer cluster.Close()
			switch {
			case what == "step" && len(args) > 0:
				names = completeSteps(ctx, cluster, args[0])
			case what == stepArgument:
				names = completeStepsOfJobs(ctx, cluster, begun)
			case idNouns[what] != nil && what != "session":
				names = idsOf(ctx, cluster, what, begun)
			default:
				names = namesOf(ctx, cluster, what)
			}
		}
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, begun) })
	return names[:min(len(names), maxCompletions)], cobra.ShellCompDirectiveNoFileComp
}

// nameReader reads objects with names. A completion omits everything that it cannot read.
type nameReader interface {
	statusReader
	BoardList(ctx context.Context, after string, limit int) (jobs.Page[jobs.BoardStatus], error)
	Entities(ctx context.Context, kind string) ([]jobs.Entity, error)
	Sessions(ctx context.Context) ([]jobs.Session, error)
	Principals(ctx context.Context, after string) (logbook.Page[access.Principal], error)
}

func namesOf(ctx context.Context, cluster nameReader, what string) (names []string) {
	switch what {
	case "board":
		for board, err := range jobs.AllBoards(ctx, cluster) {
			if err == nil {
				names = append(names, board.Name)
			}
		}
	case "conductor":
		found, _ := cluster.Entities(ctx, jobs.EntityConductor)
		for i := range found {
			names = append(names, found[i].Name)
		}
	case "schedule":
		if keeper, err := Scheduler(cluster); err == nil {
			page, _ := keeper.Schedules(ctx, schedules.Query{})
			for i := range page.Items {
				names = append(names, page.Items[i].Name)
			}
		}
	case "node":
		nodes, _ := cluster.Nodes(ctx)
		for i := range nodes {
			for _, member := range nodes[i].Status.Members {
				names = append(names, member.Name)
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
	case "principal":
		page, _ := cluster.Principals(ctx, "")
		for i := range page.Items {
			names = append(names, page.Items[i].Name)
		}
	case "session":
		open, _ := cluster.Sessions(ctx)
		for i := range open {
			names = append(names, open[i].ID.String()+"\t"+Clean(open[i].Name))
		}
	}
	return names
}

// idsOf reads ids with the given prefix; without a prefix, the ids of unfinished jobs or
// of jobs in the trash.
func idsOf(ctx context.Context, cluster idFinder, what, begun string) (names []string) {
	for _, noun := range idNouns[what] {
		if prefix, err := jobs.ParseIDPrefix(noun, begun); err == nil {
			found, _ := cluster.FindIDs(ctx, prefix)
			for _, id := range found.IDs {
				names = append(names, id.String())
			}
		}
	}
	if len(names) > 0 || what == "book" {
		return names
	}
	query := jobs.Query{Limit: maxCompletions, States: []jobs.State{jobs.StateTrashed}}
	if what != "trashed" {
		query.States = slices.DeleteFunc(slices.Clone(jobs.States), jobs.State.Finished)
	}
	page, _ := cluster.Jobs(ctx, query)
	for i := range page.Items {
		names = append(names, page.Items[i].ID.String()+"\t"+Clean(page.Items[i].Name)+", "+string(page.Items[i].State))
	}
	return names
}

// completeSteps reads the steps of a flow, including steps that have not started.
func completeSteps(ctx context.Context, cluster idFinder, text string) []string {
	short, err := parseShortID("flow", text)
	if err != nil {
		return nil
	}
	whole, err := short.find(ctx, cluster)
	if err != nil {
		return nil
	}
	detail, _ := FindFlow(ctx, cluster, uuid.MustParse(whole))
	return StepsOf(&detail)
}

// completeStepsOfJobs reads the steps of a job whose id is given, as JOB/STEP; without a slash, the ids of jobs.
func completeStepsOfJobs(ctx context.Context, cluster idFinder, begun string) (names []string) {
	job, _, found := strings.Cut(begun, "/")
	if !found {
		for _, id := range idsOf(ctx, cluster, "job", begun) {
			id, _, _ = strings.Cut(id, "\t")
			names = append(names, id+"/")
		}
		return names
	}
	for _, step := range completeSteps(ctx, cluster, job) {
		names = append(names, job+"/"+step)
	}
	return names
}

// Outcomes are all outcomes of a job.
var Outcomes = []jobs.Outcome{jobs.OutcomeSuccess, jobs.OutcomeReverted, jobs.OutcomeFailed, jobs.OutcomeCancelled}
