package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node"
)

// A document that lacks inputs is refused for every client, with the names of all missing inputs.
// Nothing of it is written; other postings of the same call are.
func TestFlowsAreCheckedWhenPosted(t *testing.T) {
	t.Parallel()
	registry := flow.NewRegistry()
	err := registry.Register(spec.Kind, func(args json.RawMessage) (*flow.Flow, error) {
		document, err := spec.Parse(args, "document")
		if err != nil {
			return nil, err
		}
		return document.Build(nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 1, func(o *node.Options) { o.CheckFlow = flow.NewChecker(registry, logbook.MaxLimits).Check }).startAll()
	client := c.client()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	const document = `{"name":"greet","inputs":["guest","words"],"steps":[{"name":"say","requires":["guest","words"]}]}`
	schedule := schedules.Schedule{Name: "greet", Rule: "@daily", Posting: jobs.Posting{
		Store: logbook.Values{"guest": json.RawMessage(`"Ann"`)},
		Book: &logbook.Book{Name: "greet", Flows: []logbook.FlowDetail{{
			Name: "greet", Factory: logbook.Factory{Name: spec.Kind, Args: json.RawMessage(document)},
		}}},
	}}
	if _, err := client.SaveSchedule(ctx, schedule); !errors.Is(err, jobs.ErrInvalid) || !strings.Contains(err.Error(), "words") {
		t.Errorf("a schedule of a flow that lacks words: %v", err)
	}
	schedule.Posting.Store["words"] = json.RawMessage(`"hello"`)
	if _, err := client.SaveSchedule(ctx, schedule); err != nil {
		t.Errorf("a schedule of a flow that lacks nothing: %v", err)
	}
	posting := func(name string, kind string, store logbook.Values) jobs.Posting {
		detail := logbook.FlowDetail{ID: logbook.NewFlowID(), Name: name, Factory: logbook.Factory{Name: kind, Args: json.RawMessage(document)}}
		return jobs.Posting{ID: jobs.NewJobID(), Name: name, Store: store,
			Book: &logbook.Book{ID: logbook.NewBookID(), Name: name, Flows: []logbook.FlowDetail{detail}}}
	}
	whole := logbook.Values{"guest": json.RawMessage(`"Ada"`), "words": json.RawMessage(`"hello"`)}
	bad, good, unknown := posting("bad", spec.Kind, nil), posting("good", spec.Kind, whole), posting("unknown", "somebody-elses", nil)
	answers, err := client.Post(ctx, bad, good, unknown)
	if err != nil || answers[1].Err != nil || answers[2].Err != nil {
		t.Fatalf("%v, %+v", err, answers)
	}
	if err := answers[0].Err; !errors.Is(err, logbook.ErrInvalid) || !strings.Contains(err.Error(), `"guest"`) || !strings.Contains(err.Error(), `"words"`) {
		t.Errorf("%v does not name all that is missing", err)
	}
	if _, err := client.Book(ctx, bad.Book.ID); !errors.Is(err, logbook.ErrNotFound) {
		t.Errorf("the book of a posting that was refused: %v", err)
	}
	if _, err := client.Job(ctx, bad.ID); !errors.Is(err, logbook.ErrNotFound) {
		t.Errorf("the job of a posting that was refused: %v", err)
	}

	body := `{"postings":[{"name":"x","book":{"id":"` + logbook.NewBookID().String() + `","name":"x","flows":[{"id":"` + logbook.NewFlowID().String() +
		`","name":"x","factory":{"name":"document","args":` + document + `}}]}}]}`
	answer, err := http.Post(c.endpointURL()+"/conductord.v1.BoardService/Post", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || !strings.Contains(string(text), "guest") || !strings.Contains(string(text), "invalid") {
		t.Errorf("curl is answered %s, %v", text, err)
	}
}

// endpointURL is the address of the first node.
func (c *cluster) endpointURL() string {
	endpoint := c.endpoints()[0]
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	return endpoint
}
