package node_test

import (
	"testing"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/wire"
)

// Every node counts posted and ended jobs, and returns the status of the other nodes.
func TestActivityAndStatusOfOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	ctx, poster := t.Context(), c.client()
	kept, ended := jobs.NewJobID(), jobs.NewJobID()
	posted, err := poster.Post(ctx, jobs.Posting{ID: kept, Name: "kept", Kind: "k"}, jobs.Posting{ID: ended, Name: "ended", Kind: "k"})
	if err != nil || posted[0].Err != nil || posted[1].Err != nil {
		t.Fatal(err, posted)
	}
	if err := poster.Cancel(ctx, jobs.JobCommand{Job: ended}); err != nil {
		t.Fatal(err)
	}
	client := clientOf(t, true)
	for _, endpoint := range c.endpoints() {
		calls := conductordv1connect.NewClusterServiceClient(client, "http://"+endpoint, wire.ClientOptions()...)
		answer := func() (posted, finished, failed uint64) {
			got, err := calls.Activity(ctx, connect.NewRequest(&conductordv1.ActivityRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			for _, slot := range got.Msg.GetSlots() {
				posted, finished, failed = posted+slot.GetPosted(), finished+slot.GetFinished(), failed+slot.GetFailed()
			}
			return posted, finished, failed
		}
		eventually(t, "the node counts", func() bool {
			posted, finished, failed := answer()
			return posted == 2 && finished == 1 && failed == 0
		})
		for _, name := range []string{"", "n1", "n2", "n3"} {
			got, err := calls.Status(ctx, connect.NewRequest(&conductordv1.StatusRequest{Node: name}))
			if err != nil || name != "" && got.Msg.GetNode() != name || got.Msg.GetDiskFreeBytes() == 0 {
				t.Errorf("%s says of %q: %v %v", endpoint, name, got, err)
			}
		}
		if _, err := calls.Status(ctx, connect.NewRequest(&conductordv1.StatusRequest{Node: "n9"})); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("of a node that is no member: %v", err)
		}
	}
}
