// Package cluster answers the calls about the cluster itself: its members and leader, the
// comparison of their states, its version, its activity, and its backups.
package cluster

import (
	"context"
	"net/url"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/api"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/node/raftlog"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
	"github.com/conductord/conductord/raftboard/node/sums"
	"github.com/conductord/conductord/raftboard/wire"
)

// Parts are the parts of a node that the calls about the cluster use.
type Parts struct {
	Node, Cluster, Version string // names, and the version of the program
	DataDir                string
	LogStore               logstore.Kind
	Started                time.Time // of boottime
	Limits                 logbook.Limits
	Backups                Backups
	Router                 *api.Router
	Machine                *fsm.Machine
	Group                  *raftlog.Group
	Log                    *logstore.Log
	Checks                 *sums.Checks
	Activity               *Activity
	Identity               *membership.IdentityStore
	Members                *membership.Members
	Peers                  *membership.Askers                   // for the service that changes the members
	Quiet                  func(transport.Member) time.Duration // time since a member was last heard
	Clock                  *clock.Clock
	Leader                 *lead.State
	Ready                  *lead.Readiness
	Disk                   *admission.Disk
	Logger                 hclog.Logger
}

// Cluster answers the calls about the cluster.
type Cluster struct {
	router   *api.Router
	nodes    *nodeService
	Members  *memberService
	Verify   *verifyService
	upgrades *upgradeService
	backups  *backupService
	activity *Activity
	Schedule *backupSchedule
}

// New gives each service the parts that it needs.
func New(p *Parts) *Cluster {
	backups := &backupService{
		cluster: p.Cluster, node: p.Node, version: p.Version, machine: p.Machine, ready: p.Ready, router: p.Router, running: make(chan struct{}, 1),
	}
	schedule := &backupSchedule{
		Backups: p.Backups, prefix: url.PathEscape(p.Cluster) + "-" + url.PathEscape(p.Node) + "-", now: p.Clock.AnswerTime, ready: p.Ready.Check,
		write: backups.write, logger: p.Logger, started: p.Started,
	}
	nodes := &nodeService{Parts: p, backups: schedule}
	return &Cluster{
		router: p.Router, nodes: nodes, backups: backups, Schedule: schedule, activity: p.Activity,
		upgrades: &upgradeService{machine: p.Machine, members: p.Members, router: p.Router},
		Verify: &verifyService{
			log: p.Group, checks: p.Checks, members: p.Members, router: p.Router, serves: p.Leader.Serves, running: make(chan struct{}, 1), logger: p.Logger,
		},
		Members: &memberService{
			limits: p.Limits, group: p.Group, identity: p.Identity, members: p.Members, peers: p.Peers, applied: p.Machine.AppliedIndex,
			handOver: nodes.handOver, changing: make(chan struct{}, 1), serves: p.Leader.Serves, quiet: p.Quiet, logger: p.Logger,
		},
	}
}

// Calls is the table of the calls about the cluster.
func (c *Cluster) Calls() []api.Call {
	r := c.router
	return []api.Call{
		api.Plain("ClusterService/Status", api.Here(r, c.nodes.status)),
		api.Plain("ClusterService/Activity", api.Here(r, c.activity.answer)),
		api.Plain("ClusterService/TransferLeader", api.Recorded(r, c.nodes.transferLeader)),
		api.Plain("ClusterService/Upgrade", api.Leading(r, c.upgrades.upgrade)),
		api.Plain("ClusterService/Verify", api.Recorded(r, c.Verify.verify)),
		api.Plain("ClusterService/TableSums", api.Here(r, c.Verify.tableSums)),
		api.Plain("ClusterService/AddMember", api.Recorded(r, c.Members.add)),
		api.Plain("ClusterService/RemoveMember", api.Recorded(r, c.Members.remove)),
		api.Plain("ClusterService/SetVote", api.Recorded(r, c.Members.setVote)),
		api.Plain("ClusterService/MoveMember", api.Recorded(r, c.Members.move)),
		api.Streaming(backupCall, c.backups.Backup, c.backups.file),
	}
}

// AskForVote asks the leader, through this node, to give a node a vote.
func (c *Cluster) AskForVote(ctx context.Context, request *conductordv1.SetVoteRequest) error {
	_, err := api.Leading(c.router, c.Members.setVote)(api.Call{Name: "ClusterService/SetVote", Permission: command.Administer})(ctx, connect.NewRequest(request))
	if err != nil {
		return wire.ErrorFromConnect(err)
	}
	return nil
}
