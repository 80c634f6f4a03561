package test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
)

// alone runs a conductor as a process outside the nodes.
func (f *field) alone(name string) *following {
	f.Helper()
	return follow(f.T, "conductor", "run", "--name", name, "--labels", "here", "--handlers", f.handlers, f.all)
}

// holder is the conductor that has a job; empty: none.
func (f *field) holder(job string) string {
	f.Helper()
	id, err := jobs.ParseJobID(job)
	if err != nil {
		f.Fatal(err)
	}
	got, err := f.client.Job(within(f.T), id)
	if err != nil || got.Claim == nil {
		return ""
	}
	return got.Claim.Owner
}

// TestConductorAlone: conductors outside nodes run flows. If one is killed, another continues its
// flow; after SIGTERM, without delay. job logs names the place of the lines.
func TestConductorAlone(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f := openField(t)
	first := f.alone("alone-1")
	job := f.runFlow("[[steps]]\nname = \"a\"\nhandler = \"quick\"\n[[steps]]\nname = \"b\"\nhandler = \"slow\"", "--label", "here")
	eventually(t, "the second step runs", func() bool { return f.started() == "a execute 1, b execute 1" })
	if said := command(t, "", "job", "logs", job, f.all).err; !strings.Contains(said, "runs in the program alone-1") {
		t.Errorf("job logs says %s", said)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	second := f.alone("alone-2")
	eventually(t, "another conductor runs the step", func() bool { return f.started() == "a execute 1, b execute 1, b execute 2" })
	third := f.alone("alone-3")
	eventually(t, "a third one is there", func() bool { return strings.Contains(ran(t, "conductor", "list", f.all), "alone-3") })
	if err := second.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	told := time.Now()
	eventually(t, "the third conductor has the job", func() bool { return f.holder(job) == "alone-3" })
	t.Logf("handed over in %s", time.Since(told))
	if err := second.Wait(); err != nil {
		t.Errorf("%v: %s", err, second.said())
	}
	f.release()
	f.ends(job, jobs.OutcomeSuccess)
	if err := third.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := third.Wait(); err != nil {
		t.Errorf("%v: %s", err, third.said())
	}
}

// TestConductorFile: the file of a conductor outside a node may have the conductor's settings;
// settings of nodes are refused by name.
func TestConductorFile(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/conductor.toml"
	text := "drain_timeout = \"1s\"\n[conductor]\nboards = [\"mail\"]\nmax_jobs = 3\n[handlers]\nopen_files = 64\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.ConductorPart.Load(path, nil, map[string]string{"max-jobs": "4"})
	if err != nil || c.Conductor.Boards[0] != "mail" || c.Conductor.MaxJobs != 4 || c.Handlers.OpenFiles != 64 || c.DrainTimeout != time.Second {
		t.Errorf("%+v, %v", c.Conductor, err)
	}
	text += "[raft]\nelection = \"1s\"\n[conductor.x]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = config.ConductorPart.Load(path, nil, map[string]string{"max-jobs": "0"})
	for _, want := range []string{"raft: there is no such key here: it is one of nodes", "conductor.x: there is no such key", "--max-jobs: is 0; it must be 1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %q: %v", want, err)
		}
	}
}
