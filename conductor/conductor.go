// Package conductor claims jobs from boards and finishes them: it builds the flow of a job, runs
// the flow in an engine, and ends the job. A Func does a job without a flow.
//
// A complete worker for jobs of kind "email", which have no flow:
//
//	err := conductor.Run(ctx, conductor.Options{Client: client, Funcs: map[string]conductor.Func{"email": send}})
//
// For jobs with the flow "trip", set a Registry instead of Funcs, or beside them:
//
//	registry := flow.NewRegistry()
//	err := flow.Register(registry, "trip", trip) // see package flow
//	err = conductor.Run(ctx, conductor.Options{Client: client, Registry: registry})
//
// In a test, the client can be a board in memory: boardtest.New, in raftboard/node/boardtest.
//
// A Conductor holds its claims in a session. While the session is kept alive, the conductor waits
// on the board for jobs and takes as many as it has free worker slots. Each flow writes to the
// logbook through a journal, under the token of its claim. A lost session loses all its claims:
// the conductor stops the runs, and starts over with a new session.
//
// The conductor follows the board's events about its claims:
//
//   - If an operator suspends or cancels a job, the engine suspends or reverts its flow, and the
//     conductor releases the job.
//   - If another caller ends a claim, its run stops at once.
//   - If an operator drains the conductor, it hands over its jobs, as at a stop, or finishes
//     them. The board gives it no jobs until the drain ends, and keeps its entity meanwhile.
//
// Guarantees:
//
//   - It claims no job while it holds MaxJobs jobs, without the jobs that only wait for step
//     workers (slots.go). It holds at most jobs.MaxClaims jobs, and runs at most MaxDispatches.
//   - It starts no step while it does not know that its session lives. It stops its steps before
//     others may claim its jobs.
//   - It is safe without a watch. If a watch breaks, it finds a missed stop request later.
//   - A job whose run fails gets an ending (outcome.go has the table) or stays claimable.
//   - No error of the board or the logbook ends the conductor.
//
// It assumes that a step stops soon after its context has ended. A step that continues can still run while another
// conductor starts it again. With the token in the Call, outside systems can refuse the older attempt.
package conductor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel/trace"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
)

// The defaults of Options.
const (
	// DefaultMaxJobs exceeds the processors of a small machine, because the steps of most flows
	// wait for something outside.
	DefaultMaxJobs = 8
	// DefaultMaxIdle is far longer than a release and a new claim of a job take. It is short
	// enough that waiting flows do not hold worker slots for long.
	DefaultMaxIdle = 30 * time.Second
	// DefaultSteps is the lowest default of Steps: half of the steps that the default jobs can
	// run together. Few flows use all their workers for long. With a higher MaxJobs, the default
	// grows with it. A step that waits for a free worker costs one more write, because its mark
	// and its end are recorded separately.
	DefaultSteps = 64
	// maxDefaultSteps is the maximum of conductor.steps in a daemon.
	maxDefaultSteps = 4_096
	// DefaultGrace leaves half of the promised second for the writes that
	// hand the jobs over.
	DefaultGrace           = 500 * time.Millisecond
	DefaultAbandonDelay    = time.Second
	DefaultMaxAbandonDelay = time.Minute
	// DefaultMaxTries, with the default delays, tries for a quarter of an hour.
	DefaultMaxTries = 20
)

// Client is the board and logbook of one cluster: a *raftboard.Client, or in tests the *Board of
// package raftboard/node/boardtest.
type Client interface {
	jobs.Board
	logbook.Connection
}

// Options configures a conductor.
type Options struct {
	Client   Client          // the cluster with the jobs and their flows; required
	Registry *flow.Registry  // flows that it can build; filled before New
	Funcs    map[string]Func // functions for jobs without a flow, by kind

	Name   string   // for display, not unique; empty: host name and process id
	Boards []string // boards to claim from; empty: jobs.DefaultBoard
	Labels []string // labels that jobs can require

	// MaxJobs is the maximum number of parallel jobs, up to jobs.MaxClaims. Jobs that have waited 1 s for step workers,
	// with nothing else to do, do not count. 0: DefaultMaxJobs.
	MaxJobs int
	Workers int // parallel steps of one job; 0: the engine's default
	// Steps limits the parallel steps of all jobs, without steps of step workers; the jobs take turns. 0: half of
	// MaxJobs times Workers, at least DefaultSteps and at most 4,096.
	Steps int

	// MaxDispatches limits the jobs that one Run takes. Then Run finishes its jobs and returns.
	// 0: no limit.
	MaxDispatches int
	// MaxDuration limits the time in which one Run takes jobs. Then Run finishes its jobs and
	// returns. 0: no limit.
	MaxDuration time.Duration

	// MaxIdle limits how long a flow may wait for the next attempt of a step with nothing running. If
	// the wait is longer, the job is released, and claimable when the step is due. 0:
	// DefaultMaxIdle; negative: such jobs are kept.
	MaxIdle time.Duration

	TTL   time.Duration // of its session; 0: jobs.DefaultTTL
	Grace time.Duration // time for running steps to finish in a drain, before it stops them; 0: DefaultGrace

	// A job with a problem that is not its flow's fault is abandoned with a delay. The delay
	// doubles each time, between these two.
	AbandonDelay    time.Duration // 0: DefaultAbandonDelay
	MaxAbandonDelay time.Duration // 0: DefaultMaxAbandonDelay
	// MaxTries limits the number of such problems of a job: at the limit, the job is trashed with its evidence. A
	// hand-over is not such a problem. 0: DefaultMaxTries.
	MaxTries int

	// Metadata returns the metadata of the conductor's entity on the board. One goroutine at a time calls it, every
	// second, and a change is registered. nil: none.
	Metadata func() logbook.Values
	// Secrets returns a secret by its name, for the jobs of a board: see engine.Options. nil: no
	// secrets.
	Secrets func(ctx context.Context, board, name string) (string, error)
	// Elsewhere reports whether another conductor, by its entity, could build a flow that cannot
	// be built here. If one could, the job is released for that conductor, which does not count
	// as a failure.
	//
	// It is called for live conductors that take the job's kind from its board and offer its labels. This includes
	// drained conductors, because operators can undrain them; if there is no other, the reason on the job names the
	// drain. nil: none could, and the job is trashed.
	Elsewhere func(detail *logbook.FlowDetail, other jobs.Entity) bool
	Limits    logbook.Limits // of the cluster, for names, results and updates; zero fields: as in logbook.MaxLimits
	Logger    hclog.Logger   // nil: none

	// Logs keeps the output of running steps; see flow.Output. nil: the output is dropped, and
	// flow.Logger is slog.Default.
	Logs *steplog.Buffer

	// Tracer makes the spans of jobs and of their steps' attempts; see SpanIDs. nil: none.
	Tracer trace.Tracer

	// Notify is called with each moment, from several goroutines at once. It must not block,
	// because the job waits for it. A panic in it is logged and ignored.
	Notify func(Notice)

	encrypts bool // the logbook encrypts values, so the log must not contain them either
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = fmt.Sprintf("%s:%d", hostname(), os.Getpid())
	}
	if len(o.Boards) == 0 {
		o.Boards = []string{jobs.DefaultBoard}
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Registry == nil {
		o.Registry = flow.NewRegistry()
	}
	o.Limits = o.Limits.WithDefaults()
	plain := logbook.PlainLimits(o.Client, o.Limits)
	o.Limits, o.encrypts = plain, plain != o.Limits
	setDefault(&o.MaxJobs, DefaultMaxJobs)
	setDefault(&o.Steps, min(max(DefaultSteps, o.MaxJobs*cmp.Or(o.Workers, engine.DefaultWorkers)/2), maxDefaultSteps))
	setDefault(&o.MaxIdle, DefaultMaxIdle)
	setDefault(&o.MaxTries, DefaultMaxTries)
	setDefault(&o.TTL, jobs.DefaultTTL)
	setDefault(&o.Grace, DefaultGrace)
	setDefault(&o.AbandonDelay, DefaultAbandonDelay)
	setDefault(&o.MaxAbandonDelay, DefaultMaxAbandonDelay)
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate reports all problems at once.
func (o Options) validate() error {
	var problems []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	require(o.Client != nil, "there is no client")
	kinds := o.kinds()
	// An empty list of kinds would request jobs of any kind from the board.
	require(len(kinds) > 0, "the registry has no factory, and there are no funcs, so no job can run")
	require(len(kinds) <= jobs.MaxKinds, "registry and funcs hold more than %d kinds", jobs.MaxKinds)
	for i, kind := range kinds {
		require(i == 0 || kinds[i-1] != kind, "kind %q has a factory and a func", kind)
	}
	for kind, do := range o.Funcs {
		problems = append(problems, o.Limits.CheckName("kind", kind))
		require(do != nil, "the func of kind %q is nil", kind)
	}
	require(o.MaxJobs > 0 && o.MaxJobs <= jobs.MaxClaims, "max jobs is %d; it must be 1 to %d", o.MaxJobs, jobs.MaxClaims)
	require(o.MaxDispatches >= 0, "max dispatches is %d; it must not be negative", o.MaxDispatches)
	require(o.MaxDuration >= 0, "max duration is %s; it must not be negative", o.MaxDuration)
	require(o.Workers >= 0, "workers is %d; it must not be negative", o.Workers)
	require(o.Steps > 0, "steps is %d; it must be positive", o.Steps)
	require(o.TTL >= jobs.MinTTL && o.TTL <= jobs.MaxTTL, "ttl is %s; it must be %s to %s", o.TTL, jobs.MinTTL, jobs.MaxTTL)
	require(o.Grace > 0, "grace is %s; it must be positive", o.Grace)
	require(o.AbandonDelay > 0, "abandon delay is %s; it must be positive", o.AbandonDelay)
	require(o.MaxAbandonDelay >= o.AbandonDelay, "max abandon delay is %s, below the abandon delay of %s", o.MaxAbandonDelay, o.AbandonDelay)
	require(o.MaxAbandonDelay <= jobs.MaxDelay, "max abandon delay is %s; it must be at most %s", o.MaxAbandonDelay, jobs.MaxDelay)
	require(len(o.Boards) <= jobs.MaxBoards, "%d boards are named; the limit is %d", len(o.Boards), jobs.MaxBoards)
	require(o.MaxTries > 0, "max tries is %d; it must be positive", o.MaxTries)
	problems = append(problems, o.Limits.CheckName("name", o.Name), o.Limits.CheckValues("metadata", o.metadata()))
	for i, label := range o.Labels {
		problems = append(problems, o.Limits.CheckName("label", label))
		require(!slices.Contains(o.Labels[:i], label), "label %q is named twice", label)
	}
	require(len(o.Labels) <= jobs.MaxOffered, "%d labels are offered; the limit is %d", len(o.Labels), jobs.MaxOffered)
	for i, board := range o.Boards {
		problems = append(problems, o.Limits.CheckName("board", board))
		require(!slices.Contains(o.Boards[:i], board), "board %q is named twice", board)
	}
	return errors.Join(problems...)
}

func (o Options) metadata() logbook.Values {
	if o.Metadata == nil {
		return nil
	}
	return o.Metadata()
}

func hostname() string {
	if name, err := os.Hostname(); err == nil && name != "" {
		return name
	}
	return "unknown-host"
}

// ErrRunning: the conductor is running already.
var ErrRunning = errors.New("the conductor is running already")

// Conductor claims jobs and runs their flows. Its methods may be called
// concurrently.
type Conductor struct {
	options Options
	pool    *engine.Pool // of the steps of all jobs
	pauses  *pauses
	ready   chan struct{} // closed when a call of Run has registered
	isReady func()        // closes it

	mu      sync.Mutex
	loop    *workLoop // the current call of Run; nil: none
	drained bool      // Drain was called
}

// New makes a conductor, which does nothing until Run. The error contains every problem of the
// options.
func New(options Options) (*Conductor, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, fmt.Errorf("cannot make a conductor: %w", err)
	}
	ready := make(chan struct{})
	return &Conductor{
		options: options, pool: engine.NewPool(options.Steps), pauses: &pauses{},
		ready: ready, isReady: sync.OnceFunc(func() { close(ready) }),
	}, nil
}

// RunningSteps is the number of steps of all jobs that run here now, without steps of step workers.
func (c *Conductor) RunningSteps() int { return c.pool.InUse() }

// StepsLimit is the maximum number of parallel steps of all jobs here.
func (c *Conductor) StepsLimit() int { return c.options.Steps }

// Run makes a conductor and runs it until ctx ends, like the method Run.
func Run(ctx context.Context, options Options) error {
	c, err := New(options)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// Run claims and runs jobs until ctx ends or Drain is called. It then hands over the jobs that it
// still holds, and returns when all its goroutines have ended. It also returns when it has
// finished MaxDispatches jobs, or the jobs that it took within MaxDuration.
//
// Errors of the board do not end Run. It returns ErrRunning if it runs already. It returns an
// error if its session could not be closed: then its jobs are claimable when the session has
// expired. You can call Run again after it has returned. After Drain it returns at once, without
// an error.
func (c *Conductor) Run(ctx context.Context) error {
	s, err := c.begin(ctx)
	if s == nil {
		return err
	}
	stop := context.AfterFunc(ctx, s.drain)
	defer stop()
	err = s.work()

	c.mu.Lock()
	c.loop = nil
	c.mu.Unlock()
	close(s.done)
	return err
}

func (c *Conductor) begin(ctx context.Context) (*workLoop, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.drained:
		return nil, nil
	case c.loop != nil:
		return nil, ErrRunning
	}
	c.loop = newWorkLoop(ctx, &c.options, c.pool, c.pauses, c.isReady)
	return c.loop, nil
}

// Ready is closed when Run has its first session and the board has registered the conductor. It
// stays closed.
func (c *Conductor) Ready() <-chan struct{} { return c.ready }

// Drain ends the conductor permanently. It stops claiming, suspends the running flows, waits Options.Grace for their
// running steps, and stops the remaining ones. It releases all jobs with their recorded progress, closes the session,
// and returns when Run is about to return.
//
// If ctx ends first, Drain stops the steps at once and returns ctx's error; Run then returns by
// itself. Drain may be called at any time, and repeatedly: a call of Run that starts later
// returns at once.
func (c *Conductor) Drain(ctx context.Context) error {
	c.mu.Lock()
	c.drained = true
	s := c.loop
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	s.drain()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		s.cut(errHandOver)
		return fmt.Errorf("cannot wait for the conductor to drain: %w", ctx.Err())
	}
}

// Pause keeps the conductor from claiming until Unpause. Its jobs and its session continue. A job
// granted to a claim in flight is released at once; there is at most one such claim. A pause
// applies to later calls of Run too, and another Pause changes nothing. An operator outside this
// process uses DrainConductor of jobs.Conductors.
func (c *Conductor) Pause() {
	if c.pauses.begin() {
		c.noticePause("conductor paused", MomentPaused)
	}
}

// Unpause ends a pause.
func (c *Conductor) Unpause() {
	if c.pauses.end() {
		c.noticePause("conductor unpaused", MomentUnpaused)
	}
}

func (c *Conductor) noticePause(message string, moment Moment) {
	c.options.Logger.Info(message)
	c.options.notify(Notice{Moment: moment})
}
