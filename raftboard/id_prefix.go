package raftboard

import (
	"context"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// FindIDs reads the ids that start or end with the given digits, of objects that the caller may
// see: at most jobs.MaxIDMatches.
func (c *Client) FindIDs(ctx context.Context, prefix jobs.IDPrefix) (jobs.IDMatches, error) {
	op := operation{name: fmt.Sprintf("find the %s %s", prefix.Noun, prefix.Digits), reads: true, stale: c.stale}
	request := &v1.FindIDsRequest{Noun: string(prefix.Noun), Prefix: prefix.Digits, Stale: c.stale}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.FindIDsRequest, v1.FindIDsResponse] { return p.board.FindIDs })
	found := jobs.IDMatches{More: answer.GetMore()}
	for _, text := range answer.GetIds() {
		id, err := logbook.ParseID("found id", text)
		if err != nil {
			return jobs.IDMatches{}, err
		}
		found.IDs = append(found.IDs, id)
	}
	return found, err
}
