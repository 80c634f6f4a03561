package conductor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/boottime"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

// The defaults of WorkerOptions.
const (
	// DefaultSlots suits a small machine.
	DefaultSlots = 4
	// DefaultWorkerTTL is longer than the TTL of conductors, because the steps of a worker can be
	// long: the worker stops them when the cluster is unreachable for 0.8 of its TTL.
	DefaultWorkerTTL = 15 * time.Second
	// pullWait limits one call for steps.
	pullWait = 30 * time.Second
	// lastWait limits the last call of a worker that stops. An attempt that was promised to the
	// call before has usually been recorded by then.
	lastWait = 500 * time.Millisecond
)

// WorkerOptions configures a step worker.
type WorkerOptions struct {
	Client steps.Client
	// Tasks are the types of steps that the worker runs. To revert a step, it calls Revert of the
	// Task.
	Tasks map[string]flow.Task

	Name   string   // for display; empty: host name and process id
	Boards []string // boards whose jobs it works for; empty: all
	Labels []string
	Slots  int           // parallel attempts, at most steps.MaxSlots; 0: DefaultSlots
	TTL    time.Duration // of its session; 0: DefaultWorkerTTL
	// MaxSteps limits the attempts that the worker requests. Then it finishes its
	// attempts and returns. It also runs an attempt that the leader assigned to a call
	// with a lost answer. 0: no limit.
	MaxSteps int
	// MaxDuration limits the time in which it takes attempts. Then it finishes its attempts and
	// returns. 0: no limit.
	MaxDuration time.Duration
	// Drain limits how long a worker that stops waits for its running attempts. Then it stops
	// them, and other workers get the steps. 0: no limit.
	Drain  time.Duration
	Limits logbook.Limits // of results; zero fields: as in logbook.MaxLimits
	Logger hclog.Logger   // nil: none
}

// stepWorker is a process that does steps for the conductors of a cluster. held has the attempts
// that it was given and has not reported yet. The worker names them in each call, and does not
// start them again: this makes a lost answer harmless.
type stepWorker struct {
	options WorkerOptions
	logger  hclog.Logger
	running chan struct{} // one token per running attempt

	taking context.Context // ends when no more attempts are taken
	stop   func()          // ends taking
	left   int             // remaining number of attempts; used only by serve and its calls
	freed  chan struct{}   // with a buffer of one: the call for steps must be repeated
	// refills: the leader may assign one attempt for each attempt whose end is recorded.
	refills atomic.Bool

	mu   sync.Mutex
	held map[steps.ID]*heldStep
}

// RunWorker does steps until ctx ends. Then it takes no more, finishes its attempts, closes its
// session and returns. Errors of the cluster do not end it. A lost session ends its attempts, and
// other workers get them.
func RunWorker(ctx context.Context, o WorkerOptions) error {
	if o.Name == "" {
		o.Name = fmt.Sprintf("%s:%d", hostname(), os.Getpid())
	}
	setDefault(&o.Slots, DefaultSlots)
	setDefault(&o.TTL, DefaultWorkerTTL)
	o.Limits = o.Limits.WithDefaults()
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if err := o.validate(); err != nil {
		return fmt.Errorf("cannot run a worker: %w", err)
	}
	w := &stepWorker{options: o, logger: o.Logger, running: make(chan struct{}, o.Slots), held: make(map[steps.ID]*heldStep), freed: make(chan struct{}, 1), left: math.MaxInt}
	w.taking, w.stop = context.WithCancel(ctx)
	defer w.stop()
	if o.MaxSteps > 0 {
		w.left = o.MaxSteps
	}
	if o.MaxDuration > 0 {
		over := time.AfterFunc(o.MaxDuration, w.stop)
		defer over.Stop()
	}
	for w.taking.Err() == nil {
		t := w.open(w.taking)
		if t == nil {
			break
		}
		w.logger.Info("session opened", "session", t.id, "types", w.options.entity().JobKinds)
		w.serve(ctx, t)
		if err := t.close(closeTime); err != nil && w.taking.Err() != nil {
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
		return errors.New("there are no tasks: add a type of steps")
	case o.Slots < 1 || o.Slots > steps.MaxSlots:
		return fmt.Errorf("slots is %d; it must be 1 to %d", o.Slots, steps.MaxSlots)
	case o.TTL < jobs.MinTTL || o.TTL > jobs.MaxTTL:
		return fmt.Errorf("ttl is %s; it must be %s to %s", o.TTL, jobs.MinTTL, jobs.MaxTTL)
	case o.MaxSteps < 0:
		return fmt.Errorf("max steps is %d; it must not be negative", o.MaxSteps)
	case o.MaxDuration < 0:
		return fmt.Errorf("max duration is %s; it must not be negative", o.MaxDuration)
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
	var told openingLog
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
			told.failed(w.logger, err)
		}
		sleep(ctx, wait.NextBackOff())
	}
	return nil
}

// serve runs steps in a session until the session is lost, or no more steps are taken and none is
// held. It returns when all its attempts have ended.
func (w *stepWorker) serve(ctx context.Context, t *liveSession) {
	var attempts sync.WaitGroup
	work, stop := context.WithCancelCause(t.working())
	defer attempts.Wait()
	defer stop(errClosed)
	defer context.AfterFunc(w.taking, w.wake)()
	drain := context.AfterFunc(ctx, func() {
		if w.options.Drain > 0 {
			time.AfterFunc(w.options.Drain, func() { stop(errHandOver) })
		}
	})
	defer drain()
	wait := newBackoff(boardBackoff)
	for last := false; work.Err() == nil && (!last || w.holdsAny()); {
		select { // before the check of taken and held attempts
		case <-w.freed:
		default:
		}
		last = w.taking.Err() != nil
		pulled, err := w.pull(work, t, last)
		switch {
		case errors.Is(err, errCutShort):
			last = false
		case errors.Is(err, jobs.ErrSessionExpired):
			t.lose(err)
		case err != nil && work.Err() == nil:
			w.logger.Warn("cannot pull steps", "session", t.id, "error", err)
			sleep(work, wait.NextBackOff())
		case err == nil:
			wait.Reset()
		}
		for i := range pulled.Work {
			if h := w.take(work, &pulled.Work[i]); h != nil {
				if w.left--; w.left <= 0 {
					w.stop()
				}
				attempts.Go(func() { w.do(work, t, h) }) // ends when it is reported, or with work
			}
		}
		for _, id := range pulled.Stop {
			w.halt(id)
		}
	}
	if work.Err() != nil {
		w.logger.Warn("steps of the session stopped", "session", t.id, "cause", context.Cause(work))
	}
}

// pull requests as many attempts as there are free slots. If the worker allows refills, the leader
// counts the slot of an attempt as free when its end is recorded. Otherwise the end of an attempt
// interrupts the call, so that the next call contains the new number of slots. If the interrupted
// call has assigned attempts, the next one returns them again.
func (w *stepWorker) pull(work context.Context, t *liveSession, draining bool) (steps.Pulled, error) {
	if err := t.admit(work); err != nil {
		return steps.Pulled{}, err
	}
	pull := steps.Pull{Session: t.id, Wait: pullWait}
	w.mu.Lock()
	for id, h := range w.held {
		pull.Holds = append(pull.Holds, steps.Held{ID: id, Stopping: h.stopping})
	}
	w.mu.Unlock()
	if draining {
		if len(pull.Holds) == 0 {
			pull.Wait = lastWait
		}
	} else {
		pull.Slots, pull.Refill = max(0, min(w.options.Slots-len(pull.Holds), w.left)), w.left > w.options.Slots
	}
	w.refills.Store(pull.Refill)
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
		err = errCutShort
	}
	return pulled, err
}

// errCutShort: a call for steps was interrupted to be repeated.
var errCutShort = errors.New("the call was interrupted for a repeat")

// wake interrupts the call for steps.
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

// take stores a new attempt; nil: the worker has it already.
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

// errToldToStop: the conductor requests the end of the attempt.
var errToldToStop = errors.New("the conductor has ended the attempt")

func (w *stepWorker) halt(id steps.ID) {
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
	w.mu.Unlock()
	h.end(nil)
	if !recorded || !w.refills.Load() {
		w.wake()
	}
}
