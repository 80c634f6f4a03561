package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// Beyond these limits, a check reports a problem.
const (
	usualLag   = 10_000 // entries by which a member lags
	usualClock = time.Second

	usualBackup = 2 // intervals between backups

	goodGap    = 3 * time.Second // time without a write around a change of the leader
	goodCommit = 100 * time.Millisecond
)

// The writes of a test.
const (
	testWrites = 100
	testPause  = 20 * time.Millisecond // between two writes around a change of the leader
	testLead   = time.Second           // time of writes before the change and after it
)

// Health is the result of a check.
type Health struct {
	Healthy bool `json:"healthy"`
	// Survives is the number of voters that can be lost in addition to the silent ones. A negative
	// number is the number of voters that must come back.
	Survives int             `json:"survives"`
	Problems []string        `json:"problems"` // these need an operator
	Notes    []string        `json:"notes"`    // for information
	States   *cli.Part       `json:"states,omitempty"`
	Tests    []TestedCluster `json:"tests,omitempty"`
	Nodes    []shownNode     `json:"nodes"`

	comparison *raftboard.Comparison
}

// TestedCluster is the result of a test of the disks or of the failover.
type TestedCluster struct {
	Test    string `json:"test"`
	Passed  bool   `json:"passed"`
	Verdict string `json:"verdict"`
}

// checked is the checked cluster: its nodes, the states of its members, and writes.
type checked interface {
	Nodes(ctx context.Context) ([]raftboard.NodeStatus, error)
	Verify(ctx context.Context) (raftboard.Comparison, error)
	OpenSession(ctx context.Context, opening jobs.Opening) (jobs.Session, error)
	CloseSession(ctx context.Context, id jobs.SessionID) error
	TransferLeader(ctx context.Context, to string) (leader string, err error)
}

func checkCommand(p *cli.Program) *cobra.Command {
	var states, disk, failover bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the cluster and how many voters it can lose; exit 1 if an operator is needed",
		Long: "Check that all members answer, are ready and have caught up, that their clocks are in sync, that their\n" +
			"disks have enough free space, and that scheduled backups are usable and not overdue. Each flag adds a test.\n" +
			"Tests do not affect running jobs.\n\n" +
			"If --states finds a member whose state differs from the majority, this member stops and keeps its state as\n" +
			"evidence. The leader also compares the states every cluster.verify_interval.",
		Args: cobra.NoArgs,
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, _ []string) error {
			nodes, err := cluster.Nodes(ctx)
			if err != nil {
				return cli.Because(err, "get the cluster's status")
			}
			health, err := assess(nodes)
			if err != nil {
				return cli.Because(err, "check the cluster")
			}
			if states {
				err = health.compare(ctx, cluster)
			}
			if disk && err == nil {
				err = health.test(ctx, cluster, testDisk)
			}
			if failover && err == nil {
				err = health.test(ctx, cluster, testFailover)
			}
			return errors.Join(health.show(p), cli.Because(err, "test the cluster"))
		}),
	}
	cmd.Flags().BoolVar(&states, "states", false, "compare the checksums of all members' tables at one log entry")
	cmd.Flags().BoolVar(&disk, "disk", false, "time 100 writes, one after another; each reaches the disks of a majority")
	cmd.Flags().BoolVar(&failover, "failover", false, "transfer the leadership while writing, and time the gap between writes")
	return cmd
}

func (h *Health) problem(format string, args ...any) {
	h.Healthy = false
	h.Problems = append(h.Problems, fmt.Sprintf(format, args...))
}

// compare compares the states of the members.
func (h *Health) compare(ctx context.Context, cluster checked) error {
	comparison, err := cluster.Verify(ctx)
	if err != nil {
		return err
	}
	message := &v1.VerifyResponse{Index: comparison.Index}
	for _, m := range comparison.Members {
		message.Members = append(message.Members, &v1.MemberCheck{Name: m.Name, Same: m.Same, Differs: m.Differs, Error: m.Error})
		if m.Differs != "" {
			h.problem("the state of %s differs from the majority, so the node stops: see \"A member differs\" in docs/repair.md", m.Name)
		}
	}
	h.States, h.comparison = &cli.Part{Message: message}, &comparison
	return nil
}

func (h *Health) test(ctx context.Context, cluster checked, run func(context.Context, checked) (TestedCluster, error)) error {
	tested, err := run(ctx, cluster)
	if err != nil {
		return err
	}
	if h.Tests = append(h.Tests, tested); !tested.Passed {
		h.problem("the test %s failed", tested.Test)
	}
	return nil
}

// show writes the result. Problems become the error.
func (h *Health) show(p *cli.Program) error {
	write := func() error { return h.write(p) }
	if p.JSON() {
		write = func() error { return p.WriteJSON(h) }
	}
	if err := write(); err != nil || h.Healthy {
		return err
	}
	return fmt.Errorf("the cluster needs attention: %s", strings.Join(h.Problems, "; "))
}

func (h *Health) write(p *cli.Program) error {
	lines := []string{fmt.Sprintf("%d more voters can be lost", h.Survives)}
	switch {
	case h.Survives == -1:
		lines = []string{"no majority: 1 more voter must answer"}
	case h.Survives < 0:
		lines = []string{fmt.Sprintf("no majority: %d more voters must answer", -h.Survives)}
	case h.Survives == 0:
		lines = []string{"no further voter can be lost"}
	case h.Survives == 1:
		lines = []string{"1 more voter can be lost"}
	}
	for _, note := range h.Notes {
		lines = append(lines, "note: "+note)
	}
	for _, tested := range h.Tests {
		lines = append(lines, tested.Test+": "+tested.Verdict)
	}
	if err := p.WriteLines(lines); err != nil || h.comparison == nil {
		return err
	}
	var rows [][]string
	for _, m := range h.comparison.Members {
		state := "same"
		switch {
		case m.Differs != "":
			state = "differs in " + m.Differs
		case !m.Same:
			state = "not compared: " + m.Error
		}
		rows = append(rows, []string{m.Name, cli.NumberText(h.comparison.Index), state})
	}
	return p.WriteTable([]string{"node", "entry", "state"}, rows)
}

// assess finds the problems of a cluster.
func assess(nodes []raftboard.NodeStatus) (Health, error) {
	members, err := membersOf(nodes)
	if err != nil {
		return Health{}, err
	}
	health := Health{Problems: []string{}, Notes: []string{}, Nodes: shownNodes(nodes)["nodes"]}
	var commit uint64
	for i := range nodes {
		commit = max(commit, nodes[i].Status.CommitIndex)
	}
	if checkLed(nodes) != nil {
		health.Problems = append(health.Problems, "no node knows a leader")
	}
	voters, answering, versions := 0, 0, []string(nil)
	for _, member := range members {
		at := slices.IndexFunc(nodes, func(n raftboard.NodeStatus) bool { return n.Err == nil && n.Status.Node == member.Name })
		if member.Voter {
			voters++
		}
		if at < 0 {
			health.Problems = append(health.Problems, fmt.Sprintf("%s does not answer at %s", member.Name, member.APIAddress))
			continue
		}
		s := &nodes[at].Status
		if member.Voter && s.Ready {
			answering++
		}
		health.Problems = append(health.Problems, problemsOf(s, commit)...)
		if s.MembersDiffer != "" {
			health.Notes = append(health.Notes, fmt.Sprintf("the file of %s is out of date: %s", member.Name, s.MembersDiffer))
		}
		if !slices.Contains(versions, s.Version) {
			versions = append(versions, s.Version)
		}
	}
	if len(versions) > 1 {
		health.Notes = append(health.Notes, "the nodes run different versions: "+strings.Join(versions, ", "))
	}
	if voters%2 == 0 {
		health.Notes = append(health.Notes, fmt.Sprintf("%d voters tolerate no more failures than %d; use an odd number of voters", voters, voters-1))
	}
	health.Survives = answering - (voters/2 + 1)
	health.Healthy = len(health.Problems) == 0
	return health, nil
}

func problemsOf(s *raftboard.Status, commit uint64) (problems []string) {
	if !s.Ready {
		problems = append(problems, fmt.Sprintf("%s is not ready: %s", s.Node, s.NotReady))
	}
	if s.AppliedIndex+usualLag < commit {
		problems = append(problems, fmt.Sprintf("%s is %d entries behind", s.Node, commit-s.AppliedIndex))
	}
	if s.ClockOffset != nil && s.ClockOffset.Abs() > usualClock {
		problems = append(problems, fmt.Sprintf("the clock of %s is off by %s: check its time service", s.Node, offsetText(s.ClockOffset)))
	}
	if s.DiskShort {
		problems = append(problems, fmt.Sprintf("the disk of %s has too little free space, %d MiB, so the cluster rejects new work: free space, use a larger disk, or set a smaller disk_reserve",
			s.Node, s.DiskFreeBytes>>20))
	}
	if s.BackupInterval > 0 && s.BackupAge > usualBackup*s.BackupInterval {
		problems = append(problems, fmt.Sprintf("scheduled backups of %s are overdue: the newest is %s old, and the interval is %s: see the log of the node",
			s.Node, s.BackupAge.Round(time.Second), s.BackupInterval))
	}
	if len(s.Backups) > 0 && s.Backups[0].Fault != "" {
		problems = append(problems, fmt.Sprintf("the newest scheduled backup of %s cannot be used: %s", s.Node, s.Backups[0].Fault))
	}
	return problems
}

// testWrite is one write without remains.
func testWrite(ctx context.Context, cluster checked) error {
	session, err := cluster.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "check", Host: "check", TTL: 10 * time.Second})
	if err != nil {
		return err
	}
	return cluster.CloseSession(ctx, session.ID)
}

func testFailover(ctx context.Context, cluster checked) (TestedCluster, error) {
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
		Test: "failover", Passed: longest <= goodGap,
		Verdict: fmt.Sprintf("%s leads now; the longest time without a write was %v (limit %v)", leader, longest.Round(time.Millisecond), goodGap),
	}, nil
}

func testDisk(ctx context.Context, cluster checked) (TestedCluster, error) {
	took := make([]time.Duration, 0, testWrites)
	for range testWrites {
		began := time.Now()
		if err := testWrite(ctx, cluster); err != nil {
			return TestedCluster{}, err
		}
		took = append(took, time.Since(began)/2) // an open and a close: two writes
	}
	slices.Sort(took)
	median, slow := took[len(took)/2], took[len(took)*99/100]
	return TestedCluster{
		Test: "disk", Passed: slow <= goodCommit,
		Verdict: fmt.Sprintf("median write %v, 99th percentile %v (limit %v)", median.Round(10*time.Microsecond), slow.Round(10*time.Microsecond), goodCommit),
	}, nil
}
