package document_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// present registers a conductor that announces handlers, given as JSON; empty: it announces none.
func present(t *testing.T, cluster *clitest.Cluster, session jobs.SessionID, name, handlers string) {
	t.Helper()
	entity := jobs.Entity{Kind: jobs.EntityConductor, Name: name, Boards: []string{"default"}, JobKinds: []string{"document"}}
	if handlers != "" {
		entity.Metadata = logbook.Values{cli.HandlersKey: json.RawMessage(handlers)}
	}
	if err := cluster.Register(t.Context(), session, entity); err != nil {
		t.Fatal(err)
	}
}

// taking is a cluster that changes each job right after its posting.
type taking struct {
	*clitest.Cluster
	take func(jobs.JobID)
}

func (c taking) Post(ctx context.Context, postings ...jobs.Posting) ([]jobs.Posted, error) {
	posted, err := c.Cluster.Post(ctx, postings...)
	if err == nil && c.take != nil {
		c.take(posted[0].Job.ID)
	}
	return posted, err
}

// TestMissingHandlerOfASchedule: saving a schedule gives the same warning.
func TestMissingHandlerOfASchedule(t *testing.T) {
	document := filepath.Join(t.TempDir(), "flow.toml")
	if err := os.WriteFile(document, []byte("name = \"x\"\n[[steps]]\nname = \"a\"\nhandler = \"paint\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for handlers, want := range map[string]string{
		`["paint"]`: "",
		`["sing"]`: "conductord: warning: no live conductor of board \"default\" has the handler \"paint\", so the job will be trashed: " +
			"install the handler in a directory of conductor.handlers on c1\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			cluster := clitest.Open(t)
			session := jobs.NewSessionID()
			if _, err := cluster.OpenSession(t.Context(), jobs.Opening{ID: session, Name: "c1"}); err != nil {
				t.Fatal(err)
			}
			present(t, cluster, session, "c1", handlers)
			if got := clitest.Run(t, cluster, "schedule", "set", "s", "--rule", "@daily", "--flow", document); got.Code != 0 || got.Err != want {
				t.Errorf("%s: %+v", handlers, got)
			}
		})
	}
}

// TestMissingHandler: a posted document whose handlers the live conductors lack is accepted, with a
// warning. There is no warning if the handler is announced soon afterwards, or if a conductor with
// all handlers takes the job.
func TestMissingHandler(t *testing.T) {
	document := filepath.Join(t.TempDir(), "flow.toml")
	if err := os.WriteFile(document, []byte("name = \"x\"\n[[steps]]\nname = \"a\"\nhandler = \"paint\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := filepath.Join(t.TempDir(), "lines") // both lines need the same handler: one warning
	line := `{"flow": {"name": "x", "steps": [{"name": "a", "handler": "paint"}]}}` + "\n"
	if err := os.WriteFile(lines, []byte(line+line), 0o600); err != nil {
		t.Fatal(err)
	}
	const none = "conductord: warning: no live conductor of board \"default\" has the handler \"paint\", so the job will be trashed: " +
		"install the handler in a directory of conductor.handlers on c1, c2; if the job is trashed before that, run `conductord job retry ID`\n"
	for _, row := range []struct {
		name       string
		conductors map[string]string
		soon       map[string]string // announced within a second after the posting
		taker      string            // conductor that takes the job immediately
		trashes    string            // kind of failure with which the conductor trashes the job
		want       string            // all of stderr
		took       time.Duration
	}{
		{name: "no conductor"},
		{name: "one has it", conductors: map[string]string{"c1": `["paint"]`}},
		{name: "one names none", conductors: map[string]string{"c1": ""}},
		{name: "none has it", conductors: map[string]string{"c1": `["sing"]`, "c2": `[]`}, want: none, took: 2 * time.Second},
		{name: "none has it, and it is installed", conductors: map[string]string{"c1": `["sing"]`, "c2": `[]`},
			soon: map[string]string{"c1": `["paint"]`, "c2": `["paint"]`}, took: time.Second},
		{name: "none had it", conductors: map[string]string{"c1": `["sing"]`, "c2": `[]`}, taker: "c1", trashes: logbook.FailureBuild, want: none},
		{name: "it was installed, and a step failed", conductors: map[string]string{"c1": `[]`}, taker: "c1", trashes: "other"},
		{name: "one of two has it", conductors: map[string]string{"c1": `["sing"]`, "c2": `["paint"]`}, took: 2 * time.Second,
			want: "conductord: warning: of the live conductors of board \"default\", only c2 can run the handler \"paint\", so the job waits for them: " +
				"install the handler in a directory of conductor.handlers on c1 too\n"},
		{name: "one of two has it, and takes the job", conductors: map[string]string{"c1": `["sing"]`, "c2": `["paint"]`}, taker: "c2"},
	} {
		for _, args := range [][]string{{"flow", "run", document}, {"job", "post", "--flow", document}, {"job", "post", "--from", lines}} {
			synctest.Test(t, func(t *testing.T) {
				cluster := taking{Cluster: clitest.Open(t)}
				sessions := map[string]jobs.SessionID{}
				for name, handlers := range row.conductors {
					sessions[name] = jobs.NewSessionID()
					if _, err := cluster.OpenSession(t.Context(), jobs.Opening{ID: sessions[name], Name: name}); err != nil {
						t.Fatal(err)
					}
					present(t, cluster.Cluster, sessions[name], name, handlers)
				}
				if row.taker != "" {
					cluster.take = func(job jobs.JobID) { take(t, cluster.Cluster, sessions[row.taker], job, row.trashes) }
				}
				announced := time.AfterFunc(950*time.Millisecond, func() {
					for name, handlers := range row.soon {
						present(t, cluster.Cluster, sessions[name], name, handlers)
					}
				})
				began := time.Now()
				got := clitest.Run(t, cluster, args...)
				announced.Stop()
				got.Err = regexp.MustCompile(`job retry [0-9a-f-]{36}`).ReplaceAllString(got.Err, "job retry ID")
				if took := time.Since(began); got.Code != 0 || got.Err != row.want || took != row.took {
					t.Errorf("%s: %v: after %s, not %s: %+v", row.name, args, took, row.took, got)
				}
			})
		}
	}
	if got := clitest.Run(t, clitest.Open(t), "job", "post", "--kind", "k"); got.Err != "" {
		t.Errorf("a job without a flow: %+v", got)
	}
}

// take makes a conductor claim a job, and trash it if a kind of failure is given.
func take(t *testing.T, cluster *clitest.Cluster, session jobs.SessionID, job jobs.JobID, kind string) {
	t.Helper()
	claimed, err := cluster.ClaimNext(t.Context(), jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Boards: []string{"default"}, Max: 1})
	if err != nil || !slices.ContainsFunc(claimed, func(c jobs.Claimed) bool { return c.Job.ID == job }) {
		t.Fatalf("%+v, %v", claimed, err)
	}
	if kind == "" {
		return
	}
	ending := jobs.Ending{Job: job, Token: claimed[0].Job.Token, Failure: &logbook.Failure{Kind: kind, Message: "it cannot be built"}}
	if err := cluster.Trash(t.Context(), ending); err != nil {
		t.Fatal(err)
	}
}
