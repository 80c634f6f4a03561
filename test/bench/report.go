package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/conductord/conductord/test/bench/measure"
)

// report is everything that was measured.
type report struct {
	Began   time.Time    `json:"began"`
	Machine machine      `json:"machine"`
	Pairs   int          `json:"pairs"`
	Works   []workReport `json:"works"`
}

// machine is where it was measured.
type machine struct {
	System     string `json:"system"`
	Processors int    `json:"processors"`
	Go         string `json:"go"`
}

// workReport is one work over all pairs. The floor's figures are in commands
// where the work is one of flows, and in operations otherwise.
type workReport struct {
	work    `json:"-"`
	Name    string         `json:"name"`
	Load    measure.Load   `json:"load"`
	Pairs   []pair         `json:"pairs"`
	Ours    measure.Spread `json:"per_second"`
	Floor   measure.Spread `json:"floor_per_second"`
	Ratio   measure.Spread `json:"ratio"` // of the two, pair by pair
	Typical pair           `json:"typical"`
}

// pair is one run on each side.
type pair struct {
	Ours         measure.Run `json:"conductord"`
	Cost         cost        `json:"cost"`
	Floor        measure.Run `json:"floor"`
	FloorBytes   int         `json:"floor_command_bytes"`
	FloorEntries float64     `json:"floor_entries_per_operation"`
	Ratio        float64     `json:"ratio"`
}

func newReport(o options, works []work) *report {
	r := &report{
		Began: time.Now().UTC(), Pairs: o.pairs,
		Machine: machine{System: runtime.GOOS + "/" + runtime.GOARCH, Processors: runtime.NumCPU(), Go: runtime.Version()},
	}
	for _, w := range works {
		load := w.load
		load.Warm, load.Window = o.warm, o.window
		r.Works = append(r.Works, workReport{work: w, Name: w.name, Load: load})
	}
	return r
}

func (w *workReport) add(ours measure.Run, c cost, bare measure.Run, entries uint64, size int) {
	w.Pairs = append(w.Pairs, pair{
		Ours: ours, Cost: c, Floor: bare, FloorBytes: size,
		FloorEntries: measure.Share(float64(entries), float64(bare.Operations)),
		Ratio:        measure.Share(ours.PerSecond, bare.PerSecond),
	})
}

// finish sums the pairs up.
func (r *report) finish() {
	for i := range r.Works {
		w := &r.Works[i]
		w.Ours = w.spread(func(p pair) float64 { return p.Ours.PerSecond })
		w.Floor = w.spread(func(p pair) float64 { return p.Floor.PerSecond })
		w.Ratio = w.spread(func(p pair) float64 { return p.Ratio })
		w.Typical = w.typical()
	}
}

func (w *workReport) spread(of func(pair) float64) measure.Spread {
	var values []float64
	for _, p := range w.Pairs {
		values = append(values, of(p))
	}
	return measure.SpreadOf(values)
}

// typical is made of the medians over the pairs, figure by figure.
func (w *workReport) typical() pair {
	median := func(of func(pair) float64) float64 { return w.spread(of).Median }
	run := func(side func(pair) measure.Run) measure.Run {
		wait := func(of func(measure.Run) time.Duration) time.Duration {
			return time.Duration(median(func(p pair) float64 { return float64(of(side(p))) }))
		}
		return measure.Run{
			Operations: int(median(func(p pair) float64 { return float64(side(p).Operations) })),
			PerSecond:  median(func(p pair) float64 { return side(p).PerSecond }),
			P50:        wait(func(r measure.Run) time.Duration { return r.P50 }),
			P95:        wait(func(r measure.Run) time.Duration { return r.P95 }),
			P99:        wait(func(r measure.Run) time.Duration { return r.P99 }),
		}
	}
	return pair{
		Ours:  run(func(p pair) measure.Run { return p.Ours }),
		Floor: run(func(p pair) measure.Run { return p.Floor }),
		Cost: cost{
			EntriesPerOperation:  median(func(p pair) float64 { return p.Cost.EntriesPerOperation }),
			IndexPerOperation:    median(func(p pair) float64 { return p.Cost.IndexPerOperation }),
			CommandsPerOperation: median(func(p pair) float64 { return p.Cost.CommandsPerOperation }),
			CPUPerOperation:      time.Duration(median(func(p pair) float64 { return float64(p.Cost.CPUPerOperation) })),
			BytesPerOperation:    median(func(p pair) float64 { return p.Cost.BytesPerOperation }),
			Commands:             w.commands(),
			Disturbed:            w.disturbed() > 0,
		},
		FloorBytes:   int(median(func(p pair) float64 { return float64(p.FloorBytes) })),
		FloorEntries: median(func(p pair) float64 { return p.FloorEntries }),
		Ratio:        median(func(p pair) float64 { return p.Ratio }),
	}
}

func (w *workReport) commands() map[string]float64 {
	medians := map[string]float64{}
	for _, p := range w.Pairs {
		for name := range p.Cost.Commands {
			medians[name] = w.spread(func(p pair) float64 { return p.Cost.Commands[name] }).Median
		}
	}
	return medians
}

// disturbed is in how many pairs the leader changed.
func (w *workReport) disturbed() int {
	n := 0
	for _, p := range w.Pairs {
		if p.Cost.Disturbed {
			n++
		}
	}
	return n
}

func (r *report) writeJSON(to io.Writer) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func (r *report) writeTable(to io.Writer) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "work\tops/s\tp50\tp95\tp99\tfloor/s\tfloor p50\tratio (low to high)\tentries/op\tindex/op\tcommands/op\tbytes/op\tCPU/op\tfloor entries/op\t\n")
	for _, w := range r.Works {
		t := w.Typical
		fmt.Fprintf(table, "%s\t%.0f\t%s\t%s\t%s\t%.0f\t%s\t%.3f (%.3f to %.3f)\t%.3f\t%.3f\t%.3f\t%.0f\t%s\t%.3f\t\n",
			w.Name, w.Ours.Median, milliseconds(t.Ours.P50), milliseconds(t.Ours.P95), milliseconds(t.Ours.P99),
			w.Floor.Median, milliseconds(t.Floor.P50), w.Ratio.Median, w.Ratio.Low, w.Ratio.High,
			t.Cost.EntriesPerOperation, t.Cost.IndexPerOperation, t.Cost.CommandsPerOperation, t.Cost.BytesPerOperation, milliseconds(t.Cost.CPUPerOperation), t.FloorEntries)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("cannot write the table: %w", err)
	}
	for _, w := range r.Works {
		if n := w.disturbed(); n > 0 {
			fmt.Fprintf(to, "%s: the leader changed in %d of %d pairs\n", w.Name, n, len(w.Pairs))
		}
	}
	_, err := fmt.Fprintf(to, "\nmedians of %d pairs, on %s, %d processors, %s; the floor of flow works is in commands\n",
		r.Pairs, r.Machine.System, r.Machine.Processors, r.Machine.Go)
	return err
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}
