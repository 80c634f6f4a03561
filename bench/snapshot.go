package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/measure"
)

const (
	// snapshotPatience limits the time until each node has written a snapshot.
	snapshotPatience = 20 * time.Minute
	// snapshotLook is the interval of looks at the snapshot directories. It is the precision
	// of a snapshot's start and end.
	snapshotLook = 5 * time.Millisecond
	// snapshotSlack is the maximum time from a snapshot's start to the creation of its directory.
	snapshotSlack = 100 * time.Millisecond
	// snapshotDue is the interval at which nodes check whether a snapshot is due. raft waits
	// up to twice as long, so that the nodes do not all write at once.
	snapshotDue = 4 * time.Second
	// snapshotEntries is small enough that the posts of one caller make the next snapshot due,
	// even if the nodes wrote a snapshot just before.
	snapshotEntries = 256
)

// posted is one post of the caller that posts while snapshots are written.
type posted struct {
	began time.Time
	took  time.Duration
}

// span is the time in which a node wrote a snapshot.
type span struct{ began, ended time.Time }

// watched is a node whose snapshots are watched.
type watched struct {
	dataDir string
	last    uint64 // index of its newest snapshot
	began   time.Time
	spans   []span
}

// snapshot makes every node write a snapshot while one caller posts, and measures the delay of
// the posts.
func (b *bench) snapshot(ctx context.Context, c *cluster) {
	ctx, cancel := context.WithTimeout(ctx, snapshotPatience)
	defer cancel()
	if err := b.snapshotsWritten(ctx, c); err != nil {
		b.report.fail("snapshot: %v", err)
	}
}

func (b *bench) snapshotsWritten(ctx context.Context, c *cluster) error {
	starts, err := b.makeSnapshotsDue(ctx, c)
	if err != nil {
		return err
	}
	soon := atMost("", 20, nil)
	b.report.figure(fmt.Sprintf("start of a node with %d jobs, to ready, most of them in the log alone", b.o.Fill), "s", &soon, starts...)
	before, err := c.snapshotMetrics(ctx)
	if err != nil {
		return err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	var nodes []*watched
	for _, node := range c.processes.Nodes {
		nodes = append(nodes, &watched{dataDir: node.DataDir})
	}
	seen := make(chan error, 1)
	go func() { seen <- watchSnapshots(watching, nodes) }() // ends when every node has written one, or with the context
	var posts []posted
	for over := false; !over; {
		began := time.Now()
		if err := post(ctx, c.client, 1, details(detailBytes)); err != nil {
			return errors.Join(err, ctx.Err())
		}
		posts = append(posts, posted{began, time.Since(began)})
		select {
		case err = <-seen:
			over = true
		default:
		}
	}
	if err != nil {
		return err
	}
	after, err := c.snapshotMetrics(ctx)
	if err != nil {
		return err
	}
	var spans []span
	for _, node := range nodes {
		spans = append(spans, node.spans...)
	}
	b.tellSnapshots(spans, posts, after.Since(before))
	return nil
}

// makeSnapshotsDue restarts the nodes, one after the other, so that they write snapshots
// often. It returns the start time of each in seconds. The few entries of a fill make no
// snapshot due, so the nodes start from their log.
func (b *bench) makeSnapshotsDue(ctx context.Context, c *cluster) (starts []float64, err error) {
	for _, node := range c.processes.Nodes {
		err := node.Reconfigure(func(settings *config.Config) {
			settings.Raft.SnapshotThreshold, settings.Raft.SnapshotInterval = snapshotEntries, b.o.snapshotDue
		})
		if err != nil {
			return nil, err
		}
		took, err := restartNode(ctx, node)
		if err != nil {
			return nil, err
		}
		starts = append(starts, took.Seconds())
	}
	return starts, c.processes.WaitReady(ctx)
}

// snapshotMetrics are the metrics of all nodes, including the time for which the start of a
// snapshot delayed applying.
func (c *cluster) snapshotMetrics(ctx context.Context) (measure.Counters, error) {
	m, err := c.mark(ctx)
	return m.counters, err
}

// watchSnapshots notes when nodes write snapshots, until each has written one
// from its beginning to its end.
func watchSnapshots(ctx context.Context, nodes []*watched) error {
	for _, node := range nodes {
		var err error
		if node.last, _, err = newestSnapshot(node.dataDir); err != nil {
			return err
		}
	}
	ticks := time.NewTicker(snapshotLook)
	defer ticks.Stop()
	for {
		left := 0
		for _, node := range nodes {
			if err := node.look(time.Now()); err != nil {
				return err
			}
			if len(node.spans) == 0 {
				left++
			}
		}
		if left == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d nodes have written no snapshot: %w", left, ctx.Err())
		case <-ticks.C:
		}
	}
	for _, node := range nodes {
		if !node.began.IsZero() {
			node.spans = append(node.spans, span{node.began, time.Now()})
		}
	}
	return nil
}

// look records the changes since the last look.
func (w *watched) look(now time.Time) error {
	index, writing, err := newestSnapshot(w.dataDir)
	if err != nil {
		return err
	}
	if index > w.last {
		if w.began.IsZero() {
			w.began = now // the snapshot started and ended between two looks
		}
		w.spans, w.began, w.last = append(w.spans, span{w.began, now}), time.Time{}, index
	}
	if writing && w.began.IsZero() {
		w.began = now
	}
	return nil
}

func (b *bench) tellSnapshots(spans []span, posts []posted, grown measure.Counters) {
	var wrote []float64
	for i := range spans {
		wrote = append(wrote, spans[i].ended.Sub(spans[i].began).Seconds())
	}
	during, beside := split(posts, spans)
	with := fmt.Sprintf(" with %d jobs", b.o.Fill)
	short := atMost("", 100, nil)
	b.report.figure("writing a snapshot"+with, "s", nil, wrote...)
	held := measure.Share(1000*grown["conductord_snapshot_hold_duration_seconds_sum"], grown["conductord_snapshot_hold_duration_seconds_count"])
	b.report.figure("applying held up to begin a snapshot, mean", "ms", &short, held)
	for _, part := range []struct {
		when  string
		times []time.Duration
		goal  *goal
	}{{"while snapshots are written", during, &short}, {"otherwise", beside, nil}} {
		slices.Sort(part.times)
		if len(part.times) == 0 {
			continue
		}
		b.report.figure("one caller's post "+part.when+", p50", "ms", nil, inMilliseconds(measure.Quantile(part.times, 0.5)))
		b.report.figure("the same, the longest of "+fmt.Sprint(len(part.times)), "ms", part.goal, inMilliseconds(part.times[len(part.times)-1]))
	}
}

// split separates the posts during a snapshot from the other posts.
func split(posts []posted, spans []span) (during, beside []time.Duration) {
	for _, p := range posts {
		hit := slices.ContainsFunc(spans, func(s span) bool {
			return p.began.Before(s.ended) && p.began.Add(p.took).After(s.began.Add(-snapshotSlack))
		})
		if hit {
			during = append(during, p.took)
		} else {
			beside = append(beside, p.took)
		}
	}
	return during, beside
}
