package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/test/bench/measure"
)

// twoPairs is a report of one work whose runs differ.
func twoPairs() *report {
	o := options{pairs: 2, warm: time.Second, window: 2 * time.Second}
	r := newReport(o, chosen("post-64"))
	w := &r.Works[0]
	w.add(measure.Run{Operations: 100, PerSecond: 50, P50: 10 * time.Millisecond}, cost{EntriesPerOperation: 0.5, Commands: map[string]float64{"post": 1}},
		measure.Run{Operations: 400, PerSecond: 200}, 20, 600)
	w.add(measure.Run{Operations: 200, PerSecond: 100, P50: 20 * time.Millisecond}, cost{EntriesPerOperation: 0.3, Disturbed: true},
		measure.Run{Operations: 400, PerSecond: 200}, 40, 600)
	r.finish()
	return r
}

func TestReport(t *testing.T) {
	w := twoPairs().Works[0]
	if want := (measure.Spread{Median: 0.375, Low: 0.25, High: 0.5}); w.Ratio != want {
		t.Errorf("the ratio is %+v, want %+v", w.Ratio, want)
	}
	for _, row := range []struct {
		what      string
		got, want float64
	}{
		{"p50 in ms", float64(w.Typical.Ours.P50) / 1e6, 15},
		{"entries", w.Typical.Cost.EntriesPerOperation, 0.4},
		{"posts", w.Typical.Cost.Commands["post"], 0.5},
		{"entries of the floor", w.Typical.FloorEntries, 0.075},
		{"pairs with a change of leader", float64(w.disturbed()), 1},
	} {
		if diff := row.got - row.want; diff > 1e-9 || diff < -1e-9 {
			t.Errorf("%s: %v, want %v", row.what, row.got, row.want)
		}
	}
}

func TestReportIsWritten(t *testing.T) {
	var table, document bytes.Buffer
	r := twoPairs()
	if err := r.writeTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"post-64", "0.375 (0.250 to 0.500)", "15.00 ms", "the leader changed in 1 of 2 pairs", "medians of 2 pairs"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, table.String())
		}
	}
	if err := r.writeJSON(&document); err != nil {
		t.Fatal(err)
	}
	var read report
	if err := json.Unmarshal(document.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	if len(read.Works) != 1 || len(read.Works[0].Pairs) != 2 || read.Works[0].Load.Window != 2*time.Second {
		t.Errorf("read back: %+v", read)
	}
}

// TestFloorProposesWhatTheWorkDid holds that the other side carries as many
// bytes a call as ours, and single commands where an operation is several.
func TestFloorProposesWhatTheWorkDid(t *testing.T) {
	measured := cost{BytesPerOperation: 600, CommandsPerOperation: 4}
	for _, row := range []struct {
		work           string
		bytes, perCall int
	}{
		{"post-1", 600, 1},
		{"post-16x100", 60_000, 100},
		{"flow-64", 150, 1},
	} {
		w := chosen(row.work)[0]
		if bytes, load := w.floorBytes(measured), w.floorLoad(w.load); bytes != row.bytes || load.PerCall != row.perCall || load.Callers != w.load.Callers {
			t.Errorf("%s: commands of %d bytes under %+v", row.work, bytes, load)
		}
	}
}

func TestCostBetween(t *testing.T) {
	before := mark{counters: measure.Counters{"conductord_entries_total": 10}, index: 12, term: 2}
	after := mark{
		counters: measure.Counters{
			"process_cpu_seconds_total": 1, "conductord_entries_total": 60, "conductord_entry_bytes_sum": 60_000,
			"conductord_commands_total{post}": 100, "conductord_commands_total{consume}": 50,
		},
		index: 72, term: 3,
	}
	c := costBetween(before, after, 100)
	for _, row := range []struct {
		what      string
		got, want float64
	}{
		{"entries", c.EntriesPerOperation, 0.5},
		{"index", c.IndexPerOperation, 0.6},
		{"bytes", c.BytesPerOperation, 600},
		{"commands", c.CommandsPerOperation, 1.5},
		{"CPU time in ms", float64(c.CPUPerOperation.Milliseconds()), 10},
		{"consumes", c.Commands["consume"], 0.5},
	} {
		if row.got != row.want {
			t.Errorf("%s: %v, want %v", row.what, row.got, row.want)
		}
	}
	if !c.Disturbed {
		t.Error("the change of the leader went unseen")
	}
}
