package fsm_test

import (
	"fmt"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
)

// TestIndexedListingsLookAtNoOthers: the first page finds a rare tag among more jobs than a page
// reads.
func TestIndexedListingsLookAtNoOthers(t *testing.T) {
	longtest.Skip(t)
	r := newRig(t)
	const batch = 1_000
	for posted := 0; posted <= fsm.MaxExamined; posted += batch {
		var many []*v1.Posting
		for i := range batch {
			many = append(many, posting(fmt.Sprint("job ", posted+i), "k"))
		}
		r.ok(post(many...))
	}
	p := posting("a", "k")
	p.Tags, p.Key = []string{"rare"}, "well"
	r.posted(p)
	r.ok(open("bob"))
	e := ending("a", r.claimedAgain("bob", id("a")))
	e.Failure = sampleFailure("snow")
	r.ok(trash(e))
	for _, query := range []jobs.Query{{Tags: []string{"rare"}}, {Key: "well"}, {ErrorType: "weather"}, {States: []jobs.State{jobs.StateTrashed}}} {
		page, err := r.Jobs(query)
		if err != nil || len(page.Items) != 1 || page.Next != "" || page.Scans {
			t.Errorf("%+v: %d jobs, next %q, scans %t (%v)", query, len(page.Items), page.Next, page.Scans, err)
		}
	}
	last := posting("last", "rare kind")
	last.Board, last.Priority = "rare", -1
	r.posted(last)
	for _, query := range []jobs.Query{{Order: jobs.OrderNewest, Limit: 1}, {Order: jobs.OrderClaim, Board: "rare"}, {Order: jobs.OrderClaim, Board: "rare", Kind: "rare kind"}} {
		page, err := r.Jobs(query)
		if err != nil || len(page.Items) != 1 || page.Items[0].Name != "last" || page.Scans {
			t.Errorf("%+v: %d jobs, scans %t (%v)", query, len(page.Items), page.Scans, err)
		}
	}
	page, err := r.Jobs(jobs.Query{Name: "a job that is not there"})
	if err != nil || len(page.Items) != 0 || page.Next == "" || !page.Scans {
		t.Errorf("by name: %d jobs, next %q, scans %t (%v)", len(page.Items), page.Next, page.Scans, err)
	}
}
