package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/conductord/conductord/internal/measure"
)

// report is everything that was measured.
type report struct {
	Began   time.Time    `json:"began"`
	Machine machine      `json:"machine"`
	Options options      `json:"options"`
	Works   []workReport `json:"works"`
	Figures []figure     `json:"figures"`
	// Failures are the failures that belong to no single work or figure.
	Failures []string `json:"failures,omitempty"`
}

// workReport is one work over all pairs: conductord against the floor, or many waiting jobs
// against few. The floor's figures count single commands, unless the work compares operations.
type workReport struct {
	work     `json:"-"`
	Name     string         `json:"name"`
	Against  string         `json:"against,omitempty"`
	LogStore string         `json:"log_store"`
	Load     measure.Load   `json:"load"`
	Pairs    []pair         `json:"pairs"`
	Ours     measure.Spread `json:"per_second"`
	Other    measure.Spread `json:"other_per_second"`
	Ratio    measure.Spread `json:"ratio"` // ratios of the two sides, pair by pair
	P50Ratio measure.Spread `json:"p50_ratio"`
	Typical  pair           `json:"typical"`
	Goals    []verdict      `json:"goals,omitempty"`
	Failures []string       `json:"failures,omitempty"`
}

// pair is one run on each side.
type pair struct {
	Ours     side    `json:"ours"`
	Other    side    `json:"other"`
	Ratio    float64 `json:"ratio"`
	P50Ratio float64 `json:"p50_ratio"` // our value divided by the other side's
}

// floorSide is the name of the other side of a work, unless the work is compared with itself.
const floorSide = "the floor"

// newWorkReport makes the report of a work and of the side that it is compared with; empty: no
// comparison.
func newWorkReport(w work, name, against, store string, o options) *workReport {
	load := w.load
	load.Warm, load.Window = o.Warm, o.Window
	return &workReport{work: w, Name: name, Against: against, LogStore: store, Load: load}
}

// add adds a pair, and returns it with its ratios.
func (w *workReport) add(ours, other side) pair {
	p := pair{Ours: ours, Other: other, P50Ratio: measure.Share(float64(ours.P50), float64(other.P50))}
	switch {
	case w.Against == "":
		p.P50Ratio = 0
	case w.Against == floorSide && w.by == byCommands:
		p.Ratio = measure.Share(ours.PerSecond*ours.Cost.Commands, other.PerSecond)
	case w.Against != floorSide && w.by == byP50:
		p.Ratio = measure.Share(float64(other.P50), float64(ours.P50)) // inverted, so that less than 1 is slower, as with rates
	default:
		p.Ratio = measure.Share(ours.PerSecond, other.PerSecond)
	}
	w.Pairs = append(w.Pairs, p)
	return p
}

// finish sums the pairs up.
func (w *workReport) finish() {
	w.Ours = w.spread(func(p pair) float64 { return p.Ours.PerSecond })
	w.Other = w.spread(func(p pair) float64 { return p.Other.PerSecond })
	w.Ratio = w.spread(func(p pair) float64 { return p.Ratio })
	w.P50Ratio = w.spread(func(p pair) float64 { return p.P50Ratio })
	w.Typical = pair{
		Ours: w.typical(func(p pair) side { return p.Ours }), Other: w.typical(func(p pair) side { return p.Other }),
		Ratio: w.Ratio.Median, P50Ratio: w.P50Ratio.Median,
	}
	w.Goals = nil
	for _, g := range w.goals {
		if len(w.Pairs) > 0 {
			w.Goals = append(w.Goals, g.judge(g.of(w)))
		}
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
func (w *workReport) typical(of func(pair) side) side {
	median := func(figure func(side) float64) float64 {
		return w.spread(func(p pair) float64 { return figure(of(p)) }).Median
	}
	wait := func(figure func(side) time.Duration) time.Duration {
		return time.Duration(median(func(s side) float64 { return float64(figure(s)) }))
	}
	usage := func(part func(side) measure.Usage) measure.Usage {
		return measure.Usage{
			CPU:         wait(func(s side) time.Duration { return part(s).CPU }),
			Allocations: median(func(s side) float64 { return part(s).Allocations }),
			Allocated:   median(func(s side) float64 { return part(s).Allocated }),
			LogWrites:   median(func(s side) float64 { return part(s).LogWrites }),
			Resident:    median(func(s side) float64 { return part(s).Resident }),
		}
	}
	return side{
		Run: measure.Run{
			Operations: int(median(func(s side) float64 { return float64(s.Operations) })),
			PerSecond:  median(func(s side) float64 { return s.PerSecond }),
			P50:        wait(func(s side) time.Duration { return s.P50 }),
			P95:        wait(func(s side) time.Duration { return s.P95 }),
			P99:        wait(func(s side) time.Duration { return s.P99 }),
			P999:       wait(func(s side) time.Duration { return s.P999 }),
		},
		Cost: cost{
			Entries:   median(func(s side) float64 { return s.Cost.Entries }),
			Index:     median(func(s side) float64 { return s.Cost.Index }),
			Commands:  median(func(s side) float64 { return s.Cost.Commands }),
			Bytes:     median(func(s side) float64 { return s.Cost.Bytes }),
			Leader:    usage(func(s side) measure.Usage { return s.Cost.Leader }),
			Followers: usage(func(s side) measure.Usage { return s.Cost.Followers }),
			Callers:   usage(func(s side) measure.Usage { return s.Cost.Callers }),
			ByName:    w.byName(of),
			Disturbed: w.disturbed() > 0,
		},
		CommandBytes: int(median(func(s side) float64 { return float64(s.CommandBytes) })),
		Waiting:      uint64(median(func(s side) float64 { return float64(s.Waiting) })),
	}
}

func (w *workReport) byName(of func(pair) side) map[string]float64 {
	medians := map[string]float64{}
	for _, p := range w.Pairs {
		for name := range of(p).Cost.ByName {
			medians[name] = w.spread(func(p pair) float64 { return of(p).Cost.ByName[name] }).Median
		}
	}
	return medians
}

// disturbed is the number of pairs in which the leader changed.
func (w *workReport) disturbed() int {
	n := 0
	for _, p := range w.Pairs {
		if p.Ours.Cost.Disturbed || p.Other.Cost.Disturbed {
			n++
		}
	}
	return n
}

// figure is a measurement of nodes, with each of its values.
type figure struct {
	Name   string         `json:"name"`
	Unit   string         `json:"unit"`
	Values []float64      `json:"values"`
	Spread measure.Spread `json:"spread"`
	Goal   *verdict       `json:"goal,omitempty"`
}

// figure adds a measured figure to the report, and compares its worst value with the goal; g
// may be nil.
func (r *report) figure(name, unit string, g *goal, values ...float64) {
	f := figure{Name: name, Unit: unit, Values: values, Spread: measure.SpreadOf(values)}
	if g != nil && len(values) > 0 {
		judged := g.judge(g.worst(f.Spread))
		f.Goal = &judged
	}
	r.Figures = append(r.Figures, f)
	progress("%s: %s", f.Name, f.shown())
}

func (f figure) shown() string {
	if len(f.Values) == 0 {
		return "-"
	}
	if len(f.Values) == 1 {
		return fmt.Sprintf("%s %s", number(f.Spread.Median), f.Unit)
	}
	return fmt.Sprintf("%s %s (%s to %s)", number(f.Spread.Median), f.Unit, number(f.Spread.Low), number(f.Spread.High))
}

// failed reports whether any measurement failed.
func (r *report) failed() bool {
	for _, w := range r.Works {
		if len(w.Failures) > 0 {
			return true
		}
	}
	return len(r.Failures) > 0
}

func (r *report) fail(format string, args ...any) {
	failure := fmt.Sprintf(format, args...)
	r.Failures = append(r.Failures, failure)
	progress("%s", failure)
}

func (w *workReport) fail(format string, args ...any) {
	failure := fmt.Sprintf(format, args...)
	w.Failures = append(w.Failures, failure)
	progress("%s: %s", w.Name, failure)
}

func (r *report) writeJSON(to io.Writer) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("cannot write the report: %w", err)
	}
	return nil
}
