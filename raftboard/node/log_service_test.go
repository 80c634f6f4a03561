package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
)

// heldBy posts a job to a board and claims it for a conductor whose entity names a node, and which
// has the name of its session.
func heldBy(t *testing.T, client *raftboard.Client, board, at string) jobs.Job {
	t.Helper()
	ctx := t.Context()
	job, err := jobs.PostOne(ctx, client, jobs.Posting{Board: board, Name: "j", Kind: "k"})
	if err != nil {
		t.Fatal(err)
	}
	session := opened(t, client, time.Minute)
	entity := jobs.Entity{Kind: jobs.EntityConductor, Name: "worker", Boards: []string{board}}
	if at != "" {
		entity.Metadata = logbook.Values{node.NodeKey: json.RawMessage(`"` + at + `"`)}
	}
	if err := client.Register(ctx, session, entity); err != nil {
		t.Fatal(err)
	}
	granted, err := client.Claim(ctx, session, job.ID, jobs.NewNonce())
	if err != nil {
		t.Fatal(err)
	}
	return granted.Job
}

func textsOf(page steplog.Page) (texts []string) {
	for _, line := range page.Lines {
		texts = append(texts, line.Text)
	}
	return texts
}

// TestLogsThroughAnyNode checks that each node finds the lines of a job at its conductor's node,
// waits there for more, and returns the last lines when the job has ended.
func TestLogsThroughAnyNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	ctx, client := t.Context(), c.client()
	job := heldBy(t, client, "orders", "n2")
	buffer := c.nodes[1].Logs()
	end := buffer.Begin(job.ID)
	say := func(text string) {
		buffer.Append(job.ID, steplog.Line{Step: "s", Action: logbook.ActionExecute, Attempt: 1, Text: text}, len(text))
	}
	say("first")
	var clients []*raftboard.Client
	var page steplog.Page
	for i := range c.nodes {
		clients = append(clients, c.client(i))
		if _, err := clients[i].Job(ctx, job.ID); err != nil { // so that the node has applied the posting
			t.Fatal(err)
		}
		var err error
		page, err = clients[i].ReadLogs(ctx, steplog.Query{Job: job.ID})
		if err != nil || !slices.Equal(textsOf(page), []string{"first"}) || !page.Running || page.Node != "n2" {
			t.Errorf("node %d: %+v, %v", i, page, err)
		}
	}
	waited := make(chan steplog.Page)
	go func() {
		next, err := clients[0].ReadLogs(ctx, steplog.Query{Job: job.ID, After: page.Next, Wait: patience})
		if err != nil {
			t.Error(err)
		}
		waited <- next
	}()
	say("second")
	if page = <-waited; !slices.Equal(textsOf(page), []string{"second"}) || page.Lines[0].Offset != int64(len("first\n")) {
		t.Errorf("%+v", page)
	}
	say("third")
	end()
	if err := client.Consume(ctx, jobs.Ending{Job: job.ID, Token: job.Token, Outcome: jobs.OutcomeSuccess}); err != nil {
		t.Fatal(err)
	}
	for i := range clients {
		last, err := clients[i].ReadLogs(ctx, steplog.Query{Job: job.ID, After: page.Next, Wait: patience})
		if err != nil || !slices.Equal(textsOf(last), []string{"third"}) || last.Running {
			t.Errorf("node %d: %+v, %v", i, last, err)
		}
		all, err := clients[i].ReadLogs(ctx, steplog.Query{Job: job.ID, Step: "s", Wait: patience})
		if err != nil || !slices.Equal(textsOf(all), []string{"first", "second", "third"}) || all.Running || all.Node != "n2" {
			t.Errorf("node %d, of the ended job: %+v, %v", i, all, err)
		}
	}
	for what, query := range map[string]struct {
		steplog.Query
		want error
	}{
		"no job":      {steplog.Query{Job: jobs.NewJobID()}, jobs.ErrNotFound},
		"no position": {steplog.Query{Job: job.ID, After: "x.y.n2"}, jobs.ErrInvalid},
	} {
		if _, err := clients[0].ReadLogs(ctx, query.Query); !errors.Is(err, query.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, at := range []string{"", "nowhere"} { // a conductor outside the nodes, or with a false node name
		foreign := heldBy(t, client, "orders", at)
		if page, err := client.ReadLogs(ctx, steplog.Query{Job: foreign.ID, After: "7.x.n2", Wait: patience}); err != nil || page.Running || len(page.Lines) > 0 || page.Node != "" || page.Next != "7.x.n2" {
			t.Errorf("held by %q: %+v, %v", at, page, err)
		}
	}
}

// TestLogsAreValues checks that a principal that may not see values reads no logs, at any node.
func TestLogsAreValues(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 3)
	ctx := t.Context()
	job := heldBy(t, c.operator, "orders", "n2")
	defer c.nodes[1].Logs().Begin(job.ID)()
	c.nodes[1].Logs().Append(job.ID, steplog.Line{Step: "s", Action: logbook.ActionExecute, Attempt: 1, Text: "the-value"}, 1)
	token, _ := c.token("support", time.Time{}, access.Grant{Role: access.Viewer, Boards: "orders"})
	for _, hide := range []bool{false, true} {
		err := c.operator.SavePrincipal(ctx, access.Principal{Name: "support", HideValues: hide, Grants: []access.Grant{{Role: access.Viewer, Boards: "orders"}}})
		if err != nil {
			t.Fatal(err)
		}
		for at := range c.nodes {
			eventually(t, "the node knows", func() bool {
				status, answer := c.call(at, token, "BoardService/ReadLogs", fmt.Sprintf(`{"job": %q}`, job.ID))
				shown := strings.Contains(answer, "the-value")
				if hide && shown && at == 1 { // this node has the lines, and may not have applied the change
					return false
				}
				return shown != hide && (status == http.StatusOK) != hide && refused(answer, notAllowed) == hide
			})
		}
	}
}

// TestLogsAreEncrypted checks that encrypted lines can be read only with the key.
func TestLogsAreEncrypted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	plain, keyed := c.client(), c.clientWith(someKeys(t, "a"))
	job := heldBy(t, plain, "orders", "n1")
	defer c.nodes[0].Logs().Begin(job.ID)()
	const said = "the-value"
	for _, text := range []string{plain.EncryptText("plain"), keyed.EncryptText(said)} {
		c.nodes[0].Logs().Append(job.ID, steplog.Line{Step: "s", Action: logbook.ActionExecute, Attempt: 1, Text: text}, len(said))
	}
	page, err := keyed.ReadLogs(t.Context(), steplog.Query{Job: job.ID})
	if err != nil || !slices.Equal(textsOf(page), []string{"plain", said}) {
		t.Errorf("with the key: %+v, %v", page, err)
	}
	page, err = plain.ReadLogs(t.Context(), steplog.Query{Job: job.ID})
	if texts := textsOf(page); err != nil || len(texts) != 2 || texts[0] != "plain" || strings.Contains(texts[1], said) {
		t.Errorf("without: %+v, %v", page, err)
	}
}
