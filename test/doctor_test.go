package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clustercmd "github.com/conductord/conductord/cmd/conductord/cli/cluster"
	"github.com/conductord/conductord/cmd/conductord/daemon"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
)

// examined runs the doctor, with a limit of open files unless it is empty, and returns the
// worst finding of each check.
func examined(t *testing.T, files string, args ...string) (found map[string]daemon.Finding, bad bool) {
	t.Helper()
	line := `exec "$0" doctor -o json "$@"`
	if files != "" {
		line = "ulimit -n " + files + "; " + line
	}
	command := exec.CommandContext(within(t), "bash", append([]string{"-c", line, binary}, args...)...)
	output, err := command.Output()
	var report struct {
		Findings []daemon.Finding `json:"findings"`
	}
	if err := json.Unmarshal(output, &report); err != nil {
		t.Fatalf("%v: %v: %s", args, err, output)
	}
	found = map[string]daemon.Finding{}
	for _, finding := range report.Findings {
		worse := []string{"", "good", "note", "bad"}
		if slices.Index(worse, finding.State) > slices.Index(worse, found[finding.Check].State) {
			found[finding.Check] = finding
		}
	}
	return found, err != nil
}

// TestDoctor: faults of a machine or a cluster are found and named, with the next step.
func TestDoctor(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	cluster, _ := startCluster(t, func(c *config.Config) { c.Conductor.Enabled, c.DiskReserve = false, 1<<20 })
	file := cluster.Nodes[0].Config
	found, bad := examined(t, "", "--config", file)
	if bad {
		t.Errorf("a healthy machine: %+v", found)
	}
	for _, check := range []string{"configuration", "data directory", "disk space", "raft port of node2", "API port of node3", "node node1"} {
		if found[check].State != "good" {
			t.Errorf("%s: %+v", check, found[check])
		}
	}
	left, err := filepath.Glob(filepath.Join(cluster.Nodes[0].DataDir, ".doctor-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	long := "/" + strings.Repeat("x", 91)
	if checked := command(t, "", "config", "check", "--config", file, "--data-dir", long, "--tls-ca", "ca.pem", "--tls-cert", "cert.pem", "--tls-key", "key.pem"); !strings.Contains(checked.err, "data_dir has 92 bytes; the limit is 91") {
		t.Errorf("config check says of a long data directory: %+v", checked)
	}
	for _, row := range []struct {
		check, text, files string
		args               []string
	}{
		{"data directory", "other users can read", "", []string{"--data-dir", open}},
		{"data directory", "no such file", "", []string{"--data-dir", filepath.Join(open, "a", "b")}},
		{"disk space", "MiB free", "", []string{"--disk-reserve", fmt.Sprint(int64(1) << 40)}},
		{"open files", "1000 open files", "1000", nil},
		{"handlers", "no such file", "", []string{"--conductor-enabled=true", "--conductor-handlers", filepath.Join(open, "none")}},
		{"backups", "no such file", "", []string{"--backup-directory", filepath.Join(open, "none")}},
		{"backups", "cannot write to /proc", "", []string{"--backup-directory", "/proc"}},
		{"socket", "data_dir has 92 bytes; the limit is 91", "", []string{"--data-dir", long, "--tls-ca", "ca.pem", "--tls-cert", "cert.pem", "--tls-key", "key.pem"}},
		{"node node1", `belongs to cluster "local"`, "", []string{"--cluster-id", "other"}},
	} {
		found, bad := examined(t, row.files, append([]string{"--config", file}, row.args...)...)
		if finding := found[row.check]; !bad || finding.State != "bad" || !strings.Contains(finding.Text, row.text) || finding.Do == "" {
			t.Errorf("%s %v: %+v", row.check, row.args, finding)
		}
	}
	cluster.Nodes[1].Kill()
	if found, _ := examined(t, "", "--config", file); found["API port of node2"].State != "note" {
		t.Errorf("a node that is down: %+v", found)
	}
}

// TestClusterCheck: each test gives a verdict, and a bad verdict ends the check with status 1. A
// failover changes the leader.
func TestClusterCheck(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	cluster, client := startCluster(t, func(c *config.Config) { c.Conductor.Enabled = false })
	server := "--server=" + strings.Join(cluster.Endpoints(), ",")
	before, err := client.Status(within(t), cluster.Nodes[0].API)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"failover", "disk"} {
		var health clustercmd.Health
		said, err := exec.CommandContext(within(t), binary, "cluster", "check", "--"+name, server, "-o", "json").Output()
		// The time of a write depends on the machine, and so does the verdict.
		jsonErr := json.Unmarshal(said, &health)
		if tested := health.Tests; jsonErr != nil || health.Healthy != (err == nil) || len(tested) != 1 || tested[0].Verdict == "" || tested[0].Test != name {
			t.Errorf("%s: %s, %v, %v", name, said, err, jsonErr)
		}
	}
	after, err := client.Status(within(t), cluster.Nodes[0].API)
	if err != nil || after.Leader == before.Leader {
		t.Errorf("%s led, and %s leads: %v", before.Leader, after.Leader, err)
	}
	if sessions, err := client.Sessions(within(t)); err != nil || len(sessions) > 0 {
		t.Errorf("sessions are left: %v, %v", sessions, err)
	}
}
