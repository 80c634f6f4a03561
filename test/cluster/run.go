package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// Runner breaks a cluster in rounds, and checks it after each.
type Runner struct {
	Cluster Cluster
	Plan    Plan
	Command string // the command that repeats the run

	Workers   int           // plain clients; 0: 4
	Think     time.Duration // maximum time between two calls of one worker
	Term      time.Duration // time for which they work on the same jobs; 0: 500 ms
	FlowEvery time.Duration // time between two posted jobs with a flow; 0: a second
	// SignalEvery is the time between two signals of one sender; 0: 200 ms.
	SignalEvery time.Duration
	Work        time.Duration // the longest that a step takes; 0: 500 ms
	Settle      time.Duration // from the end of the faults until every job has ended; 0: 60 s
	// In a healthy cluster, the job of a silent owner becomes claimable between Cooled and
	// Takeover after the TTL; 0: no bound.
	Cooled   time.Duration
	Takeover time.Duration
	Lenient  bool // conductors may be paused: see Ledger.Strict
	Log      func(format string, args ...any)
	Logger   hclog.Logger // of the conductors; nil: none
	// Posting draws a job with a flow that the nodes' own conductors run, and whose
	// steps write to the ledger; nil: the runner's conductors run all flows.
	Posting func(draw *rand.Rand) (jobs.Posting, error)
	// Gather passes the lines of such flows' steps to the ledger; nil: there are no such
	// flows.
	Gather func(*Ledger) error
	// Longest limits the time that plain clients may be without an acknowledged write, in a
	// round with one kind of fault.
	Longest map[Nemesis]time.Duration
	// Keep gets the histories of a failed round.
	Keep func(name, content string)

	Report Report

	ledger     *Ledger
	link       *link
	client     *raftboard.Client // a patient one, Outside
	conductors []*Conductor      // by place; nil: none
	born       int               // conductors that have ever lived
	excused    map[int]bool      // nodes that may end themselves in this round
	failed     error             // of a fault that could not be carried out, or that has shown something
	fading     sync.WaitGroup    // bad clients
}

// Report has the counts of a run.
type Report struct {
	Rounds   int
	Faults   map[Nemesis]int
	Calls    int
	Flows    int
	Reverted int
	Signals  SignalCounts
	// Repeatable counts the executions of steps that are repeatable.
	Repeatable Executions
	// Unserved is the longest time without an acknowledged write, by nemesis, in
	// rounds with one nemesis.
	Unserved map[Nemesis]time.Duration
}

// Violation is a promise that was broken.
type Violation struct {
	Seed    uint64
	Round   int
	Faults  []Fault
	Command string
	Err     error
}

// Error describes the violation, with the command that repeats the run.
func (v *Violation) Error() string {
	return fmt.Sprintf("round %d with seed %d: %v\nthe faults of the round:%s\nrun it again: %s", v.Round, v.Seed, v.Err, list(v.Faults), v.Command)
}

// Unwrap returns the violation's cause.
func (v *Violation) Unwrap() error { return v.Err }

func (r *Runner) defaults() {
	set := func(field *time.Duration, value time.Duration) {
		if *field == 0 {
			*field = value
		}
	}
	set(&r.Term, 500*time.Millisecond)
	set(&r.FlowEvery, time.Second)
	set(&r.SignalEvery, 200*time.Millisecond)
	set(&r.Work, 500*time.Millisecond)
	set(&r.Settle, time.Minute)
	if r.Workers == 0 {
		r.Workers = 4
	}
	if r.Log == nil {
		r.Log = func(string, ...any) {}
	}
	if r.Keep == nil {
		r.Keep = func(string, string) {}
	}
	r.Report.Faults, r.Report.Unserved = map[Nemesis]int{}, map[Nemesis]time.Duration{}
	r.ledger = NewLedger(!r.Lenient)
	r.conductors = make([]*Conductor, r.Cluster.Size())
}

// Run makes rounds while more returns true, or until one finds a Violation. It
// leaves the cluster running.
func (r *Runner) Run(ctx context.Context, more func(round int) bool) (err error) {
	r.defaults()
	for i := range r.Cluster.Size() {
		if err := r.Cluster.Start(i); err != nil {
			return err
		}
	}
	r.link = newLink(r.Cluster.Dial(Outside))
	defer r.link.cut()
	if r.client, err = r.link.client(ctx, r.Cluster.Endpoints(), raftboard.DefaultPatience); err != nil {
		return err
	}
	defer r.client.Close()
	defer r.stopConductors()
	for round := 0; more(round); round++ {
		faults := r.Plan.Faults(round)
		if err := r.round(ctx, round, faults); err != nil {
			return &Violation{Seed: r.Plan.Seed, Round: round, Faults: faults, Command: r.Command, Err: err}
		}
		r.Report.Rounds++
	}
	return nil
}

// round is one round: a workload, the faults, and the checks.
func (r *Runner) round(ctx context.Context, number int, faults []Fault) error {
	r.excused, r.failed = map[int]bool{}, nil
	r.Log("round %d:%s", number, list(faults))
	if err := r.healthy(ctx); err != nil {
		return err
	}
	history := NewHistory(fmt.Sprint(number), r.Term)
	defer func() { r.Report.Calls += history.Calls() }()
	sessions, workers, err := r.hire(ctx, number, history)
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var labour sync.WaitGroup
	defer labour.Wait()
	defer stop()
	for _, w := range workers {
		labour.Go(func() { w.Work(working); w.leave() })
	}
	waiting, err := r.postWaiting(ctx)
	if err != nil {
		return err
	}
	var posted posted
	labour.Go(func() { r.postFlows(working, number, &posted) })
	signals := r.newSignalling(number)
	for _, w := range workers[:min(senders, len(workers))] {
		labour.Go(func() { signals.work(working, w.Client, w.Number) })
	}

	fault := r.carryOut(ctx, faults)
	r.heal()
	healed := time.Now()
	stop()
	labour.Wait()
	if err := errors.Join(fault, r.served(faults, history), r.healthy(ctx)); err != nil {
		return err
	}
	settling, cancel := context.WithDeadline(ctx, healed.Add(r.Settle))
	defer cancel()
	return errors.Join(r.checkWaiting(settling, waiting), r.check(settling, history, sessions, &posted, signals))
}

// served notes how long plain clients went without an acknowledged write.
func (r *Runner) served(faults []Fault, history *History) error {
	if len(faults) == 0 {
		return nil
	}
	kind := faults[0].Nemesis
	if slices.ContainsFunc(faults, func(f Fault) bool { return f.Nemesis != kind }) {
		return nil
	}
	unserved := history.Unserved()
	r.Report.Unserved[kind] = max(r.Report.Unserved[kind], unserved)
	if longest, bounded := r.Longest[kind]; bounded && unserved > longest {
		return fmt.Errorf("no write was acknowledged for %v, and %v is the longest for %s", unserved, longest, kind)
	}
	return nil
}

// healthy waits until all nodes run and have a leader, and each has a conductor.
func (r *Runner) healthy(ctx context.Context) error {
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i := range r.Cluster.Size() {
		if err := r.start(i); err != nil {
			return err
		}
	}
	for {
		leader, known := r.leader(ctx)
		if known && leader >= 0 {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the cluster has no leader %v after all faults were mended", patience)
		}
		rest(ctx, 50*time.Millisecond)
	}
	for i := range r.conductors {
		if err := r.startConductor(ctx, i); err != nil {
			return fmt.Errorf("cannot start the conductor of node %d: %w", i, err)
		}
	}
	return nil
}

// leader asks the nodes which of them leads.
func (r *Runner) leader(ctx context.Context) (int, bool) {
	endpoints := r.Cluster.Endpoints()
	for i, endpoint := range endpoints {
		if !r.Cluster.Running(i) {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		status, err := r.client.Status(asking, endpoint)
		cancel()
		if err == nil && status.State == "leader" && status.Ready {
			return i, true
		}
	}
	return 0, false
}

// start starts a node that does not run.
func (r *Runner) start(i int) error {
	if r.Cluster.Running(i) {
		return nil
	}
	if err := r.Cluster.Start(i); err != nil {
		return fmt.Errorf("node %d does not start: %w", i, err)
	}
	return nil
}

func (r *Runner) startConductor(ctx context.Context, i int) error {
	if r.conductors[i] != nil {
		return nil
	}
	r.born++
	endpoints := r.Cluster.Endpoints()
	endpoints = append(slices.Clone(endpoints[i:]), endpoints[:i]...)
	name := fmt.Sprintf("conductor%d-%d", i, r.born)
	var logger hclog.Logger
	if r.Logger != nil {
		logger = r.Logger.Named(name)
	}
	made, err := StartConductor(ctx, ConductorOptions{
		Place: i, Dial: r.Cluster.Dial(i), Endpoints: endpoints, Ledger: r.ledger, Name: name, Work: r.Work,
		Logger: logger,
	})
	if err == nil {
		r.conductors[i] = made
	}
	return err
}

// killConductor kills the conductor on a node's machine.
func (r *Runner) killConductor(i int) {
	if c := r.conductors[i]; c != nil {
		c.Kill()
		r.fading.Go(c.Wait)
		r.conductors[i] = nil
	}
}

func (r *Runner) stopConductors() {
	var all sync.WaitGroup
	for _, c := range r.conductors {
		if c != nil {
			all.Go(c.Stop)
		}
	}
	all.Wait()
	r.fading.Wait()
}

// leave ends what hire has opened.
func (w *hired) leave() { w.Close(); w.link.cut() }

type hired struct {
	Worker
	link *link
}

// hire makes plain workers, each with a session and a preferred node.
func (r *Runner) hire(ctx context.Context, round int, history *History) ([]jobs.SessionID, []*hired, error) {
	var sessions []jobs.SessionID
	var workers []*hired
	for number := range r.Workers {
		link := newLink(r.Cluster.Dial(Outside))
		endpoints := r.Cluster.Endpoints()
		at := number % len(endpoints)
		client, err := link.client(ctx, append(slices.Clone(endpoints[at:]), endpoints[:at]...), Impatient)
		if err != nil {
			return nil, nil, fmt.Errorf("a client of a healthy cluster: %w", err)
		}
		session := jobs.NewSessionID()
		opening := jobs.Opening{ID: session, Name: fmt.Sprintf("worker%d-%d", round, number), TTL: jobs.MaxTTL}
		if _, err := r.client.OpenSession(ctx, opening); err != nil {
			return nil, nil, fmt.Errorf("a session of a healthy cluster: %w", err)
		}
		sessions = append(sessions, session)
		workers = append(workers, &hired{Worker{
			Client: client, Number: number, History: history, Session: session, Think: r.Think,
			Draw: rand.New(rand.NewPCG(r.Plan.Seed, uint64(round)<<8|uint64(number))),
		}, link})
	}
	return sessions, workers, nil
}

// posted are the jobs with flows of one round.
type posted struct {
	mu           sync.Mutex
	acknowledged []jobs.JobID
	unknown      []jobs.JobID // it is unknown whether they were posted
}

// postFlows posts jobs with flows until ctx ends.
func (r *Runner) postFlows(ctx context.Context, round int, p *posted) {
	draw := rand.New(rand.NewPCG(r.Plan.Seed, uint64(round)<<8|0xff))
	for rest(ctx, r.FlowEvery); ctx.Err() == nil; rest(ctx, r.FlowEvery) {
		make := newPosting
		if r.Posting != nil && draw.IntN(2) == 0 {
			make = r.Posting
		}
		posting, err := make(draw)
		if err != nil {
			panic("internal error: " + err.Error())
		}
		_, err = jobs.PostOne(ctx, r.client, posting)
		p.mu.Lock()
		switch {
		case err == nil:
			p.acknowledged = append(p.acknowledged, posting.ID)
		case errors.Is(err, jobs.ErrUncertain):
			p.unknown = append(p.unknown, posting.ID)
		}
		p.mu.Unlock()
	}
}
