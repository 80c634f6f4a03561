package api

import (
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/node/offers"
	"github.com/conductord/conductord/raftboard/node/polls"
	"github.com/conductord/conductord/raftboard/node/proposer"
)

// Parts are the parts of a node that its API uses.
type Parts struct {
	Node      string // name of this node
	Limits    logbook.Limits
	CheckFlow func(flow *logbook.FlowDetail, store logbook.Values) error // finds faults of a posted flow; nil: every flow passes
	Machine   *fsm.Machine
	Clock     *clock.Clock
	Leader    *lead.State
	Reads     *lead.Reads
	Ready     *lead.Readiness
	Proposer  *proposer.Proposer
	Memory    *admission.Memory
	Disk      *admission.Disk
	Shares    *admission.SessionShares
	Polls     *polls.Polls
	Offers    *offers.Matcher
	Logs      *steplog.Buffer // of steps in the node's process
	Guard     *guard.Guard
	Elsewhere *Elsewhere
	Peers     Peers
}
