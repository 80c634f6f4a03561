package node_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node"
)

// A panic in a handler fails only its call. The caller gets an answer, also through a follower and
// on a stream. The log of each node has one line for all equal panics.
func TestPanicsAreAnswered(t *testing.T) {
	t.Parallel()
	log := &logged{}
	c := newTenants(t, 2, func(o *node.Options) {
		o.Logger = hclog.New(&hclog.LoggerOptions{Name: o.Name, Level: hclog.Warn, Output: log, JSONFormat: true})
		o.CheckFlow = func(*logbook.FlowDetail, logbook.Values) error { panic("oh") }
		o.PagesPath, o.Pages = "/pages/", func(http.Handler) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a page") })
		}
	})
	token, _ := c.token("poster", time.Time{}, access.Grant{Role: access.Poster, Boards: "a"})
	detail := logbook.FlowDetail{ID: logbook.NewFlowID(), Name: "f", Factory: logbook.Factory{Name: "k"}}
	posting := jobs.Posting{Board: "a", Name: "f", Book: &logbook.Book{ID: logbook.NewBookID(), Name: "f", Flows: []logbook.FlowDetail{detail}}}
	const request = `{"postings": [{"board": "a", "name": "f", "book": {"id": "01a21991-5e75-7bb6-88a7-62ea926a9017", "name": "f", "flows": [{"id": "01a21991-5e75-7bb6-88a7-62ea926a9018", "name": "f", "factory": {"name": "k"}}]}}]}`
	client := c.as(token)
	for range 20 {
		for at := range c.nodes {
			if status, said := c.call(at, token, "BoardService/Post", request); codeOf([]byte(said)) != "uncertain" || !strings.Contains(said, "the reason is in the log") {
				t.Errorf("node %d answers %d %s", at+1, status, said)
			}
			answer, err := c.plain.Get("https://" + c.options[0].Members[at].API + "/pages/")
			if err != nil {
				t.Fatal(err)
			}
			said, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusInternalServerError || !strings.Contains(string(said), "the reason is in the log") {
				t.Errorf("a page of node %d: %d %s, %v", at+1, answer.StatusCode, said, err)
			}
		}
	}
	if _, err := jobs.PostOne(t.Context(), client, posting); !errors.Is(err, jobs.ErrUncertain) { // after its patience
		t.Errorf("on a stream: %v", err)
	}
	if lines := log.panics(); len(lines) != 3 || !strings.Contains(lines[0], "TestPanicsAreAnswered") { // one of pages at each node, and one of the leader
		t.Errorf("the log has %d lines: %.3000s", len(lines), lines)
	}
}
