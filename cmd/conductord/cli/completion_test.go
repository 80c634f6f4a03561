package cli_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// TestCompletion checks the completions for a shell; without a server, nothing is printed.
func TestCompletion(t *testing.T) {
	cluster := clitest.Open(t)
	clitest.Run(t, cluster, "board", "create", "night")
	clitest.Run(t, cluster, "schedule", "set", "nightly", "--rule", "@daily", "--kind", "k")
	job, trashed := clitest.Post(t, cluster, "--kind", "k", "--name", "paint").String(), clitest.Post(t, cluster, "--kind", "k").String()
	clitest.Run(t, cluster, "job", "trash", trashed)
	session := jobs.NewSessionID()
	if _, err := cluster.OpenSession(t.Context(), jobs.Opening{ID: session, Name: "c1"}); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Register(t.Context(), session, jobs.Entity{Kind: jobs.EntityConductor, Name: "c1"}); err != nil {
		t.Fatal(err)
	}
	clitest.Run(t, cluster, "access", "save", "ann", "--grant", "viewer=*")
	cluster.Statuses = []raftboard.NodeStatus{
		{Err: jobs.ErrUnavailable},
		{Status: raftboard.Status{Members: []raftboard.Member{{Name: "n2"}, {Name: "n1"}}}},
		{Status: raftboard.Status{Members: []raftboard.Member{{Name: "n2"}, {Name: "n1"}}}},
	}
	flows := clitest.Open(t)
	unbegun := clitest.Post(t, flows, "--flow", clitest.Examples+"hello.toml", "--set", "guest=x").String()
	_, flow := clitest.StuckFlow(t, flows)
	for _, row := range []struct {
		args   string // the last word is incomplete; a dash is an empty last word
		want   string // the offered words
		server bool   // without a server nothing is offered
	}{
		{"board show -", "default night", true},
		{"board show ni", "night", true},
		{"job list --board -", "default night", true},
		{"job list --state cla", "claimable claimed", false},
		{"job list --state=tr", "trashed", false},
		{"job list -o -", "table json", false},
		{"job post --priority very", "very-low very-high", false},
		{"job post --on-failure -", "complete retry park", false},
		{"job list --order c", "claim", false},
		{"job errors --how re", "reverted", false},
		{"schedule set s --overlap -", "skip queue cancel allow", false},
		{"schedule show -", "nightly", true},
		{"conductor drain -", "c1", true},
		{"claim list --owner c", "c1", true},
		{"claim transfer 0189 --to c", "c1", true},
		{"claim list --session -", session.String(), true},
		{"job explain -", job, true},
		{"job explain " + job[:30], job, true},
		{"job explain " + job + " -", "", false},
		{"trash show -", trashed, true},
		{"cluster remove -", "n1 n2", true},
		{"cluster transfer-leader n1", "n1", true},
		{"access delete -", "ann", true},
		{"audit search --principal a", "ann", true},
		{"flow skip " + unbegun + " -", "make-greeting say-greeting", true},
		{"job logs " + unbegun + " --step say", "say-greeting", true},
		{"flow skip " + flow + " -", "make-greeting say-greeting wave", true},
		{"flow skip " + flow[:35] + " say", "say-greeting", true},
		{"flow rerun " + flow + " --from -", "make-greeting say-greeting wave", true},
	} {
		args := append([]string{"__complete"}, strings.Fields(row.args)...)
		if args[len(args)-1] == "-" {
			args[len(args)-1] = ""
		}
		asked := cluster
		if args[1] == "flow" || strings.Contains(row.args, unbegun) {
			asked = flows
		}
		got := clitest.Run(t, asked, args...)
		if offers := offered(got.Out); offers != row.want {
			t.Errorf("%s: offered %q, want %q: %+v", row.args, offers, row.want, got)
		}
		alone := clitest.Run(t, nil, args...)
		if offers := offered(alone.Out); row.server && offers != "" || !row.server && offers != row.want || strings.Contains(alone.Err, "answers") {
			t.Errorf("%s without a server: %+v", row.args, alone)
		}
	}
}

// offered returns the words that a shell gets, without descriptions and directive.
func offered(out string) string {
	var offers []string
	for _, line := range strings.Split(out, "\n") {
		if word, _, _ := strings.Cut(line, "\t"); word != "" && !strings.HasPrefix(word, ":") {
			offers = append(offers, word)
		}
	}
	return strings.Join(offers, " ")
}
