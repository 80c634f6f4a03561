package job

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func signalCommand(p *cli.Program) *cobra.Command {
	var signal logbook.Signal
	data := ""
	cmd := &cobra.Command{
		Use:   "signal JOB NAME",
		Short: "Send a signal to a job",
		Long: "Send a signal to a job. A step of its flow that waits for a signal of this name takes the signal, and the job\n" +
			"continues. Otherwise the job keeps the signal until a step waits for it. The answer is taken or kept, or for an id\n" +
			"that the job has received before: repeated. The command fails with exit code 4 if the job is finished.",
		Args: cobra.ExactArgs(2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobs.ParseJobID(args[0])
		if err != nil {
			return err
		}
		if signal.Name = args[1]; data != "" {
			signal.Data = json.RawMessage(data)
		}
		return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error { return sendSignal(ctx, p, cluster, id, signal) })
	}
	cmd.Flags().StringVar(&data, "data", "", "data of the signal, in JSON: the result of the waiting step")
	cmd.Flags().StringVar(&signal.ID, "id", "", "id of the signal, a UUID (default: random); repeating a signal with the same id has no effect")
	cmd.Flags().StringVar(&signal.Reject, "reject", "", "send a rejection: the waiting step fails with this message and the kind signal.rejected")
	cmd.Flags().StringVar(&signal.By, "by", cli.OperatorName(), "name of the sender")
	cmd.MarkFlagsMutuallyExclusive("data", "reject")
	return cmd
}

// sendSignal sends a signal, and prints the answer.
func sendSignal(ctx context.Context, p *cli.Program, cluster jobs.Signaller, id jobs.JobID, signal logbook.Signal) error {
	receipt, err := cluster.Signal(ctx, id, signal)
	if err != nil {
		return cli.Because(err, "signal job %s", id)
	}
	if p.JSON() {
		return p.WriteJSON(command.SignalReceiptToProto(receipt))
	}
	line := string(receipt.Answer)
	if receipt.First != "" {
		line += ", first " + string(receipt.First)
	}
	return p.WriteLines([]string{line})
}
