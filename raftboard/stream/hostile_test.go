package stream_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/conductord/conductord/raftboard/wire"
)

// rawStream is a stream without a Caller.
type rawStream = connect.BidiStreamForClient[v1.CarryRequest, v1.CarryResponse]

// raw opens a stream, and reads the first message.
func raw(t *testing.T, client *http.Client) (*rawStream, *v1.CarryResponse, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	conn := conductordv1connect.NewStreamServiceClient(client, base, wire.ClientOptions()...).Carry(ctx)
	t.Cleanup(func() { cancel(); _ = conn.CloseRequest(); _ = conn.CloseResponse() })
	_ = conn.Send(&v1.CarryRequest{})
	hello, err := conn.Receive()
	return conn, hello, err
}

func calls(procedure string, from, to uint64) []*v1.StreamedCall {
	var all []*v1.StreamedCall
	for number := from; number <= to; number++ {
		all = append(all, &v1.StreamedCall{Number: number, Procedure: procedure})
	}
	return all
}

const (
	getName     = "BoardService/GetJob"
	executeName = "BoardService/Execute"
)

func TestNodeSaysWhatItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		_, hello, err := raw(t, start(t, n, n.server()))
		if err != nil || strings.Join(hello.GetProcedures(), " ") != getName+" "+executeName || hello.GetLeader() != leader {
			t.Errorf("the first message is %v, %v", hello, err)
		}
	})
}

// A client that breaks the rules loses its stream, or its call is refused with a code.
func TestBoundsOfAStream(t *testing.T) {
	for _, test := range []struct {
		name    string
		request *v1.CarryRequest
		ends    error // end of the stream; nil: it continues
		code    connect.Code
	}{
		{"a call that is not taken", &v1.CarryRequest{Calls: calls("BoardService/Purge", 1, 1)}, nil, connect.CodeUnimplemented},
		{"no call at all", &v1.CarryRequest{Calls: calls("", 1, 1)}, nil, connect.CodeUnimplemented},
		{"garbage", &v1.CarryRequest{Calls: []*v1.StreamedCall{{Number: 1, Procedure: getName, Message: []byte{0xff}}}}, nil, connect.CodeInvalidArgument},
		{"the number 0", &v1.CarryRequest{Calls: calls(getName, 0, 0)}, jobs.ErrInvalid, 0},
		{"a number twice", &v1.CarryRequest{Calls: append(calls(getName, 7, 7), calls(getName, 7, 7)...)}, jobs.ErrInvalid, 0},
		{"more calls than are ever under way", &v1.CarryRequest{Calls: calls(getName, 1, stream.MaxCalls+1)}, jobs.ErrLimit, 0},
		{"a message that is too large", &v1.CarryRequest{Calls: []*v1.StreamedCall{{Number: 1, Message: make([]byte, 1<<20)}}}, jobs.ErrLimit, 0},
		{"to give up what never was", &v1.CarryRequest{GivenUp: []uint64{1, 2, 1 << 63}, Calls: calls(getName, 9, 9)}, nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &node{}
			conn, _, err := raw(t, start(t, n, n.server()))
			if err == nil {
				err = conn.Send(test.request)
			}
			if err != nil {
				t.Fatal(err)
			}
			var answers []*v1.StreamedAnswer
			for len(answers) == 0 && err == nil {
				var message *v1.CarryResponse
				message, err = conn.Receive()
				answers = append(answers, message.GetAnswers()...)
				if message.GetEnding() {
					answers = nil // the error follows
				}
			}
			switch {
			case test.ends != nil && !errors.Is(wire.ErrorFromConnect(err), test.ends):
				t.Errorf("%s: %v and %v, want %v", test.name, answers, err, test.ends)
			case test.ends == nil && (err != nil || connect.Code(answers[0].GetCode()) != test.code):
				t.Errorf("%s: %v and %v, want code %v", test.name, answers, err, test.code)
			}
		})
	}
}

// At the maximum number of calls in flight, the next call is refused and has no effect.
func TestOneCallTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		conn, _, err := raw(t, start(t, n, n.server()))
		if err != nil {
			t.Fatal(err)
		}
		for _, request := range []*v1.CarryRequest{
			{Calls: calls(executeName, 1, stream.MaxCalls)},
			{Calls: calls(executeName, stream.MaxCalls+1, stream.MaxCalls+1)},
		} {
			if err := conn.Send(request); err != nil {
				t.Fatal(err)
			}
		}
		message, err := conn.Receive()
		if err != nil || len(message.GetAnswers()) != 1 {
			t.Fatalf("got %v, %v", message, err)
		}
		answer := message.GetAnswers()[0]
		if answer.GetNumber() != stream.MaxCalls+1 || answer.GetError().GetCode() != "overloaded" || !strings.Contains(answer.GetText(), "1000 calls") {
			t.Errorf("the answer is %v", answer)
		}
	})
}

// A client with the maximum number of calls in flight makes the next one without the stream.
func TestCallersKeepTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		c := standing(t, start(t, n, n.server()))
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		for range stream.MaxCalls {
			go func() {
				_, err := c.Do(ctx, stream.Call{Procedure: execute, Message: &v1.ExecuteRequest{}}, new(v1.ExecuteResponse))
				over <- err
			}()
		}
		synctest.Wait()
		if _, _, err := get(ctx, c, "j"); !errors.Is(err, stream.ErrNotCarried) {
			t.Errorf("one call more: %v", err)
		}
		cancel()
		for range stream.MaxCalls {
			if err := <-over; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		synctest.Wait() // the node has answered even these
		if _, _, err := get(t.Context(), c, "j"); err != nil {
			t.Errorf("when fewer are in flight again: %v", err)
		}
	})
}

func TestOneStreamTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		client := start(t, n, n.server())
		for range stream.MaxStreams {
			if _, _, err := raw(t, client); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := raw(t, client); !errors.Is(wire.ErrorFromConnect(err), jobs.ErrUnavailable) {
			t.Errorf("one more: %v", err)
		}
	})
}

// A client that reads nothing loses its stream, and the node frees its bytes.
func TestStreamOfASlowReaderEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := strings.Repeat("x", 1<<20)
		n := &node{get: func(context.Context, *connect.Request[v1.GetJobRequest]) (*connect.Response[v1.GetJobResponse], error) {
			return connect.NewResponse(&v1.GetJobResponse{Job: &v1.Job{Name: large}}), nil
		}}
		conn, _, err := raw(t, start(t, n, n.server()))
		if err != nil {
			t.Fatal(err)
		}
		polling := &v1.CarryRequest{Calls: calls(executeName, 1, 1)}
		for _, request := range []*v1.CarryRequest{polling, {Calls: calls(getName, 2, 41)}} {
			if err := conn.Send(request); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got := len(n.answered()); got != 40 {
			t.Errorf("%d calls were answered, want 40", got)
		}
		// The node holds too many bytes to accept another call here.
		if err := conn.Send(&v1.CarryRequest{Calls: calls(getName, 42, 42)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := len(n.answered()); got != 40 {
			t.Errorf("%d calls were answered without a reader of the answers", got)
		}
		<-time.After(3 * time.Minute)
		if ends := n.ended(); len(ends) != 1 {
			t.Error("the stream of a reader that reads nothing stays open")
		}
	})
}

// scripted is a node that follows a test's function instead of the protocol.
type scripted func(ctx context.Context, conn *connect.BidiStream[v1.CarryRequest, v1.CarryResponse]) error

func (s scripted) Carry(ctx context.Context, conn *connect.BidiStream[v1.CarryRequest, v1.CarryResponse]) error {
	return s(ctx, conn)
}

// hello accepts a stream and waits for a number of calls.
func hello(conn *connect.BidiStream[v1.CarryRequest, v1.CarryResponse], calls int) error {
	if err := conn.Send(&v1.CarryResponse{Procedures: []string{getName}}); err != nil {
		return err
	}
	for got := 0; got < calls; {
		message, err := conn.Receive()
		if err != nil {
			return err
		}
		got += len(message.GetCalls())
	}
	return nil
}

// Calls that a stopping node has not accepted have no effect.
func TestCallsThatAreNotTakenGoWithoutTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := standing(t, start(t, &node{}, scripted(func(_ context.Context, conn *connect.BidiStream[v1.CarryRequest, v1.CarryResponse]) error {
			if err := hello(conn, 3); err != nil {
				return err
			}
			return conn.Send(&v1.CarryResponse{Ending: true, Taken: 2})
		})))
		results := make(chan error)
		for range 3 {
			go func() {
				_, _, err := get(t.Context(), c, "j")
				results <- err
			}()
		}
		uncertain, not := 0, 0
		for range 3 {
			switch err := <-results; {
			case errors.Is(err, stream.ErrNotCarried):
				not++
			case errors.Is(wire.ErrorFromConnect(err), jobs.ErrUncertain):
				uncertain++
			default:
				t.Errorf("got %v", err)
			}
		}
		if uncertain != 2 || not != 1 {
			t.Errorf("%d calls may have happened and %d have not, want 2 and 1", uncertain, not)
		}
	})
}

// A call whose caller leaves before it could be sent is not sent.
func TestCallsThatWaitCanBeTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fills = 16 // enough for the window of a stream without a reader, and one more message
		read, numbers := make(chan struct{}), make(chan []uint64, 1)
		c := standing(t, start(t, &node{}, scripted(func(_ context.Context, conn *connect.BidiStream[v1.CarryRequest, v1.CarryResponse]) error {
			if err := hello(conn, 0); err != nil {
				return err
			}
			<-read
			var seen []uint64
			for len(seen) < fills+1 {
				message, err := conn.Receive()
				if err != nil {
					return err
				}
				for _, call := range message.GetCalls() {
					seen = append(seen, call.GetNumber())
				}
			}
			numbers <- seen
			return nil
		})))
		var all sync.WaitGroup
		ask := func(ctx context.Context, id string, want error) {
			all.Go(func() {
				if _, _, err := get(ctx, c, id); !errors.Is(wire.ErrorFromConnect(err), want) {
					t.Errorf("got %v, want %v", err, want)
				}
			})
			synctest.Wait()
		}
		for range fills {
			ask(t.Context(), strings.Repeat("x", stream.MaxCall-10), jobs.ErrUncertain)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ask(ctx, "taken back", context.Canceled)
		cancel()
		ask(t.Context(), "last", jobs.ErrUncertain)
		close(read)
		all.Wait()
		if seen := <-numbers; slices.Contains(seen, fills+1) || !slices.Contains(seen, fills+2) {
			t.Errorf("the node got the calls %v, and not the last but one", seen)
		}
	})
}

func TestNodesThatAnswerNonsense(t *testing.T) {
	right, err := proto.Marshal(&v1.GetJobResponse{Job: &v1.Job{Id: "right"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		messages []*v1.CarryResponse
		want     error
	}{
		"to calls that never were": {[]*v1.CarryResponse{{Answers: []*v1.StreamedAnswer{{Number: 0}, {Number: 2}, {Number: 1 << 63}, {Number: 1, Message: right}}}}, nil},
		"twice":                    {[]*v1.CarryResponse{{Answers: []*v1.StreamedAnswer{{Number: 1, Message: right}, {Number: 1, Code: 5}}}}, nil},
		"garbage":                  {[]*v1.CarryResponse{{Answers: []*v1.StreamedAnswer{{Number: 1, Message: []byte{0xff}}}}}, jobs.ErrUncertain},
		"a code that is none":      {[]*v1.CarryResponse{{Answers: []*v1.StreamedAnswer{{Number: 1, Code: 1 << 31, Text: "?"}}}}, jobs.ErrUncertain},
		"nothing":                  {nil, jobs.ErrUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := standing(t, start(t, &node{}, scripted(func(_ context.Context, conn *connect.BidiStream[v1.CarryRequest, v1.CarryResponse]) error {
					err := hello(conn, 1)
					for _, message := range test.messages {
						err = errors.Join(err, conn.Send(message))
					}
					return err
				})))
				answer, _, err := get(t.Context(), c, "right")
				if (test.want == nil) != (err == nil) || !errors.Is(wire.ErrorFromConnect(err), test.want) || (err == nil && answer.GetJob().GetId() != "right") {
					t.Errorf("got %v, %v, want %v", answer, err, test.want)
				}
			})
		})
	}
}

// A node that accepts a stream and never sends a message does not block its callers.
func TestNodeThatSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		c := caller(t, start(t, &node{}, scripted(func(ctx context.Context, conn *connect.BidiStream[v1.CarryRequest, v1.CarryResponse]) error {
			defer close(ended)
			conn.ResponseHeader().Set("X", "y")
			<-ctx.Done()
			return ctx.Err()
		})))
		c.Want()
		synctest.Wait()
		if _, _, err := get(t.Context(), c, "j"); !errors.Is(err, stream.ErrNotCarried) {
			t.Errorf("got %v", err)
		}
		<-ended // when the time to open it is over
	})
}

// FuzzCarry sends arbitrary bytes to a node as messages. It answers, and continues.
func FuzzCarry(f *testing.F) {
	for _, message := range []*v1.CarryRequest{
		{},
		{Calls: calls(getName, 1, 3)},
		{Calls: []*v1.StreamedCall{{Number: 1, Procedure: getName, Message: []byte("\n\x01j"), TimeoutMs: 1 << 63, MinIndex: 1 << 63}}},
		{GivenUp: []uint64{1}, Calls: calls("x", 5, 5)},
	} {
		encoded, err := proto.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(envelope(0, encoded))
		f.Add(append(envelope(0, encoded), envelope(0, encoded)...))
		f.Add(envelope(0, encoded)[:3])
	}
	f.Add(envelope(1, []byte("compressed?")))
	f.Add(envelope(2, []byte("{}")))
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, body []byte) {
		synctest.Test(t, func(t *testing.T) {
			n := &node{}
			client := start(t, n, n.server())
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+conductordv1connect.StreamServiceCarryProcedure, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/connect+proto")
			response, err := client.Do(request)
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
			if err != nil {
				t.Errorf("the node gave up: %v", err)
			}
			if _, err := plain(t.Context(), client, "j"); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	})
}

// envelope is a message in the format of a stream.
func envelope(flags byte, message []byte) []byte {
	head := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message)))
	return append(head, message...)
}
