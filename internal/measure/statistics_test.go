package measure_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/internal/measure"
)

func TestQuantile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for _, row := range []struct {
		name   string
		values []int
		q      float64
		want   int
	}{
		{"none", nil, 0.5, 0},
		{"one", []int{7}, 0.99, 7},
		{"the least", hundred, 0, 1},
		{"the middle of an even number", hundred, 0.50, 50},
		{"the middle of an odd number", []int{1, 2, 9}, 0.50, 2},
		{"far up", hundred, 0.99, 99},
		{"the most", hundred, 1, 100},
		{"a rank between two values is the upper one", []int{1, 2, 3}, 0.34, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := measure.Quantile(row.values, row.q); got != row.want {
				t.Errorf("got %d, want %d", got, row.want)
			}
		})
	}
}

func TestSpreadOf(t *testing.T) {
	for _, row := range []struct {
		name   string
		values []float64
		want   measure.Spread
	}{
		{"none", nil, measure.Spread{}},
		{"one", []float64{3}, measure.Spread{Median: 3, Low: 3, High: 3}},
		{"an odd number", []float64{9, 1, 2}, measure.Spread{Median: 2, Low: 1, High: 9}},
		{"an even number", []float64{4, 1, 2, 9}, measure.Spread{Median: 3, Low: 1, High: 9}},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := append([]float64(nil), row.values...)
			if got := measure.SpreadOf(row.values); got != row.want {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
			for i := range before {
				if row.values[i] != before[i] {
					t.Fatalf("the values have been changed to %v", row.values)
				}
			}
		})
	}
}

func TestShareOfNothing(t *testing.T) {
	if got := measure.Share(5, 0); got != 0 {
		t.Errorf("got %v", got)
	}
	if got := measure.Share(1, 4); got != 0.25 {
		t.Errorf("got %v", got)
	}
}

const exposed = `# TYPE conductord_entries_total counter
conductord_entries_total 12
# TYPE conductord_commands_total counter
conductord_commands_total{command="post"} 30
conductord_commands_total{command="consume"} 4
# TYPE conductord_entry_bytes histogram
conductord_entry_bytes_bucket{le="64"} 1
conductord_entry_bytes_bucket{le="+Inf"} 12
conductord_entry_bytes_sum 9000
conductord_entry_bytes_count 12
# TYPE raft_fsm_snapshot summary
raft_fsm_snapshot{quantile="0.5"} 2
raft_fsm_snapshot_sum 3
raft_fsm_snapshot_count 2
# TYPE conductord_leading gauge
conductord_leading 1
# TYPE conductord_forwarded_calls_total counter
conductord_forwarded_calls_total{call="Post",code="ok"} 3
`

func TestCounters(t *testing.T) {
	before, err := measure.ReadCounters(strings.NewReader(exposed))
	if err != nil {
		t.Fatal(err)
	}
	want := measure.Counters{
		"conductord_entries_total": 12, "conductord_commands_total{post}": 30, "conductord_commands_total{consume}": 4,
		"conductord_entry_bytes_sum": 9000, "conductord_entry_bytes_count": 12,
		"raft_fsm_snapshot_sum": 3, "raft_fsm_snapshot_count": 2,
	}
	same(t, before, want)

	later, err := measure.ReadCounters(strings.NewReader(strings.Replace(exposed, "conductord_entries_total 12", "conductord_entries_total 15", 1)))
	if err != nil {
		t.Fatal(err)
	}
	same(t, later.Since(before), measure.Counters{"conductord_entries_total": 3})

	sum := measure.Counters{}
	sum.Add(before)
	sum.Add(later)
	if got := sum["conductord_entries_total"]; got != 27 {
		t.Errorf("the sum is %v", got)
	}
	if _, err := measure.ReadCounters(strings.NewReader("<html>")); err == nil {
		t.Error("a page is no metrics")
	}
}

func same(t *testing.T, got, want measure.Counters) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s is %v, want %v", key, got[key], value)
		}
	}
}
