package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	conductorcmd "github.com/conductord/conductord/cmd/conductord/cli/conductor"
	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

// workerFlags are the flags of worker.
type workerFlags struct {
	directories, types []string
	level, steps       string
	confinement        *configFlags
	worker             conductor.WorkerOptions
}

func workerCommand(p *cli.Program) *cobra.Command {
	var f workerFlags
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run a step worker with this machine's handlers",
		Long: "Run steps that have worker = true, with the handlers of this machine. The machine does not need to be a node, and\n" +
			"needs no open port. Steps continue if their conductor or a node dies.\n\n" +
			"On SIGTERM, SIGHUP and ctrl-C, the worker finishes its running steps and ends; on a second signal, it ends\n" +
			"immediately, and other workers get its steps. If no node answers for 0.8 of --ttl, it stops its steps, because\n" +
			"other workers will get them. After --max-steps or --max-duration, it finishes its running steps and exits with\n" +
			"0.\n\n" +
			"The --handlers-… flags are the [handlers] settings of a node; --config reads them from a file.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.WorkerPart.Load(f.confinement.path, p.Env, f.confinement.given())
			if err != nil {
				return cli.UsageError(err)
			}
			return f.run(cmd.Context(), p, c.Handlers)
		},
	}
	flags := cmd.Flags()
	f.confinement = addSettingFlags(cmd, config.WorkerPart.Settings())
	addStepsFlag(cmd, &f.steps)
	flags.StringSliceVar(&f.directories, "handlers", nil, "directory with handlers; repeatable or comma-separated")
	flags.StringSliceVar(&f.types, "types", nil, "run only steps with these handlers (default all in the directories)")
	flags.StringSliceVar(&f.worker.Labels, "labels", nil, "labels to offer to steps that require labels")
	flags.StringSliceVar(&f.worker.Boards, "boards", nil, "run only steps of jobs on these boards (default all)")
	flags.IntVar(&f.worker.Slots, "slots", conductor.DefaultSlots, "maximum parallel steps")
	flags.IntVar(&f.worker.MaxSteps, "max-steps", 0, "number of step attempts after which the worker finishes and ends (default unlimited)")
	flags.DurationVar(&f.worker.MaxDuration, "max-duration", 0, "time after which the worker takes no more steps, finishes, and ends (default unlimited)")
	flags.StringVar(&f.worker.Name, "name", "", "display name of the worker (default host name and process id)")
	flags.DurationVar(&f.worker.TTL, "ttl", conductor.DefaultWorkerTTL, "time after the worker's death until other workers get its steps")
	flags.DurationVar(&f.worker.Drain, "drain-timeout", 0, "time for running steps to finish after SIGTERM; then the worker stops them (default unlimited)")
	flags.StringVar(&f.level, "log-level", "info", "log level: trace, debug, info, warn or error")
	_ = cmd.MarkFlagRequired("handlers")
	cmd.AddCommand(conductorcmd.WorkerListCommand(p))
	return cmd
}

// run runs the worker.
func (f *workerFlags) run(ctx context.Context, p *cli.Program, confined config.Handlers) error {
	set, names, err := f.open()
	if err != nil {
		return err
	}
	outliveReaders()
	tightenUmask()
	logger := hclog.New(&hclog.LoggerOptions{Name: "worker", Level: hclog.LevelFromString(f.level), Output: cli.CleanLog(p.Err, false)})
	held, release, err := holdSteps(f.steps)
	if err != nil {
		return err
	}
	defer release()
	confinement, err := confine(set, confined, held, logger)
	if err != nil {
		return err
	}
	return p.Waiting(ctx, func(ctx context.Context, cluster cli.Cluster) error {
		client, can := cluster.(steps.Client)
		if !can {
			return errors.New("cannot run steps: this cluster does not support workers")
		}
		go func() { _ = set.ReapOrphans(context.WithoutCancel(ctx)) }() // ends with the process
		f.worker.Client, f.worker.Logger = client, logger
		f.worker.Limits = logbook.PlainLimits(cluster, logbook.MaxLimits)
		f.worker.Tasks = make(map[string]flow.Task, len(names))
		for _, name := range names {
			f.worker.Tasks[name] = set.Task(name, name, handler.Grace(workerGrace), handler.Limits(f.worker.Limits), confinement)
		}
		return conductor.RunWorker(ctx, f.worker)
	})
}

// open opens the directories, and returns the handlers to use, which are types of steps.
func (f *workerFlags) open() (*handler.Set, []string, error) {
	set, err := handler.Open(f.directories...)
	if err != nil {
		return nil, nil, err
	}
	found := set.Names()
	if len(found) == 0 {
		return nil, nil, fmt.Errorf("cannot run steps: no handlers in %s", strings.Join(f.directories, ", "))
	}
	for _, name := range f.types {
		if !slices.Contains(found, name) {
			return nil, nil, cli.UsageError(fmt.Errorf("--types contains %.64q, and there is no such handler: the handlers are %s%s", name, strings.Join(found, ", "), meant.Hint(name, found)))
		}
	}
	if len(f.types) > 0 {
		return set, f.types, nil
	}
	return set, found, nil
}

// workerGrace is a handler's time between SIGTERM and SIGKILL. With the default TTL, the
// handler has ended before another worker can get the step.
const workerGrace = 2 * time.Second
