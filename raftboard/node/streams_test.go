package node_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/conductord/conductord/raftboard/wire"
)

// rawStream is a stream to a node, without the client library.
type rawStream struct {
	t    *testing.T
	conn *connect.BidiStreamForClient[conductordv1.CarryRequest, conductordv1.CarryResponse]
	last uint64 // number
}

// stream opens a stream to a node, and returns the calls that the node accepts on it.
func (c *cluster) stream(i int) (*rawStream, []string) {
	c.t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	ctx, cancel := context.WithCancel(context.Background())
	base := "http://" + c.nodes[i].APIAddress().String()
	conn := conductordv1connect.NewStreamServiceClient(&http.Client{Transport: transport}, base, wire.ClientOptions()...).Carry(ctx)
	c.t.Cleanup(func() {
		cancel()
		_ = conn.CloseRequest()
		_ = conn.CloseResponse()
		transport.CloseIdleConnections()
	})
	_ = conn.Send(&conductordv1.CarryRequest{})
	hello, err := conn.Receive()
	if err != nil {
		c.t.Fatal(err)
	}
	return &rawStream{t: c.t, conn: conn}, hello.GetProcedures()
}

// send starts a call.
func (s *rawStream) send(procedure string, message proto.Message) {
	s.t.Helper()
	encoded, err := proto.Marshal(message)
	if err != nil {
		s.t.Fatal(err)
	}
	s.last++
	call := &conductordv1.StreamedCall{Number: s.last, Procedure: procedure, Message: encoded, TimeoutMs: uint64(patience / time.Millisecond)}
	if err := s.conn.Send(&conductordv1.CarryRequest{Calls: []*conductordv1.StreamedCall{call}}); err != nil {
		s.t.Fatal(err)
	}
}

// receive returns the answers of the next message.
func (s *rawStream) receive() *conductordv1.CarryResponse {
	s.t.Helper()
	message, err := s.conn.Receive()
	if err != nil {
		s.t.Fatal(err)
	}
	return message
}

// TestStreamsTakeHostileCalls: for any content, a call on a stream gets an answer other than an
// internal error, and the stream continues.
func TestStreamsTakeHostileCalls(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	raw, procedures := c.stream(0)
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	v := &vandal{Rand: rand.New(rand.NewPCG(2, seed))}
	for range 12 {
		v.ids = append(v.ids, jobs.NewJobID().String())
	}
	procedures = slices.DeleteFunc(procedures, func(name string) bool { return name == "BoardService/WaitJob" })
	accepted := 0
	for range hostileCalls() / 2 {
		procedure := procedures[v.IntN(len(procedures))]
		method := methodOf(t, procedure)
		input := dynamicpb.NewMessage(method.Input())
		v.fill(input, 0)
		if wait := method.Input().Fields().ByName("wait"); wait != nil {
			input.Clear(wait)
		}
		raw.send(procedure, input)
		answers := raw.receive().GetAnswers()
		if len(answers) != 1 || answers[0].GetNumber() != raw.last {
			t.Fatalf("call %d of %s is answered with %v", raw.last, procedure, answers)
		}
		switch connect.Code(answers[0].GetCode()) {
		case 0:
			accepted++
		case connect.CodeInternal, connect.CodeUnimplemented:
			t.Errorf("call %d of %s is answered with %v\n%.2000s", raw.last, procedure, answers[0], input)
		}
	}
	if accepted < hostileCalls()/80 {
		t.Errorf("only %d calls were accepted: the test hardly tests what happens then", accepted)
	}
}

func methodOf(t *testing.T, procedure string) protoreflect.MethodDescriptor {
	t.Helper()
	name := protoreflect.FullName("conductord.v1." + strings.ReplaceAll(procedure, "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return found.(protoreflect.MethodDescriptor)
}

// A follower forwards the calls on a stream. A stopping node answers the calls that it has
// accepted, and names the calls that it has not.
func TestStreamsOfAFollowerAndOfANodeThatStops(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	follower := (c.leader() + 1) % 3
	raw, procedures := c.stream(follower)
	if !slices.Contains(procedures, "BoardService/ClaimNext") || len(procedures) >= stream.MaxCalls {
		t.Fatalf("the node takes %v", procedures)
	}
	posting := &conductordv1.Posting{Id: jobs.NewJobID().String(), Name: "j", Kind: "none"}
	for posted := false; !posted; { // refused while there is no leader
		raw.send("BoardService/Post", &conductordv1.PostRequest{Postings: []*conductordv1.Posting{posting}})
		answer := raw.receive().GetAnswers()[0]
		switch connect.Code(answer.GetCode()) {
		case 0:
			posted = answer.GetIndex() > 0 && len(answer.GetMessage()) > 0
		case connect.CodeUnavailable, connect.CodeUnknown:
		default:
			t.Fatalf("got %v", answer)
		}
	}
	raw.send("BoardService/WaitJob", &conductordv1.WaitJobRequest{Id: posting.Id, Timeout: durationpb.New(patience)})
	waiting := raw.last
	raw.send("BoardService/GetJob", &conductordv1.GetJobRequest{Id: posting.Id, Stale: true})
	answered := map[uint64]int{}
	for stopped := false; ; {
		message := raw.receive()
		if !stopped { // the first answer shows that the call before was accepted
			stopped = true
			c.stop(follower)
		}
		for _, answer := range message.GetAnswers() {
			answered[answer.GetNumber()]++
		}
		if message.GetEnding() {
			break
		}
	}
	// The node may have stopped before it has accepted the last call.
	if answered[waiting] != 1 || answered[raw.last] > 1 || len(answered) > 2 {
		t.Errorf("calls %d and %d were answered %v times", waiting, raw.last, answered)
	}
}
