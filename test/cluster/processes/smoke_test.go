//go:build linux

package processes_test

import (
	"os"
	"testing"
	"time"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/test/cluster"
	"github.com/conductord/conductord/test/cluster/processes"
)

// TestSmoke has the harness kill and pause real processes for some seconds. It
// shows that the harness works on this machine; test/chaos does the rest.
func TestSmoke(t *testing.T) {
	longtest.Skip(t)
	dir := t.TempDir()
	binary, err := processes.Build(processes.BuildOptions{Dir: dir, Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	steps, err := processes.NewSteps(dir)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := processes.New(processes.Options{
		Binary: binary, Dir: dir, Configure: func(c *config.Config) { c.Conductor.Handlers = []string{steps.Handlers()} },
	})
	if err != nil {
		t.Fatal(err)
	}
	fault := func(at, lasts time.Duration, kind cluster.Nemesis, node int) cluster.Fault {
		return cluster.Fault{At: at, Lasts: lasts, Nemesis: kind, Node: node, Client: "raft garbage"}
	}
	const second = time.Second
	runner := &cluster.Runner{
		Cluster: nodes, Command: "go test -run TestSmoke ./test/cluster/processes", Log: t.Logf, Lenient: true,
		Posting: steps.Posting, Gather: steps.Gather, FlowEvery: second / 4, Think: second / 20,
		Plan: cluster.Plan{Size: nodes.Size(), Round: 5 * second, Fixed: [][]cluster.Fault{{
			fault(second/2, 2*second, cluster.NemesisBadClient, cluster.Leader),
			fault(second, second, cluster.NemesisKill, cluster.Leader),
			fault(3*second, second, cluster.NemesisPause, cluster.Leader),
		}}},
	}
	err = runner.Run(t.Context(), func(round int) bool { return round == 0 })
	if left := nodes.Close(); err == nil {
		err = left
	}
	if err != nil {
		for _, path := range nodes.Logs() {
			showEnd(t, path)
		}
		t.Fatal(err)
	}
	t.Logf("%+v", runner.Report)
	if runner.Report.Flows == 0 || runner.Report.Calls == 0 {
		t.Error("there was no work")
	}
}

// showEnd puts the end of a file into the test's output.
func showEnd(t *testing.T, path string) {
	const enough = 4 << 10
	text, err := os.ReadFile(path)
	if err == nil {
		t.Logf("the end of %s:\n%s", path, text[max(0, len(text)-enough):])
	}
}
