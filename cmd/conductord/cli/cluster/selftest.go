package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
)

// Bounds of a self-test that passes.
const (
	goodGap    = 3 * time.Second // without a write, around a change of the leader
	goodCommit = 100 * time.Millisecond
	goodOffset = time.Second

	testWrites = 100
	testPause  = 20 * time.Millisecond // between two writes around a change of the leader
	testLead   = time.Second           // of writes, before the change and after it
)

// TestedCluster is the result of a self-test.
type TestedCluster struct {
	Test    string `json:"test"`
	Passed  bool   `json:"passed"`
	Verdict string `json:"verdict"`
}

func SelftestCommand(p *cli.Program) *cobra.Command {
	test := func(name, short, long string, run func(context.Context, cli.Cluster) (TestedCluster, error)) *cobra.Command {
		return &cobra.Command{
			Use: name, Short: short, Long: long, Args: cobra.NoArgs,
			RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, _ []string) error {
				tested, err := run(ctx, cluster)
				if err != nil {
					return cli.Because(err, "test the cluster")
				}
				return writeTested(p, tested, name)
			}),
		}
	}
	return cli.Noun("selftest", "Test the clocks, the disks and the failover of a running cluster",
		test("failover", "Hand the leadership over while writing, and time the gap",
			"Open and close sessions in a loop, transfer the leadership, and measure the longest time without a write.\n"+
				"Running jobs are not affected.", testFailover),
		test("disk", "Time writes of the cluster: each waits for the disks of a majority",
			"Time a hundred writes, one after another, each to the disks of a majority.", testDisk),
		test("clock", "Compare the clocks of all nodes",
			"Compare the wall clock of each node with the cluster's time.", testClock))
}

func writeTested(p *cli.Program, tested TestedCluster, name string) error {
	tested.Test = name
	if err := p.Show(tested, "%s", tested.Verdict); err != nil || tested.Passed {
		return err
	}
	return fmt.Errorf("the cluster failed the test %s", name)
}

// testWrite is one write that leaves nothing behind.
func testWrite(ctx context.Context, cluster jobs.Attendant) error {
	session, err := cluster.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "selftest", Host: "selftest", TTL: 10 * time.Second})
	if err != nil {
		return err
	}
	return cluster.CloseSession(ctx, session.ID)
}

func testFailover(ctx context.Context, cluster cli.Cluster) (TestedCluster, error) {
	last, longest := time.Now(), time.Duration(0)
	writeFor := func(d time.Duration, until <-chan error) (err error) {
		enough := time.After(d)
		for {
			if err := testWrite(ctx, cluster); err != nil {
				return err
			}
			now := time.Now()
			last, longest = now, max(longest, now.Sub(last))
			select {
			case <-time.After(testPause):
			case err := <-until:
				return err
			case <-enough:
				return nil
			}
		}
	}
	if err := writeFor(testLead, nil); err != nil {
		return TestedCluster{}, err
	}
	var leader string
	handed := make(chan error, 1)
	go func() { // ends with the change, or with ctx
		var err error
		leader, err = cluster.TransferLeader(ctx, "")
		handed <- err
	}()
	if err := errors.Join(writeFor(time.Hour, handed), writeFor(testLead, nil)); err != nil {
		return TestedCluster{}, err
	}
	return TestedCluster{
		Passed:  longest <= goodGap,
		Verdict: fmt.Sprintf("%s leads now; the longest time without a write was %v (limit %v)", leader, longest.Round(time.Millisecond), goodGap),
	}, nil
}

func testDisk(ctx context.Context, cluster cli.Cluster) (TestedCluster, error) {
	took := make([]time.Duration, 0, testWrites)
	for range testWrites {
		began := time.Now()
		if err := testWrite(ctx, cluster); err != nil {
			return TestedCluster{}, err
		}
		took = append(took, time.Since(began)/2) // opened and closed
	}
	slices.Sort(took)
	median, slow := took[len(took)/2], took[len(took)*99/100]
	return TestedCluster{
		Passed:  slow <= goodCommit,
		Verdict: fmt.Sprintf("median write %v, slowest in a hundred %v (limit %v)", median.Round(10*time.Microsecond), slow.Round(10*time.Microsecond), goodCommit),
	}, nil
}

func testClock(ctx context.Context, cluster cli.Cluster) (TestedCluster, error) {
	nodes, err := cluster.Nodes(ctx)
	if err != nil {
		return TestedCluster{}, err
	}
	var worst time.Duration
	name, heard := "", 0
	var reasons []string
	for i := range nodes {
		if !nodes[i].Status.Ready && nodes[i].Err == nil {
			reasons = append(reasons, fmt.Sprintf("%s %s", nodes[i].Status.Node, nodes[i].Status.NotReady))
		}
		if s := &nodes[i].Status; nodes[i].Err == nil && s.ClockOffset != nil {
			if heard++; name == "" || s.ClockOffset.Abs() > worst.Abs() {
				worst, name = *s.ClockOffset, s.Node
			}
		}
	}
	if heard == 0 {
		return TestedCluster{}, fmt.Errorf("no node knows the cluster's time: %w: %s", jobs.ErrUnavailable, strings.Join(append(reasons, silent(nodes)...), "; "))
	}
	return TestedCluster{
		Passed:  worst.Abs() <= goodOffset,
		Verdict: fmt.Sprintf("largest clock offset of %d nodes: %s on %s (limit %v)", heard, offsetText(&worst), name, goodOffset),
	}, nil
}
