// Package demo demonstrates the promises of conductord: it runs jobs on three nodes of this
// machine, breaks the nodes, and counts losses.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/daemon"
	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/examples"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

const (
	jobCount  = 60
	failEvery = 10 // one job in this number fails at its last step, on purpose
	// maxJobs keeps jobs waiting while others run, so that each killed node has claims.
	maxJobs  = 5
	pace     = "1.1"           // seconds that each handler takes
	runTime  = 4 * time.Minute // half a minute is enough on an idle machine
	enough   = 4               // finished jobs before the first kill
	lastStep = "charge-card"
)

var errBroken = errors.New("the demo found a broken guarantee of conductord")

// Command is `conductord demo`.
func Command(p *cli.Program) *cobra.Command {
	d := &demo{program: p}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run 60 jobs on three nodes, kill two nodes, and show that no job is lost",
		Long: "Start three server processes on this machine and post 60 jobs of a travel-booking flow with shell-script steps.\n" +
			"Kill a node with jobs, then the leader, and restart both. Count the jobs that succeeded, were undone, were\n" +
			"resumed by another node, and were lost. One job in ten fails at its last step on purpose.\n\n" +
			"With --chaos, kill, pause and isolate random nodes for 1m or the given time, and post two jobs per second\n" +
			"meanwhile. The same --seed produces the same faults.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.perform(cmd.Context()) },
	}
	cmd.Flags().BoolVar(&d.keep, "keep", false, "keep the cluster running, and print commands to inspect it")
	cmd.Flags().DurationVar(&d.chaos, "chaos", 0, "kill, pause and isolate random nodes for this long")
	cmd.Flags().Lookup("chaos").NoOptDefVal = "1m"
	cmd.Flags().Uint64Var(&d.seed, "seed", 0, "seed of the faults of --chaos (default random)")
	cmd.MarkFlagsMutuallyExclusive("keep", "chaos")
	return cmd
}

// demo is one run of the demo.
type demo struct {
	program *cli.Program
	keep    bool
	chaos   time.Duration // 0: two kills, as in the plain demo
	seed    uint64        // of the chaos; 0: random
	dir     string
	cluster *local.Cluster
	client  *raftboard.Client
	posted  []postedJob
	story   *story
}

// postedJob is a job, and its expected outcome.
type postedJob struct {
	id   jobs.JobID
	flow logbook.FlowID
	want jobs.Outcome
}

// perform runs the demo from start to end.
func (d *demo) perform(ctx context.Context) (err error) {
	p := d.program
	if d.dir, err = os.MkdirTemp("", "conductord-demo-"); err != nil {
		return fmt.Errorf("cannot make a temporary directory: %w", err)
	}
	began := time.Now()
	err = d.run(ctx)
	if d.keep && d.cluster != nil {
		d.cluster.Close()
		d.tellHowToLook()
		return err
	}
	if d.cluster != nil {
		d.cluster.Close()
	}
	if err != nil {
		p.Note("the logs of the nodes are in %s", d.dir)
		return err
	}
	p.Note("done after %s", time.Since(began).Round(time.Millisecond))
	return os.RemoveAll(d.dir)
}

func (d *demo) run(ctx context.Context) error {
	most, act := runTime, d.killTwo
	if d.chaos > 0 {
		most, act = d.chaos+chaosSettle, d.wreck
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("the demo has not ended within %v", most))
	defer cancel()
	if err := d.start(ctx); err != nil {
		return err
	}
	defer d.client.Close()
	d.story = newStory(d.program, d.client)
	watching, stopWatching := context.WithCancel(ctx)
	ended := d.story.follow(watching)
	defer func() { stopWatching(); <-ended }()
	if err := d.post(ctx); err != nil {
		return err
	}
	if err := act(ctx); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	stopWatching()
	<-ended
	report, err := d.check(ctx)
	if err != nil {
		return err
	}
	if err := showReport(d.program, report); err != nil {
		return err
	}
	if !report.good() {
		return errBroken
	}
	return nil
}

// start starts the three nodes.
func (d *demo) start(ctx context.Context) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program's file: %w", err)
	}
	handlers, err := daemon.InstallExamples(d.dir)
	if err != nil {
		return err
	}
	if d.keep {
		// `go run` removes the binary when the demo ends. Nodes that continue need a permanent
		// copy.
		if binary, err = copyBinary(binary, filepath.Join(d.dir, "conductord")); err != nil {
			return err
		}
	}
	d.cluster, err = local.New(local.Options{
		Binary: binary, Dir: d.dir, Detached: d.keep, Gates: d.chaos > 0,
		Configure: func(c *config.Config) {
			c.Conductor.Handlers = []string{handlers}
			c.Conductor.MaxJobs = maxJobs
			if d.chaos > 0 {
				c.Sessions.MaxCrashes, c.Cluster.VerifyInterval = chaosCrashes, time.Second
			}
		},
	})
	if err != nil {
		return err
	}
	d.program.Note("starting three nodes below %s", d.dir)
	if err := d.cluster.Start(); err != nil {
		return err
	}
	if err := d.cluster.WaitReady(ctx); err != nil {
		return err
	}
	d.client, err = raftboard.Dial(ctx, d.cluster.Endpoints()...)
	return err
}

func copyBinary(from, to string) (string, error) {
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("cannot copy this program: %w", err)
	}
	return to, nil
}

// post posts all jobs in one call.
func (d *demo) post(ctx context.Context) error {
	data, err := fs.ReadFile(examples.Files, "travel.toml")
	if err != nil {
		return fmt.Errorf("cannot read the example: %w", err)
	}
	document, err := spec.Parse(data, "travel.toml")
	if err != nil {
		return err
	}
	var postings []jobs.Posting
	count := jobCount
	if d.chaos > 0 {
		count = max(failEvery, chaosJobs*int(d.chaos.Seconds()))
	}
	for i := range count {
		want, failAt := jobs.OutcomeSuccess, ""
		if i%failEvery == failEvery-1 {
			want, failAt = jobs.OutcomeReverted, lastStep
		}
		name := fmt.Sprintf("trip-%02d", i+1)
		book := &logbook.Book{ID: logbook.NewBookID(), Name: name}
		one := document.Detail(logbook.NewFlowID(), book.ID, document.Store)
		book.Flows = []logbook.FlowDetail{one}
		posting := jobs.Posting{ID: jobs.NewJobID(), Name: name, Book: book, Store: logbook.Values{
			"customer": json.RawMessage(strconv.Quote(fmt.Sprintf("customer %d", i+1))),
			"pace":     json.RawMessage(pace),
			"fail_at":  json.RawMessage(strconv.Quote(failAt)),
		}}
		postings = append(postings, posting)
		d.posted = append(d.posted, postedJob{id: posting.ID, flow: one.ID, want: want})
	}
	answers, err := d.client.Post(ctx, postings...)
	if err != nil {
		return err
	}
	for _, answer := range answers {
		if answer.Err != nil {
			return answer.Err
		}
	}
	d.story.expect(d.posted, len(document.Steps))
	d.program.Note("posted %d jobs; %d of them will fail at %s and be reverted", count, count/failEvery, lastStep)
	return nil
}

// killTwo kills two nodes while the jobs run, and waits for the end of all.
func (d *demo) killTwo(ctx context.Context) error {
	if err := d.story.until(ctx, func(s *story) bool { return s.finished >= enough }); err != nil {
		return err
	}
	leader, err := d.leader(ctx)
	if err != nil {
		return err
	}
	holder, err := d.holder(ctx, leader)
	if err != nil {
		return err
	}
	if err := d.kill(ctx, holder, "which holds jobs"); err != nil {
		return err
	}
	if leader, err = d.leader(ctx); err != nil {
		return err
	}
	// The killed node has just restarted: wait until it takes part again.
	err = d.story.until(ctx, func(s *story) bool {
		return s.finished == len(d.posted) || len(s.heldBy(holder)) > 0 && len(s.heldBy(leader)) > 0
	})
	if err != nil {
		return err
	}
	if err := d.kill(ctx, leader, "the leader"); err != nil {
		return err
	}
	return d.story.until(ctx, func(s *story) bool { return s.finished == len(d.posted) })
}

// kill kills a node, waits until its jobs have new owners, and restarts it.
func (d *demo) kill(ctx context.Context, name, why string) error {
	node, ok := d.cluster.Node(name)
	if !ok {
		return fmt.Errorf("there is no node %q", name)
	}
	if err := d.story.remember(ctx); err != nil {
		return err
	}
	node.Kill()
	held := d.story.killed(name)
	d.program.Note("killed %s, %s: SIGKILL while it held %d jobs", name, why, held)
	if err := d.story.until(ctx, func(s *story) bool { return s.handedOver(name) }); err != nil {
		return err
	}
	if err := node.Start(); err != nil {
		return err
	}
	if err := node.WaitReady(ctx); err != nil {
		return err
	}
	d.program.Note("%s is back", name)
	return d.story.remember(ctx)
}

// leader asks the nodes until one of them knows the leader.
func (d *demo) leader(ctx context.Context) (string, error) {
	for {
		for _, node := range d.cluster.Nodes {
			if !node.Running() {
				continue
			}
			status, err := d.client.Status(ctx, node.API)
			if leader, ok := d.cluster.Node(status.Leader); err == nil && ok && leader.Running() {
				return leader.Name, nil
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// holder is the node, other than the leader, that holds most jobs.
func (d *demo) holder(ctx context.Context, leader string) (string, error) {
	most := ""
	err := d.story.until(ctx, func(s *story) bool {
		for _, node := range d.cluster.Nodes {
			if node.Name != leader && len(s.heldBy(node.Name)) > len(s.heldBy(most)) {
				most = node.Name
			}
		}
		return most != ""
	})
	return most, err
}

func (d *demo) tellHowToLook() {
	server := "--server " + strings.Join(d.cluster.Endpoints(), ",")
	binary := filepath.Join(d.dir, "conductord")
	d.program.Note("the cluster continues; its files are in %s. To inspect the cluster:", d.dir)
	var pids []string
	for _, node := range d.cluster.Nodes {
		if node.Running() {
			pids = append(pids, strconv.Itoa(node.PID()))
		}
	}
	for _, line := range []string{
		binary + " cluster status " + server,
		binary + " job list " + server,
		binary + " flow show " + d.posted0() + " " + server,
		binary + " conductor list " + server,
		"curl http://" + d.cluster.Nodes[0].API + "/metrics",
		"kill " + strings.Join(pids, " ") + "   # and end it",
	} {
		d.program.Note("  %s", line)
	}
}

func (d *demo) posted0() string {
	if len(d.posted) == 0 {
		return "JOB"
	}
	return d.posted[0].id.String()
}
