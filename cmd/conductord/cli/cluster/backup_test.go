package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// TestBackupFiles: a backup file appears only when it is complete, and overwrites no file unless
// asked.
func TestBackupFiles(t *testing.T) {
	cluster := clitest.Open(t)
	path := filepath.Join(t.TempDir(), "b.tar")
	got := clitest.Run(t, cluster, "backup", "create", path)
	if got.Code != 0 || !strings.Contains(got.Out, "index:       42\n") {
		t.Fatalf("%+v", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file has mode %v: %v", info.Mode(), err)
	}
	shown := clitest.Run(t, nil, "backup", "inspect", path)
	if shown.Code != 0 || shown.Out != got.Out {
		t.Errorf("made %q, and inspected %q", got.Out, shown.Out)
	}
	if again := clitest.Run(t, cluster, "backup", "create", path); again.Code != cli.ExitUsage || !strings.Contains(again.Err, "exists: choose another name, or add --overwrite") {
		t.Errorf("%+v", again)
	}
	if again := clitest.Run(t, cluster, "backup", "create", path, "--overwrite"); again.Code != 0 {
		t.Errorf("%+v", again)
	}
	piped := clitest.Run(t, cluster, "backup", "create", "-")
	if file, err := os.ReadFile(path); err != nil || piped.Code != 0 || piped.Out != string(file) || !strings.Contains(piped.Err, "backup of cluster test at index 42") {
		t.Errorf("code %d, %d bytes, %s: %v", piped.Code, len(piped.Out), piped.Err, err)
	}
	for _, row := range []struct {
		verb, file string
		code       int
		why        string
	}{
		{"inspect", piped.Out[:1024], cli.ExitFailed, "bad backup: it ends before its state"},
		{"check", piped.Out[:1024], cli.ExitFailed, "bad backup: it ends before its state"},
		{"check", piped.Out, cli.ExitFailed, "bad snapshot: no header"},
	} {
		in := func(p *cli.Program) { p.In = strings.NewReader(row.file) }
		if got := clitest.RunWith(t, t.Context(), nil, in, "backup", row.verb, "-"); got.Code != row.code || strings.Count(got.Err, "\n") != 1 || !strings.Contains(got.Err, row.why) {
			t.Errorf("%s: %+v", row.verb, got)
		}
	}
}

// TestBackupThatBreaksOff: an incomplete backup leaves nothing behind.
func TestBackupThatBreaksOff(t *testing.T) {
	cluster := clitest.Open(t)
	dir := t.TempDir()
	cluster.Broken = errors.Join(jobs.ErrUnavailable, errors.New("the node is gone"))
	if got := clitest.Run(t, cluster, "backup", "create", filepath.Join(dir, "b.tar")); got.Code != cli.ExitUnavailable {
		t.Errorf("%+v", got)
	}
	if got := clitest.Run(t, clitest.Open(t), "backup", "create", filepath.Join(dir, "nowhere", "b.tar")); got.Code != cli.ExitFailed {
		t.Errorf("%+v", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v: %v", left, err)
	}
}

func TestWrongBackupCommands(t *testing.T) {
	for _, row := range []struct{ line, want string }{
		{"backup inspect /nowhere.tar", "no such file"},
		{"backup check /nowhere.tar", "no such file"},
		{"backup restore /nowhere.tar", "cluster.id: must be set"},
		{"backup restore /nowhere.tar --config /nowhere.toml", "cannot read the configuration"},
	} {
		if got := clitest.Run(t, nil, strings.Fields(row.line)...); got.Code != cli.ExitUsage || !strings.Contains(got.Err, row.want) {
			t.Errorf("%s: %+v", row.line, got)
		}
	}
}

// TestBackupList checks that the backups of all nodes are listed, with the result of their
// verification.
func TestBackupList(t *testing.T) {
	cluster := clitest.Open(t)
	cluster.Statuses = []raftboard.NodeStatus{{Status: raftboard.Status{Node: "n1"}}}
	clitest.Expect(t, clitest.Run(t, cluster, "backup", "list"), 0, "NODE TIME INDEX BYTES VERIFIED FILE\n", "conductord: no node that answers has scheduled backups: set backup.directory on one node\n")
	made := time.Date(2026, 11, 26, 3, 4, 5, 0, time.UTC)
	cluster.Statuses = append(cluster.Statuses, raftboard.NodeStatus{Status: raftboard.Status{Node: "n2", BackupInterval: time.Hour, Backups: []raftboard.ScheduledBackup{
		{File: "c-n2-3.tar", MadeAt: made, Bytes: 2048}, {File: "c-n2-2.tar", MadeAt: made, Bytes: 1024, Index: 7, Verified: true},
		{File: "c-n2-1.tar", MadeAt: made, Bytes: 10, Fault: "bad backup: it is cut off"},
	}}}, raftboard.NodeStatus{Endpoint: "c:1", Err: jobs.ErrUnavailable})
	got := clitest.Run(t, cluster, "backup", "list", "-o", "json")
	if got.Code != 0 || strings.Count(got.Out, `"node": "n2"`) != 3 || !strings.Contains(got.Out, `"verified": true`) || !strings.Contains(got.Err, "c:1 does not answer") {
		t.Errorf("%+v", got)
	}
	got = clitest.Run(t, cluster, "backup", "list")
	for _, row := range []string{"n2 TIME 0 2048 not yet c-n2-3.tar", "n2 TIME 7 1024 yes c-n2-2.tar", "n2 TIME 0 10 no: bad backup: it is cut off c-n2-1.tar"} {
		want := strings.Replace(row, "TIME", "2026-11-26T03:04:05Z", 1)
		if !strings.Contains(strings.Join(strings.Fields(got.Out), " "), want) {
			t.Errorf("no %q in\n%s", want, got.Out)
		}
	}
}
