package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
)

// slowLog waits before it writes, while hold is not closed.
type slowLog struct {
	node.LogEngine
	hold <-chan struct{}
}

func (l *slowLog) StoreLogs(logs []*raft.Log) error {
	for _, log := range logs {
		if log.Type == raft.LogCommand && len(log.Data) > bigEntry {
			<-l.hold
		}
	}
	return l.LogEngine.StoreLogs(logs)
}

// bigEntry tells the posting of the test from other entries.
const bigEntry = 10_000

// TestClaimInDoubtIsNotDenied holds that a repeated ClaimNext is not told that
// there is no job while its first try rides with a posting that a slow disk has
// not written: the claim would be nobody's, for as long as its session lives.
func TestClaimInDoubtIsNotDenied(t *testing.T) {
	hold := make(chan struct{})
	c := newCluster(t, 1, func(o *node.Options) {
		o.System.Log = func(log node.LogEngine) node.LogEngine { return &slowLog{log, hold} }
	}).startAll()
	poster, claimant := c.client(), c.client()
	session := jobs.NewSessionID()
	if _, err := claimant.OpenSession(t.Context(), jobs.Opening{ID: session, Name: "claimant", TTL: jobs.MaxTTL}); err != nil {
		t.Fatal(err)
	}
	request := jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Kinds: []string{"rare"}, Wait: time.Hour}
	first, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() { defer close(gone); _, _ = claimant.ClaimNext(first, request) }()
	eventually(t, "the claim waits", func() bool { return node.Resting(c.nodes[0]) == 1 })
	posted := make(chan error, 1)
	go func() {
		_, err := jobs.PostOne(context.Background(), poster, jobs.Posting{Kind: "rare", Name: "rare", Details: longText(bigEntry)})
		posted <- err
	}()
	eventually(t, "the claim rides", func() bool { return node.Parked(c.nodes[0]) == 0 })
	leave()
	<-gone
	request.Wait = 0
	answered := make(chan []jobs.Claimed, 1)
	go func() {
		for {
			claimed, err := claimant.ClaimNext(t.Context(), request)
			if err == nil || t.Context().Err() != nil {
				answered <- claimed
				return
			}
		}
	}()
	select {
	case claimed := <-answered:
		t.Errorf("the repeat is told of %d claims before its first try is settled", len(claimed))
		close(hold)
	case <-time.After(time.Second): // a right answer takes longer, however fast the machine is
		close(hold)
		if claimed := <-answered; len(claimed) != 1 {
			t.Errorf("the repeat is told of %d claims", len(claimed))
		}
	}
	if err := <-posted; err != nil {
		t.Error(err)
	}
}

// longText is a JSON string of so many bytes.
func longText(bytes int) []byte {
	text := make([]byte, bytes)
	for i := range text {
		text[i] = 'x'
	}
	text[0], text[bytes-1] = '"', '"'
	return text
}

// A claim is asked for twice with one nonce, as after a connection that died
// without a word: the try that is not given the job is told of it all the same.
func TestClaimAskedTwiceIsToldTwice(t *testing.T) {
	c := newCluster(t, 1).startAll()
	claimant, again, poster := c.client(), c.client(), c.client()
	session := jobs.NewSessionID()
	if _, err := claimant.OpenSession(t.Context(), jobs.Opening{ID: session, Name: "claimant", TTL: jobs.MaxTTL}); err != nil {
		t.Fatal(err)
	}
	request := jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Kinds: []string{"rare"}, Wait: 3 * time.Second}
	answers := make(chan int, 2)
	for _, client := range []*raftboard.Client{claimant, again} {
		go func() {
			claimed, err := client.ClaimNext(t.Context(), request)
			if err != nil {
				t.Error(err)
			}
			answers <- len(claimed)
		}()
	}
	eventually(t, "both tries wait", func() bool { return node.Resting(c.nodes[0]) == 2 })
	if _, err := jobs.PostOne(t.Context(), poster, jobs.Posting{Kind: "rare", Name: "rare"}); err != nil {
		t.Fatal(err)
	}
	if first, second := <-answers, <-answers; first != 1 || second != 1 {
		t.Errorf("the tries are told of %d and %d claims, and the nonce has one", first, second)
	}
}
