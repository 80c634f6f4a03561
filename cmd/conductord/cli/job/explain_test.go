package job_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func TestJobExplain(t *testing.T) {
	cluster := clitest.Open(t)
	for _, row := range []struct {
		name, post, then string
		cause, remedy    string
	}{
		{"held", "--hold", "", "held", "conductord job release ID"},
		{"delayed", "--not-before 1h", "", "delayed", "conductord job change ID --not-before"},
		{"suspended", "", "suspend", "suspended", "conductord job resume ID"},
		{"cancelled", "", "cancel", "finished", ""},
		{"without a conductor", "", "", "no_conductor", "conductord conductor list"},
	} {
		t.Run(row.name, func(t *testing.T) {
			id := clitest.Post(t, cluster, append([]string{"--kind", "k"}, strings.Fields(row.post)...)...)
			if row.then != "" {
				clitest.Run(t, cluster, "job", row.then, id.String())
			}
			got := clitest.Run(t, cluster, "job", "explain", id.String())
			text := clitest.Steady(got.Out)
			if got.Code != 0 || !strings.Contains(text, "cause: "+row.cause+"\n") || !strings.Contains(text, row.remedy) {
				t.Errorf("explained as %+v", got)
			}
			if got := clitest.Run(t, cluster, "-o", "json", "job", "explain", id.String()); !strings.Contains(got.Out, `"cause": "`+row.cause+`"`) {
				t.Errorf("explained as %+v", got)
			}
		})
	}
	if got := clitest.Run(t, cluster, "job", "explain", jobs.NewJobID().String()); got.Code != cli.ExitNotFound {
		t.Errorf("an unknown job: %+v", got)
	}
}

// TestJobWaitsForLabels: a conductor of the kind is live but lacks a label.
func TestJobWaitsForLabels(t *testing.T) {
	cluster := clitest.Open(t)
	session := jobs.NewSessionID()
	if _, err := cluster.OpenSession(t.Context(), jobs.Opening{ID: session, Name: "c1", TTL: jobs.MaxTTL}); err != nil {
		t.Fatal(err)
	}
	entity := jobs.Entity{Kind: jobs.EntityConductor, Name: "c1", Boards: []string{"default"}, JobKinds: []string{"document"}}
	if err := cluster.Register(t.Context(), session, entity); err != nil {
		t.Fatal(err)
	}
	id := clitest.PostHello(t, cluster, "--label", "gpu")
	if got := clitest.Run(t, cluster, "job", "get", id.String()); !strings.Contains(got.Err, `offers all of the labels ["gpu"]`) {
		t.Errorf("the job is shown as %+v", got)
	}
	if got := clitest.Run(t, cluster, "job", "explain", id.String()); !strings.Contains(got.Out, `c1, lacks "gpu"`) {
		t.Errorf("the job is explained as %+v", got)
	}
}

// workerless is a cluster in which a job waits for a step worker.
type workerless struct{ *clitest.Cluster }

func (workerless) Explain(context.Context, jobs.JobID) (jobs.Explanation, error) {
	return jobs.Explanation{Text: "no worker is live", Remedy: jobs.Remedy{Verb: jobs.RemedyStartWorker, Target: "mail"}}, nil
}

// TestFlowRunWaitsForWorker: a waiting command reports once which worker the job waits for.
func TestFlowRunWaitsForWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := clitest.Run(t, workerless{clitest.Open(t)}, "flow", "run", "--wait", "--timeout", "30s", clitest.Examples+"hello.toml")
		want := "conductord: the job waits: no worker is live; next step: `conductord worker --handlers DIRECTORY --types mail`\n"
		if got.Code != cli.ExitTimeout || strings.Count(got.Err, want) != 1 {
			t.Errorf("got %+v", got)
		}
	})
}

// TestExplanationListsStepsOfRepair: the next step of a failed flow has the steps that it concerns.
func TestExplanationListsStepsOfRepair(t *testing.T) {
	cluster := clitest.Open(t)
	id, _ := clitest.StuckFlow(t, cluster)
	got := clitest.Run(t, cluster, "job", "explain", id.String())
	if text := clitest.Steady(got.Out); !strings.Contains(text, "conductord flow retry-revert ID") || !strings.Contains(text, "effect: reverts: make-greeting\n") {
		t.Errorf("explained as %s", text)
	}
}

// TestExplanationNamesFullLoop: elements of a loop wait for the end of the first element.
func TestExplanationNamesFullLoop(t *testing.T) {
	cluster := clitest.Open(t)
	file := filepath.Join(t.TempDir(), "ship.toml")
	document := "name = \"ship\"\n[store]\nparcels = [7, 8, 9]\n[[steps]]\nname = \"each\"\n" +
		"each = {over = \"parcels\", as = \"parcel\", at_once = 1}\nsteps = [{name = \"pack\", requires = [\"parcel\"]}]\n"
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	id := clitest.Post(t, cluster, "--flow", file)
	w := clitest.NewWorker(t, cluster, id)
	begun, ended := w.Begin("each"), w.Finish("each", "[7,8,9]", nil)
	begun.Kind, ended.Kind = logbook.KindEach, logbook.KindEach
	w.Update(logbook.FlowRunning, begun)
	w.Update(logbook.FlowRunning, ended, w.Begin("pack[0]"))
	got := clitest.Run(t, cluster, "job", "explain", id.String())
	if got.Code != 0 || !strings.Contains(got.Out, " each: 2 elements wait; [0] holds the only place\n") {
		t.Errorf("explained as %+v", got)
	}
}
