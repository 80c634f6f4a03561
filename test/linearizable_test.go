package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// linearizableTimeEnv makes TestProcessesAreLinearizable longer, such as 3m.
const linearizableTimeEnv = "CONDUCTORD_LINEARIZABLE_TIME"

// The calls of the history, and what they may answer.
type (
	asked struct {
		what     string // post, claim, consume, abandon, change, read
		job      jobs.JobID
		token    jobs.Token    // of consume and abandon
		priority jobs.Priority // of change
	}
	answered struct {
		unknown bool // whether it happened
		refused bool
		job     register // of claim and read
	}
	// register is a job as its callers see it. The zero register is no job.
	register struct {
		state    jobs.State
		token    jobs.Token
		priority jobs.Priority
	}
)

// tokenUnknown is that of a claim whose claimant never heard of it.
var tokenUnknown = jobs.Token{Generation: math.MaxUint64}

// jobModel says what the answers about one job may be, in one order of all
// calls about it.
func jobModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byJob := map[jobs.JobID][]porcupine.Operation{}
			for _, operation := range history {
				id := operation.Input.(asked).job
				byJob[id] = append(byJob[id], operation)
			}
			return slices.Collect(maps.Values(byJob))
		},
		Init: func() []any { return []any{register{}} },
		Step: func(state, input, output any) []any {
			return step(state.(register), input.(asked), output.(answered))
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
	return model.ToModel()
}

// step gives the registers that a call may leave: none if it cannot have been
// answered so. Where it is unknown whether it happened, both are possible.
func step(now register, in asked, out answered) []any {
	can, next := effect(now, in, out)
	switch {
	case out.unknown && can:
		return []any{now, next}
	case out.unknown, out.refused && !can:
		return []any{now}
	case can && !out.refused:
		return []any{next}
	}
	return nil
}

// effect tells whether a call can happen, and what it leaves.
func effect(now register, in asked, out answered) (can bool, next register) {
	next = now
	switch in.what {
	case "post":
		if can = true; now.state == "" { // otherwise it is a repeat
			next.state = jobs.StateClaimable
		}
	case "claim":
		can = now.state == jobs.StateClaimable && (out.job == register{} || out.job.priority == now.priority)
		if next.state, next.token = jobs.StateClaimed, out.job.token; next.token.IsZero() {
			next.token = tokenUnknown
		}
	case "consume":
		can = now.state == jobs.StateClaimed && now.token == in.token
		next.state = jobs.StateCompleted
	case "abandon":
		can = now.state == jobs.StateClaimed && now.token == in.token
		next.state = jobs.StateClaimable
	case "change":
		can = now.state != "" && now.state != jobs.StateCompleted
		next.priority = in.priority
	case "read":
		if now.token == tokenUnknown && out.job.token.Compare(jobs.Token{}) > 0 {
			now.token = out.job.token
		}
		can, next = out.job == now, now
	}
	return can, next
}

// journal is the history that the workers write.
type journal struct {
	began    time.Time
	priority atomic.Int32 // the last that was given; each is given once

	mu         sync.Mutex
	operations []porcupine.Operation
	answers    map[string]int
}

// call makes a call and writes it down, unless it is known that it did not
// happen. A refusal is one of these errors.
func (h *journal) call(worker int, in asked, do func() (jobs.Job, error), refusals ...error) (jobs.Job, error) {
	called := time.Since(h.began)
	job, err := do()
	back := time.Since(h.began)
	out := answered{}
	switch {
	case err == nil:
		out.job = register{job.State, job.Token, job.Priority}
	case errors.Is(err, jobs.ErrUnavailable) && !errors.Is(err, jobs.ErrUncertain):
		return job, err
	case slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }):
		out.refused = true
	case in.what == "read":
		return job, err
	default:
		out.unknown, back = true, math.MaxInt64 // it may happen at any time from now on
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, porcupine.Operation{
		ClientId: worker, Input: in, Output: out, Call: called.Nanoseconds(), Return: int64(back),
	})
	h.answers[fmt.Sprintf("%s refused=%t unknown=%t", in.what, out.refused, out.unknown)]++
	return job, err
}

// worker is one of those who work on the same jobs.
type worker struct {
	*raftboard.Client
	number  int
	history *journal
	session jobs.SessionID
}

// labour works on jobs at random until ctx ends.
func (w *worker) labour(ctx context.Context) {
	for ctx.Err() == nil {
		// A few jobs at a time, so that the workers meet.
		const apiece, term = 6, 500 * time.Millisecond
		id := numberedJob(int(time.Since(w.history.began)/term)*apiece + rand.IntN(apiece))
		var err error
		switch rand.IntN(8) {
		case 0, 1:
			err = w.post(ctx, id)
		case 2, 3, 4:
			err = w.claimAndEnd(ctx, id)
		case 5:
			err = w.change(ctx, id)
		default:
			err = w.read(ctx, id)
		}
		if errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, jobs.ErrUncertain) {
			const moment = 50 * time.Millisecond // nobody leads: there is nothing to be asked
			select {
			case <-ctx.Done():
			case <-time.After(moment):
			}
		}
	}
}

// numberedJob names the same job to all workers.
func numberedJob(n int) jobs.JobID {
	id := jobs.JobID{}
	copy(id.UUID[:], fmt.Sprintf("job%013d", n))
	return id
}

func (w *worker) post(ctx context.Context, id jobs.JobID) error {
	_, err := w.history.call(w.number, asked{what: "post", job: id}, func() (jobs.Job, error) {
		return jobs.PostOne(ctx, w, jobs.Posting{ID: id, Name: "plain", Kind: "plain"})
	})
	return err
}

func (w *worker) claimAndEnd(ctx context.Context, id jobs.JobID) error {
	job, err := w.history.call(w.number, asked{what: "claim", job: id}, func() (jobs.Job, error) {
		claimed, err := w.Claim(ctx, w.session, id, jobs.NewNonce())
		return claimed.Job, err
	}, jobs.ErrUnclaimable, jobs.ErrNotFound)
	if err != nil {
		return err
	}
	in := asked{what: "consume", job: id, token: job.Token}
	end := func() error {
		return w.Consume(ctx, jobs.Ending{Job: id, Token: job.Token, Outcome: jobs.OutcomeSuccess})
	}
	if rand.IntN(3) > 0 {
		in.what = "abandon"
		end = func() error { return w.Abandon(ctx, jobs.Ending{Job: id, Token: job.Token}) }
	}
	_, err = w.history.call(w.number, in, func() (jobs.Job, error) { return jobs.Job{}, end() }, jobs.ErrFenced)
	return err
}

func (w *worker) change(ctx context.Context, id jobs.JobID) error {
	priority := jobs.Priority(w.history.priority.Add(1))
	_, err := w.history.call(w.number, asked{what: "change", job: id, priority: priority}, func() (jobs.Job, error) {
		return jobs.Job{}, w.Change(ctx, jobs.Change{Job: id, Priority: &priority})
	}, jobs.ErrConflict, jobs.ErrNotFound)
	return err
}

// read writes down that there is no such job, too.
func (w *worker) read(ctx context.Context, id jobs.JobID) error {
	_, err := w.history.call(w.number, asked{what: "read", job: id}, func() (jobs.Job, error) {
		job, err := w.Job(ctx, id)
		if errors.Is(err, jobs.ErrNotFound) {
			return jobs.Job{}, nil
		}
		return job, err
	})
	return err
}

// TestProcessesAreLinearizable kills the leader every 5 s while workers post,
// claim, consume, abandon, change and read the same jobs through all nodes: the
// answers about each job fit into one order of all calls about it.
func TestProcessesAreLinearizable(t *testing.T) {
	const pace, workers = 5 * time.Second, 8
	lasts := timeOf(t, linearizableTimeEnv, 3*pace)
	cluster, patient := startCluster(t, func(c *config.Config) { c.Conductor.Enabled = false })
	history := &journal{began: time.Now(), answers: map[string]int{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for number := range workers {
		w := hire(t, cluster, patient, history, number)
		all.Go(func() { w.labour(ctx) })
	}
	killed := killLeaders(t, cluster, patient, lasts, pace)
	stop()
	all.Wait()
	last := &worker{Client: patient, number: workers, history: history}
	for n := range int(lasts/time.Second) * 12 {
		if err := last.read(within(t), numberedJob(n)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d leaders killed, %d calls: %v", killed, len(history.operations), history.answers)
	for _, what := range []string{"post", "claim", "consume", "abandon", "change", "read"} {
		if history.answers[what+" refused=false unknown=false"] == 0 {
			t.Errorf("no %s was ever answered", what)
		}
	}
	if result := porcupine.CheckOperationsTimeout(jobModel(), history.operations, patience); result != porcupine.Ok {
		t.Errorf("the history is not linearizable: %s", result)
	}
}

// hire makes a worker that gives up before another leader can be there. A client
// that repeats a change after that may make it a second time, after those of
// others, and an ending that took place is refused once somebody else has the
// job: the history would have to know of each try.
func hire(t *testing.T, cluster *local.Cluster, patient *raftboard.Client, history *journal, number int) *worker {
	t.Helper()
	const impatient = 200 * time.Millisecond
	endpoints := cluster.Endpoints()
	at := number % len(endpoints)
	client, err := raftboard.Open(t.Context(), raftboard.Options{
		Endpoints: append(slices.Clone(endpoints[at:]), endpoints[:at]...), Patience: impatient,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	session := jobs.NewSessionID()
	if _, err := patient.OpenSession(within(t), jobs.Opening{ID: session, Name: fmt.Sprint("worker ", number), TTL: jobs.MaxTTL}); err != nil {
		t.Fatal(err)
	}
	return &worker{Client: client, number: number, history: history, session: session}
}

// timeOf is how long a test lasts: what an environment variable says, or else
// so long.
func timeOf(t *testing.T, name string, otherwise time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return lasts
}

// TestHistoriesCanBeRefused holds that the model refuses what must not be.
func TestHistoriesCanBeRefused(t *testing.T) {
	job, one, two := numberedJob(1), jobs.Token{Generation: 1, Index: 1}, jobs.Token{Generation: 1, Index: 2}
	claimable := register{state: jobs.StateClaimable}
	post := porcupine.Operation{Input: asked{what: "post", job: job}, Output: answered{job: claimable}}
	claim := func(token jobs.Token) porcupine.Operation {
		return porcupine.Operation{Input: asked{what: "claim", job: job}, Output: answered{job: register{jobs.StateClaimed, token, 0}}}
	}
	end := func(what string, token jobs.Token, out answered) porcupine.Operation {
		return porcupine.Operation{Input: asked{what: what, job: job, token: token}, Output: out}
	}
	read := func(now register) porcupine.Operation {
		return porcupine.Operation{Input: asked{what: "read", job: job}, Output: answered{job: now}}
	}
	lost := porcupine.Operation{Input: asked{what: "claim", job: job}, Output: answered{unknown: true}}
	for _, row := range []struct {
		name    string
		history []porcupine.Operation
		fits    bool
	}{
		{"a life", []porcupine.Operation{post, claim(one), end("abandon", one, answered{}), claim(two), end("consume", two, answered{})}, true},
		{"two owners", []porcupine.Operation{post, claim(one), claim(two)}, false},
		{"an old token ends the claim", []porcupine.Operation{post, claim(one), end("abandon", one, answered{}), claim(two), end("consume", one, answered{})}, false},
		{"the owner is refused", []porcupine.Operation{post, claim(one), end("consume", one, answered{refused: true})}, false},
		{"a lost job", []porcupine.Operation{post, read(register{})}, false},
		{"a lost claim", []porcupine.Operation{post, claim(one), read(claimable)}, false},
		{"a claim nobody knows of did happen", []porcupine.Operation{post, lost, read(register{jobs.StateClaimed, one, 0})}, true},
		{"a claim nobody knows of did not", []porcupine.Operation{post, lost, claim(one)}, true},
		{"a change that is gone", []porcupine.Operation{post, {Input: asked{what: "change", job: job, priority: 7}, Output: answered{}}, read(claimable)}, false},
	} {
		for i := range row.history {
			row.history[i].Call, row.history[i].Return = int64(2*i), int64(2*i+1)
		}
		if fits := porcupine.CheckOperations(jobModel(), row.history); fits != row.fits {
			t.Errorf("%s: it fits: %t", row.name, fits)
		}
	}
}
