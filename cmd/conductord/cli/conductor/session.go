package conductor

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

func SessionCommand(p *cli.Program) *cobra.Command {
	sessions := cli.List[jobs.Session]{
		What:  "sessions",
		Whole: true,
		Read: func(ctx context.Context, cluster cli.Cluster, _ string, _ int) ([]jobs.Session, string, error) {
			open, err := cluster.Sessions(ctx)
			return open, "", err
		},
		Answer: func(sessions []jobs.Session, _ string) proto.Message {
			return &v1.ListSessionsResponse{Sessions: cli.Messages(sessions, command.SessionToProto)}
		},
		Header: []string{"id", "name", "host", "pid", "ttl", "claims", "opened"},
		Row: func(s *jobs.Session) []string {
			return []string{
				s.ID.String(), s.Name, cli.OrDash(s.Host), strconv.Itoa(s.PID), s.TTL.String(), strconv.Itoa(s.Claims), cli.AgoText(s.OpenedAt),
			}
		},
	}
	return cli.Noun("session", "List sessions", sessions.Command(p, &cobra.Command{
		Use:   "list",
		Short: "List open sessions, and the number of claims of each",
	}, nil))
}
