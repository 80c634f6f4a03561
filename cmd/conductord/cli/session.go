package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/jobs"
)

func (p *Program) sessionCommand() *cobra.Command {
	return Noun("session", "Look at the sessions", &cobra.Command{
		Use:   "list",
		Short: "List the open sessions, and how many jobs each holds",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				sessions, err := cluster.Sessions(ctx)
				if err != nil {
					return because(err, "list sessions")
				}
				return p.writeSessions(sessions)
			})
		},
	})
}

// shownSession is a session as session list gives it as JSON: with its TTL as
// people and the API write it, where Go would count nanoseconds.
type shownSession struct {
	jobs.Session
	TTL string `json:"ttl"`
}

func (p *Program) writeSessions(sessions []jobs.Session) error {
	if p.JSON() {
		shown := make([]shownSession, 0, len(sessions))
		for _, session := range sessions {
			shown = append(shown, shownSession{session, session.TTL.String()})
		}
		return p.WriteJSON(shown)
	}
	rows := make([][]string, 0, len(sessions))
	for _, session := range sessions {
		rows = append(rows, []string{
			session.ID.String(), session.Name, OrDash(session.Host), strconv.Itoa(session.PID),
			session.TTL.String(), strconv.Itoa(session.Claims), timeText(session.OpenedAt),
		})
	}
	return p.writeTable([]string{"id", "name", "host", "pid", "ttl", "claims", "opened"}, rows)
}
