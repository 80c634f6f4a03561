package test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/daemon"
)

// TestNodeInit checks that a service can start a node created by node init, and check its health,
// without --init and without another program.
func TestNodeInit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, data := filepath.Join(dir, "node1.toml"), filepath.Join(dir, "data", "node1")
	address := freeAddress(t)
	if said, err := exec.Command(binary, "config", "init", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	node := []string{"--config", file, "--cluster-members", "node1=" + freeAddress(t) + "," + address, "--api-listen", address, "--disk-reserve", "1048576"}
	refuses(t, 1, "contains no node", append([]string{"server"}, node...)...)
	var made daemon.MadeNode
	if printed(t, &made, append([]string{"node", "init"}, node...)...); made != (daemon.MadeNode{Node: "node1", Cluster: "main", DataDir: data}) {
		t.Errorf("%+v", made)
	}
	refuses(t, 1, `already contains node "node1" of cluster "main": start this node`, append([]string{"node", "init"}, node...)...)
	refuses(t, 1, `cannot confirm that node "node1" is alive: .*refused`, append([]string{"node", "check"}, node...)...)

	server := exec.CommandContext(t.Context(), binary, append([]string{"server"}, node...)...)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	for _, how := range [][]string{nil, {"--ready"}} {
		eventually(t, "the node is healthy", func() bool {
			return exec.Command(binary, append(append([]string{"node", "check"}, node...), how...)...).Run() == nil
		})
	}
}
