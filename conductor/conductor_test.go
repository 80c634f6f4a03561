package conductor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

type nothing = struct{}

// do makes a step of a function that needs and provides nothing.
func do(name string, execute func(ctx context.Context) error, options ...flow.StepOption) *flow.Step {
	return flow.Func(name, func(ctx context.Context, _ nothing) (nothing, error) {
		return nothing{}, execute(ctx)
	}, options...)
}

func well(context.Context) error { return nil }

// factories are kinds of flow; each kind is linear.
type factories map[string]func() ([]flow.Node, error)

func (f factories) registry(t *testing.T) *flow.Registry {
	t.Helper()
	registry := flow.NewRegistry()
	for kind, build := range f {
		err := registry.Register(kind, func(json.RawMessage) (*flow.Flow, error) {
			steps, err := build()
			if err != nil {
				return nil, err
			}
			return flow.Linear(kind, steps...), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return registry
}

// diary records notices.
type diary struct {
	mu      sync.Mutex
	notices []conductor.Notice
}

func (d *diary) note(n conductor.Notice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notices = append(d.notices, n)
}

func (d *diary) count(moment conductor.Moment) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	count := 0
	for _, n := range d.notices {
		if n.Moment == moment {
			count++
		}
	}
	return count
}

func options(c cluster, registry *flow.Registry) conductor.Options {
	return conductor.Options{Client: c, Registry: registry, Name: "tester"}
}

// running runs a conductor until the test ends or it is drained.
func running(t *testing.T, o conductor.Options) *conductor.Conductor {
	t.Helper()
	c, run := made(t, o)
	run()
	return c
}

// made makes a conductor and a function that runs it. The function returns when the first session
// is open. The end of the test waits for the end of the run.
func made(t *testing.T, o conductor.Options) (*conductor.Conductor, func()) {
	t.Helper()
	opened, notify := make(chan struct{}, 100), o.Notify
	o.Notify = func(n conductor.Notice) {
		if n.Moment == conductor.MomentSessionOpened {
			opened <- struct{}{}
		}
		if notify != nil {
			notify(n)
		}
	}
	c, err := conductor.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c, func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("run ended with: %v", err)
			}
		})
		<-opened
	}
}

func drain(t *testing.T, c *conductor.Conductor) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Drain(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestHundredJobsFourAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		var at, most, executed atomic.Int64
		step := func(context.Context) error {
			now := at.Add(1)
			defer at.Add(-1)
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			executed.Add(1)
			return nil
		}
		registry := factories{"work": func() ([]flow.Node, error) { return []flow.Node{do("one", step), do("two", step)}, nil }}.registry(t)
		var posted []jobs.Job
		for range 100 {
			posted = append(posted, post(t, c, "work", nil))
		}
		var notices diary
		o := options(c, registry)
		o.MaxJobs, o.Notify = 4, notices.note
		running(t, o)
		for _, job := range posted {
			if got := finished(t, c, job.ID); got.State != jobs.StateCompleted || got.Outcome != jobs.OutcomeSuccess || got.Claims != 1 {
				t.Errorf("job is %s, %q after %d claims", got.State, got.Outcome, got.Claims)
			}
		}
		if most.Load() > 4 {
			t.Errorf("%d jobs ran at once", most.Load())
		}
		if executed.Load() != 200 {
			t.Errorf("%d steps were executed", executed.Load())
		}
		for _, moment := range []conductor.Moment{conductor.MomentClaimed, conductor.MomentStarted, conductor.MomentFlowEnded, conductor.MomentConsumed} {
			until(t, string(moment)+" was noticed", func() bool { return notices.count(moment) == 100 })
		}
		if notices.count(conductor.MomentSessionOpened) != 1 {
			t.Errorf("%d sessions were opened", notices.count(conductor.MomentSessionOpened))
		}
	})
}

func TestEachJobGetsItsEnding(t *testing.T) {
	broken := func(context.Context) error { return flow.Permanent(errors.New("no seats")) }
	undo := func(name string, fails bool) *flow.Step {
		return flow.FuncRevert(name, func(context.Context, nothing) (nothing, error) { return nothing{}, nil },
			func(context.Context, nothing, *nothing) error {
				if fails {
					return flow.Permanent(errors.New("the undo is broken too"))
				}
				return nil
			})
	}
	needy := flow.Func("needy", func(context.Context, struct {
		X int `json:"x"`
	}) (nothing, error) {
		return nothing{}, nil
	})
	kinds := factories{
		"fine":     func() ([]flow.Node, error) { return []flow.Node{do("a", well)}, nil },
		"fails":    func() ([]flow.Node, error) { return []flow.Node{undo("a", false), do("b", broken)}, nil },
		"stuck":    func() ([]flow.Node, error) { return []flow.Node{undo("a", true), do("b", broken)}, nil },
		"refused":  func() ([]flow.Node, error) { return nil, errors.New("the arguments are wrong") },
		"panics":   func() ([]flow.Node, error) { panic("oh") },
		"rigged":   func() ([]flow.Node, error) { return nil, rigged{} },
		"missing":  func() ([]flow.Node, error) { return []flow.Node{needy}, nil },
		"repeated": func() ([]flow.Node, error) { return []flow.Node{do("a", well), do("a", well)}, nil },
	}
	rows := []struct {
		kind    string
		store   logbook.Values
		state   jobs.State
		outcome jobs.Outcome
		flow    logbook.FlowState
		failure string // its kind
		says    string
	}{
		{kind: "fine", state: jobs.StateCompleted, outcome: jobs.OutcomeSuccess, flow: logbook.FlowSuccess},
		{kind: "fails", state: jobs.StateCompleted, outcome: jobs.OutcomeReverted, flow: logbook.FlowReverted, failure: logbook.FailureError, says: "no seats"},
		{kind: "stuck", state: jobs.StateCompleted, outcome: jobs.OutcomeFailed, flow: logbook.FlowFailure, failure: logbook.FailureError},
		{kind: "refused", state: jobs.StateTrashed, flow: logbook.FlowPending, failure: logbook.FailureBuild, says: "the arguments are wrong"},
		{kind: "panics", state: jobs.StateTrashed, flow: logbook.FlowPending, failure: logbook.FailureBuild, says: "oh"},
		{kind: "rigged", state: jobs.StateTrashed, flow: logbook.FlowPending, failure: logbook.FailureBuild, says: "while reading an error"},
		{kind: "missing", state: jobs.StateTrashed, flow: logbook.FlowPending, failure: logbook.FailureBuild, says: "needy"},
		{kind: "missing", store: logbook.Values{"x": json.RawMessage("1")}, state: jobs.StateCompleted, outcome: jobs.OutcomeSuccess, flow: logbook.FlowSuccess},
		{kind: "repeated", state: jobs.StateTrashed, flow: logbook.FlowPending, failure: logbook.FailureBuild, says: "duplicate"},
	}
	c := openCluster(t)
	running(t, options(c, kinds.registry(t)))
	for _, row := range rows {
		t.Run(fmt.Sprintf("%s with %d values", row.kind, len(row.store)), func(t *testing.T) {
			job := finished(t, c, post(t, c, row.kind, row.store).ID)
			if job.State != row.state || job.Outcome != row.outcome || kindOf(job.Failure) != row.failure {
				t.Errorf("job is %s, %q, failure %+v", job.State, job.Outcome, job.Failure)
			}
			if row.says != "" && (job.Failure == nil || !strings.Contains(job.Failure.Message, row.says)) {
				t.Errorf("failure %+v does not say %q", job.Failure, row.says)
			}
			if detail := detailOf(t, c, job); detail.State != row.flow {
				t.Errorf("flow is %s, want %s", detail.State, row.flow)
			}
		})
	}
	t.Run("no flow", func(t *testing.T) {
		job := finished(t, c, postOne(t, c, jobs.Posting{Name: "bare", Kind: "fine"}).ID)
		if job.State != jobs.StateTrashed || kindOf(job.Failure) != logbook.FailureBuild {
			t.Errorf("job is %s, failure %+v", job.State, job.Failure)
		}
	})
}

// rigged is an error whose text cannot be read.
type rigged struct{}

func (rigged) Error() string { panic("no words") }

func TestJobStoreGoesOverFlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type values struct {
			X int `json:"x"`
			Y int `json:"y"`
		}
		c := openCluster(t)
		seen := make(chan values, 1)
		registry := factories{"work": func() ([]flow.Node, error) {
			return []flow.Node{flow.Func("a", func(_ context.Context, in values) (nothing, error) {
				seen <- in
				return nothing{}, nil
			})}, nil
		}}.registry(t)
		book := logbook.Book{ID: logbook.NewBookID(), Name: "stores"}
		book.Flows = []logbook.FlowDetail{{
			ID: logbook.NewFlowID(), Book: book.ID, Name: "stores", Factory: logbook.Factory{Name: "work"},
			Store: logbook.Values{"x": json.RawMessage("1"), "y": json.RawMessage("2")},
		}}
		running(t, options(c, registry))
		finished(t, c, postOne(t, c, jobs.Posting{Name: "stores", Book: &book, Store: logbook.Values{"x": json.RawMessage("3")}}).ID)
		if got := <-seen; got != (values{X: 3, Y: 2}) {
			t.Errorf("the step was given %+v", got)
		}
	})
}

// The last owner died between the end of the flow and the end of the job.
func TestFinishedFlowIsOnlyConsumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		registry := factories{"work": func() ([]flow.Node, error) { return nil, errors.New("nobody should build it") }}.registry(t)
		book := logbook.Book{ID: logbook.NewBookID(), Name: "finished"}
		book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "finished", Factory: logbook.Factory{Name: "work"}}}
		if err := c.SaveBook(t.Context(), book); err != nil {
			t.Fatal(err)
		}
		verdicts, err := c.Update(t.Context(),
			logbook.Update{Flow: book.Flows[0].ID, Sequence: 1, State: logbook.FlowRunning},
			logbook.Update{Flow: book.Flows[0].ID, Sequence: 2, State: logbook.FlowSuccess})
		if err := errors.Join(append(verdicts, err)...); err != nil {
			t.Fatal(err)
		}
		running(t, options(c, registry))
		job := finished(t, c, postOne(t, c, jobs.Posting{Name: "late", BookID: book.ID}).ID)
		if job.Outcome != jobs.OutcomeSuccess {
			t.Errorf("job is %s, outcome %q, failure %+v", job.State, job.Outcome, job.Failure)
		}
	})
}

// A flow that the engine cannot continue is retried with growing delays, and finally trashed with
// the evidence.
func TestTroubleIsTriedAgainAndGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		registry := factories{"work": func() ([]flow.Node, error) { return []flow.Node{do("a", well)}, nil }}.registry(t)
		book := logbook.Book{ID: logbook.NewBookID(), Name: "strange"}
		book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "strange", Factory: logbook.Factory{Name: "work"}}}
		if err := c.SaveBook(t.Context(), book); err != nil {
			t.Fatal(err)
		}
		// A step that is recorded as a retry controller does not match this flow.
		verdicts, err := c.Update(t.Context(), logbook.Update{
			Flow: book.Flows[0].ID, Sequence: 1, State: logbook.FlowRunning,
			Atoms: []logbook.AtomChange{{Name: "a", Kind: logbook.KindRetry, State: logbook.AtomRunning}},
		})
		if err := errors.Join(append(verdicts, err)...); err != nil {
			t.Fatal(err)
		}
		var notices diary
		o := options(c, registry)
		o.AbandonDelay, o.MaxAbandonDelay, o.MaxTries, o.Notify = time.Millisecond, 2*time.Millisecond, 3, notices.note
		running(t, o)
		job := finished(t, c, postOne(t, c, jobs.Posting{Name: "strange", BookID: book.ID}).ID)
		if job.State != jobs.StateTrashed || job.Claims != 3 || job.Failure == nil {
			t.Errorf("job is %s after %d claims, failure %+v", job.State, job.Claims, job.Failure)
		}
		until(t, "all endings were noticed", func() bool {
			return notices.count(conductor.MomentAbandoned) == 2 && notices.count(conductor.MomentTrashed) == 1
		})
	})
}

func TestExpiredSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		began, cancelled := make(chan struct{}, 1), make(chan time.Time, 1)
		var executions atomic.Int64
		registry := factories{"work": func() ([]flow.Node, error) {
			return []flow.Node{do("first", well), do("second", func(ctx context.Context) error {
				if executions.Add(1) > 1 {
					return nil
				}
				began <- struct{}{}
				<-ctx.Done()
				cancelled <- time.Now()
				return nil // too late: this success must not be recorded
			})}, nil
		}}.registry(t)
		var notices diary
		o := options(c, registry)
		o.MaxJobs = 1 // so that no call waits, and only a keep-alive can report the loss
		o.TTL, o.Notify = ttl, notices.note
		running(t, o)
		job := post(t, c, "work", nil)
		<-began
		until(t, "the beginning is recorded", func() bool { return attempts(detailOf(t, c, job), "second") == 1 })
		expired := time.Now()
		expireSessions(t, c)
		between(t, "the step was cancelled", (<-cancelled).Sub(expired), 0, 2)
		got := finished(t, c, job.ID)
		if got.Outcome != jobs.OutcomeSuccess || got.Claims != 2 || got.Crashes != 1 {
			t.Errorf("outcome %q after %d claims, %d crashes", got.Outcome, got.Claims, got.Crashes)
		}
		detail := detailOf(t, c, got)
		if attempts(detail, "first") != 1 || attempts(detail, "second") != 2 {
			t.Errorf("%d and %d attempts", attempts(detail, "first"), attempts(detail, "second"))
		}
		atom, _ := detail.Atom("second")
		if atom.Attempts[0].Ended() && atom.Attempts[0].Failure == nil {
			t.Errorf("the result of the lost claim was written: %+v", atom.Attempts[0])
		}
		if last := atom.Attempts[len(atom.Attempts)-1]; last.Token.Compare(atom.Attempts[0].Token) <= 0 {
			t.Errorf("the token did not grow: %s, then %s", atom.Attempts[0].Token, last.Token)
		}
		until(t, "the loss was noticed", func() bool {
			return notices.count(conductor.MomentSessionLost) == 1 && notices.count(conductor.MomentClaimLost) == 1 && notices.count(conductor.MomentSessionOpened) == 2
		})
	})
}

func TestDrainHandsOver(t *testing.T) {
	rows := []struct {
		name     string
		obliging bool // the running step ends by itself after the suspension
		flow     logbook.FlowState
		again    int // executions of the interrupted step
	}{
		{"a step that ends is recorded", true, logbook.FlowSuspended, 1},
		{"a step that does not is stopped", false, logbook.FlowRunning, 2},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openCluster(t)
				began, release := make(chan struct{}, 1), make(chan struct{})
				var draining atomic.Bool
				kinds := factories{"work": func() ([]flow.Node, error) {
					return []flow.Node{do("first", well), do("second", func(ctx context.Context) error {
						if draining.Load() {
							return nil
						}
						began <- struct{}{}
						select {
						case <-release:
							return nil
						case <-ctx.Done():
							return context.Cause(ctx)
						}
					}), do("third", well)}, nil
				}}
				o := options(c, kinds.registry(t))
				o.Grace = 10 * time.Second
				if !row.obliging {
					o.Grace = 20 * time.Millisecond
				}
				first := running(t, o)
				job := post(t, c, "work", nil)
				<-began
				until(t, "the beginning is recorded", func() bool { return attempts(detailOf(t, c, job), "second") == 1 })
				draining.Store(true)
				if row.obliging {
					time.AfterFunc(20*time.Millisecond, func() { close(release) })
				}
				drain(t, first)
				between, err := c.Job(t.Context(), job.ID)
				if err != nil {
					t.Fatal(err)
				}
				if between.State != jobs.StateClaimable || between.Crashes != 0 {
					t.Errorf("handed over, the job is %s with %d crashes", between.State, between.Crashes)
				}
				if state := detailOf(t, c, job).State; state != row.flow {
					t.Errorf("handed over, the flow is %s, want %s", state, row.flow)
				}
				if sessions, err := c.Sessions(t.Context()); err != nil || len(sessions) != 0 {
					t.Errorf("%d sessions are open, %v", len(sessions), err)
				}
				running(t, options(c, kinds.registry(t)))
				detail := detailOf(t, c, finished(t, c, job.ID))
				for step, want := range map[string]int{"first": 1, "second": row.again, "third": 1} {
					if got := attempts(detail, step); got != want {
						t.Errorf("%s was executed %d times, want %d", step, got, want)
					}
				}
			})
		})
	}
}

func TestRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		registry := factories{"work": func() ([]flow.Node, error) { return []flow.Node{do("a", well)}, nil }}.registry(t)
		again, err := conductor.New(options(c, registry))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- again.Run(ctx) }()
			synctest.Wait()
			if err := again.Run(t.Context()); !errors.Is(err, conductor.ErrRunning) {
				t.Errorf("run while it runs: %v", err)
			}
			until(t, "it is registered", func() bool {
				entities, err := c.Entities(t.Context(), jobs.EntityConductor)
				return err == nil && len(entities) == 1 && entities[0].Name == "tester" && entities[0].MaxJobs == conductor.DefaultMaxJobs
			})
			if job := finished(t, c, post(t, c, "work", nil).ID); job.Outcome != jobs.OutcomeSuccess {
				t.Errorf("outcome %q", job.Outcome)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("run ended with: %v", err)
			}
			if entities, err := c.Entities(t.Context(), ""); err != nil || len(entities) != 0 {
				t.Errorf("ended, it is still registered: %v, %v", entities, err)
			}
		}
	})
}

func TestDrainIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		began, stopped := make(chan struct{}), make(chan struct{})
		registry := factories{"work": func() ([]flow.Node, error) {
			return []flow.Node{do("a", func(ctx context.Context) error {
				close(began)
				<-ctx.Done()
				close(stopped)
				return ctx.Err()
			})}, nil
		}}.registry(t)
		o := options(c, registry)
		o.Grace = time.Hour
		stubborn := running(t, o)
		post(t, c, "work", nil)
		<-began
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := stubborn.Drain(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("drain: %v", err)
		}
		<-stopped
	})
}

// sometimes is the real board over an unreliable connection.
type sometimes struct {
	cluster
	calls atomic.Int64
}

// fault breaks two of seven calls: before or after their effect.
func (s *sometimes) fault(call func() error) error {
	switch s.calls.Add(1) % 7 {
	case 2:
		return fmt.Errorf("no leader: %w", jobs.ErrUnavailable)
	case 5:
		_ = call()
		return fmt.Errorf("the answer was lost: %w", jobs.ErrUncertain)
	}
	return call()
}

func (s *sometimes) OpenSession(ctx context.Context, o jobs.Opening) (session jobs.Session, err error) {
	return session, s.fault(func() error { session, err = s.cluster.OpenSession(ctx, o); return err })
}

func (s *sometimes) Register(ctx context.Context, id jobs.SessionID, e jobs.Entity) error {
	return s.fault(func() error { return s.cluster.Register(ctx, id, e) })
}

func (s *sometimes) KeepAlive(ctx context.Context, id jobs.SessionID) error {
	return s.fault(func() error { return s.cluster.KeepAlive(ctx, id) })
}

func (s *sometimes) ClaimNext(ctx context.Context, r jobs.ClaimRequest) (claimed []jobs.Claimed, err error) {
	err = s.fault(func() (err error) { claimed, err = s.cluster.ClaimNext(ctx, r); return err })
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

func (s *sometimes) Consume(ctx context.Context, e jobs.Ending) error {
	return s.fault(func() error { return s.cluster.Consume(ctx, e) })
}

func (s *sometimes) Update(ctx context.Context, updates ...logbook.Update) (verdicts []error, err error) {
	err = s.fault(func() (err error) { verdicts, err = s.cluster.Update(ctx, updates...); return err })
	if err != nil {
		return nil, err
	}
	return verdicts, nil
}

func TestBoardErrorsEndNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		var executed atomic.Int64
		step := func(context.Context) error { executed.Add(1); return nil }
		registry := factories{"work": func() ([]flow.Node, error) {
			return []flow.Node{do("one", step), do("two", step), do("three", step)}, nil
		}}.registry(t)
		var posted []jobs.Job
		for range 30 {
			posted = append(posted, post(t, c, "work", nil))
		}
		running(t, options(&sometimes{cluster: c}, registry))
		for _, job := range posted {
			got := finished(t, c, job.ID)
			if got.Outcome != jobs.OutcomeSuccess || got.Claims != 1 {
				t.Errorf("outcome %q after %d claims", got.Outcome, got.Claims)
			}
		}
		if executed.Load() != 90 {
			t.Errorf("%d steps were executed, want 90", executed.Load())
		}
	})
}

func TestPanickingNotifyHarmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		registry := factories{"work": func() ([]flow.Node, error) { return []flow.Node{do("a", well)}, nil }}.registry(t)
		o := options(c, registry)
		o.Notify = func(conductor.Notice) { panic("oh") }
		running(t, o)
		if job := finished(t, c, post(t, c, "work", nil).ID); job.Outcome != jobs.OutcomeSuccess {
			t.Errorf("outcome %q", job.Outcome)
		}
	})
}

// Options that a board would refuse at every call are refused at the start.
func TestOptionsBeyondTheBoard(t *testing.T) {
	registry := flow.NewRegistry()
	for i := range jobs.MaxKinds + 1 {
		if err := registry.Register(fmt.Sprint("kind", i), func(json.RawMessage) (*flow.Flow, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
	}
	boards := []string{"same", "same"}
	for i := range jobs.MaxBoards {
		boards = append(boards, fmt.Sprint("board", i))
	}
	_, err := conductor.New(conductor.Options{Registry: registry, Boards: boards, MaxAbandonDelay: 2 * jobs.MaxDelay})
	for _, part := range []string{"more than 256 kinds", "34 boards", `"same" is named twice`, "max abandon delay"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not named in:\n%v", part, err)
		}
	}
}

func TestOptionsNameEveryProblem(t *testing.T) {
	_, err := conductor.New(conductor.Options{
		Name: "bad\nname", Boards: []string{""}, MaxJobs: jobs.MaxClaims + 1, Workers: -1, TTL: time.Millisecond,
		Grace: -1, AbandonDelay: -1, MaxAbandonDelay: -2, MaxTries: -1, MaxDispatches: -1, MaxDuration: -1, Registry: flow.NewRegistry(),
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"no client", "no factory", "max jobs is 257", "workers is -1", "ttl is 1ms", "grace", "abandon delay is -1ns", "max abandon delay", "max tries", "max dispatches is -1", "max duration is -1ns", "name is invalid", "board is invalid"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not named in:\n%v", part, err)
		}
	}
}
