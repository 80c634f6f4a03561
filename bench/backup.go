package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/conductord/conductord/internal/load"
	"github.com/conductord/conductord/internal/measure"
)

// backupCallers is the number of callers that post during the backup.
const backupCallers = 64

// backup measures the cost of a backup for posts. It compares the rate of posts in a window
// with repeated backups with the windows before and after. It also measures the time of a
// single backup.
func (b *bench) backup(ctx context.Context, c *cluster) {
	var ratios, seconds []float64
	for range b.o.FillPairs {
		took, err := readBackup(ctx, c)
		if err == nil {
			seconds = append(seconds, took.Seconds())
			var ratio float64
			ratio, err = b.postsDuringBackup(ctx, c)
			ratios = append(ratios, ratio)
		}
		if err != nil {
			b.report.fail("backup: %v", err)
			return
		}
	}
	b.report.figure(fmt.Sprintf("backup of %d jobs, read by a client", b.o.Fill), "s", nil, seconds...)
	least := atLeast("", 0.8, nil)
	b.report.figure(fmt.Sprintf("posts of %d callers while backups are made, against without", backupCallers), "of the rate", &least, ratios...)
}

func (b *bench) postsDuringBackup(ctx context.Context, c *cluster) (ratio float64, err error) {
	before := b.postRate(ctx, c)
	backingUp, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { // ends with stop
		for backingUp.Err() == nil {
			if _, err := readBackup(backingUp, c); err != nil && backingUp.Err() == nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	during := b.postRate(ctx, c)
	stop()
	if err := <-ended; err != nil {
		return 0, err
	}
	after := b.postRate(ctx, c)
	for _, run := range []*load.Result{before, during, after} {
		if run.First != nil {
			return 0, run.First
		}
	}
	return measure.Share(2*during.PerSecond, before.PerSecond+after.PerSecond), ctx.Err()
}

func (b *bench) postRate(ctx context.Context, c *cluster) *load.Result {
	content := details(detailBytes)
	return load.Drive(ctx, load.Load{Callers: backupCallers, Duration: b.o.Window}, func(ctx context.Context) (int, error) {
		return 1, post(ctx, c.client, 1, content)
	}, func(load.Progress) {})
}

// readBackup reads a backup of any node to its end.
func readBackup(ctx context.Context, c *cluster) (time.Duration, error) {
	began := time.Now()
	reader, err := c.client.Backup(ctx)
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	_, err = io.Copy(io.Discard, reader)
	return time.Since(began), err
}
