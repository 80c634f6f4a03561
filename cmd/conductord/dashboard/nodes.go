package dashboard

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// nodesData is the data of the nodes on a page.
type nodesData struct {
	Status *v1.StatusResponse // of the node that serves the page
	Advice []advice           // problems that need an operator
	Nodes  []nodeData

	Voters, Answering int
	Survives          int // number of further voters that can fail; negative: number of voters that must answer first
}

// advice is a line at the top: a problem that needs an operator, and a link.
type advice struct{ Text, Link, Address string }

// nodeData is a node as a row.
type nodeData struct {
	Member *v1.Member
	Status *v1.StatusResponse // nil: it does not answer
	Error  string
	// Refused: the node is alive, but the user may not read its status.
	Refused bool

	Leader bool
	Lag    uint64 // entries that it still has to apply
	Clock  string // empty: its clock is in sync
	Backup string
	// Started is rounded, because nodes compute it for each answer, with small differences.
	Started time.Time
}

// statusTime limits a call for a node's status: a node that is down must not delay the page.
const statusTime = time.Second

// Limits beyond which a value needs an operator.
const (
	clockTolerance = 500 * time.Millisecond
	lagTolerance   = 1_000
	backupMissed   = 25 * time.Hour
)

// nodes requests the status of all members in parallel.
func (v *visit) nodes(ctx context.Context) (data nodesData, err error) {
	if data.Status, err = ask(ctx, v.api.cluster.Status, &v1.StatusRequest{}); err != nil {
		return data, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	members := data.Status.GetMembers()
	data.Nodes = make([]nodeData, len(members))
	answered := make(chan int, len(members)) // never blocks: each request sends once
	for i, member := range members {
		go func() { // ends with ctx
			defer func() { answered <- i }()
			n := &data.Nodes[i]
			n.Member, n.Leader = member, member.GetName() == data.Status.GetLeader()
			if member.GetName() == data.Status.GetNode() {
				n.Status = data.Status
				return
			}
			calls := newAPI(&v.dashboard.options, v.request)
			status, err := ask(ctx, calls.cluster.Status, &v1.StatusRequest{Node: member.GetName()})
			switch n.Status = status; {
			case errors.Is(err, jobs.ErrNotAllowed):
				n.Error, n.Refused = "the node refuses your calls: "+cut(err.Error(), maxLine), true
			case ctx.Err() != nil:
				n.Error = fmt.Sprintf("no answer within %v", statusTime)
			case err != nil:
				n.Error = cut(err.Error(), maxLine)
			}
		}()
	}
	for range members {
		<-answered
	}
	var latest uint64
	for i := range data.Nodes {
		latest = max(latest, data.Nodes[i].Status.GetCommitIndex())
	}
	for i := range data.Nodes {
		data.Nodes[i].judge(latest)
	}
	data.judge()
	return data, nil
}

// judge sets the display of a node that answers. It ignores small differences, because they change
// constantly and are harmless.
func (n *nodeData) judge(latest uint64) {
	if n.Status == nil {
		return
	}
	n.Started = n.Status.GetStartedAt().AsTime().Round(time.Minute)
	if lag := latest - min(latest, n.Status.GetAppliedIndex()); lag >= lagTolerance {
		n.Lag = lag / lagTolerance * lagTolerance
	}
	if offset := n.Status.GetClockOffset().AsDuration(); offset.Abs() > clockTolerance {
		n.Clock = fmt.Sprintf("%+.1f s", offset.Seconds())
	}
	if n.Status.GetBackupAge() != nil {
		n.Backup = durationText(n.Status.GetBackupAge().AsDuration().Truncate(time.Minute))
	}
}

func (d *nodesData) advise(text, link, address string) {
	d.Advice = append(d.Advice, advice{text, link, address})
}

// judge finds the problems of the nodes that need an operator.
func (d *nodesData) judge() {
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.Member.GetVoter() {
			d.Voters++
			if n.Refused || n.Status.GetReady() {
				d.Answering++
			}
		}
		switch name := n.Member.GetName(); {
		case n.Refused:
		case n.Status == nil:
			d.advise(fmt.Sprintf("Node %s does not answer", name), "Show the nodes", "#nodes")
		case n.Status.GetDiskShort():
			d.advise(fmt.Sprintf("Node %s is short of disk space: the cluster rejects new jobs", name), "Show the nodes", "#nodes")
		case n.Clock != "":
			d.advise(fmt.Sprintf("The clock of node %s is off by %s", name, n.Clock), "Show the nodes", "#nodes")
		case n.Status.GetMembersDiffer() != "":
			d.advise(fmt.Sprintf("The configuration of node %s lists different members: %s", name, n.Status.GetMembersDiffer()), "Show the nodes", "#nodes")
		case n.Status.GetBackupAge().AsDuration() > backupMissed:
			d.advise(fmt.Sprintf("Node %s has made no backup for %s", name, n.Backup), "Show the nodes", "#nodes")
		}
	}
	d.Survives = d.Answering - (d.Voters/2 + 1)
	if d.Status.GetLeader() == "" {
		d.Advice = append([]advice{{"The cluster has no leader: a majority of its nodes must run", "Show the nodes", "#nodes"}}, d.Advice...)
	} else if d.Answering < d.Voters && d.Survives == 0 {
		d.advise("No further node can be lost: only a majority answers", "Show the nodes", "#nodes")
	}
}
