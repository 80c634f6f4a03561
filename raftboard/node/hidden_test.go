package node_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/reflect/protoreflect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// methods are the calls of the API, by name, with their answers.
func methods() map[string]protoreflect.MessageDescriptor {
	all := map[string]protoreflect.MessageDescriptor{}
	services := conductordv1.File_conductord_v1_service_proto.Services()
	for i := range services.Len() {
		service := services.Get(i)
		for j := range service.Methods().Len() {
			method := service.Methods().Get(j)
			all[string(service.Name())+"/"+string(method.Name())] = method.Output()
		}
	}
	return all
}

// marked is a cluster in which every value and every text of a program has a canary.
type marked struct {
	*tenants
	own  tenant
	made canaries
}

// hide makes principal "support" an administrator, with or without values.
func (m *marked) hide(hide bool) {
	m.t.Helper()
	grants := []access.Grant{{Role: access.Administrator, Boards: access.AllBoards}}
	if err := m.operator.SavePrincipal(m.t.Context(), access.Principal{Name: "support", HideValues: hide, Grants: grants}); err != nil {
		m.t.Fatal(err)
	}
}

func newMarked(t *testing.T) (*marked, *raftboard.Client, string) {
	t.Helper()
	m := &marked{tenants: newTenants(t, 1), own: tenant{board: "orders", mark: "schedule"}}
	ctx := t.Context()
	text, _ := m.token("support", time.Time{}, access.Grant{Role: access.Administrator, Boards: access.AllBoards})
	support := m.as(text)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	flow := logbook.FlowDetail{ID: logbook.NewFlowID(), Name: "flow", Factory: logbook.Factory{Name: "factory", Args: m.made.value()},
		Store: logbook.Values{"s": m.made.value()}, Meta: logbook.Values{"m": m.made.value()}}
	book := logbook.Book{ID: logbook.NewBookID(), Name: "book", Meta: logbook.Values{"m": m.made.value()}, Flows: []logbook.FlowDetail{flow}}
	job := m.post(jobs.Posting{Name: "job", Book: &book})
	m.own.session = opened(t, support, time.Minute)
	must(support.Register(ctx, m.own.session, jobs.Entity{Kind: jobs.EntityConductor, Name: "c", Boards: []string{"orders"}, Metadata: logbook.Values{"m": m.made.value()}}))
	claimed, err := support.Claim(ctx, m.own.session, job, jobs.NewNonce())
	must(err)
	token, at := claimed.Job.Claim.Token, claimed.Job.ModifiedAt
	update := logbook.Update{Flow: flow.ID, Token: token, Sequence: 1, State: logbook.FlowRunning,
		Definition: &logbook.Definition{Hash: m.made.text(), Packed: []byte(m.made.text())},
		Atoms: []logbook.AtomChange{{Name: "step", Kind: logbook.KindTask, State: logbook.AtomRunning,
			Progress: &logbook.Progress{Done: 1, Details: m.made.value(), At: at},
			Attempts: []logbook.Attempt{
				{Action: logbook.ActionExecute, Number: 1, Token: token, StartedAt: at, EndedAt: at, Result: m.made.value(), Stderr: m.made.text()},
				{Action: logbook.ActionRevert, Number: 1, Token: token, StartedAt: at, EndedAt: at, Failure: m.made.failure(), Failures: []logbook.Failure{*m.made.failure()}},
			}}}}
	verdicts, err := support.Update(ctx, update)
	must(errors.Join(append(verdicts, err)...))
	running := logbook.AtomChange{Name: "running", Kind: logbook.KindTask, State: logbook.AtomRunning, Attempts: []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, Token: token, StartedAt: at}}}
	recorded := logbook.AtomChange{Name: "running", Kind: logbook.KindTask, Checkpoints: []logbook.Checkpoint{{Name: "row", Value: m.made.value(), At: at}}}
	verdicts, err = support.Update(ctx, logbook.Update{Flow: flow.ID, Token: token, Sequence: 2, Atoms: []logbook.AtomChange{running, recorded}})
	must(errors.Join(append(verdicts, err)...))
	last := logbook.Update{Flow: flow.ID, Token: token, Sequence: 3, State: logbook.FlowFailure, Cause: m.made.failure()}
	must(support.Trash(ctx, jobs.Ending{Job: job, Token: token, Update: &last, Reason: m.made.text(), Failure: m.made.failure()}))
	_, err = support.Intervene(ctx, logbook.Intervention{ID: uuid.New(), Flow: flow.ID, Kind: logbook.InterveneComplete, Step: "step", By: "ann", Hold: true, Result: m.made.value()})
	must(err)
	_, err = support.SaveSchedule(ctx, schedules.Schedule{Board: "orders", Name: "schedule", Rule: "@yearly", Posting: jobs.Posting{Name: "slot", Kind: "k", Details: m.made.value(), Store: logbook.Values{"s": m.made.value()}}})
	must(err)
	m.own.job, m.own.book, m.own.flow = job, book.ID, flow.ID
	m.own.claimed, m.own.token = job, token
	m.post(jobs.Posting{Name: "keyed", Kind: "k", Key: "the-key", Hold: true})
	return m, support, text
}

// post posts a job to the board, with canaries.
func (m *marked) post(posting jobs.Posting) jobs.JobID {
	m.t.Helper()
	posting.Board, posting.Details, posting.Store = "orders", m.made.value(), logbook.Values{"s": m.made.value()}
	job, err := jobs.PostOne(m.t.Context(), m.operator, posting)
	if err != nil {
		m.t.Fatal(err)
	}
	return job.ID
}

// everyCall returns a request of each call whose answer can contain data. Calls that change data
// come last.
func (m *marked) everyCall() (names []string, requests map[string]string) {
	m.t.Helper()
	requests = m.own.requests()
	maps.Copy(requests, ofCluster)
	maps.Copy(requests, ofAll)
	free := m.post(jobs.Posting{Name: "free", Kind: "k"})
	m.post(jobs.Posting{Name: "next", Kind: "k"})
	nonce := jobs.NewNonce()
	maps.Copy(requests, map[string]string{
		"BoardService/Post":      `{"postings": [{"board": "orders", "name": "n", "kind": "k", "key": "the-key"}]}`,
		"BoardService/Claim":     fmt.Sprintf(`{"session": %q, "job": %q, "nonce": %q}`, m.own.session, free, nonce),
		"BoardService/ClaimNext": fmt.Sprintf(`{"claim": {"session": %q, "boards": ["orders"], "kinds": ["k"], "nonce": %q}}`, m.own.session, jobs.NewNonce()),
		"BoardService/Execute":   fmt.Sprintf(`{"commands": [{"claim": {"session": %q, "job": %q, "nonce": %q}}, {"post": {"postings": [{"board": "orders", "name": "n", "kind": "k", "key": "the-key"}]}}]}`, m.own.session, free, nonce),
		"BoardService/Bulk":      `{"action": "suspend", "query": {"board": "orders"}, "dryRun": true}`,
		"SessionService/Open":    fmt.Sprintf(`{"opening": {"id": %q, "name": "s"}}`, jobs.NewSessionID()),
		"ScheduleService/Save":   `{"schedule": {"board": "orders", "name": "other", "rule": "@daily", "posting": {"name": "n", "kind": "k"}}}`,
		"BoardService/FindIDs":   fmt.Sprintf(`{"noun": "job", "prefix": %q}`, m.own.job.String()[:8]),
		"ScheduleService/Get":    `{"board": "orders", "name": "schedule", "upcoming": 1, "history": 10}`,
	})
	changing := []string{"BoardService/Post", "BoardService/Claim", "BoardService/Execute", "BoardService/ClaimNext", "BoardService/Intervene"}
	for name, answer := range methods() {
		if name == "StreamService/Carry" || name == "BoardService/Watch" || answer.Name() == "Done" || slices.Contains(changing, name) {
			continue // streams are watched below, and Done has no fields
		}
		if requests[name] == "" {
			m.t.Errorf("there is no request of %s: add one", name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return append(names, changing...), requests
}

// withValues are the calls whose answers have canaries for a caller that may see values.
var withValues = []string{
	"BoardService/GetJob", "BoardService/WaitJob", "BoardService/ListJobs", "BoardService/Explain", "BoardService/ListErrors", "BoardService/Post",
	"BoardService/Claim", "BoardService/ClaimNext", "LogbookService/GetFlow", "LogbookService/GetCheckpoints", "LogbookService/GetBook", "LogbookService/ListBooks", "SessionService/ListEntities", "ScheduleService/Get",
	"ClusterService/Backup",
}

// TestValuesAreHidden makes every call as a principal that may not see values: no answer, unary or on
// a stream, has a value or a text of a program. The same calls of a principal that may see values
// return them.
func TestValuesAreHidden(t *testing.T) {
	t.Parallel()
	m, support, token := newMarked(t)
	for _, hide := range []bool{false, true} {
		m.hide(hide)
		names, requests := m.everyCall()
		for _, name := range names {
			for _, stale := range []bool{false, true} {
				request := requests[name]
				if stale && request != `{}` {
					request = strings.TrimSuffix(request, "}") + `, "stale": true}`
				}
				status, answer := m.call(0, token, name, request)
				has := strings.Contains(answer, "canary")
				if want := slices.Contains(withValues, name) && !hide; !stale && has != want || stale && has && hide {
					t.Errorf("%s, hidden %t, stale %t: %d %.300q", name, hide, stale, status, answer)
				}
			}
		}
		if streamed := m.streamed(support); strings.Contains(streamed, "canary") == hide {
			t.Errorf("streams, hidden %t: %s", hide, streamed)
		}
	}
}

// streamed returns the answers of the calls that streams carry.
func (m *marked) streamed(client *raftboard.Client) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	job, jobErr := client.Job(ctx, m.own.job)
	flow, flowErr := client.FlowDetail(ctx, m.own.flow)
	if err := errors.Join(jobErr, flowErr); err != nil {
		m.t.Fatal(err)
	}
	said := fmt.Sprintf("%s %s %s %v", job.Reason, job.Details, flow.Store, flow.Cause)
	for event, err := range client.Watch(ctx, jobs.Watch{After: &jobs.Position{}, Job: m.own.job}) {
		if err != nil {
			m.t.Fatal(err)
		}
		if said += " " + event.Reason; event.Kind == jobs.EventTrashed {
			break
		}
	}
	return said
}
