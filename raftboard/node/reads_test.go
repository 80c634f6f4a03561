package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/wire"
)

// A leader answers no read and no keep-alive from the moment of its isolation. Afterwards it is a
// follower.
func TestIsolatedLeaderAnswersNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	between := newNetwork(c)
	c.startAll()
	old := c.leader()
	client := c.client(c.others(old)...)
	job, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "plain", Kind: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	session, err := client.OpenSession(t.Context(), jobs.Opening{ID: jobs.NewSessionID(), Name: "worker", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	there := c.calls(old)
	reading := func() error {
		_, err := there.board.GetJob(t.Context(), connect.NewRequest(&conductordv1.GetJobRequest{Id: job.ID.String()}))
		return wire.ErrorFromConnect(err)
	}
	keeping := func() error {
		_, err := there.sessions.KeepAlive(t.Context(), connect.NewRequest(&conductordv1.KeepAliveRequest{Session: session.ID.String()}))
		return wire.ErrorFromConnect(err)
	}
	for what, call := range map[string]func() error{"a read": reading, "a keep-alive": keeping} {
		eventually(t, what+" of a healthy leader", func() bool { return call() == nil })
	}
	// A busy machine can have had an election since then.
	eventually(t, "the first leader leads", func() bool {
		if leader := c.leader(); leader != old {
			_ = node.Transfer(c.nodes[leader])
		}
		return c.nodes[old].Leading()
	})
	between.isolate(c.options[old].Name)
	for range 10 { // at first it still believes that it leads
		for what, call := range map[string]func() error{"a read": reading, "a keep-alive": keeping} {
			if err := call(); !errors.Is(err, jobs.ErrUnavailable) {
				t.Fatalf("%s of a leader that is cut off: %v", what, err)
			}
		}
		if !c.nodes[old].Leading() {
			break
		}
	}
	c.leaderAmong(t, c.others(old))
	if _, err := client.Claim(t.Context(), session.ID, job.ID, jobs.NewNonce()); err != nil {
		t.Fatal(err)
	}
	if err := reading(); !errors.Is(err, jobs.ErrUnavailable) {
		t.Fatalf("a read while another node leads: %v", err)
	}
	between.heal()
	eventually(t, "the old leader is a follower", func() bool { return c.nodes[old].Ready() == nil && reading() == nil })
	got, err := there.board.GetJob(t.Context(), connect.NewRequest(&conductordv1.GetJobRequest{Id: job.ID.String()}))
	if err != nil || got.Msg.Job.State != string(jobs.StateClaimed) {
		t.Errorf("after the healing: %v, %v", got, err)
	}
}

// A call is forwarded once, and refused quickly if there is no leader.
func TestForwardingEnds(t *testing.T) {
	t.Parallel()
	// With these timings, a follower that does not hear its leader is no candidate yet.
	c := newCluster(t, 3, func(o *node.Options) { o.Raft.Heartbeat = time.Second }).startAll()
	follower := c.others(c.leader())[0]
	call := func(hops string) error {
		request := connect.NewRequest(&conductordv1.GetJobRequest{Id: jobs.NewJobID().String()})
		if hops != "" {
			request.Header().Set(wire.HeaderHops, hops)
		}
		_, err := c.calls(follower).board.GetJob(t.Context(), request)
		return wire.ErrorFromConnect(err)
	}
	for _, row := range []struct {
		hops string
		want error
	}{
		{"", jobs.ErrNotFound}, // the leader's own answer
		{"0", jobs.ErrNotFound},
		{"1", jobs.ErrUnavailable},
		{"200", jobs.ErrUnavailable},
		{"-5", jobs.ErrInvalid},
		{"many", jobs.ErrInvalid},
		{"99999999999999999999", jobs.ErrInvalid},
	} {
		if err := call(row.hops); !errors.Is(err, row.want) {
			t.Errorf("hops %q: %v, want %v", row.hops, err, row.want)
		}
	}
	for _, i := range c.others(follower) {
		c.stop(i)
	}
	eventually(t, "the leader is missed", func() bool {
		began := time.Now()
		err := call("")
		took := time.Since(began)
		if took > 15*time.Second {
			t.Fatalf("it took %v to learn that there is no leader", took)
		}
		return errors.Is(err, jobs.ErrUnavailable) && !errors.Is(err, jobs.ErrUncertain)
	})
}

// A read waits for a long apply, but a keep-alive does not.
func TestKeepAliveDuringALongApply(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	client := c.client()
	id := opened(t, client, time.Minute)
	held := errors.New("an entry takes long")
	node.HoldApplied(c.nodes[0], func(context.Context) error { return fmt.Errorf("%w: %w", jobs.ErrInvalid, held) })
	if err := client.KeepAlive(t.Context(), id); err != nil {
		t.Errorf("the keep-alive waits for the apply: %v", err)
	}
	if _, err := client.Sessions(t.Context()); err == nil {
		t.Error("the read does not wait for the apply")
	}
}
