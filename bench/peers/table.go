package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/internal/measure"
)

// result is the result of one work on one side.
type result struct {
	measure.Run
	cpu time.Duration // per operation: all servers, and this program
}

func (r result) String() string {
	return fmt.Sprintf("%.0f/s, p50 %s ms, p99 %s ms, CPU %d µs", r.PerSecond, milliseconds(r.P50), milliseconds(r.P99), r.cpu.Microseconds())
}

// row is a work of a peer: its rounds, each on the peer, on one node and on three nodes.
type row struct {
	peer, work string
	rounds     [][3]result
}

func (r *row) add(results [3]result) { r.rounds = append(r.rounds, results) }

// median is the median of a figure of one side.
func (r *row) median(side int, figure func(result) float64) float64 {
	var values []float64
	for _, round := range r.rounds {
		values = append(values, figure(round[side]))
	}
	return measure.SpreadOf(values).Median
}

// ratio compares a side's rate with the peer's rate, round by round.
func (r *row) ratio(side int) string {
	var values []float64
	for _, round := range r.rounds {
		values = append(values, measure.Share(round[side].PerSecond, round[0].PerSecond))
	}
	spread := measure.SpreadOf(values)
	return fmt.Sprintf("%.2f (%.2f to %.2f)", spread.Median, spread.Low, spread.High)
}

// report contains the measured works, and the works that could not be measured.
type report struct {
	options  options
	rows     []row
	settings []string
	notes    []string
	failed   bool
}

func (r *report) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	progress("%s", text)
	r.notes = append(r.notes, text)
}

func (r *report) fail(format string, args ...any) {
	r.failed = true
	r.note(format, args...)
}

// setting records the description of a side, once.
func (r *report) setting(name, about string) {
	if line := name + ": " + about; !slices.Contains(r.settings, line) {
		progress("%s", line)
		r.settings = append(r.settings, line)
	}
}

// markdown is the whole report.
func (r *report) markdown() string {
	var text strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&text, "| %s |\n", strings.Join(cells, " | ")) }
	rate := func(x result) float64 { return x.PerSecond }
	line("peer", "work", "peer /s", "one node /s", "of the peer (low to high)", "three nodes /s", "of the peer (low to high)")
	line(slices.Repeat([]string{"---"}, 7)...)
	measured := slices.DeleteFunc(slices.Clone(r.rows), func(one row) bool { return len(one.rounds) == 0 })
	for _, one := range measured {
		line(one.peer, one.work, number(one.median(0, rate)), number(one.median(1, rate)), one.ratio(1), number(one.median(2, rate)), one.ratio(2))
	}
	text.WriteByte('\n')
	line("peer", "work", "p50, p99 ms: peer", "one node", "three nodes", "CPU µs an operation: peer, one node, three nodes")
	line(slices.Repeat([]string{"---"}, 6)...)
	for _, one := range measured {
		var times, cpu []string
		for side := range 3 {
			p50 := one.median(side, func(x result) float64 { return float64(x.P50) })
			p99 := one.median(side, func(x result) float64 { return float64(x.P99) })
			times = append(times, milliseconds(time.Duration(p50))+", "+milliseconds(time.Duration(p99)))
			cpu = append(cpu, number(one.median(side, func(x result) float64 { return float64(x.cpu.Microseconds()) })))
		}
		line(one.peer, one.work, times[0], times[1], times[2], strings.Join(cpu, ", "))
	}
	fmt.Fprintf(&text, "\nMedians of %d rounds with %s windows, with the extremes of the ratios.\n\n", r.options.pairs, r.options.window)
	for _, one := range append(slices.Clone(r.settings), r.notes...) {
		fmt.Fprintf(&text, "- %s\n", one)
	}
	return text.String()
}

func milliseconds(d time.Duration) string { return number(float64(d) / float64(time.Millisecond)) }

// number formats a value with three significant digits.
func number(value float64) string {
	switch {
	case value >= 100:
		return fmt.Sprintf("%.0f", value)
	case value >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}
