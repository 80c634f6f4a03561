package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

const (
	// senders send signals in parallel.
	senders = 2
	// keysAtOnce are the keys of jobs that wait: few, so that the senders conflict.
	keysAtOnce = 3
	// repeats limits the calls for one signal within a round. The check makes the last one.
	repeats = 3
)

// signalling is the work with signals in one round. Many goroutines use it.
type signalling struct {
	runner *Runner
	round  int
	began  time.Time

	mu     sync.Mutex
	jobs   map[jobs.JobID]bool // jobs that wait; true: the posting was acknowledged
	order  []jobs.JobID
	calls  []*signalCall
	faults []error
	counts SignalCounts
}

// signalCall is one signal, with all calls that sent it. One goroutine uses it at a time.
type signalCall struct {
	signal  logbook.Signal
	job     jobs.JobID    // its target; zero: the job with the key
	key     string        // its target
	posting *jobs.Posting // the posting that carries it; nil: none

	called  time.Time // start of the first call
	receipt jobs.SignalReceipt
	got     time.Time // of the receipt; zero: there was none
	unsure  bool      // a call may have taken effect
	refused error     // the latest refusal
}

func (r *Runner) newSignalling(round int) *signalling {
	return &signalling{runner: r, round: round, began: time.Now(), jobs: map[jobs.JobID]bool{}}
}

// work sends signals until ctx ends.
func (s *signalling) work(ctx context.Context, client *raftboard.Client, number int) {
	draw := rand.New(rand.NewPCG(s.runner.Plan.Seed, uint64(s.round)<<8|uint64(0xe0+number)))
	for rest(ctx, s.runner.SignalEvery); ctx.Err() == nil; rest(ctx, s.runner.SignalEvery) {
		call := s.draw(draw)
		for range repeats {
			if err := s.call(ctx, client, call); err == nil && draw.IntN(4) > 0 || call.refused != nil && !call.unsure {
				break
			}
		}
		s.mu.Lock()
		s.calls = append(s.calls, call)
		s.mu.Unlock()
	}
}

// draw draws a signal: to a job, by key, or with a posting.
func (s *signalling) draw(draw *rand.Rand) *signalCall {
	id := logbook.NewFlowID().String()
	call := &signalCall{signal: logbook.Signal{Name: signalName, ID: id, Data: signalData(id)}}
	term := int(time.Since(s.began) / (s.runner.SignalEvery * keysAtOnce * 8))
	call.key = fmt.Sprintf("waits-%d-%d-%d", s.round, term, draw.IntN(keysAtOnce))
	switch draw.IntN(4) {
	case 0, 1:
		posting, err := waitPosting(draw, call.key, s.runner.Posting != nil)
		if err != nil {
			panic("internal error: " + err.Error())
		}
		posting.Signal, call.posting = &call.signal, &posting
	case 2:
		s.mu.Lock()
		if n := len(s.order); n > 0 {
			call.key, call.job = "", s.order[n-1-draw.IntN(min(n, keysAtOnce))]
		}
		s.mu.Unlock()
	}
	return call
}

// call sends a signal once, and notes the answer.
func (s *signalling) call(ctx context.Context, client *raftboard.Client, c *signalCall) error {
	if c.called.IsZero() {
		c.called = time.Now()
	}
	receipt, err := s.send(ctx, client, c)
	switch {
	case err == nil:
		c.refused = nil
		s.answered(c, receipt)
	case errors.Is(err, jobs.ErrUnavailable) && !errors.Is(err, jobs.ErrUncertain): // it did not happen
	case errors.Is(err, jobs.ErrNotFound), errors.Is(err, jobs.ErrConflict), errors.Is(err, jobs.ErrLimit):
		if c.refused = err; !c.got.IsZero() {
			s.fault(fmt.Errorf("signal %s had the answer %s, and a repeat is refused: %w", c.signal.ID, c.receipt.Answer, err))
		}
	default:
		c.unsure = true
	}
	return err
}

// send makes the call.
func (s *signalling) send(ctx context.Context, client *raftboard.Client, c *signalCall) (jobs.SignalReceipt, error) {
	switch {
	case c.posting != nil:
		posted, err := client.Post(ctx, *c.posting)
		if err == nil {
			err = posted[0].Err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err == nil:
			job := posted[0].Job.ID
			if _, known := s.jobs[job]; !known {
				s.order = append(s.order, job)
			}
			s.jobs[job] = true
			return posted[0].Signal, nil
		case !errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, jobs.ErrUncertain):
			if _, known := s.jobs[c.posting.ID]; !known {
				s.jobs[c.posting.ID] = false
			}
		}
		return jobs.SignalReceipt{}, err
	case c.key != "":
		return client.SignalKey(ctx, "", c.key, c.signal)
	}
	return client.Signal(ctx, c.job, c.signal)
}

// answered notes a positive answer, and compares it with an earlier one.
func (s *signalling) answered(c *signalCall, receipt jobs.SignalReceipt) {
	first := receipt.Answer
	if first == jobs.SignalRepeated {
		first = receipt.First
		s.mu.Lock()
		s.counts.Repeated++
		s.mu.Unlock()
	}
	if c.got.IsZero() {
		c.receipt, c.got = jobs.SignalReceipt{Answer: first, Job: receipt.Job}, time.Now()
		return
	}
	if receipt.Answer != jobs.SignalRepeated || first != c.receipt.Answer || receipt.Job != c.receipt.Job {
		s.fault(fmt.Errorf("signal %s had the answer %+v, and a repeat has %+v", c.signal.ID, c.receipt, receipt))
	}
}

func (s *signalling) fault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, err)
}

// check repeats all unanswered calls on a healthy cluster, ends all jobs that wait, and compares their records with
// the answers.
func (s *signalling) check(ctx context.Context) error {
	err := inParallel(s.calls, func(c *signalCall) error {
		if c.got.IsZero() && (c.unsure || c.refused == nil) {
			if err := s.call(ctx, s.runner.client, c); err != nil && c.refused == nil {
				return fmt.Errorf("a repeat of signal %s in a healthy cluster: %w", c.signal.ID, err)
			}
		}
		return nil
	})
	ended := map[jobs.JobID]jobs.Job{}
	err = errors.Join(err, inParallel(slices.Collect(maps.Keys(s.jobs)), func(id jobs.JobID) error {
		job, err := s.end(ctx, id)
		if err == nil && !job.ID.IsZero() {
			s.mu.Lock()
			ended[id] = job
			s.mu.Unlock()
		}
		return err
	}))
	if err != nil {
		return err
	}
	return s.compare(ctx, ended)
}

// end sends a job enough signals for all its waits, and returns the finished job; zero: there is no such job.
func (s *signalling) end(ctx context.Context, id jobs.JobID) (jobs.Job, error) {
	job, err := s.runner.client.Job(ctx, id)
	switch {
	case errors.Is(err, jobs.ErrNotFound) && !s.jobs[id]:
		return jobs.Job{}, nil
	case err != nil:
		return jobs.Job{}, fmt.Errorf("job %s, which waits for signals: %w", id, err)
	}
	for range mostWaits {
		if job.State.Finished() {
			return job, nil
		}
		data := logbook.NewFlowID().String()
		call := &signalCall{signal: logbook.Signal{Name: signalName, ID: data, Data: signalData(data)}, job: id}
		err := s.call(ctx, s.runner.client, call)
		s.mu.Lock()
		s.calls = append(s.calls, call)
		s.mu.Unlock()
		switch {
		case errors.Is(err, jobs.ErrJobOver):
			return s.runner.client.Job(ctx, id)
		case err != nil:
			return jobs.Job{}, fmt.Errorf("a signal in a healthy cluster: %w", err)
		}
	}
	job, err = s.runner.client.Wait(ctx, id)
	if err != nil {
		return jobs.Job{}, s.runner.stuck(id, err)
	}
	return job, nil
}

// compare checks the records of all jobs.
func (s *signalling) compare(ctx context.Context, ended map[jobs.JobID]jobs.Job) error {
	signals := map[jobs.JobID]map[string]received{}
	for id := range ended {
		signals[id] = map[string]received{}
	}
	// A call without an answer may have taken effect after its last repeat was refused. Its jobs know.
	err := inParallel(s.calls, func(c *signalCall) error {
		for id, job := range ended {
			sure := !c.got.IsZero() || !c.unsure
			if sure && id != c.receipt.Job || id != c.job && job.Key != c.key {
				continue
			}
			receipt, err := s.runner.client.Signal(ctx, id, c.signal)
			switch {
			case !sure && errors.Is(err, jobs.ErrJobOver):
				continue
			case err != nil || receipt.Answer != jobs.SignalRepeated:
				return fmt.Errorf("signal %s had the answer %+v, and after the end of job %s a repeat has %+v: %w", c.signal.ID, c.receipt, id, receipt, err)
			}
			if s.answered(c, receipt); c.receipt.Job != id {
				return fmt.Errorf("signal %s has reached two jobs: %s and %s", c.signal.ID, c.receipt.Job, id)
			}
			s.mu.Lock()
			signals[id][c.signal.ID] = received{c.receipt.Answer, c.called, c.got}
			s.mu.Unlock()
		}
		return nil
	})
	faults := append(slices.Clone(s.faults), err)
	for id, job := range ended {
		detail, err := s.runner.client.FlowDetail(ctx, job.Flow)
		if err != nil {
			return fmt.Errorf("the flow of job %s, which has waited: %w", id, err)
		}
		counts, err := checkSignals(&job, &detail, signals[id])
		s.counts.add(counts)
		if err != nil {
			faults = append(faults, fmt.Errorf("job %s with key %s: %w\nits record: %+v\nits signals: %+v", id, job.Key, err, detail, signals[id]))
		}
		if job.State != jobs.StateCompleted {
			faults = append(faults, fmt.Errorf("job %s, which has waited, is %s with reason %q", id, job.State, job.Reason))
		}
	}
	for _, call := range s.calls {
		if call.refused != nil && call.got.IsZero() {
			s.counts.Refused++
		}
	}
	return errors.Join(faults...)
}

// inParallel calls a function for each item, several at a time.
func inParallel[T any](items []T, do func(T) error) error {
	const atOnce = 16
	var all sync.WaitGroup
	var mu sync.Mutex
	var faults []error
	for start := range min(atOnce, len(items)) {
		all.Go(func() {
			for i := start; i < len(items); i += atOnce {
				if err := do(items[i]); err != nil {
					mu.Lock()
					faults = append(faults, err)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return errors.Join(faults...)
}
