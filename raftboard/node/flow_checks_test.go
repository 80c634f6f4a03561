package node_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node"
)

// flowPosting has its own flow.
func flowPosting(board, name string) jobs.Posting {
	detail := logbook.FlowDetail{ID: logbook.NewFlowID(), Name: name, Factory: logbook.Factory{Name: "k"}}
	return jobs.Posting{ID: jobs.NewJobID(), Board: board, Name: name, Book: &logbook.Book{ID: logbook.NewBookID(), Name: name, Flows: []logbook.FlowDetail{detail}}}
}

// A posting that its principal's quota or the limits of its board refuse is refused before its flow is checked.
func TestQuotasComeBeforeChecksOfFlows(t *testing.T) {
	t.Parallel()
	var checks atomic.Int64
	c := newTenants(t, 1, func(o *node.Options) {
		o.CheckFlow = func(*logbook.FlowDetail, logbook.Values) error { checks.Add(1); return nil }
	})
	ctx := t.Context()
	for name, limits := range map[string]access.Amounts{"jobs": {Jobs: 3}, "rate": {PostingsPerSecond: 1}, "board": {}} {
		token, _ := c.token(name, time.Time{}, access.Grant{Role: access.Poster, Boards: name})
		if limits != (access.Amounts{}) {
			if err := c.operator.SaveQuota(ctx, access.Quota{Subject: access.Subject{Principal: name}, Limits: limits}); err != nil {
				t.Fatal(err)
			}
		}
		client := c.as(token)
		first := flowPosting(name, "first")
		if _, err := jobs.PostOne(ctx, client, first); err != nil {
			t.Fatal(err)
		}
		if name == "board" {
			if err := c.operator.LimitBoard(ctx, name, jobs.BoardLimits{Jobs: 1}); err != nil {
				t.Fatal(err)
			}
		}
		checks.Store(0)
		var batch []jobs.Posting
		for i := range 150 {
			batch = append(batch, flowPosting(name, fmt.Sprint(i)))
		}
		posted, err := client.Post(ctx, batch...)
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		for _, one := range posted {
			if one.Err != nil {
				refused++
			}
			if one.Err != nil && (!errors.Is(one.Err, jobs.ErrLimit) || !strings.Contains(one.Err.Error(), "is at its limit")) {
				t.Errorf("%s: refused with %v", name, one.Err)
			}
		}
		if most := int64(2 * (len(posted) - refused)); refused < 147 || checks.Load() > most { // once per call, and once per posting
			t.Errorf("%s: %d of 150 postings are refused after %d checks, want at most %d", name, refused, checks.Load(), most)
		}
		if again, err := client.Post(ctx, first); err != nil || again[0].Err != nil || !again[0].Existed {
			t.Errorf("%s: the first posting, repeated: %+v, %v", name, again, err)
		}
	}
}
