package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/internal/measure"
)

const second = time.Second

// workNamed is a work of the list.
func workNamed(t *testing.T, name string) work {
	t.Helper()
	for _, w := range works() {
		if w.name == name {
			return w
		}
	}
	t.Fatalf("no work %s", name)
	return work{}
}

func reportOf(t *testing.T, name, against string) *workReport {
	t.Helper()
	return newWorkReport(workNamed(t, name), name, against, "bolt", options{Warm: second, Window: 2 * second})
}

func ran(perSecond float64, p50 time.Duration, c cost) side {
	return side{Run: measure.Run{Operations: int(perSecond), PerSecond: perSecond, P50: p50}, Cost: c}
}

func near(got, want float64) bool { return got-want < 1e-9 && want-got < 1e-9 }

// TestRatios checks the compared figures for each kind of work.
func TestRatios(t *testing.T) {
	ms := time.Millisecond
	for _, row := range []struct {
		name, work, against string
		ours, other         side
		ratio, p50Ratio     float64
	}{
		{"operations", "post-64", floorSide, ran(50, 10*ms, cost{Commands: 0.05}), ran(200, 4*ms, cost{}), 0.25, 2.5},
		{"commands, of which an operation is several", "claim-16", floorSide, ran(50, 10*ms, cost{Commands: 2}), ran(200, 4*ms, cost{}), 0.5, 2.5},
		{"nothing", "read-64", "", ran(50, 10*ms, cost{}), side{}, 0, 0},
		{"operations among many and few", "claim-16", "among 1000", ran(90, 10*ms, cost{Commands: 2}), ran(100, 8*ms, cost{}), 0.9, 1.25},
		{"times among many and few", "start-1", "among 1000", ran(90, 10*ms, cost{}), ran(95, 8*ms, cost{}), 0.8, 1.25},
		{"a side that did nothing", "post-64", floorSide, ran(50, 10*ms, cost{}), side{}, 0, 0},
	} {
		w := reportOf(t, row.work, row.against)
		if p := w.add(row.ours, row.other); !near(p.Ratio, row.ratio) || !near(p.P50Ratio, row.p50Ratio) || len(w.Pairs) != 1 {
			t.Errorf("%s: %v, of p50 %v; want %v and %v", row.name, p.Ratio, p.P50Ratio, row.ratio, row.p50Ratio)
		}
	}
}

// twoPairs is a work whose runs differ.
func twoPairs(t *testing.T) *workReport {
	w := reportOf(t, "post-64", floorSide)
	usage := func(cpu time.Duration, resident float64) measure.Usage {
		return measure.Usage{CPU: cpu, Allocations: 100, LogWrites: 0.25, Resident: resident}
	}
	w.add(ran(50, 10*time.Millisecond, cost{Entries: 0.5, Leader: usage(10, 30<<20), ByName: map[string]float64{"post": 1}}), ran(200, time.Millisecond, cost{}))
	w.add(ran(100, 20*time.Millisecond, cost{Entries: 0.3, Leader: usage(30, 50<<20), Disturbed: true}), ran(200, time.Millisecond, cost{}))
	w.finish()
	return w
}

func TestWorkIsSummedUp(t *testing.T) {
	w := twoPairs(t)
	if want := (measure.Spread{Median: 0.375, Low: 0.25, High: 0.5}); w.Ratio != want {
		t.Errorf("the ratio is %+v, want %+v", w.Ratio, want)
	}
	typical := w.Typical.Ours
	for _, row := range []struct {
		what      string
		got, want float64
	}{
		{"p50 in ms", inMilliseconds(typical.P50), 15},
		{"the ratio of p50", w.P50Ratio.Median, 15},
		{"entries", typical.Cost.Entries, 0.4},
		{"the leader's CPU in ns", float64(typical.Cost.Leader.CPU), 20},
		{"the leader's memory in MiB", mebibytes(typical.Cost.Leader.Resident), 40},
		{"posts", typical.Cost.ByName["post"], 0.5},
		{"pairs with a change of leader", float64(w.disturbed()), 1},
	} {
		if !near(row.got, row.want) {
			t.Errorf("%s: %v, want %v", row.what, row.got, row.want)
		}
	}
	if want := []verdict{{Goal: "ratio ≥ 0.7", Value: 0.375, Met: false}}; !slices.Equal(w.Goals, want) {
		t.Errorf("the goals are %v, want %v", w.Goals, want)
	}
	none := reportOf(t, "post-64", floorSide)
	if none.finish(); none.Goals != nil {
		t.Errorf("a work that was not done has met or missed goals: %v", none.Goals)
	}
}

func TestGoals(t *testing.T) {
	spread := measure.Spread{Median: 2, Low: 1, High: 3}
	for _, row := range []struct {
		goal  goal
		worst float64
		met   bool
		text  string
	}{
		{atMost("", 3, nil), 3, true, "≤ 3: yes"},
		{atMost("entries/op", 2.5, nil), 3, false, "entries/op ≤ 2.5: no"},
		{atLeast("", 1, nil), 1, true, "≥ 1: yes"},
		{atLeast("ratio", 1.5, nil), 1, false, "ratio ≥ 1.5: no"},
	} {
		worst := row.goal.worst(spread)
		if v := row.goal.judge(worst); worst != row.worst || v.Met != row.met || v.String() != row.text {
			t.Errorf("%v of %v: %v", row.goal, worst, v)
		}
	}
}

func TestReportIsWritten(t *testing.T) {
	r := &report{Options: options{Window: 2 * second}, Machine: machine{Processors: 2, Model: "some processor"}}
	r.Works = []workReport{*twoPairs(t), *reportOf(t, "claim-16", floorSide), *reportOf(t, "read-64", "")}
	r.Works[1].fail("pair %d: no luck", 1)
	atMostTwo := atMost("", 2, nil)
	r.figure("memory", "MiB", &atMostTwo, 1, 2.5, 1.5)
	r.fail("the disk is full")
	if !r.failed() {
		t.Error("nothing has failed")
	}
	var table, document bytes.Buffer
	if err := errors.Join(r.writeTable(&table), r.writeJSON(&document)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| post-64 ", " 0.38 (0.25 to 0.50) ", " 15.0, 0, 0, 0 ", " ratio ≥ 0.7: no ", " 0.500, 0.000 ", "the leader changed in 1 of 2 pairs",
		"| claim-16 ", "claim-16: pair 1: no luck", "| read-64 ", "| memory ", " 1.50 MiB (1.00 to 2.50) ", " ≤ 2: no ", "the disk is full", "2s windows", "some processor",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, table.String())
		}
	}
	width := 0
	for _, line := range strings.Split(table.String(), "\n") {
		if !strings.HasPrefix(line, "|") {
			width = 0 // the next table
			continue
		}
		if n := strings.Count(line, "|"); width != 0 && n != width {
			t.Errorf("a row has %d bounds, the one before it %d: %s", n, width, line)
		} else {
			width = n
		}
	}
	var read report
	if err := json.Unmarshal(document.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	if len(read.Works) != 3 || len(read.Works[0].Pairs) != 2 || read.Works[0].Load.Window != 2*second || len(read.Figures) != 1 || len(read.Failures) != 1 {
		t.Errorf("read back: %+v", read)
	}
}

// TestFloorProposesWhatTheWorkDid checks that the floor carries as many bytes per call as
// conductord, and single commands where an operation has several.
func TestFloorProposesWhatTheWorkDid(t *testing.T) {
	measured := cost{Bytes: 600, Commands: 4}
	for _, row := range []struct {
		work           string
		bytes, perCall int
	}{
		{"post-1", 600, 1},
		{"post-16x100", 60_000, 100},
		{"flow-64", 150, 1},
		{"claim-16", 150, 1},
		{"start-1", 150, 1},
	} {
		w := workNamed(t, row.work)
		if bytes, load := w.floorBytes(measured), w.floorLoad(w.load); bytes != row.bytes || load.PerCall != row.perCall || load.Callers != w.load.Callers {
			t.Errorf("%s: commands of %d bytes under %+v", row.work, bytes, load)
		}
	}
}

func TestCostBetween(t *testing.T) {
	before := mark{
		leader: "node1", term: 2, index: 12, counters: measure.Counters{"conductord_entries_total": 10},
		nodes: map[string]measure.Usage{"node1": {CPU: second}, "node2": {CPU: second}, "node3": {}},
	}
	after := mark{
		leader: "node1", term: 2, index: 72, counters: measure.Counters{
			"conductord_entries_total": 60, "conductord_entry_bytes_sum": 60_000,
			"conductord_commands_total{post}": 100, "conductord_commands_total{consume}": 50,
		},
		nodes: map[string]measure.Usage{
			"node1": {CPU: 3 * second, LogWrites: 50, Resident: 7}, "node2": {CPU: 2 * second, Resident: 3}, "node3": {CPU: 3 * second, Resident: 5},
		},
		callers: measure.Usage{CPU: second / 2},
	}
	c := costBetween(before, after, 100)
	for _, row := range []struct {
		what      string
		got, want float64
	}{
		{"entries", c.Entries, 0.5},
		{"index", c.Index, 0.6},
		{"bytes", c.Bytes, 600},
		{"commands", c.Commands, 1.5},
		{"consumes", c.ByName["consume"], 0.5},
		{"the leader's CPU time in ms", inMilliseconds(c.Leader.CPU), 20},
		{"a follower's CPU time in ms", inMilliseconds(c.Followers.CPU), 20},
		{"the callers' CPU time in ms", inMilliseconds(c.Callers.CPU), 5},
		{"the leader's writes", c.Leader.LogWrites, 0.5},
		{"a follower's memory", c.Followers.Resident, 4},
	} {
		if !near(row.got, row.want) {
			t.Errorf("%s: %v, want %v", row.what, row.got, row.want)
		}
	}
	if c.Disturbed {
		t.Error("the leader did not change")
	}
	for _, change := range []func(*mark){func(m *mark) { m.term++ }, func(m *mark) { m.leader = "node2" }} {
		changed := after
		if change(&changed); !costBetween(before, changed, 100).Disturbed {
			t.Error("the change of the leader went unseen")
		}
	}
}
