package main

import (
	"context"
	"fmt"
	"os"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/internal/load"
	"github.com/conductord/conductord/internal/measure"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/test/attack"
)

const (
	hostileCallers = 64
	// hostileRate is the number of attacks per second, each kind once. The attackers share the
	// processors with the nodes, so a higher rate would measure the machine.
	hostileRate = 30
)

// hostile measures the cost of attackers for honest callers of a cluster with TLS and access
// control. It compares the rate of posts in a window under attack with the windows before and
// after.
func (b *bench) hostile(ctx context.Context) {
	dir := b.place()
	defer func() { _ = os.RemoveAll(dir) }()
	c, err := startAttacked(ctx, b.o.binary, dir)
	if err != nil {
		b.report.fail("the cluster under attack: %v", err)
		return
	}
	defer c.Close()
	var ratios []float64
	for number := range b.o.Pairs {
		ratio, err := b.postsUnderAttack(ctx, c)
		if err != nil {
			b.report.fail("hostile: %v", err)
			return
		}
		progress("hostile, pair %d of %d: ratio %.2f", number+1, b.o.Pairs, ratio)
		ratios = append(ratios, ratio)
	}
	least := atLeast("", 0.8, nil)
	b.report.figure(fmt.Sprintf("posts of %d callers under %d attacks a second, against without", hostileCallers, hostileRate), "of the rate", &least, ratios...)
}

func startAttacked(ctx context.Context, binary, dir string) (*attack.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return attack.Start(ctx, local.Options{Binary: binary, Dir: dir})
}

func (b *bench) postsUnderAttack(ctx context.Context, c *attack.Cluster) (ratio float64, err error) {
	before := b.honestRate(ctx, c)
	attacking, stop := context.WithCancel(ctx)
	ended := make(chan attack.Result, 1)
	go func() { ended <- c.Run(attacking, hostileRate) }() // ends with stop
	during := b.honestRate(ctx, c)
	stop()
	result := <-ended
	after := b.honestRate(ctx, c)
	if len(result.In) > 0 {
		return 0, result.In[0]
	}
	for _, run := range []*load.Result{before, during, after} {
		if run.First != nil {
			return 0, run.First
		}
	}
	return measure.Share(2*during.PerSecond, before.PerSecond+after.PerSecond), ctx.Err()
}

func (b *bench) honestRate(ctx context.Context, c *attack.Cluster) *load.Result {
	content := details(detailBytes)
	return load.Drive(ctx, load.Load{Callers: hostileCallers, Duration: b.o.Window}, func(ctx context.Context) (int, error) {
		posting := attack.Posting()
		posting.Details = content
		_, err := jobs.PostOne(ctx, c.Honest, posting)
		return 1, err
	}, func(load.Progress) {})
}
