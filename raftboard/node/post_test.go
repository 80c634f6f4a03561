package node_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node"
)

// TestBriefAnswers: a brief answer omits the data that the caller has sent, but contains an
// existing job completely. The answer to commands has no jobs.
func TestBriefAnswers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	board := conductordv1connect.NewBoardServiceClient(http.DefaultClient, c.endpointURL())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	posting := func() *conductordv1.Posting {
		return &conductordv1.Posting{
			Id: jobs.NewJobID().String(), Name: "j", Kind: "k", Details: &conductordv1.Value{Json: []byte(`1`)},
			Store: []*conductordv1.NamedValue{{Name: "a", Value: &conductordv1.Value{Json: []byte(`2`)}}},
		}
	}
	known := posting()
	for _, row := range []struct {
		what    string
		posting *conductordv1.Posting
		brief   bool
		values  bool // in the answer
	}{
		{"a new job", known, false, true},
		{"a new job, briefly", posting(), true, false},
		{"a job that existed", known, false, true},
		{"a job that existed, briefly", known, true, true},
	} {
		request := &conductordv1.PostRequest{Postings: []*conductordv1.Posting{row.posting}, Brief: row.brief}
		answer, err := board.Post(ctx, connect.NewRequest(request))
		if err != nil {
			t.Fatal(err)
		}
		job := answer.Msg.Posted[0].Job
		if got := job.Details != nil && job.Store != nil; got != row.values || job.State != "claimable" || job.Sequence == 0 {
			t.Errorf("%s: %v", row.what, job)
		}
	}
	post := &conductordv1.Command{Kind: &conductordv1.Command_Post{Post: &conductordv1.PostCommand{Postings: []*conductordv1.Posting{posting()}}}}
	answer, err := board.Execute(ctx, connect.NewRequest(&conductordv1.ExecuteRequest{Commands: []*conductordv1.Command{post}}))
	if err != nil {
		t.Fatal(err)
	}
	if posted := answer.Msg.Results[0].GetPost().Posted[0]; posted.Posted != nil || posted.Error != nil {
		t.Errorf("a command is answered with %v", posted)
	}
}

// TestPostingsOverTheLimitOfACommand: postings that fit into commands of their own are accepted in one
// call, although they do not fit into one command together.
func TestPostingsOverTheLimitOfACommand(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(o *node.Options) { o.Limits = logbook.MaxLimits; o.Limits.Command = 4 << 10 }).startAll()
	board := conductordv1connect.NewBoardServiceClient(http.DefaultClient, c.endpointURL())
	request := &conductordv1.PostRequest{}
	for range 10 {
		details := []byte(`"` + strings.Repeat("d", 1<<10) + `"`)
		request.Postings = append(request.Postings, &conductordv1.Posting{Id: jobs.NewJobID().String(), Name: "j", Kind: "k", Details: &conductordv1.Value{Json: details}})
	}
	answer, err := board.Post(t.Context(), connect.NewRequest(request))
	if err != nil {
		t.Fatal(err)
	}
	for i, posted := range answer.Msg.Posted {
		if posted.Error != nil {
			t.Errorf("posting %d: %v", i, posted.Error)
		}
	}
}

// TestPostingsOfNewerPrograms: a posting with an unknown field is refused, because it would stop
// every node that reads it from the log. The other postings of the call are accepted.
func TestPostingsOfNewerPrograms(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	board := conductordv1connect.NewBoardServiceClient(http.DefaultClient, c.endpointURL())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request := &conductordv1.PostRequest{}
	for i := range 3 {
		posting := &conductordv1.Posting{Id: jobs.NewJobID().String(), Name: "j", Kind: "k"}
		if i == 1 {
			posting.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 9_999, protowire.VarintType), 1))
		}
		request.Postings = append(request.Postings, posting)
	}
	answer, err := board.Post(ctx, connect.NewRequest(request))
	if err != nil {
		t.Fatal(err)
	}
	for i, posted := range answer.Msg.Posted {
		if refused := strings.Contains(posted.GetError().GetMessage(), "does not know"); refused != (i == 1) {
			t.Errorf("posting %d: %v", i, posted.GetError())
		}
	}
}
