package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/conductord/conductord/jobs"
)

const (
	// slowFill is the lowest rate at which a cluster is filled; a slower one is treated as stopped.
	slowFill = 200
	// fillTold is the interval of progress lines during a fill.
	fillTold = 5 * time.Second
)

// amongMany fills a cluster and measures everything that may depend on the number of waiting
// jobs.
func (b *bench) amongMany(ctx context.Context) {
	works := b.o.chosen.works(fillPrefix)
	if ctx.Err() != nil || len(works) == 0 && !b.o.chosen[memoryName] && !b.o.chosen[backupName] && !b.o.chosen[replaceName] && !b.o.chosen[snapshotName] && !b.o.chosen[restartName] {
		return
	}
	dir := b.place()
	defer func() { _ = os.RemoveAll(dir) }()
	many, err := startCluster(ctx, b.o.binary, dir, b.o.LogStores[0])
	if err != nil {
		b.report.fail("the cluster for many jobs: %v", err)
		return
	}
	defer many.close()
	if err := b.fill(ctx, many); err != nil {
		b.report.fail("cannot fill a cluster: %v", err)
		return
	}
	if b.o.chosen[memoryName] {
		b.memory(ctx, many)
	}
	if b.o.chosen[idleName] {
		b.idle(ctx, many, fmt.Sprintf("of a node with %d jobs", b.o.Fill))
	}
	b.fewAndMany(ctx, works, many)
	if b.o.chosen[backupName] {
		b.backup(ctx, many)
	}
	if b.o.chosen[replaceName] {
		b.replace(ctx, many)
	}
	if b.o.chosen[snapshotName] || b.o.chosen[restartName] { // a node starts from its snapshot
		b.snapshot(ctx, many)
	}
	if b.o.chosen[restartName] {
		b.restart(ctx, many)
	}
}

// fill posts the waiting jobs, and checks their number.
func (b *bench) fill(ctx context.Context, c *cluster) error {
	ctx, cancel := context.WithTimeout(ctx, runPatience+time.Duration(b.o.Fill/slowFill)*time.Second)
	defer cancel()
	began := time.Now()
	told := make(chan int, fillCallers) // from the callers to the goroutine that prints progress
	finished := make(chan struct{})
	go func() { // ends with the filling
		defer close(finished)
		last, before := began, 0
		for done := range told {
			if now := time.Now(); now.Sub(last) >= fillTold {
				progress("filling: %d of %d jobs, %.0f/s", done, b.o.Fill, float64(done-before)/now.Sub(last).Seconds())
				last, before = now, done
			}
		}
	}()
	err := fill(ctx, c.client, b.o.Fill, waitingBytes, func(done int) { told <- done })
	close(told)
	<-finished
	if err != nil {
		return err
	}
	took := time.Since(began)
	board, err := c.client.BoardStatus(ctx, benchBoard)
	if err != nil {
		return err
	}
	if waiting := board.Jobs[jobs.StateClaimable]; waiting != uint64(b.o.Fill) {
		return fmt.Errorf("%d jobs were posted, and %d wait", b.o.Fill, waiting)
	}
	b.report.figure(fmt.Sprintf("posting %d jobs of 1 KiB, %d a call, %d callers", b.o.Fill, fillBatch, fillCallers), "jobs/s", nil, float64(b.o.Fill)/took.Seconds())
	return nil
}

// fewAndMany does the works among many jobs and, on a new cluster for each
// pair, among few.
func (b *bench) fewAndMany(ctx context.Context, works []work, many *cluster) {
	first := len(b.report.Works)
	for _, w := range works {
		const flat = 0.9
		w.goals = []goal{atLeast("ratio", flat, ratio)}
		b.report.Works = append(b.report.Works, *newWorkReport(w, fmt.Sprintf("%s among %d", w.name, b.o.Fill), fmt.Sprintf("among %d", fewWaiting), b.o.LogStores[0], b.o))
	}
	entries := b.report.Works[first:]
	for number := range b.o.FillPairs {
		if ctx.Err() != nil || len(works) == 0 {
			break
		}
		b.fewAndManyOnce(ctx, number, entries, many)
	}
	for i := range entries {
		entries[i].finish()
	}
}

func (b *bench) fewAndManyOnce(ctx context.Context, number int, entries []workReport, many *cluster) {
	var few *cluster
	dir := ""
	closeFew := func() {
		if few != nil {
			few.close()
			few = nil
		}
		_ = os.RemoveAll(dir)
	}
	defer func() { closeFew() }()
	for i := range entries {
		w := &entries[i]
		if ctx.Err() != nil {
			return
		}
		if few == nil {
			var err error
			dir = b.place()
			if few, err = startCluster(ctx, b.o.binary, dir, b.o.LogStores[0]); err == nil {
				err = fill(ctx, few.client, fewWaiting, waitingBytes, nil)
			}
			if err != nil {
				w.fail("pair %d: the cluster for few jobs: %v", number+1, err)
				closeFew()
				continue
			}
		}
		crowded, err := many.measure(ctx, w.work, w.Load, true)
		sparse, fewErr := few.measure(ctx, w.work, w.Load, true)
		if err := errors.Join(err, fewErr); err != nil {
			w.fail("pair %d: %v", number+1, err)
			closeFew()
			continue
		}
		w.tell(number, b.o.FillPairs, w.add(crowded, sparse))
	}
}
