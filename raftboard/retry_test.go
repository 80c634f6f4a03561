package raftboard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// writes are calls of each kind of write: alone, and in each batcher.
var writes = map[string]func(context.Context, *raftboard.Client) error{
	"post": func(ctx context.Context, c *raftboard.Client) error {
		_, err := c.Post(ctx, jobs.Posting{Name: "j"})
		return err
	},
	"update": func(ctx context.Context, c *raftboard.Client) error {
		_, err := c.Update(ctx, logbook.Update{Flow: logbook.NewFlowID(), Sequence: 1})
		return err
	},
	"consume": func(ctx context.Context, c *raftboard.Client) error {
		return c.Consume(ctx, jobs.Ending{Job: jobs.NewJobID(), Token: jobs.Token{Generation: 1, Index: 1}, Outcome: jobs.OutcomeSuccess})
	},
	"open session": func(ctx context.Context, c *raftboard.Client) error {
		_, err := c.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "s"})
		return err
	},
	"close session": func(ctx context.Context, c *raftboard.Client) error { return c.CloseSession(ctx, jobs.NewSessionID()) },
	"destroy book":  func(ctx context.Context, c *raftboard.Client) error { return c.DestroyBook(ctx, logbook.NewBookID()) },
	"claim": func(ctx context.Context, c *raftboard.Client) error {
		_, err := c.Claim(ctx, jobs.NewSessionID(), jobs.NewJobID(), jobs.NewNonce())
		return err
	},
	"keep alive": func(ctx context.Context, c *raftboard.Client) error { return c.KeepAlive(ctx, jobs.NewSessionID()) },
}

// onBothPaths runs a test with plain calls, and with calls on streams.
func onBothPaths(t *testing.T, test func(t *testing.T, streams bool)) {
	for name, streams := range map[string]bool{"plain": false, "stream": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, streams) }) })
	}
}

// openOn makes a client, and waits until its streams are open if it must use them.
func openOn(t *testing.T, streams bool, o raftboard.Options) *raftboard.Client {
	t.Helper()
	client := openWith(t, o)
	if streams {
		raftboard.WantStreams(client)
		settled(t, "streams", func() bool { return raftboard.Streams(client) == len(o.Endpoints) })
	}
	return client
}

// kinds are the error kinds that the tests below check.
var kinds = []error{jobs.ErrUnavailable, jobs.ErrUncertain, jobs.ErrInvalid, context.DeadlineExceeded}

func TestWritesTellWhatHappened(t *testing.T) {
	const never = time.Minute
	tests := []struct {
		name     string
		faults   []fault
		patience time.Duration
		ends     int     // cancels the caller's context at the call with this number
		want     []error // error kinds
		applied  int     // -1: any number
	}{
		{"at once", []fault{answers}, never, 0, nil, 1},
		{"answer lost before", []fault{dropBefore, answers}, never, 0, nil, 1},
		{"answer lost after", []fault{dropAfter, answers}, never, 0, nil, 2},
		{"refused for a while", []fault{refuses, refuses, refuses, answers}, never, 0, nil, 1},
		{"uncertain for a while", []fault{unsure, answers}, never, 0, nil, 1},
		{"refused for ever", []fault{refuses}, 100 * time.Millisecond, 0, []error{jobs.ErrUnavailable}, 0},
		{"lost for ever", []fault{dropBefore}, 100 * time.Millisecond, 0, []error{jobs.ErrUncertain}, 0},
		{"lost once, then refused", []fault{dropAfter, refuses}, 100 * time.Millisecond, 0, []error{jobs.ErrUncertain}, 1},
		{"refused, then lost", []fault{refuses, dropAfter}, 100 * time.Millisecond, 0, []error{jobs.ErrUncertain}, -1},
		{"hangs until the context ends", []fault{hangs}, never, 1, []error{jobs.ErrUncertain, context.DeadlineExceeded}, -1},
		{"lost, then refused until the context ends", []fault{dropAfter, refuses}, never, 5, []error{jobs.ErrUncertain, context.DeadlineExceeded}, 1},
		{"refused for good", []fault{invalid}, never, 0, []error{jobs.ErrInvalid}, 0},
		{"breaks", []fault{breaks}, never, 0, []error{jobs.ErrUncertain}, 0},
	}
	for _, test := range tests {
		for name, write := range writes {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				onBothPaths(t, func(t *testing.T, streams bool) {
					ctx := newEnding(t.Context())
					defer ctx.end()
					s := &script{faults: test.faults, streams: streams, begun: func(call int) {
						if call == test.ends {
							ctx.end()
						}
					}}
					client := openOn(t, streams, raftboard.Options{Endpoints: start(t, s, "a", "b"), Patience: test.patience})
					err := write(ctx, client)
					checkKinds(t, err, test.want)
					if n := s.total(); test.applied >= 0 && n != test.applied {
						t.Errorf("applied %d times, want %d", n, test.applied)
					}
					if commands := s.commands(); len(commands) > 1 {
						t.Errorf("the repeats were different commands: %v", commands)
					}
					if test.want == nil && streams && !slices.Contains(test.faults, dropBefore) && !slices.Contains(test.faults, dropAfter) && s.onStreams() == 0 && name != "open session" {
						t.Error("the call was not sent on a stream")
					}
				})
			})
		}
	}
}

// logger calls a function after each failed attempt, before the next one.
type logger struct {
	hclog.Logger
	failed func()
}

func (l logger) Debug(string, ...any) { l.failed() }

// A context that ends between attempts makes no result ambiguous.
func TestRefusedUntilTheContextEnds(t *testing.T) {
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			onBothPaths(t, func(t *testing.T, streams bool) {
				s := &script{faults: []fault{refuses}, streams: streams}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				failures := 0
				client := openOn(t, streams, raftboard.Options{
					Endpoints: start(t, s, "a", "b"),
					Logger: logger{hclog.NewNullLogger(), func() {
						if failures++; failures == 8 { // the fourth round is over: a long pause follows
							cancel()
						}
					}},
				})
				err := write(ctx, client)
				if errors.Is(err, jobs.ErrUncertain) || !errors.Is(err, jobs.ErrUnavailable) || !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want unavailable and canceled", err)
				}
				if calls := s.count("", "Execute") + s.count("", "Post") + s.count("", "Claim") + s.count("", "KeepAlive") + s.count("", "Open"); calls != 8 {
					t.Errorf("%d calls, want 8", calls)
				}
			})
		})
	}
}

func checkKinds(t *testing.T, err error, want []error) {
	t.Helper()
	if (err == nil) != (want == nil) {
		t.Fatalf("got %v, want %v", err, want)
	}
	if text := fmt.Sprint(err); strings.Contains(text, "did not happen") && strings.Contains(text, "may have happened") {
		t.Errorf("it is of two classes: %v", err)
	}
	for _, kind := range kinds {
		wanted := false
		for _, w := range want {
			wanted = wanted || w == kind
		}
		if errors.Is(err, kind) != wanted {
			t.Errorf("is it %q? %v: %v", kind, !wanted, err)
		}
	}
}

func TestReadsAreNeverUncertain(t *testing.T) {
	onBothPaths(t, func(t *testing.T, streams bool) {
		tests := []struct {
			name     string
			faults   []fault
			patience time.Duration
			want     []error
		}{
			{"lost, then answered", []fault{dropBefore, answers}, time.Minute, nil},
			{"lost for ever", []fault{dropAfter}, 100 * time.Millisecond, []error{jobs.ErrUnavailable}},
			{"refused for ever", []fault{refuses}, 100 * time.Millisecond, []error{jobs.ErrUnavailable}},
			{"refused for good", []fault{invalid}, time.Minute, []error{jobs.ErrInvalid}},
		}
		for _, test := range tests {
			nodes := start(t, &script{faults: test.faults, streams: streams}, "a")
			client := openOn(t, streams, raftboard.Options{Endpoints: nodes, Patience: test.patience})
			_, err := client.Job(t.Context(), jobs.NewJobID())
			checkKinds(t, err, test.want)
		}
	})
}

func TestNobodyThere(t *testing.T) {
	address := nobodyHere(t)
	_, err := raftboard.Open(t.Context(), raftboard.Options{Endpoints: []string{address}, Patience: 50 * time.Millisecond})
	checkKinds(t, err, []error{jobs.ErrUnavailable})
	if !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("the error does not say what was tried: %v", err)
	}
	ctx := newEnding(t.Context()) // the context ends after a node was called
	_, err = raftboard.Open(ctx, raftboard.Options{Endpoints: []string{address}, Logger: logger{hclog.NewNullLogger(), ctx.end}})
	checkKinds(t, err, []error{jobs.ErrUnavailable, context.DeadlineExceeded})
}

func TestNodeThatIsDownIsPassedBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		client := open(t, time.Minute, nobody(), start(t, s, "b")[0])
		for name, write := range writes {
			if err := write(t.Context(), client); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestNothingSentIsUnavailable(t *testing.T) {
	onBothPaths(t, func(t *testing.T, streams bool) {
		s := &script{streams: streams}
		client := openOn(t, streams, raftboard.Options{Endpoints: start(t, s, "a"), Patience: time.Minute})
		closed, cancel := context.WithCancel(t.Context())
		cancel()
		for name, write := range writes {
			err := write(closed, client)
			if errors.Is(err, jobs.ErrUncertain) || !errors.Is(err, jobs.ErrUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s under a context that had ended: %v", name, err)
			}
		}
		if n := s.total(); n != 0 {
			t.Errorf("%d commands were sent", n)
		}
	})
}

// After an overloaded node, a call pauses at once: another node would only call the same leader.
func TestOverloadedNodesGetAPause(t *testing.T) {
	for _, row := range []struct {
		faults []fault
		pauses bool
	}{
		{[]fault{refuses, answers}, false},
		{[]fault{overloaded, answers}, true},
		{[]fault{overloaded, overloaded, answers}, true},
	} {
		for name, write := range writes {
			t.Run(fmt.Sprint(name, row.faults), func(t *testing.T) {
				onBothPaths(t, func(t *testing.T, streams bool) {
					client := openOn(t, streams, raftboard.Options{Endpoints: start(t, &script{faults: row.faults, streams: streams}, "a", "b"), Patience: time.Minute})
					began := time.Now()
					if err := write(t.Context(), client); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); (took >= 25*time.Millisecond) != row.pauses {
						t.Errorf("it took %v", took)
					}
				})
			})
		}
	}
}

func TestTextThatCannotBeSentIsInvalid(t *testing.T) {
	onBothPaths(t, func(t *testing.T, streams bool) {
		s := &script{streams: streams}
		client := openOn(t, streams, raftboard.Options{Endpoints: start(t, s, "a")})
		_, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: jobs.NewSessionID(), Nonce: jobs.NewNonce(), Labels: []string{"\xff"}})
		checkKinds(t, err, []error{jobs.ErrInvalid})
		_, err = client.Jobs(t.Context(), jobs.Query{Board: "\xff"})
		checkKinds(t, err, []error{jobs.ErrInvalid})
	})
}

func TestFollowsTheLeader(t *testing.T) {
	onBothPaths(t, func(t *testing.T, streams bool) {
		s := &script{faults: []fault{refuses, answers}, streams: streams}
		leader := startNode(t, s, "leader", func() string { return "" })
		follower := startNode(t, s, "follower", func() string { return leader })
		client := openOn(t, streams, raftboard.Options{Endpoints: []string{follower}})
		for range 3 {
			if _, err := client.Post(t.Context(), jobs.Posting{Name: "j"}); err != nil {
				t.Fatal(err)
			}
		}
		if f, l := s.count("follower", "Post"), s.count("leader", "Post"); f != 1 || l != 3 {
			t.Errorf("the follower got %d calls and the leader %d, want 1 and 3", f, l)
		}
	})
}

// TestOneEndpointIsEnough: a client with one endpoint continues after the loss of that node, with
// the nodes that it learned from it.
func TestOneEndpointIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		others := &script{}
		address := start(t, others, "b")[0]
		given := &script{faults: []fault{refuses}, members: []*v1.Member{{Name: "b", ApiAddress: address}, {Name: "c", ApiAddress: "?"}}}
		client := open(t, time.Minute, start(t, given, "a")...)
		if _, err := client.Job(t.Context(), jobs.NewJobID()); err != nil || others.count("b", "GetJob") != 1 {
			t.Errorf("%d calls at the other node, %v", others.count("b", "GetJob"), err)
		}
	})
}

func TestLeaderThatCannotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		gone := nobody()
		client := open(t, time.Minute, startNode(t, s, "follower", func() string { return gone }))
		for range 3 {
			if _, err := client.Post(t.Context(), jobs.Posting{Name: "j"}); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.total(); n != 3 {
			t.Errorf("applied %d commands, want 3", n)
		}
	})
}

func TestExistedIsOnlySaidOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{faults: []fault{dropAfter, answers, dropAfter, answers}}
		client := open(t, time.Minute, start(t, s, "a")...)
		posted, err := client.Post(t.Context(), jobs.Posting{Name: "j"})
		if err != nil || posted[0].Existed {
			t.Errorf("a job whose id was made by Post: %+v, %v", posted, err)
		}
		posted, err = client.Post(t.Context(), jobs.Posting{ID: jobs.NewJobID(), Name: "j"})
		if err != nil || !posted[0].Existed {
			t.Errorf("a job whose id the caller made, sent twice: %+v, %v", posted, err)
		}
	})
}

func TestGoneAlreadyIsAnErrorTheFirstTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := open(t, time.Minute, start(t, &script{}, "a")...)
		id, book := jobs.NewSessionID(), logbook.NewBookID()
		for call := range 2 {
			if err := client.CloseSession(t.Context(), id); errors.Is(err, jobs.ErrSessionExpired) != (call == 1) {
				t.Errorf("close session, call %d: %v", call, err)
			}
			if err := client.DestroyBook(t.Context(), book); errors.Is(err, jobs.ErrNotFound) != (call == 1) {
				t.Errorf("destroy book, call %d: %v", call, err)
			}
		}
	})
}

func TestCloseEndsCalls(t *testing.T) {
	onBothPaths(t, func(t *testing.T, streams bool) {
		s := &script{faults: []fault{hangs}, streams: streams}
		client := openOn(t, streams, raftboard.Options{Endpoints: start(t, s, "a")})
		ended := make(chan error)
		go func() {
			_, err := client.Update(t.Context(), logbook.Update{Flow: logbook.NewFlowID(), Sequence: 1})
			ended <- err
		}()
		go func() { ended <- client.KeepAlive(t.Context(), jobs.NewSessionID()) }()
		settled(t, "both calls", func() bool { return s.total() == 2 })
		client.Close()
		client.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, jobs.ErrUncertain) || !strings.Contains(err.Error(), "closed") {
				t.Errorf("got %v, want uncertain, and that the client is closed", err)
			}
		}
		if _, err := client.Post(t.Context(), jobs.Posting{Name: "j"}); !errors.Is(err, jobs.ErrUnavailable) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestOptions(t *testing.T) {
	many := make([]string, raftboard.MaxEndpoints+1)
	for i := range many {
		many[i] = "h:1"
	}
	tests := []struct {
		name      string
		endpoints []string
		kind      error
		says      string
	}{
		{"none", nil, jobs.ErrInvalid, "no endpoint is set"},
		{"too many", many, jobs.ErrLimit, "65"},
		{"no port", []string{"host"}, jobs.ErrInvalid, "host:port"},
		{"no host", []string{":7070"}, jobs.ErrInvalid, "host:port"},
		{"port 0", []string{"h:0"}, jobs.ErrInvalid, "host:port"},
		{"port too high", []string{"h:65536"}, jobs.ErrInvalid, "host:port"},
		{"other scheme", []string{"ftp://h:1"}, jobs.ErrInvalid, "http"},
		{"a path", []string{"http://h:1/api"}, jobs.ErrInvalid, "more than"},
		{"a user", []string{"http://u:p@h:1"}, jobs.ErrInvalid, "more than"},
		{"all faults", []string{"one", "two"}, jobs.ErrInvalid, `"two"`},
	}
	for _, test := range tests {
		_, err := raftboard.Open(t.Context(), raftboard.Options{Endpoints: test.endpoints})
		if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want %v that says %q", test.name, err, test.kind, test.says)
		}
	}
	for _, endpoint := range []string{"%s", "http://%s", "http://%s/"} {
		address := startHere(t, &script{}, "a")[0]
		openHere(t, strings.ReplaceAll(endpoint, "%s", address))
	}
}
