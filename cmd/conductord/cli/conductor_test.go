package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
)

func TestConductors(t *testing.T) {
	cluster := openCluster(t)
	id := post(t, cluster, "--kind", "k", "--name", "slow")
	w := newWorker(t, cluster, id)
	w.must(cluster.Register(t.Context(), w.session, jobs.Entity{
		Kind: jobs.EntityConductor, Name: "c1", Boards: []string{"default"}, JobKinds: []string{"k"}, MaxJobs: 2, Host: "h1", PID: 7,
	}))
	waiting := post(t, cluster, "--kind", "k")
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
		{"undrain nobody", "conductor undrain c2", cli.ExitNotFound, "", "none of that name is drained or lives"},
		{"finish", "conductor drain c1 --finish --reason kernel", 0, "finishing", ""},
		{"why", "conductor get c1", 0, "to finish what it holds: kernel", ""},
		{"hand over", "conductor drain c1", 0, "handing over", ""},
		{"explained", "job explain WAITING", 0, "conductord conductor undrain c1", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := run(t, cluster, strings.Fields(strings.ReplaceAll(row.args, "WAITING", waiting.String()))...)
			if got.code != row.code || !strings.Contains(got.out, row.out) || !strings.Contains(got.err, row.err) {
				t.Errorf("got %+v", got)
			}
		})
	}
	if got := run(t, cluster, "conductor", "drain", "c1"); got.code != 0 || strings.Contains(got.out, held) {
		t.Errorf("a drain tells more than what it has done: %+v", got)
	}
	waited := make(chan said, 1)
	go func() { waited <- run(t, cluster, "-o", "json", "conductor", "drain", "c1", "--wait") }()
	w.must(cluster.Abandon(t.Context(), jobs.Ending{Job: id, Token: w.claimed.Job.Token}))
	got := <-waited
	var shown struct {
		Conductors []struct {
			Entity struct{ Name string }
			Drain  *struct{ Conductor string }
			Held   []json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(got.out), &shown); err != nil || len(shown.Conductors) != 1 || shown.Conductors[0].Entity.Name != "c1" ||
		shown.Conductors[0].Drain == nil || len(shown.Conductors[0].Held) > 0 {
		t.Errorf("as JSON: %+v, %v", got, err)
	}
	if got := run(t, cluster, "conductor", "list"); !strings.Contains(got.out, "drained") {
		t.Errorf("listed %+v", got)
	}
	if got := run(t, cluster, "conductor", "undrain", "c1"); got.code != 0 {
		t.Errorf("undrained: %+v", got)
	}
	if got := run(t, cluster, "conductor", "list"); !strings.Contains(got.out, "claiming") {
		t.Errorf("listed %+v", got)
	}
}
