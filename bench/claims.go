package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conductord/conductord/internal/measure"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

const (
	claimTTL       = 30 * time.Second
	claimKeepAlive = claimTTL / 5
	claimWait      = time.Second
	// claimStock is the number of jobs posted in advance for each second of measured claims.
	// Claims beyond the stock must post their jobs first, and then include the cost of
	// posting.
	claimStock = 6_000
	// claimRefill is the number of jobs per refilling call.
	claimRefill = 100
	fillCallers = 8
	fillBatch   = 200
)

// claimer is a conductor from the board's view: a session on its own connection.
type claimer struct {
	client  *raftboard.Client
	session jobs.SessionID
	stock   *atomic.Int64 // claimable jobs, below which more are posted
	keeping sync.WaitGroup
	stop    context.CancelFunc
}

// openClaim repeatedly claims the next job and completes it.
func openClaim(ctx context.Context, at *place, load measure.Load) (*doing, error) {
	var stock atomic.Int64
	if !at.steady {
		n := int(claimStock * (load.Warm + load.Window).Seconds())
		if err := fill(ctx, at.client, n, detailBytes, nil); err != nil {
			return nil, err
		}
		stock.Store(int64(n))
	}
	idle := make(chan *claimer, load.Callers) // each call borrows one claimer
	closeAll := func() {
		for len(idle) > 0 {
			(<-idle).close()
		}
	}
	for range load.Callers {
		one, err := newClaimer(ctx, at.dial, &stock)
		if err != nil {
			closeAll()
			return nil, err
		}
		idle <- one
	}
	return &doing{
		call: timed(func(ctx context.Context) error {
			one := <-idle
			defer func() { idle <- one }()
			return one.claimAndConsume(ctx)
		}),
		close: closeAll,
	}, nil
}

func newClaimer(ctx context.Context, dial func(context.Context) (*raftboard.Client, error), stock *atomic.Int64) (*claimer, error) {
	client, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &claimer{client: client, session: jobs.NewSessionID(), stock: stock}
	if _, err := client.OpenSession(ctx, jobs.Opening{ID: c.session, Name: "bench", TTL: claimTTL}); err != nil {
		client.Close()
		return nil, err
	}
	living, stop := context.WithCancel(ctx)
	c.stop = stop
	c.keeping.Go(func() { c.keepAlive(living) }) // ends with close
	return c, nil
}

func (c *claimer) keepAlive(ctx context.Context) {
	ticks := time.NewTicker(claimKeepAlive)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			_ = c.client.KeepAlive(ctx, c.session) // a lost session shows in the claims
		}
	}
}

func (c *claimer) claimAndConsume(ctx context.Context) error {
	if c.stock.Add(-1) < 0 {
		if err := post(ctx, c.client, claimRefill, details(detailBytes)); err != nil {
			return err
		}
		c.stock.Add(claimRefill)
	}
	claimed, err := c.client.ClaimNext(ctx, jobs.ClaimRequest{
		Session: c.session, Nonce: jobs.NewNonce(), Boards: []string{benchBoard}, Kinds: []string{postKind}, Wait: claimWait,
	})
	if err != nil {
		return err
	}
	if len(claimed) == 0 {
		return errors.New("no job is left to be claimed")
	}
	job := claimed[0].Job
	return c.client.Consume(ctx, jobs.Ending{Job: job.ID, Token: job.Token, Outcome: jobs.OutcomeSuccess})
}

func (c *claimer) close() {
	c.stop()
	c.keeping.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.client.CloseSession(ctx, c.session) // or it expires
	c.client.Close()
}

// fill posts a number of jobs with details of a size. After each call it passes the number of
// posted jobs to tell, which may be nil and is called from several goroutines.
func fill(ctx context.Context, client *raftboard.Client, count, size int, tell func(done int)) error {
	carried := details(size)
	var next, done atomic.Int64
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var callers sync.WaitGroup
	for range fillCallers {
		callers.Go(func() { // ends when all is posted, or with the first error
			for ctx.Err() == nil {
				batch := min(fillBatch, count-int(next.Add(fillBatch)-fillBatch))
				if batch <= 0 {
					return
				}
				if err := post(ctx, client, batch, carried); err != nil {
					cancel(err)
					return
				}
				if now := int(done.Add(int64(batch))); tell != nil {
					tell(now)
				}
			}
		})
	}
	callers.Wait()
	return context.Cause(ctx)
}
