package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/measure"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

const (
	signalKind = "bench-signal"
	signalName = "go"
	// fewFlows and manyFlows are the numbers of waiting flows in the comparison of signals.
	fewFlows = 100
	// waitingSlots is the number of flows that the conductor brings to their wait in parallel.
	waitingSlots = 256
)

// signals posts flows that wait for a signal, and sends the signals.
type signals struct {
	at    *place
	begun chan time.Time // starts of steps after a wait
	stop  func()

	lock    sync.Mutex
	waiting map[jobs.JobID]chan struct{} // closed when the job waits
}

func aSignal() flow.Node { return flow.Signal[struct{}](signalName) }

func anApproval() flow.Node {
	return flow.Approve("ask", flow.Approval{Text: "Go?", Need: []logbook.Need{{Role: "bench", Count: 1}}})
}

// openSignals starts a conductor for flows that start with a wait, and a watch that finds out when a job waits.
func openSignals(ctx context.Context, at *place, slots int, wait func() flow.Node) (*signals, error) {
	s := &signals{at: at, begun: make(chan time.Time, 1), waiting: make(map[jobs.JobID]chan struct{})}
	after := func(context.Context, struct{}) (struct{}, error) {
		select {
		case s.begun <- time.Now():
		default:
		}
		return struct{}{}, nil
	}
	halt, err := startConductor(ctx, at.dial, signalKind, slots, func(json.RawMessage) (*flow.Flow, error) {
		return flow.Linear("bench", wait(), flow.Func("after", after)), nil
	})
	if err != nil {
		return nil, err
	}
	watching, cancel := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		s.watch(watching, ready)
	}()
	s.stop = func() {
		cancel()
		<-ended
		halt()
	}
	select {
	case <-ready:
		return s, nil
	case <-ended:
	case <-ctx.Done():
	}
	s.stop()
	return nil, errors.Join(errors.New("cannot watch the board"), ctx.Err())
}

// watch notes the jobs that a conductor has released to wait.
func (s *signals) watch(ctx context.Context, ready chan<- struct{}) {
	for event, err := range s.at.client.Watch(ctx, jobs.Watch{Board: benchBoard, Kinds: []jobs.EventKind{jobs.EventAbandoned}, JobKind: signalKind, Begin: true}) {
		switch {
		case err != nil:
			if ctx.Err() == nil {
				progress("the watch of waiting jobs has ended: %v", err)
			}
			return
		case event.Kind == jobs.EventBegun:
			close(ready)
		default:
			s.lock.Lock()
			if waits := s.waiting[event.Job]; waits != nil {
				close(waits)
				delete(s.waiting, event.Job)
			}
			s.lock.Unlock()
		}
	}
}

// post posts a job, and returns when its flow waits for the signal.
func (s *signals) post(ctx context.Context) (jobs.JobID, error) {
	posting := flowPosting(signalKind)
	posting.ID = jobs.NewJobID()
	waits := make(chan struct{})
	s.lock.Lock()
	s.waiting[posting.ID] = waits
	s.lock.Unlock()
	if _, err := jobs.PostOne(ctx, s.at.client, posting); err != nil {
		return jobs.JobID{}, err
	}
	select {
	case <-waits:
		return posting.ID, nil
	case <-ctx.Done():
		return jobs.JobID{}, ctx.Err()
	}
}

// send sends the signal to a job that waits for it.
func (s *signals) send(ctx context.Context, job jobs.JobID) error {
	receipt, err := s.at.client.Signal(ctx, job, logbook.Signal{Name: signalName, Data: json.RawMessage("{}")})
	if err == nil && receipt.Answer != jobs.SignalTaken {
		err = fmt.Errorf("a signal to job %s, which waits for it, is %s", job, receipt.Answer)
	}
	return err
}

// approve decides the approval for which a job waits.
func (s *signals) approve(ctx context.Context, job jobs.JobID) error {
	receipt, err := s.at.client.Decide(ctx, jobs.DecisionCommand{Job: job, Decision: logbook.Decision{Kind: logbook.Approve, By: "bench"}})
	if err == nil && receipt.Outcome != logbook.Approved {
		err = fmt.Errorf("the approval of job %s has the outcome %q after its only decision", job, receipt.Outcome)
	}
	return err
}

// openSignal measures flows that wait for a signal, get it, and end.
func openSignal(ctx context.Context, at *place, load measure.Load) (*doing, error) {
	s, err := openSignals(ctx, at, max(load.Callers, spareSlot), aSignal)
	if err != nil {
		return nil, err
	}
	return &doing{
		call: timed(func(ctx context.Context) error {
			job, err := s.post(ctx)
			if err == nil {
				err = s.send(ctx, job)
			}
			if err == nil {
				err = awaitSuccess(ctx, at.client, job)
			}
			return err
		}),
		close: s.stop,
	}, nil
}

// openResume measures the time from the end of a wait until the start of the next step. end ends the wait. One caller at
// a time.
func openResume(wait func() flow.Node, end func(*signals, context.Context, jobs.JobID) error) func(context.Context, *place, measure.Load) (*doing, error) {
	return func(ctx context.Context, at *place, _ measure.Load) (*doing, error) {
		s, err := openSignals(ctx, at, spareSlot, wait)
		if err != nil {
			return nil, err
		}
		return &doing{call: func(ctx context.Context) (time.Duration, error) { return s.resume(ctx, end) }, close: s.stop}, nil
	}
}

func (s *signals) resume(ctx context.Context, end func(*signals, context.Context, jobs.JobID) error) (time.Duration, error) {
	job, err := s.post(ctx)
	if err != nil {
		return 0, err
	}
	sent := time.Now()
	if err := end(s, ctx, job); err != nil {
		return 0, err
	}
	select {
	case moment := <-s.begun:
		return moment.Sub(sent), awaitSuccess(ctx, s.at.client, job)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// waiting compares a cluster with many flows that wait for a signal with a cluster of few, in turns.
func (b *bench) waiting(ctx context.Context) {
	var sides [2]*cluster
	for i, flows := range []int{fewFlows, b.o.Waits} {
		dir := b.place()
		defer func() { _ = os.RemoveAll(dir) }()
		c, err := startCluster(ctx, b.o.binary, dir, b.o.LogStores[0])
		if err != nil {
			b.report.fail("the cluster for %d waiting flows: %v", flows, err)
			return
		}
		defer c.close()
		if err := b.fillWaiting(ctx, c, flows); err != nil {
			b.report.fail("cannot bring %d flows to a wait: %v", flows, err)
			return
		}
		sides[i] = c
	}
	b.idle(ctx, sides[1], fmt.Sprintf("of a node with %d waiting flows", b.o.Waits))
	load := measure.Load{Callers: 1, PerCall: 1, Warm: b.o.Warm, Window: b.o.Window}
	var ratios []float64
	for number := range b.o.Pairs {
		var p50 [2]time.Duration
		for turn := range sides {
			side := (turn + number) % 2
			run, err := sides[side].measure(ctx, work{open: openResume(aSignal, (*signals).send)}, load, false)
			if err != nil {
				b.report.fail("signals among waiting flows: %v", err)
				return
			}
			p50[side] = run.P50
		}
		progress("signals among waiting flows, pair %d of %d: p50 %v among %d, and %v among %d", number+1, b.o.Pairs, p50[1], b.o.Waits, p50[0], fewFlows)
		ratios = append(ratios, measure.Share(float64(p50[0]), float64(p50[1])))
	}
	flat := atLeast("", 0.9, nil)
	b.report.figure(fmt.Sprintf("from a signal to the next step: p50 among %d waiting flows, divided by p50 among %d", fewFlows, b.o.Waits), "", &flat, ratios...)
}

// fillWaiting posts flows, brings them to their wait, and reports the growth of the state.
func (b *bench) fillWaiting(ctx context.Context, c *cluster, flows int) error {
	ctx, cancel := context.WithTimeout(ctx, runPatience+time.Duration(flows/slowFill)*time.Second)
	defer cancel()
	empty, err := sizesOf(c.processes.Nodes[0].DataDir)
	if err != nil {
		return err
	}
	at := &place{client: c.client, dial: dialer(c.processes.Endpoints()...)}
	s, err := openSignals(ctx, at, waitingSlots, aSignal)
	if err != nil {
		return err
	}
	defer s.stop()
	began := time.Now()
	for posted := 0; posted < flows; {
		batch := make([]jobs.Posting, min(fillBatch, flows-posted))
		for i := range batch {
			batch[i] = flowPosting(signalKind)
		}
		if err := postAll(ctx, c.client, batch); err != nil {
			return err
		}
		posted += len(batch)
	}
	for waits := uint64(0); waits < uint64(flows); {
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		board, err := c.client.BoardStatus(ctx, benchBoard)
		if err != nil {
			return err
		}
		waits = board.Jobs[jobs.StateWaiting]
	}
	if flows == fewFlows {
		return nil
	}
	b.report.figure(fmt.Sprintf("bringing %d flows to a wait", flows), "flows/s", nil, float64(flows)/time.Since(began).Seconds())
	if err := wait(ctx, b.o.settle); err != nil {
		return err
	}
	full, err := sizesOf(c.processes.Nodes[0].DataDir)
	if err != nil {
		return err
	}
	const kibi = 1 << 10
	b.report.figure("state of each waiting flow, with its job and book", "KiB", nil, (full.state-empty.state)/kibi/float64(flows))
	return nil
}

// postAll posts jobs in one call.
func postAll(ctx context.Context, client *raftboard.Client, postings []jobs.Posting) error {
	posted, err := client.Post(ctx, postings...)
	for i := range posted {
		err = errors.Join(err, posted[i].Err)
	}
	return err
}
