package conductor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/boottime"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

// The defaults of WorkerOptions.
const (
	// DefaultSlots is what a small machine does at once.
	DefaultSlots = 4
	// DefaultWorkerTTL is longer than that of conductors: the steps of a worker are stopped when
	// the cluster is out of reach for 0.8 of it, and they may be long.
	DefaultWorkerTTL = 15 * time.Second
	// pullWait bounds one call for steps.
	pullWait = 30 * time.Second
)

// WorkerOptions say what a step worker does.
type WorkerOptions struct {
	Client steps.Client
	// Tasks are the types of steps that it does. To revert a step, it calls Revert of the Task.
	Tasks map[string]flow.Task

	Name   string   // for people; empty: host name and process id
	Boards []string // whose jobs it works for; empty: all
	Labels []string
	Slots  int           // attempts at once, at most steps.MaxSlots; 0: DefaultSlots
	TTL    time.Duration // of its session; 0: DefaultWorkerTTL
	// Drain is how long a worker that stops waits for its running attempts. Then it stops them,
	// and other workers get the steps. 0: as long as they take.
	Drain  time.Duration
	Limits logbook.Limits // of results; fields that are zero: those of logbook.MaxLimits
	Logger hclog.Logger   // nil: none
}

// stepWorker is a process that does steps for the conductors of a cluster. What it has been
// given and has not reported yet is in held, which is what makes a lost answer harmless: the
// worker names it in each call, and does not start again what it has.
type stepWorker struct {
	options WorkerOptions
	logger  hclog.Logger
	running chan struct{} // a token for each attempt that runs

	freed chan struct{} // holds one: the call that asks for steps must be made again

	mu       sync.Mutex
	held     map[steps.ID]*heldStep
	draining bool
}

// RunWorker does steps until ctx ends. Then it takes no more, finishes those that it has, closes
// its session and returns. Errors of the cluster do not end it. A session that is lost ends its
// attempts: other workers get them.
func RunWorker(ctx context.Context, o WorkerOptions) error {
	if o.Name == "" {
		o.Name = fmt.Sprintf("%s:%d", hostname(), os.Getpid())
	}
	setDefault(&o.Slots, DefaultSlots)
	setDefault(&o.TTL, DefaultWorkerTTL)
	setDefault(&o.Limits.Name, logbook.MaxLimits.Name)
	setDefault(&o.Limits.Value, logbook.MaxLimits.Value)
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if err := o.validate(); err != nil {
		return fmt.Errorf("cannot run a worker: %w", err)
	}
	w := &stepWorker{options: o, logger: o.Logger, running: make(chan struct{}, o.Slots), held: make(map[steps.ID]*heldStep), freed: make(chan struct{}, 1)}
	for ctx.Err() == nil {
		t := w.open(ctx)
		if t == nil {
			break
		}
		w.logger.Info("session opened", "session", t.id, "types", w.options.entity().JobKinds)
		w.serve(ctx, t)
		if err := t.close(closeTime); err != nil && ctx.Err() != nil {
			return err
		}
	}
	return nil
}

func (o *WorkerOptions) validate() error {
	entity := o.entity()
	switch {
	case o.Client == nil:
		return errors.New("there is no client")
	case len(o.Tasks) == 0:
		return errors.New("there is no type of steps that it could do")
	case o.Slots < 1 || o.Slots > steps.MaxSlots:
		return fmt.Errorf("slots is %d; it must be 1 to %d", o.Slots, steps.MaxSlots)
	case o.TTL < jobs.MinTTL || o.TTL > jobs.MaxTTL:
		return fmt.Errorf("ttl is %s; it must be %s to %s", o.TTL, jobs.MinTTL, jobs.MaxTTL)
	case o.Drain < 0:
		return fmt.Errorf("drain is %s; it must not be negative", o.Drain)
	}
	return jobs.CheckEntity(logbook.MaxLimits, &entity)
}

func (o *WorkerOptions) entity() jobs.Entity {
	return jobs.Entity{
		Kind: jobs.EntityWorker, Name: o.Name, Boards: o.Boards, Labels: o.Labels, JobKinds: slices.Sorted(maps.Keys(o.Tasks)),
		MaxJobs: o.Slots, Host: hostname(), PID: os.Getpid(),
	}
}

// open opens a session and registers the worker. It repeats both until ctx ends; then it returns nil.
func (w *stepWorker) open(ctx context.Context) *liveSession {
	wait := newBackoff(boardBackoff)
	for ctx.Err() == nil {
		opening := jobs.Opening{ID: jobs.NewSessionID(), Name: w.options.Name, Host: hostname(), PID: os.Getpid(), TTL: w.options.TTL}
		sent := boottime.Now()
		calls, cancel := context.WithTimeout(ctx, callTime)
		_, err := w.options.Client.OpenSession(calls, opening)
		if err == nil {
			err = w.options.Client.Register(calls, opening.ID, w.options.entity())
		}
		cancel()
		if err == nil {
			base := context.WithoutCancel(ctx) // a worker that stops keeps its session until it has finished
			return newLiveSession(base, base, w.options.Client, w.logger, opening.ID, opening.TTL, sent)
		}
		if ctx.Err() == nil {
			w.logger.Warn("cannot open a session now", "error", err)
		}
		sleep(ctx, wait.NextBackOff())
	}
	return nil
}

// serve does steps under a session until it is lost, or ctx has ended and nothing is held. It
// returns when all its attempts have ended.
func (w *stepWorker) serve(ctx context.Context, t *liveSession) {
	var attempts sync.WaitGroup
	work, stop := context.WithCancelCause(t.working())
	defer attempts.Wait()
	defer stop(errClosed)
	drain := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		w.draining = true
		w.mu.Unlock()
		w.wake()
		if w.options.Drain > 0 {
			time.AfterFunc(w.options.Drain, func() { stop(errHandOver) })
		}
	})
	defer drain()
	wait := newBackoff(boardBackoff)
	for work.Err() == nil && (ctx.Err() == nil || w.holdsAny()) {
		pulled, err := w.pull(work, t)
		switch {
		case errors.Is(err, jobs.ErrSessionExpired):
			t.lose(err)
		case err != nil && work.Err() == nil:
			w.logger.Warn("cannot ask for steps now", "session", t.id, "error", err)
			sleep(work, wait.NextBackOff())
		case err == nil:
			wait.Reset()
		}
		for i := range pulled.Work {
			if h := w.take(work, &pulled.Work[i]); h != nil {
				attempts.Go(func() { w.do(work, t, h) }) // ends when it is reported, or with work
			}
		}
		for _, id := range pulled.Stop {
			w.stop(id)
		}
	}
	if work.Err() != nil {
		w.logger.Warn("the session is given up, and its steps are stopped", "session", t.id, "cause", context.Cause(work))
	}
}

// pull asks for as many attempts as there are free slots. The leader counts the slot of an attempt as
// free when its end is recorded. When an attempt ends otherwise, the call is cut short, to name the new
// number; what such a call may have given, the next one gives again.
func (w *stepWorker) pull(work context.Context, t *liveSession) (steps.Pulled, error) {
	if err := t.admit(work); err != nil {
		return steps.Pulled{}, err
	}
	select {
	case <-w.freed:
	default:
	}
	pull := steps.Pull{Session: t.id, Wait: pullWait}
	w.mu.Lock()
	for id, h := range w.held {
		pull.Holds = append(pull.Holds, steps.Held{ID: id, Stopping: h.stopping})
	}
	if !w.draining {
		pull.Slots = max(0, w.options.Slots-len(pull.Holds))
	}
	w.mu.Unlock()
	calls, cancel := context.WithTimeout(work, pullWait+2*callTime)
	defer cancel()
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { // ends with this call
		select {
		case <-w.freed:
			cancel()
		case <-done:
		}
	})
	pulled, err := w.options.Client.PullSteps(calls, pull)
	close(done)
	watching.Wait()
	if err != nil && work.Err() == nil && errors.Is(calls.Err(), context.Canceled) {
		err = nil
	}
	return pulled, err
}

// wake ends the call that asks for steps.
func (w *stepWorker) wake() {
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

func (w *stepWorker) holdsAny() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held) > 0
}

// take keeps an attempt; nil: it has it already.
func (w *stepWorker) take(work context.Context, given *steps.Work) *heldStep {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[given.ID] != nil {
		return nil
	}
	h := &heldStep{work: given}
	h.ctx, h.end = context.WithCancelCause(work)
	w.held[given.ID] = h
	return h
}

// errToldToStop: the conductor wants the attempt ended.
var errToldToStop = errors.New("the conductor has ended the attempt")

func (w *stepWorker) stop(id steps.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.held[id]; h != nil {
		h.stopping = true
		h.end(errToldToStop)
	}
}

// drop forgets an attempt whose end is recorded, or refused.
func (w *stepWorker) drop(h *heldStep, recorded bool) {
	w.mu.Lock()
	delete(w.held, h.work.ID)
	draining := w.draining
	w.mu.Unlock()
	h.end(nil)
	if !recorded || draining {
		w.wake()
	}
}
