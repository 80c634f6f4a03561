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
	Advice []advice           // what needs a person
	Nodes  []nodeData

	Voters, Answering int
	Survives          int // number of further voters that may fail; negative: number of voters that must answer first
}

// advice is a line at the top: what needs a person, and where to go.
type advice struct{ Text, Link, Address string }

// nodeData is a node as a row.
type nodeData struct {
	Member *v1.Member
	Status *v1.StatusResponse // nil: it does not answer
	Error  string
	// Refused: it lives, but the person may not ask it.
	Refused bool

	Leader bool
	Lag    uint64 // entries that it has to apply
	Clock  string // empty: its clock is right
	Backup string
	// Started is rounded: nodes compute it again for each answer, with small differences.
	Started time.Time
}

// statusTime limits a call for a node's status: a node that is down must not delay the page.
const statusTime = time.Second

// Bounds of what needs a person.
const (
	clockTolerance = 500 * time.Millisecond
	lagTolerance   = 1_000
	backupMissed   = 25 * time.Hour
)

// nodes asks all members for their status, at the same time.
func (v *visit) nodes(ctx context.Context) (data nodesData, err error) {
	if data.Status, err = ask(ctx, v.api.cluster.Status, &v1.StatusRequest{}); err != nil {
		return data, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	members := data.Status.GetMembers()
	data.Nodes = make([]nodeData, len(members))
	answered := make(chan int, len(members)) // never blocks: each question sends once
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
				n.Error, n.Refused = "it refuses you: "+cut(err.Error(), maxLine), true
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

// judge sets what the page shows of a node that answers. It ignores small differences, because
// they change constantly and mean nothing.
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

// judge finds what needs a person about the nodes.
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
