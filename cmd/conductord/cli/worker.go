package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs/steps"
)

// workerLister is a cluster that lists its workers.
type workerLister interface {
	Workers(ctx context.Context, board string) ([]steps.Live, error)
}

// WorkerListCommand is the command that lists workers.
func (p *Program) WorkerListCommand() *cobra.Command {
	var board string
	cmd := &cobra.Command{
		Use: "list", Short: "List live workers: handlers, held steps, and whether the worker is set aside", Args: cobra.NoArgs,
		RunE: p.ask(func(ctx context.Context, cluster Cluster, _ []string) error {
			lister, can := cluster.(workerLister)
			if !can {
				return errors.New("cannot list workers: this cluster does not support it")
			}
			workers, err := lister.Workers(ctx, board)
			if err != nil {
				return because(err, "list workers")
			}
			return p.writeWorkers(workers)
		}),
	}
	cmd.Flags().StringVar(&board, "board", "", "only workers for jobs on this board")
	return cmd
}

func (p *Program) writeWorkers(workers []steps.Live) error {
	if p.JSON() {
		return p.WriteJSON(&v1.ListWorkersResponse{Workers: messages(workers, command.LiveWorkerToProto)})
	}
	rows := make([][]string, 0, len(workers))
	for i := range workers {
		w := &workers[i]
		rows = append(rows, []string{
			w.Name, workerState(w), w.Session.String(), OrDash(strings.Join(w.Boards, ",")), strings.Join(w.JobKinds, ","),
			OrDash(strings.Join(w.Labels, ",")), fmt.Sprintf("%d of %d", w.Holds, w.MaxJobs), agoText(w.RegisteredAt), agoText(w.Heard),
		})
	}
	return p.WriteTable([]string{"name", "state", "session", "boards", "types", "labels", "holds", "since", "heard"}, rows)
}

// workerState says whether a worker gets steps, and if not, why.
func workerState(w *steps.Live) string {
	switch {
	case !w.Aside.IsZero():
		return fmt.Sprintf("aside %s: %d steps failed", agoText(w.Aside), w.Failed)
	case w.Heard.IsZero():
		return "silent"
	case w.MaxJobs > 0 && w.Holds >= w.MaxJobs:
		return "full"
	}
	return "ready"
}
