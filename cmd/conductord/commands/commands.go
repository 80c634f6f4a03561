// Package commands collects the command line's nouns: the commands in package cli's children, the
// daemon's commands, and the commands that start their own cluster.
package commands

import (
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/access"
	"github.com/conductord/conductord/cmd/conductord/cli/bench"
	"github.com/conductord/conductord/cmd/conductord/cli/board"
	"github.com/conductord/conductord/cmd/conductord/cli/cluster"
	"github.com/conductord/conductord/cmd/conductord/cli/conductor"
	"github.com/conductord/conductord/cmd/conductord/cli/flow"
	"github.com/conductord/conductord/cmd/conductord/cli/job"
	"github.com/conductord/conductord/cmd/conductord/cli/schedule"
	"github.com/conductord/conductord/cmd/conductord/daemon"
	"github.com/conductord/conductord/cmd/conductord/demo"
	"github.com/conductord/conductord/cmd/conductord/steptest"
)

// Of gives a program its commands.
func Of(p *cli.Program) *cli.Program {
	p.Commands = append([]*cobra.Command{
		board.Command(p), job.Command(p), job.TrashCommand(p), job.BulkCommand(p), job.ClaimCommand(p), job.ApprovalCommand(p), job.SignalCommand(p), job.EventsCommand(p),
		flow.Command(p), flow.BookCommand(p), schedule.Command(p), conductor.SessionCommand(p), conductor.DrainCommand(p),
		cluster.TopologyCommand(p), bench.Command(p),
		access.Command(p), access.TokenCommand(p), access.QuotaCommand(p), access.AuditCommand(p), access.CertCommand(p), access.ValueKeyCommand(p),
		demo.Command(p), steptest.Command(p, job.StepCommands(p)...),
	}, daemon.Commands(p)...)
	return p
}
