package cli_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/cmd/conductord/commands"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// TestNeedsAttention: the list of jobs that need attention has failed, trashed and parked jobs, and jobs that
// wait on a board without claims. Filters that exclude each other are refused.
func TestNeedsAttention(t *testing.T) {
	cluster := clitest.Open(t)
	trashed, held, done := clitest.Post(t, cluster, "--kind", "k"), clitest.Post(t, cluster, "--kind", "k", "--hold"), clitest.Post(t, cluster, "--kind", "k")
	for _, args := range [][]string{{"job", "trash", trashed.String()}, {"job", "consume", done.String()}} {
		if got := clitest.Run(t, cluster, args...); got.Code != 0 {
			t.Fatalf("%v: %+v", args, got)
		}
	}
	list := func(more ...string) string {
		t.Helper()
		got := clitest.Run(t, cluster, append([]string{"job", "list", "--needs-attention"}, more...)...)
		if got.Code != 0 {
			t.Errorf("%v: %+v", more, got)
		}
		return got.Out
	}
	if out := list(); !strings.Contains(out, trashed.String()) || strings.Contains(out, held.String()) || strings.Contains(out, done.String()) {
		t.Errorf("listed\n%s", out)
	}
	if out := list("--kind", "other"); strings.Contains(out, trashed.String()) {
		t.Errorf("listed another kind\n%s", out)
	}
	for args, want := range map[string]string{
		"--needs-attention --state trashed":         "none of the others can be",
		"--needs-attention --after x":               "--after is not from a list with --needs-attention",
		"--outcome failed --state trashed":          "--outcome and --state exclude each other: only completed jobs have an outcome",
		"--state claimed,held --finished-since -1h": "exclude each other: no job that is claimed or held has finished",
		"--state delayed --finished-until -1h":      "exclude each other",
	} {
		if got := clitest.Run(t, cluster, append([]string{"job", "list"}, strings.Fields(args)...)...); got.Code != cli.ExitUsage || !strings.Contains(got.Err, want) {
			t.Errorf("%s: %+v", args, got)
		}
	}
	for _, args := range []string{"--outcome failed --state completed", "--state trashed,held --finished-since -1h"} {
		if got := clitest.Run(t, cluster, append([]string{"job", "list"}, strings.Fields(args)...)...); got.Code != 0 {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// aged is a cluster whose boards seem to have jobs that have waited longer.
type aged struct {
	*clitest.Cluster
	by time.Duration
}

func (a aged) BoardList(ctx context.Context, after string, limit int) (jobs.Page[jobs.BoardStatus], error) {
	page, err := a.Cluster.BoardList(ctx, after, limit)
	for i := range page.Items {
		if !page.Items[i].OldestClaimable.IsZero() {
			page.Items[i].OldestClaimable = page.Items[i].OldestClaimable.Add(-a.by)
		}
	}
	return page, err
}

// TestEachKindNeedsAttention checks each kind of job that needs an operator: the list has it, and
// omits a similar job that needs none.
func TestEachKindNeedsAttention(t *testing.T) {
	cluster := clitest.Open(t)
	parks := &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 1}, OnFailure: jobs.FailureParks}
	ended := func(posting jobs.Posting, outcome jobs.Outcome) string {
		t.Helper()
		posting.Board, posting.Name, posting.Kind = "ends", "n", "k"
		posted, err := jobs.PostOne(t.Context(), cluster, posting)
		if err != nil {
			t.Fatal(err)
		}
		w := clitest.NewWorker(t, cluster, posted.ID)
		w.Must(cluster.Consume(t.Context(), jobs.Ending{Job: posted.ID, Token: w.Claimed.Job.Token, Outcome: outcome, Reason: "no mail"}))
		return posted.ID.String()
	}
	waits := func(board string) string { return clitest.Post(t, cluster, "--kind", "k", "--board", board).String() }
	ids := map[string]string{
		"failed": ended(jobs.Posting{}, jobs.OutcomeFailed), "parked": ended(jobs.Posting{Retry: parks}, jobs.OutcomeFailed), "reverted": ended(jobs.Posting{}, jobs.OutcomeReverted),
		"held": clitest.Post(t, cluster, "--kind", "k", "--hold").String(), "waiting, nobody claims": waits("alone"), "waiting, one is claimed": waits("busy"), "waiting, paused": waits("paused"),
	}
	clitest.NewWorker(t, cluster, clitest.Post(t, cluster, "--kind", "k", "--board", "busy"))
	if got := clitest.Run(t, cluster, "board", "pause", "paused"); got.Code != 0 {
		t.Fatal(got)
	}
	for by, want := range map[time.Duration][]string{0: {"failed", "parked"}, time.Hour: {"failed", "parked", "waiting, nobody claims"}} {
		got := clitest.Run(t, aged{cluster, by}, "job", "list", "--needs-attention")
		for what, id := range ids {
			if strings.Contains(got.Out, id) != slices.Contains(want, what) {
				t.Errorf("boards aged by %s: the job that is %s: listed %v\n%s", by, what, !slices.Contains(want, what), got.Out)
			}
		}
	}
}

// TestPostedAgainUnderItsKey: a posting with a used key names the existing job and its priority.
func TestPostedAgainUnderItsKey(t *testing.T) {
	cluster := clitest.Open(t)
	first := clitest.Post(t, cluster, "--kind", "k", "--key", "k1")
	for _, row := range []struct{ priority, want string }{{"low", "normal"}, {"high", "high"}, {"normal", "high"}} {
		got := clitest.Run(t, cluster, "job", "post", "--kind", "k", "--key", "k1", "--priority", row.priority)
		want := "job " + first.String() + " has the key \"k1\" and is not finished, so no second job was posted; its priority is " + row.want + ", the higher of the two\n"
		if got.Code != 0 || got.Out != first.String()+"\n" || !strings.Contains(got.Err, want) {
			t.Errorf("%s: %+v, want %q", row.priority, got, want)
		}
	}
}

// In the commands of remedies and hints, a name that begins with - comes after --. Otherwise it
// would be read as a flag.
func TestNamesThatLookLikeFlags(t *testing.T) {
	for remedy, want := range map[jobs.Remedy]string{
		{Verb: jobs.RemedyResumeBoard, Target: "-rf2"}:  "conductord board resume -- '-rf2'",
		{Verb: jobs.RemedyUndrain, Target: "-c"}:        "conductord conductor undrain -- '-c'",
		{Verb: jobs.RemedyResumeBoard, Target: "night"}: "conductord board resume night",
		{Verb: jobs.RemedyStartWorker, Target: "-t"}:    "conductord worker --handlers DIRECTORY --types '-t'",
	} {
		if got := cli.RemedyText(remedy); got != want {
			t.Errorf("%+v: %s, want %s", remedy, got, want)
		}
	}
	cluster := clitest.Open(t)
	got := clitest.Run(t, cluster, "job", "move", "--server", "a:1", clitest.Post(t, cluster, "--kind", "k").String(), "--", "-rf2")
	if !strings.Contains(got.Err, "`conductord board create --server a:1 -- '-rf2'`") {
		t.Errorf("%+v", got)
	}
}

// A node with a topology has posted jobs of other clusters: "not found" names the flag.
func TestNotFoundAtANodeWithATopology(t *testing.T) {
	cluster := clitest.Open(t)
	const id = "01890000-0000-7000-8000-000000000001"
	if got := clitest.Run(t, cluster, "job", "get", id); strings.Contains(got.Err, "topology") {
		t.Errorf("without a topology: %+v", got)
	}
	cluster.Statuses = []raftboard.NodeStatus{{Status: raftboard.Status{Node: "n1", TopologyDigest: "d"}}}
	if got := clitest.Run(t, cluster, "job", "get", id); got.Code != cli.ExitNotFound || !strings.Contains(got.Err, "this node uses a topology, and another cluster may have it: use --topology FILE") {
		t.Errorf("%+v", got)
	}
}

// Only server and config init list the settings of a node, and only conductord the global flags.
func TestShortHelp(t *testing.T) {
	var paths []string
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("raft-heartbeat") != nil {
			paths = append(paths, strings.TrimPrefix(cmd.CommandPath(), "conductord "))
		}
		for _, below := range cmd.Commands() {
			visit(below)
		}
	}
	if visit(commands.Of(&cli.Program{}).Root()); len(paths) < 8 {
		t.Fatalf("few commands take the settings of a node: %v", paths)
	}
	for _, args := range paths {
		whole := args == "server" || args == "config init"
		got := clitest.Run(t, nil, append(strings.Fields(args), "--help")...)
		if strings.Contains(got.Out, "--raft-heartbeat") != whole || strings.Contains(got.Out, "also accepts the setting flags of conductord server") == whole {
			t.Errorf("%s --help:\n%s", args, got.Out)
		}
		if !strings.Contains(got.Out, "Global flags (see conductord --help): --ca-file ") || strings.Contains(got.Out, "PEM file of the client certificate") {
			t.Errorf("%s --help explains global flags:\n%s", args, got.Out)
		}
	}
	if got := clitest.Run(t, nil, "--help"); !strings.Contains(got.Out, "PEM file of the client certificate") {
		t.Errorf("%+v", got)
	}
	if got := clitest.Run(t, nil, "drain", "--help"); !strings.Contains(got.Out, "Same as `conductord conductor drain`") {
		t.Errorf("%+v", got)
	}
}

// TestUnknownStatesAreAdvised: for a word that is no state of a job, the error names the filter that lists
// such jobs.
func TestUnknownStatesAreAdvised(t *testing.T) {
	cluster := clitest.Open(t)
	for args, want := range map[string]string{
		"--state parked":    "--state held; `conductord job list --needs-attention`",
		"--state stuck":     "`conductord job list --needs-attention`",
		"--state pending":   "--state claimable,delayed,cooling,waiting",
		"--state running":   "--state claimed",
		"--state failed":    "--outcome failed",
		"--state reverted":  "--outcome reverted",
		"--state succeeded": "--outcome success",
		"--state paused":    "--state suspended,held",
		"--state done":      "--state completed,trashed",
		"--outcome trashed": "trashed is a state: --state trashed",
		"--outcome parked":  "--state held",
	} {
		got := clitest.Run(t, cluster, append([]string{"job", "list"}, strings.Fields(args)...)...)
		if got.Code != cli.ExitUsage || !strings.Contains(got.Err, want) {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if got := clitest.Run(t, cluster, "job", "post", "--kind", "document"); got.Code != cli.ExitUsage || !strings.Contains(got.Err, "use --flow FILE") {
		t.Errorf("got %+v", got)
	}
}
