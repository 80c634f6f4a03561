package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/types/known/durationpb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/wire"
)

// slowLog delays writes until hold is closed.
type slowLog struct {
	logstore.Engine
	hold <-chan struct{}
}

func (l *slowLog) StoreLogs(logs []*raft.Log) error {
	for _, log := range logs {
		if log.Type == raft.LogCommand && len(log.Data) > bigEntry {
			<-l.hold
		}
	}
	return l.Engine.StoreLogs(logs)
}

// bigEntry is a size that only the entry with the test's posting has.
const bigEntry = 10_000

// TestClaimInDoubtIsNotDenied: the first try of a ClaimNext is piggybacked on a posting
// that a slow disk has not written. Its repeat must not be answered with "no job": the
// session would then hold a claim that its conductor never learns of.
func TestClaimInDoubtIsNotDenied(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	c := newCluster(t, 1, func(o *node.Options) {
		o.System.Log = func(log logstore.Engine) logstore.Engine { return &slowLog{log, hold} }
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
	eventually(t, "the claim waits", func() bool { return node.Idle(c.nodes[0]) == 1 })
	posted := make(chan error, 1)
	go func() {
		_, err := jobs.PostOne(context.Background(), poster, jobs.Posting{Kind: "rare", Name: "rare", Details: longText(bigEntry)})
		posted <- err
	}()
	eventually(t, "the claim is piggybacked", func() bool { return node.Waiting(c.nodes[0]) == 0 })
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
		t.Errorf("the repeat returns %d claims before the result of its first try is known", len(claimed))
		close(hold)
	case <-time.After(time.Second): // a correct answer takes longer on every machine
		close(hold)
		if claimed := <-answered; len(claimed) != 1 {
			t.Errorf("the repeat returns %d claims", len(claimed))
		}
	}
	if err := <-posted; err != nil {
		t.Error(err)
	}
}

// longText is a JSON string of a given length.
func longText(bytes int) []byte {
	text := make([]byte, bytes)
	for i := range text {
		text[i] = 'x'
	}
	text[0], text[bytes-1] = '"', '"'
	return text
}

// TestRepeatedClaimEndsTheEarlierTry checks that of two waiting tries with one nonce, the
// later gets the job. The connection of the earlier try may be silently dead, and the job
// would wait until its caller tries again.
func TestRepeatedClaimEndsTheEarlierTry(t *testing.T) {
	c := newCluster(t, 1).startAll()
	poster := c.client()
	session := opened(t, poster, jobs.MaxTTL)
	request := &conductordv1.ClaimNextRequest{
		Claim: &conductordv1.ClaimNextCommand{Session: session.String(), Nonce: jobs.NewNonce().String(), Kinds: []string{"rare"}},
		Wait:  durationpb.New(patience),
	}
	type answer struct {
		claimed int
		err     error
	}
	ask := func() <-chan answer {
		answers := make(chan answer, 1)
		go func() { // ends with the answer
			got, err := c.calls(0).board.ClaimNext(t.Context(), connect.NewRequest(request))
			if err != nil {
				answers <- answer{err: wire.ErrorFromConnect(err)}
				return
			}
			answers <- answer{claimed: len(got.Msg.Claimed)}
		}()
		return answers
	}
	earlier := ask()
	eventually(t, "the first try waits", func() bool { return node.Idle(c.nodes[0]) == 1 })
	latest := ask()
	if got := <-earlier; !errors.Is(got.err, jobs.ErrUncertain) {
		t.Errorf("the earlier try is answered %+v", got)
	}
	if _, err := jobs.PostOne(t.Context(), poster, jobs.Posting{Kind: "rare", Name: "rare"}); err != nil {
		t.Fatal(err)
	}
	if got := <-latest; got.err != nil || got.claimed != 1 {
		t.Errorf("the latest try is answered %+v", got)
	}
}
