package conductor_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/valuekeys"
)

// funcs are options of a conductor that runs jobs of one kind without flows.
func funcs(c cluster, kind string, do conductor.Func) (conductor.Options, *diary) {
	notices := &diary{}
	return conductor.Options{
		Client: c, Funcs: map[string]conductor.Func{kind: do}, Name: "tester", Notify: notices.note,
	}, notices
}

// TestFuncEndings checks the table of Func: the returned error decides the end of the job.
func TestFuncEndings(t *testing.T) {
	retry := &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 2, Delay: time.Minute}, OnFailure: jobs.FailureParks}
	broken := errors.New("the printer burns")
	rows := []struct {
		name     string
		returns  func() error
		retry    *jobs.RetryPolicy
		state    jobs.State
		outcome  jobs.Outcome
		failure  string // its kind
		reason   string
		attempts int
	}{
		{name: "nil", returns: func() error { return nil }, state: jobs.StateCompleted, outcome: jobs.OutcomeSuccess},
		{name: "an error", returns: func() error { return broken }, state: jobs.StateCompleted, outcome: jobs.OutcomeFailed, failure: logbook.FailureError},
		{name: "an error of a kind", returns: func() error { return flow.Fail("fire", broken) }, state: jobs.StateCompleted, outcome: jobs.OutcomeFailed, failure: "fire"},
		{name: "an error, with a policy", returns: func() error { return broken }, retry: retry, state: jobs.StateCooling, failure: logbook.FailureError,
			reason: "attempt 1 of 2 has failed: the printer burns", attempts: 1},
		{name: "a permanent error, with a policy", returns: func() error { return flow.Permanent(broken) }, retry: retry,
			state: jobs.StateHeld, failure: logbook.FailureError, reason: "attempt 1 of 2 has failed: the printer burns", attempts: 1},
		{name: "abandon", returns: func() error { return fmt.Errorf("not now: %w", conductor.Abandon(time.Minute, broken)) }, retry: retry,
			state: jobs.StateCooling, reason: "not now: the printer burns"},
		{name: "trash", returns: func() error { return conductor.Trash(broken) }, retry: retry,
			state: jobs.StateTrashed, failure: logbook.FailureError, reason: "the printer burns"},
		{name: "trash without a reason", returns: func() error { return conductor.Trash(nil) },
			state: jobs.StateTrashed, failure: logbook.FailureError, reason: "trash without a reason"},
		{name: "a panic", returns: func() error { panic("oh") }, state: jobs.StateCompleted, outcome: jobs.OutcomeFailed, failure: logbook.FailurePanic},
		{name: "an end of its goroutine", returns: func() error { runtime.Goexit(); return nil }, state: jobs.StateCompleted, outcome: jobs.OutcomeFailed, failure: logbook.FailurePanic},
		{name: "an error that cannot be read", returns: func() error { return rigged{} }, state: jobs.StateCompleted, outcome: jobs.OutcomeFailed, failure: logbook.FailurePanic},
		{name: "somebody else's fence", returns: func() error { return jobs.ErrFenced }, state: jobs.StateCompleted, outcome: jobs.OutcomeFailed, failure: logbook.FailureError},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openCluster(t)
				o, notices := funcs(c, "print", func(context.Context, jobs.Job) error { return row.returns() })
				running(t, o)
				posted := postOne(t, c, jobs.Posting{Name: "a page", Kind: "print", Retry: row.retry})
				until(t, "the job has ended", func() bool {
					return notices.count(conductor.MomentConsumed)+notices.count(conductor.MomentAbandoned)+notices.count(conductor.MomentTrashed) == 1
				})
				job, err := c.Job(t.Context(), posted.ID)
				if err != nil || job.State != row.state || job.Outcome != row.outcome || kindOf(job.Failure) != row.failure || job.Reason != row.reason || job.Attempts != row.attempts {
					t.Errorf("job is %s, %q, failure %+v, reason %q, after %d attempts: %v", job.State, job.Outcome, job.Failure, job.Reason, job.Attempts, err)
				}
			})
		})
	}
}

// A Func gets the job with its details, its store and the token of its claim.
func TestFuncIsGivenItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type page struct {
			Text string `json:"text"`
		}
		c := openCluster(t)
		given := make(chan jobs.Job, 1)
		o, _ := funcs(c, "print", conductor.WithDetails(func(_ context.Context, job jobs.Job, details page) error {
			if details.Text != "hello" {
				t.Errorf("the details are %+v", details)
			}
			given <- job
			return nil
		}))
		running(t, o)
		posted := postOne(t, c, jobs.Posting{
			Name: "a page", Kind: "print", Details: json.RawMessage(`{"text":"hello"}`), Store: logbook.Values{"copies": json.RawMessage("2")},
		})
		got := <-given
		if held := got.Claim; got.ID != posted.ID || held == nil || got.Token.IsZero() || got.Token != held.Token || string(got.Store["copies"]) != "2" {
			t.Errorf("given %+v", got)
		}
		for details, want := range map[string]string{
			"[]": "cannot read the details", "": "the job has no details",
			`{"text":"hello","colour":"red"}`: `cannot read the details of the job as conductor_test.page: json: unknown field "colour"`,
		} {
			unreadable := postOne(t, c, jobs.Posting{Name: "a page", Kind: "print", Details: json.RawMessage(details)})
			if job := finished(t, c, unreadable.ID); job.State != jobs.StateTrashed || !strings.Contains(job.Reason, want) {
				t.Errorf("details %q: job is %s: %s", details, job.State, job.Reason)
			}
		}
	})
}

// One program runs flows and Funcs. The kind of a job selects one of them.
func TestFuncsBesideFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		o, _ := funcs(c, "print", func(context.Context, jobs.Job) error { return nil })
		o.Registry = simple(t)
		running(t, o)
		for _, job := range []jobs.Job{post(t, c, "work", nil), postOne(t, c, jobs.Posting{Name: "a page", Kind: "print"})} {
			if got := finished(t, c, job.ID); got.Outcome != jobs.OutcomeSuccess {
				t.Errorf("job of kind %s ended with %q", got.Kind, got.Outcome)
			}
		}
		o.Funcs = map[string]conductor.Func{"work": nil, "": nil}
		_, err := conductor.New(o)
		for _, part := range []string{`kind "work" has a factory and a func`, `the func of kind "work" is nil`, "kind is invalid"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not named in:\n%v", part, err)
			}
		}
	})
}

// Jobs run in parallel, at most MaxJobs, and each has one owner at a time.
func TestFuncsHaveOneOwnerEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		var at, most atomic.Int64
		owners := map[jobs.JobID]*atomic.Int64{}
		var posted []jobs.Job
		for range 40 {
			job := postOne(t, c, jobs.Posting{Name: "a page", Kind: "print", Hold: true})
			posted, owners[job.ID] = append(posted, job), new(atomic.Int64)
		}
		do := func(_ context.Context, job jobs.Job) error {
			now := at.Add(1)
			defer at.Add(-1)
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			if owners[job.ID].Add(1) > 1 {
				t.Errorf("job %s has two owners", job.ID)
			}
			defer owners[job.ID].Add(-1)
			time.Sleep(time.Second) // virtual time
			return nil
		}
		for range 2 {
			o, _ := funcs(c, "print", do)
			o.MaxJobs = 4
			running(t, o)
		}
		for _, job := range posted {
			if err := c.Change(t.Context(), jobs.Change{Job: job.ID, Release: true}); err != nil {
				t.Fatal(err)
			}
		}
		for _, job := range posted {
			if got := finished(t, c, job.ID); got.Outcome != jobs.OutcomeSuccess || got.Claims != 1 {
				t.Errorf("outcome %q after %d claims", got.Outcome, got.Claims)
			}
		}
		if most.Load() != 8 {
			t.Errorf("%d jobs were done at once", most.Load())
		}
	})
}

// heldFunc makes a Func that runs until its context ends, and a channel with the cause.
func heldFunc(fails bool) (do conductor.Func, began chan jobs.Job, causes chan error) {
	began, causes = make(chan jobs.Job, 10), make(chan error, 10)
	return func(ctx context.Context, job jobs.Job) error {
		began <- job
		<-ctx.Done()
		causes <- context.Cause(ctx)
		if fails {
			return errors.New("interrupted")
		}
		return nil
	}, began, causes
}

// The context of a Func ends when its session is lost. The Func cannot end the job of the next
// owner, which has a higher token.
func TestFuncLosesItsSession(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := openCluster(t)
			do, began, causes := heldFunc(fails)
			o, notices := funcs(c, "print", do)
			running(t, o)
			posted := postOne(t, c, jobs.Posting{Name: "a page", Kind: "print"})
			first := <-began
			expireSessions(t, c)
			if cause := <-causes; !errors.Is(cause, conductor.ErrClaimLost) && !errors.Is(cause, conductor.ErrClaimEnded) {
				t.Errorf("its context ended with %v", cause)
			}
			second := <-began // under a new session
			if first.Token.Compare(second.Token) >= 0 || first.Claim.Session == second.Claim.Session {
				t.Errorf("claimed under token %s and then %s", first.Token, second.Token)
			}
			if job := under(t, c, posted.ID, jobs.StateClaimed); job.Claims != 2 || job.Crashes != 1 || job.Attempts != 0 {
				t.Errorf("job has %d claims, %d crashes", job.Claims, job.Crashes)
			}
			if lost := notices.count(conductor.MomentClaimLost); lost != 1 {
				t.Errorf("%d claims were noticed as lost", lost)
			}
		})
	}
}

// While the session is silent, the Func is stopped before other conductors can claim its job.
func TestFuncOfASilentSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		do, began, causes := heldFunc(true)
		r := &mute{cluster: c}
		o, _ := funcs(r, "print", do)
		running(t, o)
		postOne(t, c, jobs.Posting{Name: "a page", Kind: "print"})
		<-began
		start := time.Now()
		r.silent.Store(true)
		cause := <-causes
		if took := time.Since(start); took >= jobs.DefaultTTL || !errors.Is(cause, conductor.ErrDoubt) {
			t.Errorf("stopped after %s by %v", took, cause)
		}
		r.silent.Store(false)
	})
}

// mute is a board that does not answer keep-alives.
type mute struct {
	cluster
	silent atomic.Bool
}

func (m *mute) KeepAlive(ctx context.Context, id jobs.SessionID) error {
	if m.silent.Load() {
		return jobs.ErrUnavailable
	}
	return m.cluster.KeepAlive(ctx, id)
}

// A stopping conductor waits Grace for its Funcs, and hands over the jobs of the Funcs that it had
// to stop. A success within Grace counts.
func TestFuncAtTheEndOfItsConductor(t *testing.T) {
	for _, row := range []struct {
		name    string
		ignores bool // ignores its context
		fails   bool
		state   jobs.State
		took    time.Duration
	}{
		{name: "stops", fails: true, state: jobs.StateClaimable, took: time.Minute},
		{name: "succeeds", state: jobs.StateCompleted, took: time.Minute},
		{name: "ignores it", ignores: true, state: jobs.StateClaimable, took: time.Minute + 5*time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openCluster(t)
				do, began, causes := heldFunc(row.fails)
				free := make(chan struct{})
				if row.ignores {
					do = func(_ context.Context, job jobs.Job) error { began <- job; <-free; return nil }
				}
				o, _ := funcs(c, "print", do)
				o.Grace = time.Minute
				worker := running(t, o)
				posted := postOne(t, c, jobs.Posting{Name: "a page", Kind: "print"})
				<-began
				start := time.Now()
				if err := worker.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took < row.took || took > row.took+time.Second {
					t.Errorf("it took %s", took)
				}
				close(free)
				if !row.ignores && !errors.Is(<-causes, conductor.ErrHandOver) {
					t.Error("its context did not end with the hand-over")
				}
				if job := under(t, c, posted.ID, row.state); job.Failures != 0 || job.Attempts != 0 {
					t.Errorf("%d failures, %d attempts", job.Failures, job.Attempts)
				}
			})
		})
	}
}

// Requests of operators reach a Func that runs.
func TestFuncUnderAStopRequest(t *testing.T) {
	cancel := func(c cluster) func(context.Context, jobs.JobCommand) error { return c.Cancel }
	suspend := func(c cluster) func(context.Context, jobs.JobCommand) error { return c.Suspend }
	for _, row := range []struct {
		name    string
		give    func(c cluster) func(context.Context, jobs.JobCommand) error
		command jobs.JobCommand
		stops   bool
		state   jobs.State
		outcome jobs.Outcome
	}{
		{"cancelled", cancel, jobs.JobCommand{Reason: "wrong"}, true, jobs.StateCompleted, jobs.OutcomeCancelled},
		{"cancelled, to be undone", cancel, jobs.JobCommand{Revert: true}, true, jobs.StateCompleted, jobs.OutcomeCancelled},
		{"cancelled when it is done", cancel, jobs.JobCommand{Steps: jobs.StepsFinish}, false, jobs.StateCompleted, jobs.OutcomeSuccess},
		{"suspended at once", suspend, jobs.JobCommand{Steps: jobs.StepsInterrupt}, true, jobs.StateSuspended, ""},
		{"suspended when it is done", suspend, jobs.JobCommand{}, false, jobs.StateCompleted, jobs.OutcomeSuccess},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openCluster(t)
				began, free := make(chan struct{}), make(chan struct{})
				o, notices := funcs(c, "print", func(ctx context.Context, _ jobs.Job) error {
					close(began)
					select {
					case <-ctx.Done():
						return context.Cause(ctx)
					case <-free:
						return nil
					}
				})
				running(t, o)
				posted := postOne(t, c, jobs.Posting{Name: "a page", Kind: "print"})
				<-began
				row.command.Job = posted.ID
				steered(t, notices, row.give(c), row.command)
				synctest.Wait()
				if !row.stops {
					under(t, c, posted.ID, jobs.StateClaimed)
					close(free)
				}
				if job := under(t, c, posted.ID, row.state); job.Outcome != row.outcome || job.Failure != nil {
					t.Errorf("job is %s, %q: %s, %+v", job.State, job.Outcome, job.Reason, job.Failure)
				}
			})
		})
	}
}

// A Func that ignores a cancellation is left behind after the grace of the request.
func TestFuncIgnoresACancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		began, free := make(chan struct{}), make(chan struct{})
		o, _ := funcs(c, "print", func(context.Context, jobs.Job) error { close(began); <-free; return nil })
		running(t, o)
		posted := postOne(t, c, jobs.Posting{Name: "a page", Kind: "print"})
		<-began
		start := time.Now()
		if err := c.Cancel(t.Context(), jobs.JobCommand{Job: posted.ID, Grace: 20 * time.Second}); err != nil {
			t.Fatal(err)
		}
		job := finished(t, c, posted.ID)
		if took := time.Since(start); took < 20*time.Second || took > 21*time.Second || job.Outcome != jobs.OutcomeCancelled {
			t.Errorf("%q after %s", job.Outcome, took)
		}
		close(free)
	})
}

// Run calls New, and then runs the conductor.
func TestRunIsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		ctx, cancel := context.WithCancel(t.Context())
		o, _ := funcs(c, "print", func(context.Context, jobs.Job) error { cancel(); return nil })
		posted := postOne(t, c, jobs.Posting{Name: "a page", Kind: "print"})
		if err := conductor.Run(ctx, o); err != nil {
			t.Fatal(err)
		}
		under(t, c, posted.ID, jobs.StateCompleted)
		if err := conductor.Run(ctx, conductor.Options{Client: c}); err == nil || !strings.Contains(err.Error(), "no factory, and there are no funcs") {
			t.Errorf("without work: %v", err)
		}
	})
}

// TestStepsLimit checks the default limit of parallel steps: enough for each job of a large
// conductor, so that steps of different jobs need not wait for each other.
func TestStepsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := funcs(openCluster(t), "print", func(context.Context, jobs.Job) error { return nil })
		for _, row := range []struct{ jobs, workers, steps, want int }{
			{0, 0, 0, conductor.DefaultSteps}, {1, 0, 0, 64}, {16, 8, 0, 64}, {64, 0, 0, 512}, {256, 8, 0, 1024}, {256, 1024, 0, 4096}, {256, 0, 3, 3},
		} {
			o.MaxJobs, o.Workers, o.Steps = row.jobs, row.workers, row.steps
			c, err := conductor.New(o)
			if err != nil || c.StepsLimit() != row.want {
				t.Errorf("%+v: got %d, %v", row, c.StepsLimit(), err)
			}
		}
	})
}

// A job without a flow whose values cannot be decrypted is released before its Func starts.
func TestFuncOfEncryptedValues(t *testing.T) {
	keys, err := valuekeys.Parse([]byte(`old = "` + base64.StdEncoding.EncodeToString(make([]byte, 32)) + `"`))
	if err != nil {
		t.Fatal(err)
	}
	value := keys.EncryptJSON(valuekeys.Place{}, json.RawMessage(`1`))
	for what, posting := range map[string]jobs.Posting{
		"its details":      {Name: "a page", Kind: "print", Details: value},
		`"v" of its store`: {Name: "a page", Kind: "print", Store: logbook.Values{"v": value}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := openCluster(t)
			o, notices := funcs(c, "print", func(context.Context, jobs.Job) error { t.Error("it was begun"); return nil })
			running(t, o)
			posted := postOne(t, c, posting)
			until(t, "the job is released", func() bool { return notices.count(conductor.MomentAbandoned) > 0 })
			if job, err := c.Job(t.Context(), posted.ID); err != nil || job.Failures != 0 || !strings.Contains(job.Reason, what) {
				t.Errorf("%s: %q after %d failures, %v", what, job.Reason, job.Failures, err)
			}
		})
	}
}
