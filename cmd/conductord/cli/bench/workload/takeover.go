package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
)

// takeoverPatience limits the time that a job stays with its owner after the TTL. It covers
// the cluster's grace and cool-down, which a caller does not know, and a change of leader.
const takeoverPatience = 30 * time.Second

// takeovers makes owners of jobs silent, like killed processes, and waits for their jobs in a
// live session.
type takeovers struct {
	Cluster
	board    string
	ttl      time.Duration
	survivor jobs.SessionID
	// kinds has one kind for each caller. Each round borrows a kind, so that only its own
	// conductors can get its job.
	kinds chan string
}

// Takeover opens the session that takes over.
func Takeover(ctx context.Context, cluster Cluster, f Options) (*Workload, error) {
	t := &takeovers{Cluster: cluster, board: f.Board, ttl: f.TTL, survivor: jobs.NewSessionID(), kinds: make(chan string, f.Clients)}
	for i := range f.Clients {
		t.kinds <- fmt.Sprintf("%s-takeover-%s-%d", kind, t.survivor, i)
	}
	if _, err := cluster.OpenSession(ctx, jobs.Opening{ID: t.survivor, Name: "bench", TTL: sessionTTL}); err != nil {
		return nil, err
	}
	living, stop := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { keepAlive(living, cluster, t.survivor) }) // ends with stop
	return &Workload{
		timed: t.round,
		End: func(ctx context.Context) error {
			stop()
			keeping.Wait()
			return cluster.CloseSession(ctx, t.survivor)
		},
	}, nil
}

// round has a session claim a job and then stop its keep-alives. The time runs from the session's
// last keep-alive until the survivor has the job.
func (t *takeovers) round(ctx context.Context) (operations int, took time.Duration, err error) {
	own := <-t.kinds
	defer func() { t.kinds <- own }()
	silent := jobs.NewSessionID()
	if _, err := t.OpenSession(ctx, jobs.Opening{ID: silent, Name: "bench-silent", TTL: t.ttl}); err != nil {
		return 0, 0, err
	}
	job, err := jobs.PostOne(ctx, t, jobs.Posting{Board: t.board, Name: "bench", Kind: own})
	if err == nil {
		_, err = t.Claim(ctx, silent, job.ID, jobs.NewNonce())
	}
	began := time.Now()
	if err == nil {
		err = t.KeepAlive(ctx, silent)
	}
	if err == nil {
		took, err = t.await(ctx, own, job.ID, began)
	}
	if err != nil {
		t.clear(ctx, silent, job.ID)
		return 0, 0, err
	}
	return 1, took, nil
}

// await takes the job over and completes it.
func (t *takeovers) await(ctx context.Context, own string, job jobs.JobID, began time.Time) (time.Duration, error) {
	claimed, err := t.ClaimNext(ctx, jobs.ClaimRequest{
		Session: t.survivor, Nonce: jobs.NewNonce(), Boards: []string{t.board}, Kinds: []string{own}, Wait: t.ttl + takeoverPatience,
	})
	took := time.Since(began)
	switch {
	case err != nil:
		return 0, err
	case len(claimed) == 0:
		return 0, fmt.Errorf("%w: no other owner claimed job %s within %s after its owner became silent", jobs.ErrUnavailable, job, took.Round(time.Second))
	}
	if claimed[0].Job.ID != job {
		return 0, fmt.Errorf("%w: the claim returned job %s instead of %s", jobs.ErrConflict, claimed[0].Job.ID, job)
	}
	return took, t.Consume(ctx, jobs.Ending{Job: job, Token: claimed[0].Job.Token, Outcome: jobs.OutcomeSuccess})
}

// clear removes the remains of a failed or interrupted round. It ignores errors: the session also
// expires by itself.
func (t *takeovers) clear(ctx context.Context, silent jobs.SessionID, job jobs.JobID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTime)
	defer cancel()
	err := t.CloseSession(ctx, silent)
	if err == nil || errors.Is(err, jobs.ErrSessionExpired) {
		_ = t.Cancel(ctx, jobs.JobCommand{Job: job, By: "bench", Reason: "the benchmark is over"})
	}
}
