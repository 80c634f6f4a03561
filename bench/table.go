package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/conductord/conductord/internal/measure"
)

// fsyncsPerWrite is the number of fsyncs per write of a log store. raft-boltdb syncs the
// pages, and then the meta page that makes them valid. raft-wal syncs the entries once.
func fsyncsPerWrite(store string) float64 {
	if store == "wal" {
		return 1
	}
	return 2
}

// writeTable writes the report as Markdown: the results of the works, the cost of each
// operation, the figures of the nodes, and the errors.
func (r *report) writeTable(to io.Writer) error {
	var text strings.Builder
	var results, costs, nodes [][]string
	for i := range r.Works {
		results, costs = append(results, r.Works[i].result()), append(costs, r.Works[i].costs())
	}
	for _, f := range r.Figures {
		goal := "-"
		if f.Goal != nil {
			goal = f.Goal.String()
		}
		nodes = append(nodes, []string{f.Name, f.shown(), goal})
	}
	markdown(&text, []string{
		"work", "operations/s", "p50, p95, p99, p99.9 ms", "against", "its /s", "its p50 ms",
		"ratio (low to high)", "of p50 (low to high)", "goals",
	}, results)
	markdown(&text, []string{
		"an operation of", "entries", "commands", "bytes", "fsyncs: leader, follower", "CPU µs: leader, follower, callers",
		"the other's CPU µs", "allocations: leader, follower", "memory MiB: leader, follower",
	}, costs)
	markdown(&text, []string{"nodes", "median (low to high)", "goal"}, nodes)
	r.writeNotes(&text)
	if _, err := io.WriteString(to, text.String()); err != nil {
		return fmt.Errorf("cannot write the table: %w", err)
	}
	return nil
}

func (r *report) writeNotes(to *strings.Builder) {
	m := r.Machine
	fmt.Fprintf(to, "Medians, with the extremes of the pairs; %s windows. %s, %d processors (%s), %.0f GiB, %s, load average before: %s. Began %s.\n",
		r.Options.Window, m.System, m.Processors, m.Model, m.Memory, m.Go, m.LoadAverage, r.Began.Format(time.DateTime))
	for i := range r.Works {
		w := &r.Works[i]
		if n := w.disturbed(); n > 0 {
			fmt.Fprintf(to, "%s: the leader changed in %d of %d pairs\n", w.Name, n, len(w.Pairs))
		}
		for _, failure := range w.Failures {
			fmt.Fprintf(to, "%s: %s\n", w.Name, failure)
		}
	}
	for _, failure := range r.Failures {
		fmt.Fprintln(to, failure)
	}
}

// result is the result of a work.
func (w *workReport) result() []string {
	if len(w.Pairs) == 0 {
		return []string{w.Name, "-", "-", orDash(w.Against), "-", "-", "-", "-", "-"}
	}
	ours := w.Typical.Ours
	row := []string{
		w.Name, fmt.Sprintf("%.0f", w.Ours.Median),
		list("%s", milliseconds(ours.P50), milliseconds(ours.P95), milliseconds(ours.P99), milliseconds(ours.P999)),
	}
	if w.Against == "" {
		row = append(row, "-", "-", "-", "-", "-")
	} else {
		row = append(row, w.Against, fmt.Sprintf("%.0f", w.Other.Median), milliseconds(w.Typical.Other.P50), ratios(w.Ratio), ratios(w.P50Ratio))
	}
	var goals []string
	for _, v := range w.Goals {
		goals = append(goals, v.String())
	}
	return append(row, orDash(strings.Join(goals, "; ")))
}

// costs are the costs of each operation of a work.
func (w *workReport) costs() []string {
	if len(w.Pairs) == 0 {
		return []string{w.Name, "-", "-", "-", "-", "-", "-", "-", "-"}
	}
	ours, other := w.Typical.Ours.Cost, w.Typical.Other.Cost
	theirs := "-"
	if w.Against != "" {
		theirs = list("%.0f", microseconds(other.Leader.CPU), microseconds(other.Followers.CPU))
	}
	return []string{
		w.Name, fmt.Sprintf("%.3f", ours.Entries), fmt.Sprintf("%.3f", ours.Commands), fmt.Sprintf("%.0f", ours.Bytes),
		list("%.3f", fsyncsPerWrite(w.LogStore)*ours.Leader.LogWrites, fsyncsPerWrite(w.LogStore)*ours.Followers.LogWrites),
		list("%.0f", microseconds(ours.Leader.CPU), microseconds(ours.Followers.CPU), microseconds(ours.Callers.CPU)), theirs,
		list("%.0f", ours.Leader.Allocations, ours.Followers.Allocations),
		list("%.0f", mebibytes(ours.Leader.Resident), mebibytes(ours.Followers.Resident)),
	}
}

// markdown writes a table with aligned columns; nothing without rows.
func markdown(to *strings.Builder, header []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	widths := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(row []string) {
		for i, cell := range row {
			fmt.Fprintf(to, "| %-*s ", widths[i], cell)
		}
		to.WriteString("|\n")
	}
	line(header)
	for _, width := range widths {
		to.WriteString("|" + strings.Repeat("-", width+len("  ")))
	}
	to.WriteString("|\n")
	for _, row := range rows {
		line(row)
	}
	to.WriteByte('\n')
}

// list is several values in one cell.
func list[T any](format string, values ...T) string {
	cells := make([]string, len(values))
	for i, value := range values {
		cells[i] = fmt.Sprintf(format, value)
	}
	return strings.Join(cells, ", ")
}

func ratios(s measure.Spread) string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", s.Median, s.Low, s.High)
}

// number formats a value with three significant digits.
func number(value float64) string {
	switch {
	case value == 0:
		return "0"
	case value >= 100:
		return fmt.Sprintf("%.0f", value)
	case value >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

func milliseconds(d time.Duration) string { return number(inMilliseconds(d)) }

func inMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func mebibytes(bytes float64) float64 {
	const mebi = 1 << 20
	return bytes / mebi
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
