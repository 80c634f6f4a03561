package node_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
)

// The operations of the history, and their possible answers.
type (
	asked struct {
		what  string // post, claim, consume, get
		job   jobs.JobID
		token jobs.Token // consume
	}
	answered struct {
		unknown bool       // the outcome is unknown
		state   jobs.State // after the operation, or the conflicting one; empty: no such job
		token   jobs.Token
		refused bool
	}
	// register is a job as its callers see it.
	register struct {
		state jobs.State
		token jobs.Token // zero while claimed: the caller never got the answer
	}
)

// jobModel defines the possible answers about one job, for one order of all operations on it. If an
// outcome is unknown, both outcomes are possible.
func jobModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byJob := map[jobs.JobID][]porcupine.Operation{}
			for _, operation := range history {
				id := operation.Input.(asked).job
				byJob[id] = append(byJob[id], operation)
			}
			var parts [][]porcupine.Operation
			for _, part := range byJob {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() []any { return []any{register{}} },
		Step: func(state, input, output any) []any {
			return step(state.(register), input.(asked), output.(answered))
		},
	}
	return model.ToModel()
}

func step(now register, in asked, out answered) []any {
	var fits bool
	var next register
	switch in.what {
	case "post":
		fits, next = true, now // a repeat, or the first call
		if now.state == "" {
			next = register{state: jobs.StateClaimable}
		}
	case "claim":
		fits, next = now.state == jobs.StateClaimable, register{jobs.StateClaimed, out.token}
	case "consume":
		mine := now.token == in.token || now.token.IsZero()
		fits, next = now.state == jobs.StateClaimed && mine, register{jobs.StateCompleted, in.token}
	case "get":
		known := out.token == now.token || now.token.IsZero()
		fits, next = out.state == now.state && known, register{out.state, out.token}
	}
	switch {
	case out.unknown && fits:
		return []any{now, next}
	case out.unknown, out.refused && !fits:
		return []any{now}
	case fits && !out.refused:
		return []any{next}
	}
	return nil
}

// journal is the history that the workers write.
type journal struct {
	mu         sync.Mutex
	began      time.Time
	operations []porcupine.Operation
}

// missing returns a kind of operation without an answer so far, if any.
func (j *journal) missing() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	missing := []string{"post", "claim", "consume", "get"}
	for _, operation := range j.operations {
		if out := operation.Output.(answered); !out.unknown && !out.refused {
			missing = slices.DeleteFunc(missing, func(what string) bool { return what == operation.Input.(asked).what })
		}
	}
	return missing
}

// note records an operation, unless it certainly did not happen.
func (j *journal) note(worker int, in asked, out answered, call time.Time, err error) {
	if err != nil && errors.Is(err, jobs.ErrUnavailable) && !errors.Is(err, jobs.ErrUncertain) {
		return
	}
	back := time.Since(j.began).Nanoseconds()
	if out.unknown {
		if in.what == "get" {
			return
		}
		back = math.MaxInt64 // it can take effect at any later time
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.operations = append(j.operations, porcupine.Operation{
		ClientId: worker, Input: in, Output: out, Call: call.Sub(j.began).Nanoseconds(), Return: back,
	})
}

// All answers about a job fit into one order, even while leaders fail.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	const workers, lasts = 9, 5 * time.Second
	c := newCluster(t, 3, quickElections)
	between := newNetwork(c)
	c.startAll()
	history := &journal{began: time.Now()}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	work := make([]jobs.JobID, atATime*int(patience/term))
	for i := range work {
		work[i] = jobs.NewJobID()
	}
	var all sync.WaitGroup
	patient := c.client()
	for worker := range workers {
		client, err := raftboard.Open(t.Context(), raftboard.Options{Endpoints: []string{c.endpoints()[worker%3]}, Patience: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		session := opened(t, patient, time.Minute)
		all.Go(func() { labour(ctx, history, client, session, worker, work) })
	}
	// A busy machine can need longer to answer each kind of operation.
	for turn := 0; ctx.Err() == nil && (time.Since(history.began) < lasts || len(history.missing()) > 0); turn++ {
		disturb(c, between, turn)
	}
	stop()
	all.Wait()
	done := map[string]int{}
	for _, operation := range history.operations {
		if out := operation.Output.(answered); !out.unknown && !out.refused {
			done[operation.Input.(asked).what]++
		}
	}
	t.Logf("%d operations; answered: %v", len(history.operations), done)
	for _, what := range history.missing() {
		t.Errorf("no %s was ever answered", what)
	}
	if result := porcupine.CheckOperationsTimeout(jobModel(), history.operations, 2*patience); result != porcupine.Ok {
		t.Errorf("the history is not linearizable: %s", result)
	}
}

// Few jobs at a time, so that the workers conflict, and other jobs after some time.
const (
	atATime = 6
	term    = 500 * time.Millisecond
)

// labour makes random operations on jobs until ctx ends.
func labour(ctx context.Context, history *journal, client *raftboard.Client, session jobs.SessionID, worker int, work []jobs.JobID) {
	for round := 0; ctx.Err() == nil; round++ {
		at := int(time.Since(history.began)/term)*atATime + rand.IntN(atATime)
		id := work[min(at, len(work)-1)]
		switch rand.IntN(4) {
		case 0:
			call, in := time.Now(), asked{what: "post", job: id}
			_, err := jobs.PostOne(ctx, client, jobs.Posting{ID: id, Name: "plain", Kind: "plain"})
			history.note(worker, in, answered{unknown: err != nil}, call, err)
		case 1:
			claimAndConsume(ctx, history, client, session, worker, id)
		default:
			call, in := time.Now(), asked{what: "get", job: id}
			job, err := client.Job(ctx, id)
			out := answered{state: job.State, token: job.Token}
			if err != nil {
				out = answered{unknown: !errors.Is(err, jobs.ErrNotFound)}
			}
			history.note(worker, in, out, call, err)
		}
	}
}

func claimAndConsume(ctx context.Context, history *journal, client *raftboard.Client, session jobs.SessionID, worker int, id jobs.JobID) {
	call, in := time.Now(), asked{what: "claim", job: id}
	claimed, err := client.Claim(ctx, session, id, jobs.NewNonce())
	out := answered{token: claimed.Job.Token}
	if err != nil {
		out.refused = errors.Is(err, jobs.ErrUnclaimable) || errors.Is(err, jobs.ErrNotFound)
		out.unknown = !out.refused
	}
	history.note(worker, in, out, call, err)
	if err != nil {
		return
	}
	call, in = time.Now(), asked{what: "consume", job: id, token: claimed.Job.Token}
	err = client.Consume(ctx, jobs.Ending{Job: id, Token: claimed.Job.Token, Outcome: jobs.OutcomeSuccess})
	out = answered{refused: errors.Is(err, jobs.ErrFenced)}
	out.unknown = err != nil && !out.refused
	history.note(worker, in, out, call, err)
}

// quickElections makes an isolated leader lose its leadership within the isolation time of disturb.
func quickElections(o *node.Options) { o.Raft.Heartbeat = 300 * time.Millisecond }

// disturb alternately transfers the leadership and isolates the leader.
func disturb(c *cluster, between *network, turn int) {
	<-time.After(300 * time.Millisecond)
	leader := c.leader()
	if turn%2 == 0 {
		if err := node.Transfer(c.nodes[leader]); err != nil {
			c.t.Logf("transfer: %v", err)
		}
		return
	}
	between.isolate(c.options[leader].Name)
	<-time.After(700 * time.Millisecond)
	between.heal()
}

// Calls through a follower continue while leaders change: the client repeats them, and no call is
// lost or takes effect twice.
func TestCallsOutliveLeaders(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	client := c.client(c.others(c.leader())[0])
	const callers, each = 4, 25
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				if _, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "plain", Kind: "plain"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		if err := node.Transfer(c.nodes[c.leader()]); err != nil {
			t.Logf("transfer: %v", err)
		}
	}
	all.Wait()
	page, err := client.Jobs(t.Context(), jobs.Query{})
	if err != nil || len(page.Items) != callers*each {
		t.Errorf("%d jobs, want %d; %v", len(page.Items), callers*each, err)
	}
}
