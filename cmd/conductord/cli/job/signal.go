package job

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

func signalCommand(p *cli.Program) *cobra.Command {
	var sent jobs.SignalCommand
	data, signal := "", &sent.Signal
	cmd := &cobra.Command{
		Use:   "signal [JOB] NAME",
		Short: "Send a signal to a job",
		Long: "Send a signal to a job: by its id, or with --key to the unfinished job of a board with this key. A step of its\n" +
			"flow that waits for a signal of this name takes the signal, and the job continues. Otherwise the job keeps the\n" +
			"signal until a step waits for it. The command prints \"taken\" or \"kept\", or \"repeated\" if the job has already\n" +
			"received a signal with this id. It fails with exit code 4 if the job is finished.",
		Args: cobra.RangeArgs(1, 2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		switch {
		case sent.Key == "" && sent.Board != "":
			return cli.UsageError(errors.New("--board needs --key"))
		case (sent.Key == "") != (len(args) == 2):
			return cli.UsageError(errors.New("name the job by its id or with --key, and then the signal"))
		case sent.Key == "":
			if sent.Job, err = jobs.ParseJobID(args[0]); err != nil {
				return err
			}
		}
		if signal.Name = args[len(args)-1]; data != "" {
			signal.Data = json.RawMessage(data)
		}
		return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error { return sendSignal(ctx, p, cluster, &sent) })
	}
	cmd.Flags().StringVar(&sent.Board, "board", "", "board of the key (default the board \"default\")")
	cmd.Flags().StringVar(&sent.Key, "key", "", "key of an unfinished job, instead of its id")
	cmd.Flags().StringVar(&data, "data", "", "data of the signal, in JSON: the result of the waiting step")
	cmd.Flags().StringVar(&signal.ID, "id", "", "id of the signal (default: random); repeating a signal with the same id has no effect")
	cmd.Flags().StringVar(&signal.Reject, "reject", "", "send a rejection: the waiting step fails with this message and the kind signal.rejected")
	cmd.Flags().StringVar(&signal.By, "by", cli.OperatorName(), "name of the sender")
	cmd.MarkFlagsMutuallyExclusive("data", "reject")
	return cmd
}

// sendSignal sends a signal, and prints the answer.
func sendSignal(ctx context.Context, p *cli.Program, cluster jobs.Signaller, sent *jobs.SignalCommand) (err error) {
	var receipt jobs.SignalReceipt
	if sent.Key == "" {
		if receipt, err = cluster.Signal(ctx, sent.Job, sent.Signal); err != nil {
			return cli.Because(err, "send signal %q to job %s", sent.Signal.Name, sent.Job)
		}
	} else if receipt, err = cluster.SignalKey(ctx, sent.Board, sent.Key, sent.Signal); err != nil {
		return cli.Because(err, "send signal %q to the job with key %q", sent.Signal.Name, sent.Key)
	}
	if p.JSON() {
		return p.WriteJSON(command.SignalReceiptToProto(receipt))
	}
	line := string(receipt.Answer)
	if receipt.First != "" {
		line += ", first " + string(receipt.First)
	}
	if sent.Key != "" {
		line += ": job " + receipt.Job.String()
	}
	return p.WriteLines([]string{line})
}
