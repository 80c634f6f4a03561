package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

func (p *Program) sessionCommand() *cobra.Command {
	sessions := list[jobs.Session]{
		what:  "sessions",
		whole: true,
		read: func(ctx context.Context, cluster Cluster, _ string, _ int) ([]jobs.Session, string, error) {
			open, err := cluster.Sessions(ctx)
			return open, "", err
		},
		answer: func(sessions []jobs.Session, _ string) proto.Message {
			return &v1.ListSessionsResponse{Sessions: messages(sessions, command.SessionToProto)}
		},
		header: []string{"id", "name", "host", "pid", "ttl", "claims", "opened"},
		row: func(s *jobs.Session) []string {
			return []string{
				s.ID.String(), s.Name, OrDash(s.Host), strconv.Itoa(s.PID), s.TTL.String(), strconv.Itoa(s.Claims), agoText(s.OpenedAt),
			}
		},
	}
	return Noun("session", "List sessions", sessions.command(p, &cobra.Command{
		Use:   "list",
		Short: "List open sessions, and the number of claims of each",
	}, nil))
}
