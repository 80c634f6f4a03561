package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

// workerFlags are the flags of worker.
type workerFlags struct {
	directories, types []string
	level              string
	worker             conductor.WorkerOptions
}

func (p *Program) workerCommand() *cobra.Command {
	var f workerFlags
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Do steps of flows with the handlers of this machine, beside the cluster",
		Long: "Do steps of flows with the handlers of this machine, which need not be a node, and which nothing needs to reach.\n" +
			"It does the steps with worker = true whose handler it has. A step goes on when its conductor or a node dies.\n\n" +
			"SIGTERM and ctrl-C end it when its running steps have finished; a second one ends it at once, and other workers\n" +
			"get the steps. Without a node that answers for 0.8 of --ttl it stops its steps, for the same reason.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tasks, err := f.tasks(cmd.Context())
			if err != nil {
				return err
			}
			return p.waiting(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				client, can := cluster.(steps.Client)
				if !can {
					return errors.New("cannot do steps: this cluster gives none to workers")
				}
				f.worker.Client, f.worker.Tasks = client, tasks
				f.worker.Limits = logbook.PlainLimits(cluster, logbook.MaxLimits)
				f.worker.Logger = hclog.New(&hclog.LoggerOptions{Name: "worker", Level: hclog.LevelFromString(f.level), Output: CleanLog(p.Err, false)})
				return conductor.RunWorker(ctx, f.worker)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.directories, "handlers", nil, "directory with handlers; repeat it or separate several by commas")
	flags.StringSliceVar(&f.types, "types", nil, "do only steps with these handlers (default all in the directories)")
	flags.StringSliceVar(&f.worker.Labels, "labels", nil, "labels to offer to steps that want them")
	flags.StringSliceVar(&f.worker.Boards, "boards", nil, "do only steps of jobs of these boards (default all)")
	flags.IntVar(&f.worker.Slots, "slots", conductor.DefaultSlots, "how many steps to do at once")
	flags.StringVar(&f.worker.Name, "name", "", "name of the worker, for people (default host name and process id)")
	flags.DurationVar(&f.worker.TTL, "ttl", conductor.DefaultWorkerTTL, "how long after its death its steps go to other workers")
	flags.DurationVar(&f.worker.Drain, "drain-timeout", 0, "stop running steps this long after SIGTERM (default when they have finished)")
	flags.StringVar(&f.level, "log-level", "info", "trace, debug, info, warn or error")
	_ = cmd.MarkFlagRequired("handlers")
	return cmd
}

// tasks opens the directories, and makes a task of each handler, which is a type of steps.
func (f *workerFlags) tasks(ctx context.Context) (map[string]flow.Task, error) {
	set, err := handler.Open(f.directories...)
	if err != nil {
		return nil, err
	}
	go func() { _ = set.ReapOrphans(context.WithoutCancel(ctx)) }() // ends with the process
	names := set.Names()
	for _, name := range f.types {
		if !slices.Contains(names, name) {
			return nil, usageError{fmt.Errorf("--types names %q, and %s", name, set.Check(name))}
		}
	}
	if len(f.types) > 0 {
		names = f.types
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("cannot do steps: there is no handler in %s", strings.Join(f.directories, ", "))
	}
	tasks := make(map[string]flow.Task, len(names))
	for _, name := range names {
		tasks[name] = set.Task(name, name, handler.Grace(workerGrace))
	}
	return tasks, nil
}

// workerGrace is what a handler gets between SIGTERM and SIGKILL. With the default TTL it has
// ended before another worker can get the step.
const workerGrace = 2 * time.Second
