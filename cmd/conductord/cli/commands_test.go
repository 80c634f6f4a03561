package cli_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// TestNeedsAttention holds that the list of jobs that need attention has failed, trashed and parked
// jobs, and jobs that wait on a board without a claim; and that filters which exclude each other are refused.
func TestNeedsAttention(t *testing.T) {
	cluster := openCluster(t)
	trashed, held, done := post(t, cluster, "--kind", "k"), post(t, cluster, "--kind", "k", "--hold"), post(t, cluster, "--kind", "k")
	for _, args := range [][]string{{"job", "trash", trashed.String()}, {"job", "consume", done.String()}} {
		if got := run(t, cluster, args...); got.code != 0 {
			t.Fatalf("%v: %+v", args, got)
		}
	}
	list := func(more ...string) string {
		t.Helper()
		got := run(t, cluster, append([]string{"job", "list", "--needs-attention"}, more...)...)
		if got.code != 0 {
			t.Errorf("%v: %+v", more, got)
		}
		return got.out
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
		if got := run(t, cluster, append([]string{"job", "list"}, strings.Fields(args)...)...); got.code != cli.ExitUsage || !strings.Contains(got.err, want) {
			t.Errorf("%s: %+v", args, got)
		}
	}
	for _, args := range []string{"--outcome failed --state completed", "--state trashed,held --finished-since -1h"} {
		if got := run(t, cluster, append([]string{"job", "list"}, strings.Fields(args)...)...); got.code != 0 {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// A name that begins with - stands behind -- in the commands of remedies and hints, also when
// these get flags.
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
	cluster := openCluster(t)
	got := run(t, cluster, "job", "move", "--server", "a:1", post(t, cluster, "--kind", "k").String(), "--", "-rf2")
	if !strings.Contains(got.err, "`conductord board create --server a:1 -- '-rf2'`") {
		t.Errorf("%+v", got)
	}
}

// A node with a topology has posted jobs of other clusters: "not found" names the flag.
func TestNotFoundAtANodeWithATopology(t *testing.T) {
	cluster := openCluster(t)
	const id = "01890000-0000-7000-8000-000000000001"
	if got := run(t, cluster, "job", "get", id); strings.Contains(got.err, "topology") {
		t.Errorf("without a topology: %+v", got)
	}
	cluster.nodes = []raftboard.NodeStatus{{Status: raftboard.Status{Node: "n1", TopologyDigest: "d"}}}
	if got := run(t, cluster, "job", "get", id); got.code != cli.ExitNotFound || !strings.Contains(got.err, "this node uses a topology, and another cluster may have it: use --topology FILE") {
		t.Errorf("%+v", got)
	}
}

// Only server and config init list the settings of a node, and only conductord the global flags.
func TestShortHelp(t *testing.T) {
	for args, whole := range map[string]bool{
		"server": true, "config init": true, "config check": false, "config show": false, "doctor": false, "node init": false, "node health": false,
		"cluster join": false, "cluster replace": false, "backup restore": false,
	} {
		got := run(t, nil, append(strings.Fields(args), "--help")...)
		if strings.Contains(got.out, "--raft-heartbeat") != whole || strings.Contains(got.out, "takes the settings of conductord server as well") == whole {
			t.Errorf("%s --help:\n%s", args, got.out)
		}
		if !strings.Contains(got.out, "Global flags (see conductord --help): --ca-file ") || strings.Contains(got.out, "PEM file of the certificate to show") {
			t.Errorf("%s --help explains global flags:\n%s", args, got.out)
		}
	}
	if got := run(t, nil, "--help"); !strings.Contains(got.out, "PEM file of the certificate to show") {
		t.Errorf("%+v", got)
	}
	if got := run(t, nil, "drain", "--help"); !strings.Contains(got.out, "The same as `conductord conductor drain`") {
		t.Errorf("%+v", got)
	}
}
