package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/jobs"
)

func (p *Program) sessionCommand() *cobra.Command {
	return noun("session", "Look at the sessions", &cobra.Command{
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

func (p *Program) writeSessions(sessions []jobs.Session) error {
	if p.json() {
		return p.writeJSON(append([]jobs.Session{}, sessions...))
	}
	rows := make([][]string, 0, len(sessions))
	for _, session := range sessions {
		rows = append(rows, []string{
			session.ID.String(), session.Name, orDash(session.Host), strconv.Itoa(session.PID),
			session.TTL.String(), strconv.Itoa(session.Claims), timeText(session.OpenedAt),
		})
	}
	return p.writeTable([]string{"id", "name", "host", "pid", "ttl", "claims", "opened"}, rows)
}
