package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node"
)

// TestBoardMetricsAreBounded checks that 100 boards have their own metrics, and that all further
// boards are added up as "other". A board named "other" does not disturb this.
func TestBoardMetricsAreBounded(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	c := newCluster(t, 1, func(o *node.Options) { o.Metrics = registry }).startAll()
	client := c.client()
	post := func(boards ...string) {
		t.Helper()
		var postings []jobs.Posting
		for _, board := range boards {
			postings = append(postings, jobs.Posting{Name: "plain", Kind: "plain", Board: board})
		}
		if _, err := client.Post(t.Context(), postings...); err != nil {
			t.Fatal(err)
		}
	}
	var first []string
	for n := range 98 {
		first = append(first, fmt.Sprintf("a%02d", n))
	}
	post(first...)
	post("other") // with the default board: 100
	for _, row := range []struct {
		after                string
		boards, other, total int
	}{
		{after: "", boards: 100, other: 1, total: 99},
		{after: "z1", boards: 100, other: 2, total: 100},
		{after: "z2", boards: 100, other: 3, total: 101},
		{after: "b", boards: 101, other: 3, total: 102}, // board "other" is now one of the further boards
	} {
		if row.after != "" {
			post(row.after)
		}
		boards, other, total := boardJobs(t, registry)
		if boards != row.boards || other != row.other || total != row.total {
			t.Errorf("after board %q: %d labels, %d jobs of others, %d in all; want %+v", row.after, boards, other, total, row)
		}
	}
	if got := counter(t, registry, "conductord_jobs_posted_total"); got != 102 {
		t.Errorf("%v jobs were counted", got)
	}
}

// TestExpiredPublicationsAreCounted checks that the leader counts a kept publication that no wait took in time.
func TestExpiredPublicationsAreCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	client := newCluster(t, 1, func(o *node.Options) { o.Metrics = registry }).startAll().client()
	for id, keep := range map[string]time.Duration{"short": time.Millisecond, "long": time.Hour} {
		if _, err := client.Publish(t.Context(), jobs.Publication{Topic: "payments", Key: "7", Keep: keep, Signal: logbook.Signal{ID: id}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the short publication is counted", func() bool {
		return counter(t, registry, "conductord_publications_expired_total") == 1
	})
}

// boardJobs sums up the claimable jobs of the boards.
func boardJobs(t *testing.T, registry *prometheus.Registry) (boards, other, total int) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "conductord_board_jobs" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := metric.GetLabel() // board, state
			if labels[1].GetValue() != "claimable" {
				continue
			}
			value := int(metric.GetGauge().GetValue())
			boards, total = boards+1, total+value
			if labels[0].GetValue() == "other" {
				other = value
			}
		}
	}
	return boards, other, total
}

func counter(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}
