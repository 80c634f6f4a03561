package conductor_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
)

func TestPresence(t *testing.T) {
	cluster := clitest.Open(t)
	session := jobs.NewSessionID()
	if _, err := cluster.OpenSession(t.Context(), jobs.Opening{ID: session, Name: "c1", Host: "h1", PID: 7, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	err := cluster.Register(t.Context(), session, jobs.Entity{Kind: jobs.EntityConductor, Name: "c1",
		Boards: []string{"default"}, JobKinds: []string{"document"}, MaxJobs: 4, Host: "h1", PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	clitest.Expect(t, clitest.Run(t, cluster, "session", "list"), 0, "ID NAME HOST PID TTL CLAIMS OPENED\nID c1 h1 7 1h 0 AGO\n", "")
	if got := clitest.Run(t, cluster, "session", "list", "-o", "json"); !strings.Contains(got.Out, `"ttl": "3600s"`) || strings.Count(got.Out, "ttl") != 1 {
		t.Errorf("sessions as JSON: %+v", got)
	}
	clitest.Expect(t, clitest.Run(t, cluster, "conductor", "list"), 0,
		"NAME STATE HOST PID BOARDS KINDS LABELS HOLDS MAX JOBS SINCE\nc1 claiming h1 7 default document - 0 4 AGO\n", "")
	// With a conductor that can run the waiting job, the command gives no hint.
	clitest.Expect(t, clitest.Run(t, cluster, "job", "get", clitest.PostHello(t, cluster).String(), "-o", "json"), 0,
		clitest.JobDocument, "")
}

func TestConductors(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k", "--name", "slow")
	w := clitest.NewWorker(t, cluster, id)
	w.Must(cluster.Register(t.Context(), w.Session, jobs.Entity{
		Kind: jobs.EntityConductor, Name: "c1", Boards: []string{"default"}, JobKinds: []string{"k"}, MaxJobs: 2, Host: "h1", PID: 7,
	}))
	waiting := clitest.Post(t, cluster, "--kind", "k")
	held := id.String()
	for _, row := range []struct {
		name, args string
		code       int
		out, err   string // parts
	}{
		{"list", "conductor list", 0, "claiming", ""},
		{"get", "conductor get c1", 0, "1 of at most 2 jobs", ""},
		{"what it holds", "conductor get c1", 0, held, ""},
		{"nobody", "conductor get c2", cli.ExitNotFound, "", "conductord conductor list"},
		{"drain nobody", "conductor drain c2", cli.ExitNotFound, "", "`conductord conductor drain --absent c2` drains the name in advance"},
		{"drain who is absent", "conductor drain c2 --absent --reason broken", 0, "", `no live conductor is named "c2"; a new one is drained since`},
		{"who is absent is noted", "conductor list", 0, "c1", "broken"},
		{"undrain who is absent", "conductor undrain c2", 0, "", "no longer drained"},
		{"undrain nobody", "conductor undrain c2", cli.ExitNotFound, "", "no drained or live conductor has this name"},
		{"finish", "conductor drain c1 --finish --reason kernel", 0, "finishing", ""},
		{"why", "conductor get c1", 0, "and completes its jobs first: kernel", ""},
		{"hand over", "conductor drain c1", 0, "handing over", ""},
		{"explained", "job explain WAITING", 0, "conductord conductor undrain c1", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := clitest.Run(t, cluster, strings.Fields(strings.ReplaceAll(row.args, "WAITING", waiting.String()))...)
			if got.Code != row.code || !strings.Contains(got.Out, row.out) || !strings.Contains(got.Err, row.err) {
				t.Errorf("got %+v", got)
			}
		})
	}
	if got := clitest.Run(t, cluster, "conductor", "drain", "c1"); got.Code != 0 || strings.Contains(got.Out, held) {
		t.Errorf("the output of a drain contains more than its effect: %+v", got)
	}
	waited := make(chan clitest.Said, 1)
	go func() { waited <- clitest.Run(t, cluster, "-o", "json", "conductor", "drain", "c1", "--wait") }()
	w.Must(cluster.Abandon(t.Context(), jobs.Ending{Job: id, Token: w.Claimed.Job.Token}))
	got := <-waited
	var shown struct {
		Conductors []struct {
			Entity struct{ Name string }
			Drain  *struct{ Conductor string }
			Held   []json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(got.Out), &shown); err != nil || len(shown.Conductors) != 1 || shown.Conductors[0].Entity.Name != "c1" ||
		shown.Conductors[0].Drain == nil || len(shown.Conductors[0].Held) > 0 {
		t.Errorf("as JSON: %+v, %v", got, err)
	}
	if got := clitest.Run(t, cluster, "conductor", "list"); !strings.Contains(got.Out, "drained") {
		t.Errorf("listed %+v", got)
	}
	if got := clitest.Run(t, cluster, "conductor", "undrain", "c1"); got.Code != 0 {
		t.Errorf("undrained: %+v", got)
	}
	if got := clitest.Run(t, cluster, "conductor", "list"); !strings.Contains(got.Out, "claiming") {
		t.Errorf("listed %+v", got)
	}
}
