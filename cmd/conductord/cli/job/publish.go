package job

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// SignalCommand makes the noun of signals by topic.
func SignalCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("signal", "Publish signals to steps that wait for a topic", publishCommand(p))
}

func publishCommand(p *cli.Program) *cobra.Command {
	var sent jobs.Publication
	data, signal := "", &sent.Signal
	cmd := &cobra.Command{
		Use:   "publish TOPIC",
		Short: "Publish a signal to steps that wait for a topic and a key",
		Long: "Publish a signal to the steps that wait for a topic and a key on a board. The command prints \"taken\" and the number\n" +
			"of steps. If no step waits, it prints \"kept\" with --keep, and fails with the code nobody_waits without --keep. It\n" +
			"prints \"repeated\" if the board remembers the id of the signal.",
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if sent.Topic = args[0]; data != "" {
			signal.Data = json.RawMessage(data)
		}
		return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error { return publish(ctx, p, cluster, sent) })
	}
	cmd.Flags().StringVar(&sent.Board, "board", "", "board of the topic (default the board \"default\")")
	cmd.Flags().StringVar(&sent.Key, "key", "", "key for which the steps wait")
	cmd.Flags().StringVar((*string)(&sent.To), "to", string(jobs.PublishToOne), "one: the step that has waited longest; all: every waiting step")
	cmd.Flags().DurationVar(&sent.Keep, "keep", 0, "if no step waits, keep the signal this long for the next wait; not with --to all")
	cmd.Flags().StringVar(&data, "data", "", "data of the signal, in JSON: the result of the waiting step")
	cmd.Flags().StringVar(&signal.ID, "id", "", "id of the signal (default: random); repeating a signal with the same topic, key and id has no effect")
	cmd.Flags().StringVar(&signal.Reject, "reject", "", "send a rejection: the waiting step fails with this message and the kind signal.rejected")
	cmd.Flags().StringVar(&signal.By, "by", cli.OperatorName(), "name of the sender")
	cmd.MarkFlagsMutuallyExclusive("data", "reject")
	if err := cmd.MarkFlagRequired("key"); err != nil {
		panic("internal error: " + err.Error())
	}
	return cmd
}

// publish publishes a signal, and prints the answer.
func publish(ctx context.Context, p *cli.Program, cluster jobs.Publisher, sent jobs.Publication) error {
	receipt, err := cluster.Publish(ctx, sent)
	if err != nil {
		return cli.Because(err, "publish to topic %s", sent.Topic)
	}
	if p.JSON() {
		return p.WriteJSON(command.PublishReceiptToProto(receipt))
	}
	line := string(receipt.Answer)
	if receipt.First != "" {
		line += ", first " + string(receipt.First)
	}
	if receipt.Waits > 0 {
		line += fmt.Sprintf(" by %d", receipt.Waits)
	}
	return p.WriteLines([]string{line})
}
