package test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	accesscmd "github.com/conductord/conductord/cmd/conductord/cli/access"
	"github.com/conductord/conductord/cmd/conductord/daemon"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/credentials"
)

// TestCertificates follows the runbook of docs/security.md: an authority, a certificate for each
// node, a cluster with TLS only, its command line and conductor, and the replacement of
// certificates while it runs.
func TestCertificates(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	issue := func(name string) credentials.Files {
		t.Helper()
		files := credentials.Files{CA: ca, Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key")}
		_ = errors.Join(os.Remove(files.Cert), os.Remove(files.Key))
		var made accesscmd.MadeFiles
		printed(t, &made, "cert", "issue", "node", name, "--cluster", "local", "--host", "127.0.0.1,localhost", "--dir", dir)
		if made.Cert != files.Cert || made.Key != files.Key || time.Until(made.Expires) < 300*24*time.Hour {
			t.Fatalf("%+v", made)
		}
		return files
	}
	var authority accesscmd.MadeFiles
	printed(t, &authority, "cert", "init", "--dir", dir)
	refuses(t, 1, "file exists", "cert", "init", "--dir", dir)
	refuses(t, 2, "--cluster and --host", "cert", "issue", "node", "node1", "--dir", dir)
	cluster := newCluster(t, func(c *config.Config) {
		files := issue(c.Node)
		c.TLS = config.TLS{CA: files.CA, Cert: files.Cert, Key: files.Key}
	})
	if err := errors.Join(cluster.Start(), cluster.WaitReady(within(t))); err != nil {
		t.Fatal(err)
	}
	secure := []string{"--server=" + strings.Join(cluster.Endpoints(), ","), "--ca-file=" + ca,
		"--cert-file=" + filepath.Join(dir, "node1.pem"), "--key-file=" + filepath.Join(dir, "node1.key")}
	run := func(args ...string) string {
		t.Helper()
		said, err := exec.CommandContext(within(t), binary, append(args, secure...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, said)
		}
		return string(said)
	}
	run("flow", "run", "../examples/hello.toml")
	eventually(t, "each node's conductor claims", func() bool { return strings.Count(run("conductor", "list"), "claiming") == 3 })
	refuses(t, 6, `did not happen: 127\.0\.0\.1:\d+, 127\.0\.0\.1:\d+, 127\.0\.0\.1:\d+: the node speaks TLS, and this client speaks plain text\n$`, "cluster", "status", secure[0])
	if err := os.Mkdir(filepath.Join(dir, "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	printed(t, &authority, "cert", "init", "--dir", filepath.Join(dir, "other"))
	refuses(t, 6, "signed by an authority that this client does not know", "cluster", "status", secure[0], "--ca-file="+filepath.Join(dir, "other", "ca.pem"))
	var health daemon.NodeHealth
	if printed(t, &health, "node", "check", "--ready", "--config", cluster.Nodes[0].Config); health.Health != "ready" {
		t.Errorf("%+v", health)
	}
	status := run("cluster", "status")
	if strings.Count(status, "yes") != 3 {
		t.Error(status)
	}
	found, bad := examined(t, "", "--config", cluster.Nodes[0].Config)
	if bad || found["certificates"].State != "good" || found["node node2"].State != "good" {
		t.Errorf("%+v", found)
	}
	store, err := credentials.Open(credentials.Files{CA: ca, Cert: filepath.Join(dir, "node2.pem"), Key: filepath.Join(dir, "node2.key")},
		func(err error) { t.Logf("reading certificates while they are exchanged: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	client, err := raftboard.Open(within(t), raftboard.Options{Endpoints: cluster.Endpoints(), Credentials: store})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	load := startPosting(t, client)
	load.wait(t, 50)
	for _, node := range cluster.Nodes {
		issue(node.Name)
	}
	for _, node := range cluster.Nodes {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if status, err := node.Terminate(ctx); err != nil || status != 0 {
			t.Errorf("%s ends with %d, %v", node.Name, status, err)
		}
		start(t, node)
		if err := node.WaitReady(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		load.wait(t, 20)
	}
	allThere(t, client, load.stop())
	if _, err := jobs.PostOne(within(t), client, jobs.Posting{Name: "after", Kind: "none"}); err != nil {
		t.Error(err)
	}
	// A node does not start with another node's certificate, or with a key that others can read.
	wrong := cluster.Nodes[0]
	wrong.Kill()
	refuses(t, 1, `is for node "node2" of cluster "local", and this is node "node1"`, "server", "--config", wrong.Config,
		"--tls-cert", filepath.Join(dir, "node2.pem"), "--tls-key", filepath.Join(dir, "node2.key"))
	if err := os.Chmod(filepath.Join(dir, "node1.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	refuses(t, 1, "other users can read the key", "server", "--config", wrong.Config)
}

// TestNodesThatAreNoMembers: a node's certificate gives no rights before the node is a member, so an
// administrator joins the node with a token. After its removal, the certificate gives no rights
// again.
func TestNodesThatAreNoMembers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var made accesscmd.MadeFiles
	printed(t, &made, "cert", "init", "--dir", dir)
	cluster := newClusterOf(t, 4, func(c *config.Config) {
		if _, err := os.Stat(filepath.Join(dir, c.Node+".pem")); err != nil {
			printed(t, &made, "cert", "issue", "node", c.Node, "--cluster", "local", "--host", "127.0.0.1", "--dir", dir)
		}
		c.TLS = config.TLS{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, c.Node+".pem"), Key: filepath.Join(dir, c.Node+".key")}
		c.Conductor.Enabled = false
		if c.Node != "node4" {
			c.Cluster.Members = c.Cluster.Members[:3]
		}
	})
	for _, node := range cluster.Nodes[:3] {
		start(t, node)
	}
	for _, node := range cluster.Nodes[:3] {
		if err := node.WaitReady(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	fourth := cluster.Nodes[3]
	as := func(name string) []string {
		return []string{"--server=" + cluster.Nodes[0].API, "--ca-file=" + filepath.Join(dir, "ca.pem"), "--cert-file=" + filepath.Join(dir, name+".pem"), "--key-file=" + filepath.Join(dir, name+".key")}
	}
	token := filepath.Join(dir, "ann.token")
	var drawn map[string]any
	printed(t, &drawn, append([]string{"token", "create", "ann", "--grant", "administrator=*", "--out", token}, as("node1")...)...)
	const nobody = `node "node4" is not a member of cluster "local"`
	refuses(t, 7, nobody, append([]string{"access", "whoami"}, as("node4")...)...)
	refuses(t, 7, nobody, "cluster", "join", "--config", fourth.Config)
	if found, _ := examined(t, "", "--config", fourth.Config); !strings.Contains(found["cluster"].Do, "conductord cluster join") {
		t.Errorf("the doctor finds %+v", found["cluster"])
	}
	var joined daemon.JoinedNode
	printed(t, &joined, "cluster", "join", "--config", fourth.Config, "--token-file", token)
	start(t, fourth)
	if err := fourth.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "node4 has a vote", func() bool {
		var now membersDocument
		return prints(t, &now, append([]string{"cluster", "members"}, as("node4")...)...) == nil && now.voters() == "node1 node2 node3 node4"
	})
	var left membersDocument
	printed(t, &left, append([]string{"cluster", "remove", "node4"}, as("node1")...)...)
	eventually(t, "node4 is not a member", func() bool {
		err := prints(t, &left, append([]string{"cluster", "members"}, as("node4")...)...)
		return err != nil && strings.Contains(err.Error(), "is not a member of cluster")
	})
}
