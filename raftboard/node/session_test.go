package node_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
)

func opened(t *testing.T, client *raftboard.Client, ttl time.Duration) jobs.SessionID {
	t.Helper()
	session, err := client.OpenSession(t.Context(), jobs.Opening{ID: jobs.NewSessionID(), Name: "worker", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return session.ID
}

func open(t *testing.T, client *raftboard.Client, id jobs.SessionID) bool {
	t.Helper()
	sessions, err := client.Sessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(sessions, func(s jobs.Session) bool { return s.ID == id })
}

func TestKeepAlivesWriteNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	client := c.client()
	id := opened(t, client, time.Minute)
	leader := node.Raft(c.nodes[c.leader()])
	before, term := leader.LastIndex(), leader.CurrentTerm()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if err := client.KeepAlive(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	// Only an election, which can happen on a slow machine, makes entries: two each.
	if wrote, elections := leader.LastIndex()-before, leader.CurrentTerm()-term; wrote > 2*elections {
		t.Errorf("400 keep-alives made %d entries", wrote)
	}
}

// Leaders change: a session with keep-alives lives, and a session without them has a full TTL from
// the last change.
func TestSessionsOutliveLeaders(t *testing.T) {
	t.Parallel()
	const ttl, pause = 6 * time.Second, 300 * time.Millisecond
	c := newCluster(t, 3, func(o *node.Options) { o.Sessions.Grace = pause }).startAll()
	client := c.client()
	kept := opened(t, client, ttl)
	ctx, stop := context.WithCancel(t.Context())
	var keeping sync.WaitGroup
	keeping.Go(func() {
		tick := time.NewTicker(ttl / 6)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := client.KeepAlive(ctx, kept); err != nil && ctx.Err() == nil {
					t.Errorf("cannot keep alive: %v", err)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	var silent jobs.SessionID
	var since time.Time
	for change := range 5 {
		leader := c.leader()
		if change == 4 {
			since = time.Now()
			silent = opened(t, client, ttl)
		}
		if change%2 == 0 {
			if err := node.Transfer(c.nodes[leader]); err != nil {
				t.Logf("transfer: %v", err)
			}
		} else {
			c.stop(leader)
			c.leader()
			c.start(leader)
		}
		c.ready()
	}
	lapse(t, client)(silent)
	if lived := time.Since(since); lived < ttl+pause {
		t.Errorf("a session expired after %v, before its TTL and grace", lived)
	}
	if !open(t, client, kept) {
		t.Error("a session that was kept alive has expired")
	}
	stop()
	keeping.Wait()
}

// The state machine refuses the decisions of a deposed leader.
func TestOldEpochExpiresNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	client := c.client()
	id := opened(t, client, time.Minute)
	expire := func(epoch uint64) error {
		results, err := node.Propose(t.Context(), c.nodes[0], &conductordv1.Command{
			Kind: &conductordv1.Command_ExpireSession{ExpireSession: &conductordv1.ExpireSessionCommand{Session: id.String(), TimerEpoch: epoch}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return command.ErrorFromProto(results[0].GetError())
	}
	epoch := node.TimerEpoch(c.nodes[0])
	if err := expire(epoch - 1); err == nil || !open(t, client, id) {
		t.Errorf("an expiry under an old epoch: %v", err)
	}
	if err := client.KeepAlive(t.Context(), id); err != nil {
		t.Error(err)
	}
	if err := expire(epoch); err != nil || open(t, client, id) {
		t.Errorf("an expiry under the present epoch: %v", err)
	}
	if err := client.KeepAlive(t.Context(), id); !errors.Is(err, jobs.ErrSessionExpired) {
		t.Errorf("a keep-alive of an expired session: %v", err)
	}
}

// Each of many waiting claims gets one job, and no job is claimed twice.
func TestParkedClaimsGetOneEach(t *testing.T) {
	t.Parallel()
	const claims = 100
	c := newCluster(t, 3).startAll()
	client := c.client()
	session := opened(t, client, time.Minute)
	got := make(chan jobs.JobID, claims)
	var all sync.WaitGroup
	for range claims {
		all.Go(func() {
			claimed, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Wait: patience})
			if err != nil || len(claimed) != 1 {
				t.Errorf("claimed %d, %v", len(claimed), err)
				return
			}
			got <- claimed[0].Job.ID
		})
	}
	parked := func() (n int) {
		for _, running := range c.nodes {
			n += node.Waiting(running)
		}
		return n
	}
	leader := c.nodes[c.leader()]
	eventually(t, "all claims wait", func() bool { return parked() == claims })
	before := node.Raft(leader).LastIndex()
	postings := make([]jobs.Posting, claims/2)
	for i := range postings {
		postings[i].Name, postings[i].Kind = "plain", "plain"
	}
	for range 2 { // in two commands
		if _, err := client.Post(t.Context(), postings...); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	seen := map[jobs.JobID]bool{}
	for range claims {
		id := <-got
		if seen[id] {
			t.Errorf("job %s was given twice", id)
		}
		seen[id] = true
	}
	if wrote := node.Raft(leader).LastIndex() - before; wrote > 3*claims {
		t.Errorf("%d claims took %d entries: they came as a herd", claims, wrote)
	}
	eventually(t, "no claim waits any more", func() bool { return parked() == 0 })
	// Waiting claims of an ended session get an error.
	ended := make(chan error)
	go func() {
		_, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Wait: patience})
		ended <- err
	}()
	eventually(t, "the claim waits", func() bool { return parked() == 1 })
	if err := client.CloseSession(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, jobs.ErrSessionExpired) {
		t.Errorf("a parked claim of a session that was closed: %v", err)
	}
}
