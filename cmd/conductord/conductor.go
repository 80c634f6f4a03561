package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/jobs"
)

func (p *Program) conductorCommand() *cobra.Command {
	return noun("conductor", "Look at the conductors", &cobra.Command{
		Use:   "list",
		Short: "List the live conductors, and what each can do",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				conductors, err := cluster.Entities(ctx, jobs.EntityConductor)
				if err != nil {
					return because(err, "list conductors")
				}
				return p.writeConductors(conductors)
			})
		},
	})
}

func (p *Program) writeConductors(conductors []jobs.Entity) error {
	if p.json() {
		return p.writeJSON(append([]jobs.Entity{}, conductors...))
	}
	rows := make([][]string, 0, len(conductors))
	for _, conductor := range conductors {
		rows = append(rows, []string{
			conductor.Name, orDash(conductor.Host), strconv.Itoa(conductor.PID), orDash(strings.Join(conductor.Boards, ",")),
			orDash(strings.Join(conductor.JobKinds, ",")), orDash(strings.Join(conductor.Labels, ",")), strconv.Itoa(conductor.MaxJobs), timeText(conductor.RegisteredAt),
		})
	}
	return p.writeTable([]string{"name", "host", "pid", "boards", "kinds", "labels", "max jobs", "since"}, rows)
}
