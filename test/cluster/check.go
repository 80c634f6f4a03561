package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// check checks a round after its faults are repaired. ctx ends at the time when every job must
// have ended.
func (r *Runner) check(ctx context.Context, history *History, sessions []jobs.SessionID, p *posted, signals *signalling) error {
	var checking sync.WaitGroup // beside the other checks, which mostly wait
	defer checking.Wait()
	var signalled error
	checking.Go(func() { signalled = signals.check(ctx) })
	flows, err := r.awaitFlows(ctx, p)
	if err != nil {
		return err
	}
	last := &Worker{Client: r.client, Number: r.Workers, History: history}
	for _, id := range history.Jobs() {
		if err := last.Read(ctx, id); err != nil {
			return fmt.Errorf("a read of a healthy cluster: %w", err)
		}
	}
	if err := history.Check(time.Minute); err != nil {
		r.Keep("history", err.Error())
		return err
	}
	if err := r.endPlain(ctx, history, sessions); err != nil {
		return err
	}
	if err := r.checkTakeover(ctx); err != nil {
		return err
	}
	checking.Wait()
	r.Report.Signals.add(signals.counts)
	if signalled != nil {
		r.Keep("signals", signalled.Error())
		return signalled
	}
	if r.Gather != nil {
		if err := r.Gather(r.ledger); err != nil {
			return err
		}
	}
	if err := r.checkFlows(ctx, flows); err != nil {
		r.Keep("ledger", err.Error())
		return err
	}
	return errors.Join(r.equal(ctx), r.ended())
}

// awaitFlows waits until all jobs with flows have ended.
func (r *Runner) awaitFlows(ctx context.Context, p *posted) ([]jobs.Job, error) {
	var ended []jobs.Job
	for _, id := range p.acknowledged {
		job, err := r.client.Wait(ctx, id)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
			return nil, fmt.Errorf("job %s was acknowledged, and is gone", id)
		case err != nil:
			return nil, r.stuck(id, err)
		}
		ended = append(ended, job)
	}
	for _, id := range p.unknown {
		job, err := r.client.Wait(ctx, id)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
		case err != nil:
			return nil, r.stuck(id, err)
		default:
			ended = append(ended, job)
		}
	}
	return ended, nil
}

// stuck describes a job that has not ended.
func (r *Runner) stuck(id jobs.JobID, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fault := fmt.Errorf("job %s has not ended %v after all faults were mended: %w", id, r.Settle, err)
	job, err := r.client.Job(ctx, id)
	if err != nil {
		return errors.Join(fault, err)
	}
	lines := []string{fmt.Sprintf("the job: %#v", job)}
	if explained, err := r.client.Explain(ctx, id); err == nil {
		lines = append(lines, fmt.Sprintf("explained: %+v", explained))
	}
	for _, entry := range r.ledger.Entries(job.Flow) {
		lines = append(lines, entry.String())
	}
	return fmt.Errorf("%w\n%s", fault, strings.Join(lines, "\n"))
}

// endPlain closes the workers' sessions, and claims and consumes every remaining plain job.
// This shows that each job can be claimed, and that no dead owner holds one.
func (r *Runner) endPlain(ctx context.Context, history *History, sessions []jobs.SessionID) error {
	for _, session := range sessions {
		if err := r.client.CloseSession(ctx, session); err != nil {
			return fmt.Errorf("cannot close a session that was never silent: %w", err)
		}
	}
	ending := jobs.NewSessionID()
	if _, err := r.client.OpenSession(ctx, jobs.Opening{ID: ending, Name: "the last", TTL: jobs.MaxTTL}); err != nil {
		return fmt.Errorf("a session of a healthy cluster: %w", err)
	}
	for {
		claimed, err := r.client.ClaimNext(ctx, jobs.ClaimRequest{Session: ending, Nonce: jobs.NewNonce(), Kinds: []string{"plain"}, Max: 100})
		if err != nil {
			return fmt.Errorf("cannot claim the plain jobs that are left: %w", err)
		}
		if len(claimed) == 0 {
			break
		}
		for _, one := range claimed {
			if err := r.client.Consume(ctx, jobs.Ending{Job: one.Job.ID, Token: one.Job.Token, Outcome: jobs.OutcomeSuccess}); err != nil {
				return fmt.Errorf("cannot consume a plain job that is left: %w", err)
			}
		}
	}
	for _, id := range history.Posted() {
		job, err := r.client.Job(ctx, id)
		if err != nil {
			return fmt.Errorf("job %s was acknowledged: %w", id, err)
		}
		if !job.State.Finished() {
			return fmt.Errorf("job %s can't be ended: it is %s, and has no owner: %+v", id, job.State, job)
		}
	}
	return r.client.CloseSession(ctx, ending)
}

// checkFlows compares the logbook with the ledger.
func (r *Runner) checkFlows(ctx context.Context, ended []jobs.Job) error {
	outcomes := map[jobs.Outcome]logbook.FlowState{jobs.OutcomeSuccess: logbook.FlowSuccess, jobs.OutcomeReverted: logbook.FlowReverted}
	for _, job := range ended {
		detail, err := r.client.FlowDetail(ctx, job.Flow)
		if err != nil {
			return fmt.Errorf("the flow of job %s, which has ended: %w", job.ID, err)
		}
		counted, err := r.ledger.Check(detail)
		if err != nil {
			return fmt.Errorf("job %s: %w", job.ID, err)
		}
		r.Report.Repeatable.add(counted)
		if job.State != jobs.StateCompleted || outcomes[job.Outcome] != detail.State {
			return fmt.Errorf("job %s is %s with outcome %q and reason %q, and its flow is %s", job.ID, job.State, job.Outcome, job.Reason, detail.State)
		}
		r.ledger.Forget(job.Flow)
		r.Report.Flows++
		if detail.State == logbook.FlowReverted {
			r.Report.Reverted++
		}
	}
	return r.ledger.Faults()
}

// equal waits until all nodes are at one index, and compares their states there. Conductors
// continue to write, so equal may have to query the nodes repeatedly.
func (r *Runner) equal(ctx context.Context) error {
	for {
		indexes, sums := map[uint64]bool{}, map[[32]byte]bool{}
		for i := range r.Cluster.Size() {
			index, sum, err := r.Cluster.Digest(ctx, i)
			if err != nil {
				return fmt.Errorf("cannot sum up node %d: %w", i, err)
			}
			indexes[index], sums[sum] = true, true
		}
		switch {
		case len(indexes) == 1 && len(sums) == 1:
			return nil
		case len(indexes) == 1:
			return fmt.Errorf("the nodes have different states at one index: %v", indexes)
		case ctx.Err() != nil:
			return fmt.Errorf("the nodes do not reach one index: %v", indexes)
		}
		rest(ctx, 100*time.Millisecond)
	}
}
