package raftboard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

func job(id, state string) *v1.Job {
	return &v1.Job{Id: id, Board: "default", Name: "j", State: state}
}

func TestWaitAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := jobs.NewJobID()
		s := &script{faults: []fault{answers, dropAfter, refuses, answers}}
		s.poll = func(_ string, n int) any {
			if n < 5 {
				return &v1.WaitJobResponse{Job: job(id.String(), "claimed")}
			}
			return &v1.WaitJobResponse{Job: job(id.String(), "completed")}
		}
		client := open(t, time.Minute, start(t, s, "a", "b")...)
		finished, err := client.Wait(t.Context(), id)
		if err != nil || finished.State != jobs.StateCompleted || s.count("", "WaitJob") != 5 {
			t.Errorf("got %+v, %v after %d calls", finished, err, s.count("", "WaitJob"))
		}
		s = &script{poll: func(string, int) any { return jobs.ErrNotFound }}
		client = open(t, time.Minute, start(t, s, "a")...)
		if _, err := client.Wait(t.Context(), id); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("an unknown job: %v", err)
		}
	})
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{faults: []fault{hangs}}
		s.poll = func(string, int) any { return nil }
		client := open(t, time.Minute, start(t, s, "a")...)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := client.Wait(ctx, jobs.NewJobID())
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, jobs.ErrUncertain) || errors.Is(err, jobs.ErrUnavailable) {
			t.Errorf("got %v, want the context's error and no other: a node was at work", err)
		}
	})
}

// ownToken is the token of the claims that a node of the test grants, and ownSession the session of
// claims without a session.
var (
	ownToken   = jobs.Token{Generation: 1, Index: 7}
	ownSession = jobs.NewSessionID()
)

// held is a claimed job.
func held(id, session string, ofJob, ofClaim jobs.Token) *v1.Job {
	claimed := job(id, "claimed")
	claimed.Token = command.TokenToProto(ofJob)
	claimed.Claim = &v1.Claim{Session: session, Owner: "o", Token: command.TokenToProto(ofClaim), Since: timestamppb.Now()}
	return claimed
}

// The client does not return a claim that does not belong to the caller.
func TestClaimOfAnotherIsRefused(t *testing.T) {
	session, id := jobs.NewSessionID(), jobs.NewJobID().String()
	for _, row := range []struct {
		name string
		job  *v1.Job
		want error
	}{
		{"its own", held(id, session.String(), ownToken, ownToken), nil},
		{"no claim", job(id, "claimable"), jobs.ErrUncertain},
		{"another session's", held(id, jobs.NewSessionID().String(), ownToken, ownToken), jobs.ErrUncertain},
		{"two tokens", held(id, session.String(), jobs.Token{Generation: 1, Index: 9}, ownToken), jobs.ErrUncertain},
		{"no token", held(id, session.String(), jobs.Token{}, jobs.Token{}), jobs.ErrUncertain},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{claimed: row.job, poll: func(string, int) any {
					return &v1.ClaimNextResponse{Claimed: []*v1.Claimed{{Job: row.job}}}
				}}
				client := open(t, time.Minute, start(t, s, "a")...)
				one, err := client.Claim(t.Context(), session, jobs.NewJobID(), jobs.NewNonce())
				if !errors.Is(err, row.want) || (err == nil) != (one.Job.Token == ownToken) {
					t.Errorf("Claim gives token %s, %v", one.Job.Token, err)
				}
				some, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Max: 1})
				if !errors.Is(err, row.want) || (err == nil) != (len(some) == 1) {
					t.Errorf("ClaimNext gives %v, %v", some, err)
				}
			})
		})
	}
}

func TestClaimNextKeepsItsNonce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id, session := jobs.NewJobID(), jobs.NewSessionID()
		s := &script{faults: []fault{answers, dropAfter, refuses, answers}}
		s.poll = func(_ string, n int) any {
			if n < 5 {
				return &v1.ClaimNextResponse{}
			}
			return &v1.ClaimNextResponse{Claimed: []*v1.Claimed{{Job: held(id.String(), session.String(), ownToken, ownToken)}}}
		}
		client := open(t, time.Minute, start(t, s, "a", "b")...)
		nonce := jobs.NewNonce()
		claimed, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: session, Nonce: nonce, Max: 1, Wait: time.Hour})
		if err != nil || len(claimed) != 1 || claimed[0].Job.ID != id {
			t.Errorf("got %+v, %v", claimed, err)
		}
		if n := s.commands()["nonce "+nonce.String()]; n != 5 || s.total() != 5 {
			t.Errorf("%d of %d calls had the nonce, want 5 of 5", n, s.total())
		}
	})
}

func TestClaimNextWithoutWaitAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		s.poll = func(string, int) any { return &v1.ClaimNextResponse{} }
		client := open(t, time.Minute, start(t, s, "a")...)
		claimed, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: jobs.NewSessionID(), Nonce: jobs.NewNonce()})
		if err != nil || len(claimed) != 0 || s.count("a", "ClaimNext") != 1 {
			t.Errorf("got %+v, %v after %d calls", claimed, err, s.count("a", "ClaimNext"))
		}
	})
}

// After a lost ClaimNext call, the next call waits only for the remaining time, so that the result
// is settled when the time is over.
func TestClaimNextWaitsForTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{faults: []fault{dropAfter, dropAfter, dropAfter, refuses, answers}}
		session := jobs.NewSessionID()
		s.poll = func(string, int) any {
			return &v1.ClaimNextResponse{Claimed: []*v1.Claimed{{Job: held(jobs.NewJobID().String(), session.String(), ownToken, ownToken)}}}
		}
		const wait = 20 * time.Second
		client := open(t, time.Minute, start(t, s, "a")...)
		claimed, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Wait: wait})
		if err != nil || len(claimed) != 1 || len(s.waited()) != 5 {
			t.Fatalf("got %+v, %v after asking for %v", claimed, err, s.waited())
		}
		waits := s.waited()
		for i, asked := range waits {
			if asked > wait || (i > 0 && asked >= waits[i-1]) {
				t.Errorf("try %d was to wait for %s, after %v", i+1, asked, waits[:i])
			}
		}
		// When the time is over, one more call settles the result of the lost call.
		s = &script{faults: []fault{unsure, answers}}
		s.poll = func(string, int) any { return &v1.ClaimNextResponse{} }
		client = open(t, time.Minute, start(t, s, "b")...)
		claimed, err = client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: jobs.NewSessionID(), Nonce: jobs.NewNonce(), Wait: time.Millisecond})
		if waits := s.waited(); err != nil || len(claimed) != 0 || waits[len(waits)-1] != 0 {
			t.Errorf("got %+v, %v after asking for %v", claimed, err, waits)
		}
	})
}

// A write to a node that accepts it and does not answer is settled at another node while the
// session of its writer lives.
func TestWriteThatHangsCostsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{faults: []fault{hangs, answers}}
		client := open(t, time.Minute, start(t, s, "a", "b")...)
		began := time.Now()
		if err := client.Consume(t.Context(), jobs.Ending{Job: jobs.NewJobID(), Token: jobs.Token{Generation: 1, Index: 1}, Outcome: jobs.OutcomeSuccess}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took >= jobs.DefaultTTL {
			t.Errorf("the write took %s, and a session of the default length lives for %s", took, jobs.DefaultTTL)
		}
	})
}

// flowPages are the parts of a flow of n atoms, two in each.
func flowPages(id logbook.FlowID, n int, sequence func(page int) uint64) func(string, int) any {
	return func(method string, call int) any {
		if method == "ClaimNext" {
			claimed := held(jobs.NewJobID().String(), ownSession.String(), ownToken, ownToken)
			claimed.Flow, claimed.Book = id.String(), logbook.NewBookID().String()
			return &v1.ClaimNextResponse{Claimed: []*v1.Claimed{{
				Job: claimed, FlowOmitted: true,
			}}}
		}
		page := (call - 1) % ((n + 1) / 2)
		flow := &v1.FlowDetail{Id: id.String(), Book: logbook.NewBookID().String(), Name: "f", Factory: &v1.Factory{Name: "test"}, State: "running", Sequence: sequence(call)}
		for i := 2 * page; i < min(n, 2*page+2); i++ {
			flow.Atoms = append(flow.Atoms, &v1.AtomDetail{Name: fmt.Sprintf("step %d", i), Kind: "task", State: "pending", Intention: "execute"})
		}
		return &v1.GetFlowResponse{Flow: flow, More: 2*page+2 < n}
	}
}

func TestLargeFlowIsReadInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := logbook.NewFlowID()
		s := &script{}
		s.poll = flowPages(id, 5, func(int) uint64 { return 7 })
		client := open(t, time.Minute, start(t, s, "a")...)
		claimed, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: ownSession, Nonce: jobs.NewNonce()})
		if err != nil || len(claimed) != 1 || claimed[0].Flow == nil {
			t.Fatalf("got %+v, %v", claimed, err)
		}
		for i, atom := range claimed[0].Flow.Atoms {
			if atom.Name != fmt.Sprintf("step %d", i) {
				t.Errorf("atom %d is %q", i, atom.Name)
			}
		}
		if n := len(claimed[0].Flow.Atoms); n != 5 {
			t.Errorf("%d atoms, want 5", n)
		}
		if want := []string{"skip 0", "skip 2", "skip 4"}; !slices.Equal(s.ordered()[1:], want) {
			t.Errorf("asked for %v, want %v", s.ordered()[1:], want)
		}
	})
}

func TestFlowThatChangesWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := logbook.NewFlowID()
		tests := []struct {
			name     string
			sequence func(call int) uint64
			kind     error
			calls    int
		}{
			{"once", func(call int) uint64 { return uint64(min(call, 2)) }, nil, 4},
			{"all the time", func(call int) uint64 { return uint64(call) }, jobs.ErrUnavailable, 16},
		}
		for _, test := range tests {
			s := &script{}
			s.poll = flowPages(id, 4, test.sequence)
			client := open(t, time.Minute, start(t, s, "a")...)
			flow, err := client.FlowDetail(t.Context(), id)
			if !errors.Is(err, test.kind) || (err == nil && len(flow.Atoms) != 4) || s.count("a", "GetFlow") != test.calls {
				t.Errorf("%s: %d atoms, %v after %d calls", test.name, len(flow.Atoms), err, s.count("a", "GetFlow"))
			}
		}
	})
}

// TestAgeOfStaleAnswers: the age of several answers is the largest age. If one age is unknown, the
// result is unknown. Other answers have no age.
func TestAgeOfStaleAnswers(t *testing.T) {
	onBothPaths(t, func(t *testing.T, streams bool) {
		age := ""
		client := openOn(t, streams, raftboard.Options{Endpoints: start(t, &script{streams: streams, age: func() string { return age }}, "a")})
		for _, row := range []struct {
			age   string
			stale bool
			want  time.Duration
			known bool
		}{{"", false, 0, true}, {"1.5s", true, 1500 * time.Millisecond, true}, {"0s", true, 1500 * time.Millisecond, true}, {"", true, 1500 * time.Millisecond, false}} {
			age = row.age
			reader := client
			if row.stale {
				reader = client.Stale()
			}
			if _, err := reader.Job(t.Context(), jobs.NewJobID()); err != nil {
				t.Fatal(err)
			}
			if got, known := client.StaleAge(); got != row.want || known != row.known {
				t.Errorf("after %+v: %v, %v", row, got, known)
			}
		}
	})
}

func TestStaleReadsAreNoOlderThanTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{index: 41}
		client := open(t, time.Minute, start(t, s, "a", "b")...)
		if _, err := client.Post(t.Context(), jobs.Posting{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		s.at(7)
		for range 4 {
			if _, err := client.Stale().Job(t.Context(), jobs.NewJobID()); err != nil {
				t.Fatal(err)
			}
		}
		if want := []string{"41", "41", "41", "41"}; !slices.Equal(s.indexes("GetJob"), want) {
			t.Errorf("asked for indexes %q, want %q", s.indexes("GetJob"), want)
		}
		if a, b := s.count("a", "GetJob"), s.count("b", "GetJob"); a != 2 || b != 2 {
			t.Errorf("%d reads at a and %d at b, want 2 each", a, b)
		}
		if _, err := client.Job(t.Context(), jobs.NewJobID()); err != nil || s.indexes("GetJob")[4] != "" {
			t.Errorf("a read that is not stale asked for %q, %v", s.indexes("GetJob")[4], err)
		}
	})
}

func TestStatus(t *testing.T) {
	gone := nobodyHere(t)
	addresses := append(startHere(t, &script{}, "a", "b"), gone)
	client := openHere(t, addresses...)
	status, err := client.Status(t.Context(), addresses[1])
	if err != nil || status.Node != "b" || status.Jobs[jobs.StateClaimed] != 1 || len(status.Members) != 1 {
		t.Errorf("got %+v, %v", status, err)
	}
	if _, err := client.Status(t.Context(), gone); !errors.Is(err, jobs.ErrUnavailable) || strings.Count(err.Error(), "unavailable") != 1 {
		t.Errorf("no node answers: %v", err)
	}
	if _, err := client.Status(t.Context(), "?"); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("no endpoint: %v", err)
	}
	// A member under an address that differs from the configured one.
	another := openHere(t, startHere(t, &script{members: []*v1.Member{{Name: "b", ApiAddress: addresses[1]}}}, "a")[0], strings.Replace(addresses[1], "127.0.0.1", "localhost", 1))
	if nodes := another.Cluster(t.Context()); len(nodes) != 2 || nodes[1].Status.Node != "b" || !strings.HasPrefix(nodes[1].Endpoint, "localhost") {
		t.Errorf("two nodes, one of them by two addresses: %+v", nodes)
	}
	all := client.Cluster(t.Context())
	if len(all) != 3 || all[0].Status.Node != "a" || all[1].Status.Node != "b" || !errors.Is(all[2].Err, jobs.ErrUnavailable) || all[2].Endpoint != gone {
		t.Errorf("got %+v", all)
	}
}

// tape streams a node's events: one at each index from 1.
func tape(ctx context.Context, request *v1.WatchRequest, stream *connect.ServerStream[v1.WatchResponse], from uint64, events int) error {
	if after := request.GetAfter(); after != nil {
		from = after.GetIndex() + 1
	}
	if err := stream.Send(&v1.WatchResponse{Position: &v1.Position{Index: from - 1}}); err != nil {
		return err
	}
	for index := from; index < from+uint64(events); index++ {
		message := &v1.WatchResponse{Position: &v1.Position{Index: index}}
		message.Events = append(message.Events, &v1.Event{Position: message.GetPosition(), Kind: "posted", Board: "default", Job: jobs.NewJobID().String(), State: "claimable"})
		if err := stream.Send(message); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func TestWatchGoesOnWithoutGapOrRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		s.watch = func(ctx context.Context, request *v1.WatchRequest, stream *connect.ServerStream[v1.WatchResponse], n int) error {
			if err := tape(ctx, request, stream, 100, n); err != nil {
				return err
			}
			switch n % 4 {
			case 1:
				return http.ErrAbortHandler
			case 2:
				return nil
			case 3:
				return jobs.ErrUnavailable
			}
			// A node that repeats earlier events.
			repeated := &v1.WatchRequest{After: &v1.Position{Index: request.GetAfter().GetIndex() - 1}}
			return tape(ctx, repeated, stream, 0, 3)
		}
		client := open(t, time.Minute, start(t, s, "a", "b")...)
		next := uint64(100)
		for event, err := range client.Watch(t.Context(), jobs.Watch{}) {
			if err != nil {
				t.Fatal(err)
			}
			if event.Position.Index != next {
				t.Fatalf("event %d, want %d", event.Position.Index, next)
			}
			if next++; next == 140 {
				break
			}
		}
		if s.count("a", "Watch") == 0 || s.count("b", "Watch") == 0 {
			t.Error("one node was never asked")
		}
	})
}

func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tests := []struct {
			name     string
			watch    func() error
			patience time.Duration
			want     error
		}{
			{"compacted", func() error { return jobs.ErrCompacted }, time.Minute, jobs.ErrCompacted},
			{"invalid", func() error { return jobs.ErrInvalid }, time.Minute, jobs.ErrInvalid},
			{"nobody can", func() error { return jobs.ErrUnavailable }, 50 * time.Millisecond, jobs.ErrUnavailable},
		}
		for _, test := range tests {
			s := &script{}
			s.watch = func(context.Context, *v1.WatchRequest, *connect.ServerStream[v1.WatchResponse], int) error {
				return test.watch()
			}
			client := open(t, test.patience, start(t, s, "a")...)
			var last error
			for _, err := range client.Watch(t.Context(), jobs.Watch{After: &jobs.Position{Index: 1}}) {
				if last != nil {
					t.Errorf("%s: more follows after an error", test.name)
				}
				last = err
			}
			if !errors.Is(last, test.want) {
				t.Errorf("%s: got %v", test.name, last)
			}
		}
	})
}

func TestWatchEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		s.watch = func(ctx context.Context, request *v1.WatchRequest, stream *connect.ServerStream[v1.WatchResponse], _ int) error {
			if err := tape(ctx, request, stream, 1, 1); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}
		client := open(t, time.Minute, start(t, s, "a")...)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events := 0
		for _, err := range client.Watch(ctx, jobs.Watch{}) {
			if err != nil {
				t.Errorf("got %v, want no error", err)
			}
			events++
			cancel()
		}
		if events != 1 {
			t.Errorf("%d events, want 1", events)
		}
	})
}
