package test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/internal/longtest"
)

// TestNewNodeThatWaits: one of three new nodes waits for the others and does not know the time yet.
// Each command shows it as waiting, and it warns once.
func TestNewNodeThatWaits(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	cluster := newCluster(t, nil)
	node := cluster.Nodes[0]
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	const waits = "waits for " // node2, node3
	others := cluster.Nodes[1].Name + ", " + cluster.Nodes[2].Name
	eventually(t, "the node answers", func() bool {
		answer, err := http.Get("http://" + node.API + "/readyz")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		said, err := io.ReadAll(answer.Body)
		return err == nil && strings.Contains(string(said), waits+others)
	})
	server := strings.Join(cluster.Endpoints(), ",")
	for _, row := range []struct {
		args string
		code int
		says []string
	}{
		{"cluster status", cli.ExitUnavailable, []string{node.Name + " ", "no: " + waits + others, "no node knows a leader", "does not answer: cannot read the status of " + cluster.Nodes[1].API}},
		{"cluster status -o json", cli.ExitUnavailable, []string{`"not_ready": "` + waits + others}},
		{"cluster check", cli.ExitFailed, []string{"no majority: 2 more voters must answer", node.Name + " is not ready: " + waits + others, cluster.Nodes[1].Name + " does not answer at "}},
		{"cluster members", 0, []string{node.Name, cluster.Nodes[1].Name, cluster.Nodes[2].Name, "voter"}},
		{"cluster upgrade-status", 0, []string{node.Name}},
		{"job list", cli.ExitUnavailable, []string{"the cluster has no leader", "start " + cluster.Nodes[1].API}},
		{"doctor --config " + node.Config, cli.ExitFailed, []string{"not ready: " + waits + others}},
	} {
		command := exec.CommandContext(within(t), binary, append(strings.Fields(row.args), "--server", server, "--timeout", "5s")...)
		said, err := command.CombinedOutput()
		var ended *exec.ExitError
		if code := command.ProcessState.ExitCode(); err != nil && !errors.As(err, &ended) || code != row.code {
			t.Errorf("%s: ended with %d, want %d (%v):\n%s", row.args, code, row.code, err, said)
		}
		for _, text := range append(row.says, "") {
			if !bytes.Contains(said, []byte(text)) || bytes.Contains(said, []byte("1970")) || bytes.Contains(said, []byte("1969")) {
				t.Errorf("%s does not say %q, or speaks of 1970:\n%s", row.args, text, said)
			}
		}
	}
	log, err := os.ReadFile(node.Log)
	if n := bytes.Count(log, []byte("cannot open a session")); err != nil || n != 1 {
		t.Errorf("the conductor of a node that waits warned %d times, want once (%v)", n, err)
	}
	// The others start, and the waiting ends.
	if err := errors.Join(cluster.Nodes[1].Start(), cluster.Nodes[2].Start()); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(within(t), binary, "cluster", "status", "-o", "json", "--server", server).CombinedOutput()
	if n := bytes.Count(said, []byte(`"started_at": "20`)); err != nil || n != len(cluster.Nodes) {
		t.Errorf("%d of three nodes say when they started (%v):\n%s", n, err, said)
	}
}
