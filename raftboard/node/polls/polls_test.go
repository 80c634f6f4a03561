package polls_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/polls"
	"github.com/conductord/conductord/raftboard/node/proposer"
)

var (
	plain = fsm.Queue{Board: "default", Kind: "plain"}
	other = fsm.Queue{Board: "default", Kind: "other"}
)

func asking(session jobs.SessionID, kinds ...string) jobs.ClaimRequest {
	return jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Boards: []string{"default"}, Kinds: kinds}
}

func add(p *polls.Polls, request jobs.ClaimRequest) *polls.Waiter {
	return p.Add(request, &conductordv1.Command{}, nil)
}

func wake(p *polls.Polls, queues ...fsm.Queue) { p.Wake(queues) }

func woken(w *polls.Waiter) bool { return len(w.Woken) > 0 }

// claimsOf are the piggybacked claims of waiters.
func claimsOf(waiters []*polls.Waiter) (claims []*proposer.Piggybacked) {
	for _, waiter := range waiters {
		claims = append(claims, &waiter.Piggybacked)
	}
	return claims
}

func TestLongPollsWakeTheLongestWaiting(t *testing.T) {
	p := polls.New()
	first, second := add(p, asking(jobs.NewSessionID(), "plain")), add(p, asking(jobs.NewSessionID(), "plain"))
	any, stranger := add(p, asking(jobs.NewSessionID())), add(p, jobs.ClaimRequest{Boards: []string{"elsewhere"}})
	wake(p, plain, other)
	if !woken(first) || woken(second) || !woken(any) || woken(stranger) {
		t.Fatalf("woken: %v %v %v %v", woken(first), woken(second), woken(any), woken(stranger))
	}
	// The woken claim leaves without looking for a job: the next claim is woken.
	p.Leave(first)
	if !woken(second) {
		t.Fatal("the wake-up of a claim that left is lost")
	}
	p.Leave(second)
	p.Leave(any)
	p.Leave(stranger)
	if claims := p.Load().Claims; claims != 0 {
		t.Fatalf("%d claims are still waiting", claims)
	}
}

func TestLongPollsWakeEndedSessions(t *testing.T) {
	p := polls.New()
	ended, alive := jobs.NewSessionID(), jobs.NewSessionID()
	waiters := []*polls.Waiter{add(p, asking(ended)), add(p, asking(alive)), add(p, asking(ended))}
	p.Changed(fsm.Changes{Ended: []jobs.SessionID{ended}})
	if !woken(waiters[0]) || woken(waiters[1]) || !woken(waiters[2]) {
		t.Fatal("not exactly the claims of the session that ended were woken")
	}
	// A job that becomes claimable in the same batch wakes a claim of a live session.
	p.Changed(fsm.Changes{Ended: []jobs.SessionID{ended}, Claimable: []fsm.Queue{plain}})
	if !woken(waiters[1]) {
		t.Fatal("a claim that is alive was not woken")
	}
}

// TestLongPollsSkipTheDrained: no job wakes the claim of a drained conductor. The end of the drain
// or of its session does.
func TestLongPollsSkipTheDrained(t *testing.T) {
	p := polls.New()
	session := jobs.NewSessionID()
	drained, ended, other := add(p, asking(jobs.NewSessionID())), add(p, asking(session)), add(p, asking(jobs.NewSessionID()))
	p.ExcludeDrained(drained)
	p.ExcludeDrained(ended)
	wake(p, plain)
	if woken(drained) || woken(ended) || !woken(other) {
		t.Fatal("the job did not go past the drained")
	}
	p.Changed(fsm.Changes{Ended: []jobs.SessionID{session}})
	if woken(drained) || !woken(ended) {
		t.Fatal("not exactly the claim of the session that ended was woken")
	}
	late := add(p, asking(jobs.NewSessionID()))
	p.Changed(fsm.Changes{Undrained: true})
	if !woken(drained) || woken(late) {
		t.Fatal("the woken waiters differ from the waiters that were set aside")
	}
	// The drain ended after the claim's look and before the claim was excluded.
	p.ExcludeDrained(late)
	if !woken(late) {
		t.Fatal("the end of the drain was missed")
	}
	// A claim that has been woken passes the wake-up on when it leaves.
	first, second := add(p, asking(jobs.NewSessionID(), "plain")), add(p, asking(jobs.NewSessionID(), "plain"))
	wake(p, plain)
	p.ExcludeDrained(first)
	p.Leave(first)
	if !woken(second) {
		t.Fatal("the wake-up of a claim that was set aside is lost")
	}
}

// TestLongPollsKeepTheirOrder: a claim that was woken in vain keeps its place before all later
// claims.
func TestLongPollsKeepTheirOrder(t *testing.T) {
	p := polls.New()
	first, second := add(p, asking(jobs.NewSessionID(), "plain")), add(p, asking(jobs.NewSessionID()))
	for range 3 {
		wake(p, plain)
		if !woken(first) || woken(second) {
			t.Fatal("not the longest waiting claim was woken")
		}
		third := add(p, asking(jobs.NewSessionID(), "plain"))
		first = p.Add(first.Request, first.Command, first)
		p.Leave(third)
	}
	p.Leave(first)
	wake(p, plain)
	if !woken(second) {
		t.Fatal("the next claim was not woken")
	}
	p.Leave(second)
	if claims := p.Load().Claims; claims != 0 {
		t.Fatalf("%d claims are still waiting", claims)
	}
}

// TestPostingsTakeClaimsAlong: a posting takes the longest waiting idle claims along, at most one
// per job.
func TestPostingsTakeClaimsAlong(t *testing.T) {
	p := polls.New()
	resting := func(rests bool, request jobs.ClaimRequest) *polls.Waiter {
		waiter := add(p, request)
		if rests {
			p.SetIdle(waiter)
		}
		return waiter
	}
	greedy := asking(jobs.NewSessionID(), "plain")
	greedy.Max = 2
	looking := resting(false, asking(jobs.NewSessionID(), "plain"))
	drained := resting(true, asking(jobs.NewSessionID(), "plain"))
	p.ExcludeDrained(drained)
	first, any, second := resting(true, greedy), resting(true, asking(jobs.NewSessionID())), resting(true, asking(jobs.NewSessionID(), "plain"))
	labelled := asking(jobs.NewSessionID(), "gpu")
	labelled.Labels = []string{"b", "a", "c"}
	able := resting(true, labelled)

	plain := &conductordv1.Posting{Kind: "plain"}
	flow := &conductordv1.Posting{Book: &conductordv1.Book{Flows: []*conductordv1.FlowDetail{{Factory: &conductordv1.Factory{Name: "plain"}}}}}
	for _, row := range []struct {
		name     string
		postings []*conductordv1.Posting
		chosen   []*polls.Waiter
	}{
		{"held", []*conductordv1.Posting{{Kind: "plain", Hold: true}}, nil},
		{"for later", []*conductordv1.Posting{{Kind: "plain", NotBefore: timestamppb.Now()}}, nil},
		{"of a saved book", []*conductordv1.Posting{{BookId: "b"}}, nil},
		{"of another flow than the book's", []*conductordv1.Posting{{Flow: "f", Book: flow.Book}}, nil},
		{"on another board", []*conductordv1.Posting{{Kind: "plain", Board: "b"}}, nil},
		{"labels that nobody offers", []*conductordv1.Posting{{Kind: "gpu", Labels: []string{"a", "d"}}}, nil},
		{"two for one", []*conductordv1.Posting{plain, flow}, []*polls.Waiter{first}},
		{"more than take them", []*conductordv1.Posting{plain, plain, plain, plain}, []*polls.Waiter{any, second}},
		{"labels", []*conductordv1.Posting{{Kind: "gpu", Labels: []string{"c", "a"}}}, []*polls.Waiter{able}},
		{"when all are piggybacked", []*conductordv1.Posting{plain}, nil},
	} {
		if chosen := p.Piggyback(fsm.QueuesOfPostings(row.postings)); !slices.Equal(chosen, claimsOf(row.chosen)) {
			t.Errorf("%s: %d are piggybacked, and not %d, or others", row.name, len(chosen), len(row.chosen))
		}
	}
	wake(p, fsm.Queue{Board: "default", Kind: "plain"})
	if !woken(looking) {
		t.Error("a claim that was looking was taken along")
	}
	for _, waiter := range []*polls.Waiter{first, any, second, able} {
		if !p.Leave(waiter) || woken(waiter) {
			t.Error("a piggybacked claim has no result, or was also woken")
		}
	}
	if p.Leave(looking) || p.Leave(drained) {
		t.Error("a claim is piggybacked that was not chosen")
	}
	if claims := p.Load().Claims; claims != 0 {
		t.Errorf("%d claims are still waiting", claims)
	}
}

// TestPostingsTakeFewClaimsAlong: the number is limited for any number of waiting claims.
func TestPostingsTakeFewClaimsAlong(t *testing.T) {
	p := polls.New()
	var postings []*conductordv1.Posting
	for range 2 * polls.MaxPiggybacked {
		p.SetIdle(add(p, asking(jobs.NewSessionID(), "plain")))
		postings = append(postings, &conductordv1.Posting{Kind: "plain"})
	}
	if chosen := len(p.Piggyback(fsm.QueuesOfPostings(postings))); chosen != polls.MaxPiggybacked {
		t.Errorf("%d are piggybacked, and %d may", chosen, polls.MaxPiggybacked)
	}
	if claims := p.Load().Claims; claims != polls.MaxPiggybacked {
		t.Errorf("%d are still waiting", claims)
	}
}

// TestPostingsTakeSmallClaimsAlong: claims that would make the entry much larger are not taken
// along, and are woken as usual.
func TestPostingsTakeSmallClaimsAlong(t *testing.T) {
	p := polls.New()
	var waiters []*polls.Waiter
	large := &conductordv1.Command{Kind: &conductordv1.Command_ClaimNext{
		ClaimNext: &conductordv1.ClaimNextCommand{Session: string(make([]byte, polls.MaxPiggybackBytes/3+1))},
	}}
	postings := []*conductordv1.Posting{{Kind: "plain"}, {Kind: "plain"}, {Kind: "plain"}}
	for range postings {
		waiter := p.Add(asking(jobs.NewSessionID(), "plain"), large, nil)
		p.SetIdle(waiter)
		waiters = append(waiters, waiter)
	}
	if chosen := p.Piggyback(fsm.QueuesOfPostings(postings)); !slices.Equal(chosen, claimsOf(waiters[:2])) {
		t.Errorf("%d are piggybacked, and not the first two", len(chosen))
	}
	if wake(p, plain); !woken(waiters[2]) {
		t.Error("the claim that did not fit is not woken")
	}
}

func TestLongPollsTellOfFinishes(t *testing.T) {
	p, job := polls.New(), jobs.NewJobID()
	one, leaveOne := p.AwaitFinish(job)
	two, leaveTwo := p.AwaitFinish(job)
	leaveTwo()
	p.Changed(fsm.Changes{Finished: []jobs.JobID{jobs.NewJobID(), job}})
	select {
	case <-one:
	default:
		t.Error("not told that the job has finished")
	}
	select {
	case <-two:
		t.Error("told after it had left")
	default:
	}
	leaveOne()
	if finishes := p.Load().Finishes; finishes != 0 {
		t.Errorf("%d jobs are still waited for", finishes)
	}
	after, leave := p.AwaitFinish(job)
	defer leave()
	events := p.NextEvents()
	p.Changed(fsm.Changes{Restored: true})
	for what, told := range map[string]<-chan struct{}{"finish": after, "events": events} {
		select {
		case <-told:
		default:
			t.Errorf("%s: not told to look again after a restoration", what)
		}
	}
}

// Jobs arrive one by one and in groups, and claims come and leave. No claim waits while there is a
// job for it, because each claim takes one job and wakes the next claim.
func TestLongPollsLoseNoWakeUp(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			const claims, lump = 20, 5
			p := polls.New()
			var stock atomic.Int64
			take := func() bool {
				for {
					left := stock.Load()
					if left == 0 {
						return false
					}
					if stock.CompareAndSwap(left, left-1) {
						return true
					}
				}
			}
			var served, gone sync.WaitGroup
			for range claims {
				served.Go(func() { waitUntil(p, take, nil) })
			}
			leave := make(chan struct{})
			for range claims {
				gone.Go(func() {
					if waitUntil(p, take, leave) {
						stock.Add(1) // released: it is claimable again
						wake(p, plain)
					}
				})
			}
			served.Go(func() {
				for range claims / lump {
					stock.Add(lump)
					wake(p, plain)
				}
			})
			close(leave)
			served.Wait() // all claims get a job, or the bubble reports a deadlock
			gone.Wait()
			if held := p.Load().Claims; held != 0 || stock.Load() != 0 {
				t.Fatalf("%d wait and %d jobs left", held, stock.Load())
			}
		})
	}
}

// waitUntil behaves like claimNext: it looks for a job after it was added, and wakes the next claim
// after success.
func waitUntil(p *polls.Polls, take func() bool, leave <-chan struct{}) bool {
	var passOn []fsm.Queue
	request := asking(jobs.NewSessionID(), "plain")
	for {
		waiter := add(p, request)
		if take() {
			p.Leave(waiter)
			p.Wake(passOn)
			return true
		}
		select {
		case passOn = <-waiter.Woken:
		case <-leave:
			p.Leave(waiter)
			return false
		case <-time.After(time.Hour):
			panic("no waiter was left to wake this claim")
		}
	}
}

// TestLongPollsWakeTheNext: after any changes, a queue wakes the longest waiting claim that
// requests its jobs, and no other.
func TestLongPollsWakeTheNext(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := polls.New()
		type parked struct {
			*polls.Waiter
			request jobs.ClaimRequest
		}
		var waiting []parked
		kinds := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID[string])
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0, 1:
				request := jobs.ClaimRequest{Session: jobs.NewSessionID(), Kinds: kinds.Draw(rt, "kinds")}
				request.Boards = []string{rapid.SampledFrom([]string{"day", "night"}).Draw(rt, "board")}
				waiting = append(waiting, parked{add(p, request), request})
			case 2:
				if len(waiting) > 0 {
					i := rapid.IntRange(0, len(waiting)-1).Draw(rt, "leaves")
					p.Leave(waiting[i].Waiter)
					waiting = slices.Delete(waiting, i, i+1)
				}
			case 3:
				queue := fsm.Queue{Board: rapid.SampledFrom([]string{"day", "night"}).Draw(rt, "of"), Kind: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "kind")}
				wake(p, queue)
				next := slices.IndexFunc(waiting, func(w parked) bool { return queue.Suits(&w.request) })
				for i, w := range waiting {
					if woken(w.Waiter) != (i == next) {
						rt.Fatalf("of %d, number %d is next, and number %d is woken: %t", len(waiting), next, i, woken(w.Waiter))
					}
				}
				if next >= 0 {
					<-waiting[next].Woken
					waiting = slices.Delete(waiting, next, next+1)
				}
			}
		}
		for _, w := range waiting {
			p.Leave(w.Waiter)
		}
		if claims := p.Load().Claims; claims != 0 {
			rt.Fatalf("%d claims are still waiting", claims)
		}
	})
}
