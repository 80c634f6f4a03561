package node_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/wire"
)

// claimedFor opens a session without keep-alives, and claims a job with its own TTL.
func claimedFor(t *testing.T, client *raftboard.Client, ttl, expiry time.Duration) jobs.Claimed {
	t.Helper()
	session := jobs.NewSessionID()
	if _, err := client.OpenSession(t.Context(), jobs.Opening{ID: session, Name: "w1", TTL: ttl}); err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "slow", Kind: "k"}); err != nil {
		t.Fatal(err)
	}
	claimed, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Expiry: expiry, Wait: 20 * time.Second})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %d jobs: %v", len(claimed), err)
	}
	return claimed[0]
}

// The next leader gives the claim its full TTL, and then ends it.
func TestClaimsOwnTimeOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	const expiry = 10 * time.Second // long enough to stop the first leader
	c := newCluster(t, 3).startAll()
	leader := c.leader()
	client := c.client((leader+1)%3, (leader+2)%3)
	claimed := claimedFor(t, client, jobs.MaxTTL, expiry)
	stopped := time.Now() // the next leader starts after this
	c.stop(leader)
	for event, err := range client.Watch(t.Context(), jobs.Watch{After: &jobs.Position{}, Job: claimed.Job.ID, Kinds: []jobs.EventKind{jobs.EventExpired}}) {
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(stopped); took < expiry {
			t.Errorf("the new leader has ended the claim after %s, and owed it %s", took, expiry)
		}
		if event.Token != claimed.Job.Token || event.Owner != "w1" {
			t.Errorf("told %+v", event)
		}
		break
	}
	if sessions, err := client.Sessions(t.Context()); err != nil || len(sessions) != 1 {
		t.Errorf("sessions %v, %v: the session stays open", sessions, err)
	}
}

// A session that is silent for too long is suspect, and every node shows this for its jobs.
func TestSilentSessionIsSuspect(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	c := newCluster(t, 3, func(o *node.Options) {
		o.Sessions = node.SessionTimings{Grace: time.Minute, CoolDown: 100 * time.Millisecond}
	}).startAll()
	client := c.client((c.leader() + 1) % 3)
	claimed := claimedFor(t, client, ttl, 0)
	eventually(t, "the session to be suspect", func() bool {
		page, err := client.Claims(t.Context(), jobs.ClaimQuery{Owner: "w1"})
		if err != nil || len(page.Items) != 1 {
			t.Fatalf("claims %+v, %v", page, err)
		}
		held := page.Items[0]
		if held.Suspect != (held.Silent > jobs.SuspectAfter(ttl)) || held.Left > ttl+time.Minute || held.Left == 0 {
			t.Fatalf("held as %+v", held)
		}
		return held.Suspect
	})
	explained, err := client.Explain(t.Context(), claimed.Job.ID)
	if err != nil || explained.Cause != jobs.CauseSuspect || explained.Until.Before(time.Now()) {
		t.Errorf("explained as %+v, %v", explained, err)
	}
	asked := time.Now()
	if err := client.KeepAlive(t.Context(), claimed.Job.Claim.Session); err != nil {
		t.Fatal(err)
	}
	page, err := client.Claims(t.Context(), jobs.ClaimQuery{Session: claimed.Job.Claim.Session})
	if err != nil || len(page.Items) != 1 || page.Items[0].Silent > time.Since(asked) {
		t.Errorf("after a keep-alive: %+v, %v", page, err)
	}
}

// TestJobsAreClaimedByTheEntryThatPostsThem: one waiting claim is piggybacked per job.
func TestJobsAreClaimedByTheEntryThatPostsThem(t *testing.T) {
	const claims = 3
	c := newCluster(t, 1).startAll() // the leader stays, and writes nothing by itself
	client, leader := c.client(), c.nodes[0]
	session := opened(t, client, jobs.MaxTTL)
	got := make(chan jobs.Claimed, claims)
	var all sync.WaitGroup
	for range claims {
		all.Go(func() {
			claimed, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Kinds: []string{"k"}, Wait: patience})
			if err != nil || len(claimed) != 1 {
				t.Errorf("claimed %d jobs: %v", len(claimed), err)
				return
			}
			got <- claimed[0]
		})
	}
	eventually(t, "the claims wait idle", func() bool { return node.Idle(leader) == claims })
	before := node.Raft(leader).LastIndex()
	posted, err := client.Post(t.Context(), jobs.Posting{Name: "a", Kind: "k"}, jobs.Posting{Name: "b", Kind: "k"}, jobs.Posting{Name: "c", Kind: "k"})
	if err != nil || len(posted) != claims {
		t.Fatalf("posted %d: %v", len(posted), err)
	}
	all.Wait()
	seen := map[jobs.JobID]bool{}
	for range claims {
		claimed := <-got
		seen[claimed.Job.ID] = true
		if index := claimed.Job.Claim.Token.Index; index != before+1 {
			t.Errorf("job %s was claimed by entry %d, and the next one was %d", claimed.Job.ID, index, before+1)
		}
	}
	if len(seen) != claims {
		t.Errorf("%d jobs were claimed", len(seen))
	}
}

// TestWaitingJobIsClaimedByTheEntryThatEndsItsWait: a waiting claim is piggybacked on the signal or the decision that ends
// the wait of a step, and on no other.
func TestWaitingJobIsClaimedByTheEntryThatEndsItsWait(t *testing.T) {
	c := newCluster(t, 1).startAll() // the leader stays, and writes nothing by itself
	client, leader := c.client(), c.nodes[0]
	session := opened(t, client, jobs.MaxTTL)
	signal := func(name string) func(job jobs.JobID) error {
		return func(job jobs.JobID) error {
			_, err := client.Signal(t.Context(), job, logbook.Signal{Name: name})
			return err
		}
	}
	approve := func(by string) func(job jobs.JobID) error {
		return func(job jobs.JobID) error {
			_, err := client.Decide(t.Context(), jobs.DecisionCommand{Job: job, Decision: logbook.Decision{Kind: logbook.Approve, ID: by, By: by}})
			return err
		}
	}
	override := func(job jobs.JobID) error {
		_, err := client.Override(t.Context(), jobs.DecisionCommand{Job: job, Decision: logbook.Decision{Kind: logbook.Approve, ID: "1", By: "eve", Reason: "urgent"}})
		return err
	}
	two := &logbook.Approval{Text: "Go?", Need: []logbook.Need{{Role: "dba", Count: 2}}}
	for _, row := range []struct {
		name        string
		wait        logbook.Wait
		other, ends func(job jobs.JobID) error
		entries     uint64 // until the wait ends
	}{
		{"signal", logbook.Wait{Signals: []string{"paid"}}, signal("other"), signal("paid"), 2},
		{"approval", logbook.Wait{Approval: two}, approve("ann"), approve("bob"), 2},
		{"override", logbook.Wait{Approval: two}, approve("ann"), override, 2},
		{"decision that fills no need", logbook.Wait{Approval: two}, func(job jobs.JobID) error { // it takes the claim with it in vain
			err := approve("ann")(job)
			receipt, again := client.Decide(t.Context(), jobs.DecisionCommand{Job: job, Decision: logbook.Decision{Kind: logbook.Approve, ID: "2", By: "ann"}})
			if receipt.Outcome != "" {
				again = errors.Join(again, fmt.Errorf("ann alone has decided: %s", receipt.Outcome))
			}
			eventually(t, "the claim waits again", func() bool { return node.Idle(leader) == 1 })
			return errors.Join(err, again)
		}, approve("bob"), 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			job := waitingJob(t, client, session, row.wait)
			got := make(chan jobs.Claimed, 1)
			go func() { // ends with the claim
				got <- claimedNext(t, client, session)
			}()
			eventually(t, "the claim waits idle", func() bool { return node.Idle(leader) == 1 })
			before := node.Raft(leader).LastIndex()
			if err := errors.Join(row.other(job), row.ends(job)); err != nil {
				t.Error(err)
			}
			again := <-got
			if again.Job.ID != job || again.Job.Token.Index != before+row.entries {
				t.Errorf("entry %d claimed job %s, and the wait ended in entry %d", again.Job.Token.Index, again.Job.ID, before+row.entries)
			}
			if again.Flow == nil || len(again.Flow.Atoms) != 1 || again.Flow.Atoms[0].Attempts[0].Wait.Signal == nil {
				t.Errorf("the owner does not get the end of the wait: %+v", again.Flow)
			}
			if err := client.Trash(t.Context(), jobs.Ending{Job: job, Token: again.Job.Token}); err != nil {
				t.Error(err)
			}
		})
	}
}

// claimedNext claims the next job with a flow of the kind "k".
func claimedNext(t *testing.T, client *raftboard.Client, session jobs.SessionID) jobs.Claimed {
	claimed, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Kinds: []string{"k"}, Wait: patience})
	if err == nil && len(claimed) != 1 {
		err = fmt.Errorf("claimed %d jobs", len(claimed))
	}
	if err != nil {
		t.Error(err)
	}
	return append(claimed, jobs.Claimed{})[0]
}

// waitingJob posts a job whose one step waits, and which is released.
func waitingJob(t *testing.T, client *raftboard.Client, session jobs.SessionID, wait logbook.Wait) jobs.JobID {
	t.Helper()
	book := logbook.Book{ID: logbook.NewBookID(), Name: "b"}
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "f", Factory: logbook.Factory{Name: "k"}}}
	if _, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "waits", Book: &book}); err != nil {
		t.Fatal(err)
	}
	claimed := claimedNext(t, client, session)
	wait.Since = time.Now()
	wait.Until = wait.Since.Add(time.Hour)
	verdicts, err := client.Update(t.Context(), logbook.Update{Flow: claimed.Job.Flow, Token: claimed.Job.Token, Sequence: 1, State: logbook.FlowRunning, Atoms: []logbook.AtomChange{{
		Name: "a", Kind: logbook.KindTask, State: logbook.AtomPending, RetryAt: wait.Until,
		Attempts: []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, Token: claimed.Job.Token, StartedAt: wait.Since, Asked: 1, Wait: &wait}},
	}}})
	if err := errors.Join(append(verdicts, err)...); err != nil {
		t.Fatal(err)
	}
	if err := client.Abandon(t.Context(), jobs.Ending{Job: claimed.Job.ID, Token: claimed.Job.Token, Delay: time.Hour, Waits: true}); err != nil {
		t.Fatal(err)
	}
	return claimed.Job.ID
}

// A waiting claim gets a job at once when one is posted. If the claim looked for jobs
// in intervals instead, all wake-ups would be slow; a busy machine slows some of them,
// but hardly three of four.
func TestWakeUpsArePushed(t *testing.T) {
	const rounds, promptly = 20, 50 * time.Millisecond
	c := newCluster(t, 1).startAll()
	client := c.client()
	session := jobs.NewSessionID()
	if _, err := client.OpenSession(t.Context(), jobs.Opening{ID: session, Name: "w1", TTL: jobs.MaxTTL}); err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for range rounds {
		woken := make(chan time.Time, 1)
		go func() { // ends with the claim
			claimed, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Wait: time.Minute})
			if err != nil || len(claimed) != 1 {
				t.Errorf("claimed %d jobs: %v", len(claimed), err)
			}
			woken <- time.Now()
		}()
		eventually(t, "the request waits", func() bool { return node.Waiting(c.nodes[0]) == 1 })
		if _, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "soon", Kind: "k"}); err != nil {
			t.Fatal(err)
		}
		posted := time.Now()
		took = append(took, (<-woken).Sub(posted))
	}
	slices.Sort(took)
	if quick := took[rounds/4]; quick > promptly {
		t.Errorf("three of four wake-ups take %s and more: %v", quick, took)
	}
}

// TestPiggybackedClaimIsUncertainWithItsPosting: while a posting can still be applied, its
// piggybacked claim gets neither "no job" nor "it did not happen".
func TestPiggybackedClaimIsUncertainWithItsPosting(t *testing.T) {
	t.Parallel()
	const rounds = 20 // the leader may notice that it is isolated before it accepts the posting
	c := newCluster(t, 3)
	between := newNetwork(c)
	c.startAll()
	for range rounds {
		leader := c.leader()
		client, there := c.client(), c.calls(leader)
		session := opened(t, client, jobs.MaxTTL)
		told := make(chan error, 1)
		go func() { // ends with the answer
			answer, err := there.board.ClaimNext(t.Context(), connect.NewRequest(&conductordv1.ClaimNextRequest{
				Claim: &conductordv1.ClaimNextCommand{Session: session.String(), Nonce: jobs.NewNonce().String(), Kinds: []string{"k"}, Max: 1},
				Wait:  durationpb.New(patience),
			}))
			if err == nil && len(answer.Msg.Claimed) == 0 {
				err = errors.New("told that there is nothing")
			}
			told <- wire.ErrorFromConnect(err)
		}()
		eventually(t, "the claim waits idle", func() bool { return node.Idle(c.nodes[leader]) == 1 })
		for _, other := range c.others(leader) {
			between.isolate(c.options[other].Name)
		}
		_, err := there.board.Post(t.Context(), connect.NewRequest(&conductordv1.PostRequest{Postings: []*conductordv1.Posting{{Name: "a", Kind: "k"}}}))
		posted, claimed := wire.ErrorFromConnect(err), <-told
		between.heal()
		if errors.Is(posted, jobs.ErrUncertain) {
			if !errors.Is(claimed, jobs.ErrUncertain) {
				t.Errorf("the posting is in doubt, and of the claim that rode with it is said: %v", claimed)
			}
			return
		}
	}
	t.Error("no posting was ever in doubt")
}
