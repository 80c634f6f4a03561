package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// bench is a run of this program.
type bench struct {
	o      options
	dir    string
	report *report
	opened int // number of clusters and floors so far; each has its own directory
}

// place returns the name of a new directory.
func (b *bench) place() string {
	b.opened++
	return filepath.Join(b.dir, strconv.Itoa(b.opened))
}

// twoSides are conductord and the floor, while both work.
type twoSides struct {
	ours  *cluster
	floor *floor
	dirs  []string
}

// againstFloor does the chosen works on new clusters, pair by pair. It measures the first
// cluster while it is still idle.
func (b *bench) againstFloor(ctx context.Context) {
	works := b.o.chosen.works("")
	if len(works) == 0 && !b.o.chosen[idleName] {
		return
	}
	var stores [][]workReport
	for i, store := range b.o.LogStores {
		var entries []workReport
		for _, w := range works {
			name, against := w.name, floorSide
			if w.by == alone {
				against = ""
			}
			if i > 0 {
				name += " " + store
			}
			entries = append(entries, *newWorkReport(w, name, against, store, b.o))
		}
		stores = append(stores, entries)
	}
	for number := range b.o.Pairs {
		for i, store := range b.o.LogStores {
			if ctx.Err() == nil && (number == 0 || len(works) > 0) {
				b.pair(ctx, number, store, stores[i])
			}
		}
	}
	for _, entries := range stores {
		for i := range entries {
			entries[i].finish()
		}
		b.report.Works = append(b.report.Works, entries...)
	}
}

// pair does every work once on each side. After a failure, both sides start with new clusters.
func (b *bench) pair(ctx context.Context, number int, store string, entries []workReport) {
	var both *twoSides
	defer func() { both.close() }()
	if number == 0 && b.o.chosen[idleName] {
		if both = b.openBoth(ctx, store, b.report.fail); both != nil {
			b.idle(ctx, both.ours, "of an empty node with log store "+store)
		}
	}
	for i := range entries {
		w := &entries[i]
		if ctx.Err() != nil {
			return
		}
		fail := func(format string, args ...any) {
			w.fail("pair %d: "+format, append([]any{number + 1}, args...)...)
		}
		if both == nil {
			if both = b.openBoth(ctx, store, fail); both == nil {
				continue
			}
		}
		if err := both.do(ctx, w, number, b.o.Pairs); err != nil {
			fail("%v", err)
			both.close()
			both = nil
		}
	}
}

// openBoth starts both sides; nil if one of them does not start.
func (b *bench) openBoth(ctx context.Context, store string, fail func(format string, args ...any)) *twoSides {
	both := &twoSides{dirs: []string{b.place(), b.place()}}
	var err error
	if both.ours, err = startCluster(ctx, b.o.binary, both.dirs[0], store); err == nil {
		both.floor, err = startFloor(ctx, both.dirs[1], store)
	}
	if err != nil {
		fail("%v", err)
		both.close()
		return nil
	}
	return both
}

// close stops both sides and removes their files. It does nothing without sides.
func (both *twoSides) close() {
	if both == nil {
		return
	}
	if both.ours != nil {
		both.ours.close()
	}
	if both.floor != nil {
		if err := both.floor.close(); err != nil {
			progress("%v", err)
		}
	}
	for _, dir := range both.dirs {
		if err := os.RemoveAll(dir); err != nil {
			progress("cannot remove %s: %v", dir, err)
		}
	}
}

// do does one work on each side.
func (both *twoSides) do(ctx context.Context, w *workReport, number, pairs int) error {
	ours, err := both.ours.measure(ctx, w.work, w.Load, false)
	if err != nil {
		return fmt.Errorf("on conductord: %w", err)
	}
	var bare side
	if w.by != alone {
		if bare, err = both.floor.measure(ctx, w.floorLoad(w.Load), w.floorBytes(ours.Cost)); err != nil {
			return fmt.Errorf("on bare raft: %w", err)
		}
	}
	w.tell(number, pairs, w.add(ours, bare))
	return nil
}

// tell prints the result of a pair.
func (w *workReport) tell(number, pairs int, p pair) {
	text := fmt.Sprintf("%s, pair %d of %d: %s", w.Name, number+1, pairs, told(p.Ours))
	if w.Against != "" {
		text += fmt.Sprintf("; %s: %s; ratio %.2f, of p50 %.2f", w.Against, told(p.Other), p.Ratio, p.P50Ratio)
	}
	progress("%s", text)
}

func told(s side) string {
	cpu := microseconds(s.Cost.Leader.CPU)
	return fmt.Sprintf("%.0f/s, p50 %s ms, p99 %s ms, leader's CPU %.0f µs/op", s.PerSecond, milliseconds(s.P50), milliseconds(s.P99), cpu)
}
