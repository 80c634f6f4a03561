// Package api answers the calls of clients about boards, jobs, conductors and workers.
//
// The table of calls is in calls.go, with the ways to answer a call: at the leader, at the called
// node, or from this node's own state. Each noun has a service in its own file. A Submitter checks
// commands and replicates them. A Router forwards calls to other nodes, and Elsewhere forwards
// postings to other clusters.
//
// The package knows neither raft nor the members, so it also runs over package memorylog. Package
// cluster adds the calls about the cluster.
package api

import (
	"context"
	"time"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/wire"
)

// API answers calls. Its methods may be called concurrently.
type API struct {
	Router    *Router
	shares    *admission.SessionShares
	posts     *postService
	claims    *claimService
	board     *boardService
	watches   *watchService
	sessions  *sessionService
	books     *logbookService
	schedules *scheduleService
	access    *accessService
	logs      *logService
	workers   *workerService
}

// New gives each service the parts that it needs.
func New(p *Parts) *API {
	p.Elsewhere.allow, p.Elsewhere.hide = p.Guard.Allow, p.Guard.Hide
	submit := &Submitter{p}
	r := &Router{p, submit}
	checks := &flowChecks{check: p.CheckFlow, spent: threadTime, paid: make(map[string]time.Time)}
	return &API{
		Router: r, shares: p.Shares,
		posts:     &postService{limits: p.Limits, checks: checks, machine: p.Machine, proposer: p.Proposer, submit: submit},
		claims:    &claimService{limits: p.Limits, machine: p.Machine, leader: p.Leader, polls: p.Polls, proposer: p.Proposer, submit: submit},
		workers:   &workerService{limits: p.Limits, machine: p.Machine, leader: p.Leader, reads: p.Reads, offers: p.Offers, router: r, clock: p.Clock},
		board:     &boardService{elsewhere: p.Elsewhere, machine: p.Machine, clock: p.Clock, leader: p.Leader, reads: p.Reads, polls: p.Polls, submit: submit, offers: p.Offers},
		watches:   &watchService{machine: p.Machine, polls: p.Polls, leader: p.Leader, ready: p.Ready, guard: p.Guard},
		sessions:  &sessionService{machine: p.Machine, leader: p.Leader, reads: p.Reads, submit: submit},
		books:     &logbookService{machine: p.Machine, submit: submit},
		schedules: &scheduleService{limits: p.Limits, checks: checks, machine: p.Machine, clock: p.Clock, submit: submit, backfills: make(chan struct{}, 1)},
		access:    &accessService{machine: p.Machine, router: r, node: p.Node},
		logs:      &logService{node: p.Node, machine: p.Machine, router: r, logs: p.Logs},
	}
}

// OpenSession opens a session for a part of the node itself. No client's share limits it.
func (a *API) OpenSession(ctx context.Context, opening jobs.Opening) (jobs.Session, error) {
	row := Call{Name: "SessionService/Open", Permission: command.Work}
	answer, err := Leading(a.Router, a.sessions.open)(row)(ctx, connect.NewRequest(&conductordv1.OpenRequest{Opening: command.OpeningToProto(&opening)}))
	if err != nil {
		return jobs.Session{}, wire.ErrorFromConnect(err)
	}
	return command.SessionFromProto(answer.Msg.GetSession())
}
