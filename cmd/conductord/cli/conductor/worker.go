package conductor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs/steps"
)

// workerLister is a cluster that lists its workers.
type workerLister interface {
	Workers(ctx context.Context, board string) ([]steps.Live, error)
}

// WorkerListCommand is the command that lists workers.
func WorkerListCommand(p *cli.Program) *cobra.Command {
	var board string
	cmd := &cobra.Command{
		Use: "list", Short: "List live workers: handlers, held steps, and whether the worker is set aside", Args: cobra.NoArgs,
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, _ []string) error {
			lister, can := cluster.(workerLister)
			if !can {
				return errors.New("cannot list workers: this cluster does not support it")
			}
			workers, err := lister.Workers(ctx, board)
			if err != nil {
				return cli.Because(err, "list workers")
			}
			return writeWorkers(p, workers)
		}),
	}
	cmd.Flags().StringVar(&board, "board", "", "only workers for jobs on this board")
	return cmd
}

func writeWorkers(p *cli.Program, workers []steps.Live) error {
	if p.JSON() {
		return p.WriteJSON(&v1.ListWorkersResponse{Workers: cli.Messages(workers, command.LiveWorkerToProto)})
	}
	rows := make([][]string, 0, len(workers))
	for i := range workers {
		w := &workers[i]
		rows = append(rows, []string{
			w.Name, workerState(w), w.Session.String(), cli.OrDash(strings.Join(w.Boards, ",")), strings.Join(w.JobKinds, ","),
			cli.OrDash(strings.Join(w.Labels, ",")), fmt.Sprintf("%d of %d", w.Holds, w.MaxJobs), cli.AgoText(w.RegisteredAt), cli.AgoText(w.Heard),
		})
	}
	return p.WriteTable([]string{"name", "state", "session", "boards", "types", "labels", "holds", "since", "heard"}, rows)
}

// workerState says whether a worker gets steps, and if not, why.
func workerState(w *steps.Live) string {
	switch {
	case !w.Aside.IsZero():
		return fmt.Sprintf("aside %s: %d steps failed", cli.AgoText(w.Aside), w.Failed)
	case w.Heard.IsZero():
		return "silent"
	case w.MaxJobs > 0 && w.Holds >= w.MaxJobs:
		return "full"
	}
	return "ready"
}
