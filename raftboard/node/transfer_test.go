package node_test

import (
	"errors"
	"testing"

	"github.com/conductord/conductord/jobs"
)

// TestTransferLeader: the leadership moves to the named node while jobs are posted, and no job
// is lost. If the transfer is impossible, nothing changes.
func TestTransferLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	client := c.client()
	var acknowledged []jobs.JobID
	for range 4 {
		from := c.leader()
		to := (from + 1) % 3
		acknowledged = append(acknowledged, posted(t, client))
		leader, err := c.client((from+2)%3).TransferLeader(t.Context(), c.options[to].Name) // through the third node
		if err != nil || leader != c.options[to].Name {
			t.Fatalf("%s leads: %v", leader, err)
		}
		acknowledged = append(acknowledged, posted(t, client))
	}
	leader := c.options[c.leader()].Name
	if _, err := client.TransferLeader(t.Context(), "n4"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("to a node that does not exist: %v", err)
	}
	if now, err := client.TransferLeader(t.Context(), leader); err != nil || now != leader {
		t.Errorf("to the leader itself: %s, %v", now, err)
	}
	transferred := false
	for tries := 0; !transferred && tries < 5; tries++ { // an election meanwhile can change the leader
		before := c.options[c.leader()].Name
		now, err := client.TransferLeader(t.Context(), "")
		if err != nil {
			t.Fatalf("to any other: %v", err)
		}
		transferred = now != before
	}
	if !transferred {
		t.Error("to any other: the same node leads")
	}
	same(t, c)
	for _, id := range acknowledged {
		if _, err := client.Job(t.Context(), id); err != nil {
			t.Errorf("job %s: %v", id, err)
		}
	}
	alone := newCluster(t, 1).startAll().client()
	if _, err := alone.TransferLeader(t.Context(), ""); !errors.Is(err, jobs.ErrConflict) {
		t.Errorf("of a cluster of one: %v", err)
	}
}

// TestTransferToADeadNode checks that the leader continues if the other node cannot take over.
func TestTransferToADeadNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	leader := c.leader()
	dead := (leader + 1) % 3
	c.stop(dead)
	client := c.client(leader)
	posted(t, client)
	if _, err := client.TransferLeader(t.Context(), c.options[dead].Name); !errors.Is(err, jobs.ErrConflict) {
		t.Errorf("to a dead node: %v", err)
	}
	posted(t, client)
}
