package stream_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/conductord/conductord/raftboard/wire"
)

func TestManyCallsShareAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, calls = 50, 20
		n := &node{}
		c := standing(t, start(t, n, n.server()))
		polling, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { // a long poll, which delays no other call
			_, err := c.Do(polling, stream.Call{Procedure: execute, Message: &v1.ExecuteRequest{}}, new(v1.ExecuteResponse))
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the long poll: %v", err)
			}
		})
		var active sync.WaitGroup
		for i := range callers {
			active.Go(func() {
				for k := range calls {
					id := fmt.Sprint(i, "/", k)
					answer, heard, err := get(t.Context(), c, id)
					if err != nil || answer.GetJob().GetId() != id || heard != (stream.Heard{Index: 17, Leader: leader, Age: "1.5s"}) {
						t.Errorf("asked for %s: %v, %+v, %v", id, answer, heard, err)
					}
				}
			})
		}
		active.Wait()
		if got := len(n.answered()); got != callers*calls {
			t.Errorf("%d calls were answered on the stream, want %d", got, callers*calls)
		}
		end()
		all.Wait()
		synctest.Wait()
		if ends := n.ended(); len(ends) != 1 || !errors.Is(ends[0], context.Canceled) {
			t.Errorf("the node was told %v of the caller that left", ends)
		}
	})
}

// A call has the same answer on a stream and without one.
func TestErrorsAreThoseOfPlainCalls(t *testing.T) {
	for _, fault := range []error{
		jobs.ErrUncertain, jobs.ErrUnavailable, jobs.ErrNotFound, jobs.ErrFenced,
		&logbook.InvalidError{Field: "name", Reason: "empty"},
		&logbook.LimitError{Field: "details", Limit: 10, Size: 11, Unit: "bytes"},
		context.Canceled, context.DeadlineExceeded, errors.New("a fault of ours"),
		connect.NewError(connect.CodePermissionDenied, errors.New("not for you")),
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &node{get: func(context.Context, *connect.Request[v1.GetJobRequest]) (*connect.Response[v1.GetJobResponse], error) {
				var ready *connect.Error
				if errors.As(fault, &ready) {
					return nil, ready
				}
				return nil, wire.ErrorToConnect(fmt.Errorf("cannot look: %w", fault))
			}}
			client := start(t, n, n.server())
			_, _, streamed := get(t.Context(), standing(t, client), "j")
			_, alone := plain(t.Context(), client, "j")
			if told(streamed) != told(alone) {
				t.Errorf("on the stream %s, and without it %s", told(streamed), told(alone))
			}
			var crossed *connect.Error
			if !errors.As(streamed, &crossed) || crossed.Meta().Get(wire.HeaderLeader) != leader {
				t.Errorf("%v does not say who leads", streamed)
			}
		})
	}
}

func TestDeadlineGoesAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deadline time.Time // of the call at the node
		n := &node{get: func(ctx context.Context, _ *connect.Request[v1.GetJobRequest]) (*connect.Response[v1.GetJobResponse], error) {
			deadline, _ = ctx.Deadline()
			<-ctx.Done() // the caller may give up at the same moment
			return nil, ctx.Err()
		}}
		c := standing(t, start(t, n, n.server()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want, _ := ctx.Deadline()
		_, err := c.Do(ctx, stream.Call{Procedure: getJob, Message: &v1.GetJobRequest{}}, new(v1.GetJobResponse))
		if !errors.Is(wire.ErrorFromConnect(err), context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if !deadline.Equal(want) {
			t.Errorf("the node's end of the call has the deadline %s, and the caller's %s", deadline, want)
		}
	})
}

func TestMinIndexGoesAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked string
		n := &node{get: func(ctx context.Context, r *connect.Request[v1.GetJobRequest]) (*connect.Response[v1.GetJobResponse], error) {
			asked = r.Header().Get(wire.HeaderMinIndex)
			return echo(ctx, r)
		}}
		c := standing(t, start(t, n, n.server()))
		_, err := c.Do(t.Context(), stream.Call{Procedure: getJob, Message: &v1.GetJobRequest{}, MinIndex: 5}, new(v1.GetJobResponse))
		if err != nil || asked != "5" {
			t.Errorf("the node was asked for index %q, %v", asked, err)
		}
	})
}

// A call that cannot go on a stream has no effect there, and is made as a plain call.
func TestWhatIsNotCarried(t *testing.T) {
	many := strings.Repeat("x", stream.MaxCall)
	for _, test := range []struct {
		name string
		call stream.Call
		want error
	}{
		{"a call that the node takes", stream.Call{Procedure: getJob, Message: &v1.GetJobRequest{Id: "j"}}, nil},
		{"one that it does not", stream.Call{Procedure: purge, Message: &v1.JobCommand{}}, stream.ErrNotCarried},
		{"the largest", stream.Call{Procedure: getJob, Message: &v1.GetJobRequest{Id: many[4:]}}, nil},
		{"a larger one", stream.Call{Procedure: getJob, Message: &v1.GetJobRequest{Id: many[3:]}}, stream.ErrNotCarried},
		{"text that is not UTF-8", stream.Call{Procedure: getJob, Message: &v1.GetJobRequest{Id: "\xff"}}, stream.ErrNotCarried},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &node{}
			c := standing(t, start(t, n, n.server()))
			if _, err := c.Do(t.Context(), test.call, new(v1.GetJobResponse)); !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", test.name, err, test.want)
			}
		})
	}
}

func TestNodesWithoutStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		c := caller(t, start(t, n, nil))
		c.Want()
		synctest.Wait()
		if _, _, err := get(t.Context(), c, "j"); !errors.Is(err, stream.ErrNotCarried) || c.Ready() {
			t.Errorf("a stream to a node that knows none: %v", err)
		}
	})
}

func TestAStreamIsOpenedBehindTheFirstCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		c := caller(t, start(t, n, n.server()))
		wanted := 0
		for ; !c.Ready() && wanted < 100; wanted++ {
			if _, _, err := get(t.Context(), c, "j"); !errors.Is(err, stream.ErrNotCarried) {
				t.Fatalf("before the stream: %v", err)
			}
			synctest.Wait()
		}
		if wanted < 2 {
			t.Errorf("the stream was opened for %d calls", wanted)
		}
		if _, _, err := get(t.Context(), c, "j"); err != nil {
			t.Error(err)
		}
	})
}

// An idle stream ends, and another one is opened when needed.
func TestIdleStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		c := standing(t, start(t, n, n.server()))
		if _, _, err := get(t.Context(), c, "j"); err != nil {
			t.Fatal(err)
		}
		busy := time.NewTicker(30 * time.Second)
		defer busy.Stop()
		for range 10 {
			<-busy.C
			if _, _, err := get(t.Context(), c, "j"); err != nil {
				t.Fatalf("a stream in use has ended: %v", err)
			}
		}
		<-time.After(3 * time.Minute)
		if c.Ready() {
			t.Error("an idle stream is still open")
		}
		<-time.After(time.Second)
		c.Want()
		synctest.Wait()
		if _, _, err := get(t.Context(), c, "j"); err != nil {
			t.Errorf("after the pause: %v", err)
		}
	})
}

// A handler that panics ends the stream, and the results of its calls are ambiguous. The calls are
// not sent again on the next stream.
func TestBrokenStreamLeavesCallsUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{get: func(ctx context.Context, r *connect.Request[v1.GetJobRequest]) (*connect.Response[v1.GetJobResponse], error) {
			if r.Msg.GetId() == "break" {
				panic(http.ErrAbortHandler)
			}
			return echo(ctx, r)
		}}
		c := standing(t, start(t, n, n.server()))
		polling := make(chan error)
		go func() {
			_, err := c.Do(t.Context(), stream.Call{Procedure: execute, Message: &v1.ExecuteRequest{}}, new(v1.ExecuteResponse))
			polling <- err
		}()
		synctest.Wait()
		_, _, err := get(t.Context(), c, "break")
		for _, err := range []error{err, <-polling} {
			if kind := wire.ErrorFromConnect(err); !errors.Is(kind, jobs.ErrUncertain) || errors.Is(kind, jobs.ErrUnavailable) {
				t.Errorf("got %v, want uncertain", kind)
			}
		}
		if _, _, err := get(t.Context(), c, "j"); !errors.Is(err, stream.ErrNotCarried) {
			t.Errorf("at once after the end: %v", err)
		}
		<-time.After(2 * time.Second)
		c.Want()
		synctest.Wait()
		if _, _, err := get(t.Context(), c, "j"); err != nil {
			t.Errorf("after the pause: %v", err)
		}
	})
}

// A stopping node ends its accepted calls on a stream like plain calls.
func TestStoppingNodeAnswersWhatItHasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		c := standing(t, start(t, n, n.server()))
		polling := make(chan error)
		go func() {
			_, err := c.Do(t.Context(), stream.Call{Procedure: execute, Message: &v1.ExecuteRequest{}}, new(v1.ExecuteResponse))
			polling <- err
		}()
		synctest.Wait()
		n.stop()
		if err := <-polling; !connect.IsWireError(err) || !errors.Is(wire.ErrorFromConnect(err), context.Canceled) {
			t.Errorf("got %v, want the node's answer", told(err))
		}
		synctest.Wait()
		if _, _, err := get(t.Context(), c, "j"); !errors.Is(err, stream.ErrNotCarried) {
			t.Errorf("after the end: %v", err)
		}
	})
}
