package node_test

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/jobs"
)

// TestBriefAnswers: who asks for a brief answer is not sent back what he has
// sent, but all of a job that existed; and who sends commands gets no jobs.
func TestBriefAnswers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	board := conductordv1connect.NewBoardServiceClient(http.DefaultClient, c.endpointURL())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	posting := func() *conductordv1.Posting {
		return &conductordv1.Posting{
			Id: jobs.NewJobID().String(), Name: "j", Kind: "k", Details: &conductordv1.Value{Json: []byte(`1`)},
			Store: map[string]*conductordv1.Value{"a": {Json: []byte(`2`)}},
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
