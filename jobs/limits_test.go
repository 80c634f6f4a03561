package jobs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// limits are small, so that the rows show their edges.
var limits = logbook.Limits{Name: 8, Value: 16, Command: 1 << 10, Steps: 2}

// check is the verdict on an input: empty, or the wrong field and the exceeded limit.
type check struct {
	field string
	limit int64 // 0: invalid, not too large
}

var fine = check{}

func (want check) compare(t *testing.T, name string, err error) {
	t.Helper()
	got := fine
	var invalid *logbook.InvalidError
	var limit *logbook.LimitError
	switch {
	case errors.As(err, &limit):
		got = check{limit.Field, limit.Limit}
		if limit.Size <= limit.Limit {
			t.Errorf("%s: refused at %d with the limit %d", name, limit.Size, limit.Limit)
		}
	case errors.As(err, &invalid):
		got = check{invalid.Field, 0}
	case err != nil:
		t.Errorf("%s: an error of no kind: %v", name, err)
	}
	if got != want {
		t.Errorf("%s: got %+v (%v), want %+v", name, got, err, want)
	}
}

func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("n", i)
	}
	return list
}

func text(n int) string { return strings.Repeat("x", n) }

func quoted(n int) json.RawMessage { return json.RawMessage(`"` + text(n-2) + `"`) }

func book(flows int) *logbook.Book {
	b := &logbook.Book{ID: logbook.NewBookID(), Name: "trip"}
	for range flows {
		b.Flows = append(b.Flows, logbook.FlowDetail{
			ID: logbook.NewFlowID(), Name: "travel", Factory: logbook.Factory{Name: "travel"},
		})
	}
	return b
}

func TestCheckPosting(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(*jobs.Posting)
		want  check
	}{
		{"as it is", func(*jobs.Posting) {}, fine},
		{"no name", func(p *jobs.Posting) { p.Name = "" }, check{"posting name", 0}},
		{"name at the limit", func(p *jobs.Posting) { p.Name = text(8) }, fine},
		{"name over it", func(p *jobs.Posting) { p.Name = text(9) }, check{"posting name", 8}},
		{"board at the limit", func(p *jobs.Posting) { p.Board = text(8) }, fine},
		{"board over it", func(p *jobs.Posting) { p.Board = text(9) }, check{"posting board", 8}},
		{"kind at the limit", func(p *jobs.Posting) { p.Kind = text(8) }, fine},
		{"kind over it", func(p *jobs.Posting) { p.Kind = text(9) }, check{"posting kind", 8}},
		{"details at the limit", func(p *jobs.Posting) { p.Details = quoted(16) }, fine},
		{"details over it", func(p *jobs.Posting) { p.Details = quoted(17) }, check{"posting details", 16}},
		{"details that are no JSON", func(p *jobs.Posting) { p.Details = json.RawMessage("{") }, check{"posting details", 0}},
		{"store at the limit", func(p *jobs.Posting) { p.Store = logbook.Values{"a": quoted(16)} }, fine},
		{"store over it", func(p *jobs.Posting) { p.Store = logbook.Values{"a": quoted(17)} }, check{"posting store.a", 16}},
		{"a saved book", func(p *jobs.Posting) { p.BookID = logbook.NewBookID() }, fine},
		{"a flow of a saved book", func(p *jobs.Posting) { p.BookID, p.Flow = logbook.NewBookID(), logbook.NewFlowID() }, fine},
		{"a flow of no book", func(p *jobs.Posting) { p.Flow = logbook.NewFlowID() }, check{"posting flow", 0}},
		{"a kind beside a book", func(p *jobs.Posting) { p.BookID, p.Kind = logbook.NewBookID(), "k" }, check{"posting kind", 0}},
		{"its own book", func(p *jobs.Posting) { p.Book = book(1) }, fine},
		{"its own book, said twice", func(p *jobs.Posting) { p.Book = book(1); p.BookID = p.Book.ID }, fine},
		{"two books", func(p *jobs.Posting) { p.Book, p.BookID = book(1), logbook.NewBookID() }, check{"posting book_id", 0}},
		{"two flows and none named", func(p *jobs.Posting) { p.Book = book(2) }, check{"posting flow", 0}},
		{"two flows and one named", func(p *jobs.Posting) { p.Book = book(2); p.Flow = p.Book.Flows[1].ID }, fine},
		{"a bad book", func(p *jobs.Posting) { p.Book = book(1); p.Book.Name = "" }, check{"book name", 0}},
	} {
		p := jobs.Posting{Name: "job"}
		row.spoil(&p)
		row.want.compare(t, row.name, jobs.CheckPosting(limits, &p))
	}
}

func TestCheckEnding(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(*jobs.Ending)
		want  check
	}{
		{"as it is", func(*jobs.Ending) {}, fine},
		{"no job", func(e *jobs.Ending) { e.Job = jobs.JobID{} }, check{"ending job", 0}},
		{"no token", func(e *jobs.Ending) { e.Token = jobs.Token{} }, check{"ending token", 0}},
		{"reason at the limit", func(e *jobs.Ending) { e.Reason = text(jobs.MaxReason) }, fine},
		{"reason over it", func(e *jobs.Ending) { e.Reason = text(jobs.MaxReason + 1) }, check{"ending reason", jobs.MaxReason}},
		{"reason that is no text", func(e *jobs.Ending) { e.Reason = "\xff" }, check{"ending reason", 0}},
		{"longest delay", func(e *jobs.Ending) { e.Delay = jobs.MaxDelay }, fine},
		{"longer delay", func(e *jobs.Ending) { e.Delay = jobs.MaxDelay + 1 }, check{"ending delay", 0}},
		{"negative delay", func(e *jobs.Ending) { e.Delay = -1 }, check{"ending delay", 0}},
		{"an update", func(e *jobs.Ending) { e.Update = &logbook.Update{Flow: logbook.NewFlowID()} }, fine},
		{"a bad update", func(e *jobs.Ending) { e.Update = &logbook.Update{} }, check{"update flow", 0}},
		{"a failure at the limit", func(e *jobs.Ending) { e.Failure = &logbook.Failure{Kind: "k", Message: text(16)} }, fine},
		{"a failure over it", func(e *jobs.Ending) { e.Failure = &logbook.Failure{Kind: "k", Message: text(17)} }, check{"ending failure", 16}},
		{"a failure of no kind", func(e *jobs.Ending) { e.Failure = &logbook.Failure{} }, check{"ending failure kind", 0}},
	} {
		e := jobs.Ending{Job: jobs.NewJobID(), Token: jobs.Token{Generation: 1, Index: 7}}
		row.spoil(&e)
		row.want.compare(t, row.name, jobs.CheckEnding(limits, &e))
	}
}

func TestCheckJobCommand(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(*jobs.JobCommand)
		want  check
	}{
		{"as it is", func(*jobs.JobCommand) {}, fine},
		{"no job", func(o *jobs.JobCommand) { o.Job = jobs.JobID{} }, check{"command job", 0}},
		{"nobody", func(o *jobs.JobCommand) { o.By = "" }, fine},
		{"by at the limit", func(o *jobs.JobCommand) { o.By = text(8) }, fine},
		{"by over it", func(o *jobs.JobCommand) { o.By = text(9) }, check{"command by", 8}},
		{"reason at the limit", func(o *jobs.JobCommand) { o.Reason = text(jobs.MaxReason) }, fine},
		{"reason over it", func(o *jobs.JobCommand) { o.Reason = text(jobs.MaxReason + 1) }, check{"command reason", jobs.MaxReason}},
		{"reason that is no text", func(o *jobs.JobCommand) { o.Reason = "\xff" }, check{"command reason", 0}},
	} {
		o := jobs.JobCommand{Job: jobs.NewJobID(), By: "ann"}
		row.spoil(&o)
		row.want.compare(t, row.name, jobs.CheckJobCommand(limits, &o))
	}
}

func TestCheckOpening(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(*jobs.Opening)
		want  check
	}{
		{"as it is", func(*jobs.Opening) {}, fine},
		{"no id", func(o *jobs.Opening) { o.ID = jobs.SessionID{} }, check{"session id", 0}},
		{"no name", func(o *jobs.Opening) { o.Name = "" }, check{"session name", 0}},
		{"name at the limit", func(o *jobs.Opening) { o.Name = text(8) }, fine},
		{"name over it", func(o *jobs.Opening) { o.Name = text(9) }, check{"session name", 8}},
		{"host at the limit", func(o *jobs.Opening) { o.Host = text(8) }, fine},
		{"host over it", func(o *jobs.Opening) { o.Host = text(9) }, check{"session host", 8}},
		{"negative pid", func(o *jobs.Opening) { o.PID = -1 }, check{"session pid", 0}},
		{"shortest ttl", func(o *jobs.Opening) { o.TTL = jobs.MinTTL }, fine},
		{"shorter ttl", func(o *jobs.Opening) { o.TTL = jobs.MinTTL - 1 }, check{"session ttl", 0}},
		{"longest ttl", func(o *jobs.Opening) { o.TTL = jobs.MaxTTL }, fine},
		{"longer ttl", func(o *jobs.Opening) { o.TTL = jobs.MaxTTL + 1 }, check{"session ttl", 0}},
		{"negative ttl", func(o *jobs.Opening) { o.TTL = -time.Second }, check{"session ttl", 0}},
	} {
		o := jobs.Opening{ID: jobs.NewSessionID(), Name: "node1"}
		row.spoil(&o)
		row.want.compare(t, row.name, jobs.CheckOpening(limits, &o))
	}
}

func TestCheckEntity(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(*jobs.Entity)
		want  check
	}{
		{"as it is", func(*jobs.Entity) {}, fine},
		{"no kind", func(e *jobs.Entity) { e.Kind = "" }, check{"entity kind", 0}},
		{"kind at the limit", func(e *jobs.Entity) { e.Kind = text(8) }, fine},
		{"kind over it", func(e *jobs.Entity) { e.Kind = text(9) }, check{"entity kind", 8}},
		{"name at the limit", func(e *jobs.Entity) { e.Name = text(8) }, fine},
		{"name over it", func(e *jobs.Entity) { e.Name = text(9) }, check{"entity name", 8}},
		{"host at the limit", func(e *jobs.Entity) { e.Host = text(8) }, fine},
		{"host over it", func(e *jobs.Entity) { e.Host = text(9) }, check{"entity host", 8}},
		{"boards at the limit", func(e *jobs.Entity) { e.Boards = names(jobs.MaxBoards) }, fine},
		{"boards over it", func(e *jobs.Entity) { e.Boards = names(jobs.MaxBoards + 1) }, check{"entity boards", jobs.MaxBoards}},
		{"a board over the limit", func(e *jobs.Entity) { e.Boards = []string{text(9)} }, check{"entity boards", 8}},
		{"kinds at the limit", func(e *jobs.Entity) { e.JobKinds = names(jobs.MaxKinds) }, fine},
		{"kinds over it", func(e *jobs.Entity) { e.JobKinds = names(jobs.MaxKinds + 1) }, check{"entity kinds", jobs.MaxKinds}},
		{"one kind twice", func(e *jobs.Entity) { e.JobKinds = []string{"a", "b", "a"} }, check{"entity kinds", 0}},
		{"jobs at the limit", func(e *jobs.Entity) { e.MaxJobs = jobs.MaxClaims }, fine},
		{"jobs over it", func(e *jobs.Entity) { e.MaxJobs = jobs.MaxClaims + 1 }, check{"entity max_jobs", jobs.MaxClaims}},
		{"negative jobs", func(e *jobs.Entity) { e.MaxJobs = -1 }, check{"entity max_jobs", 0}},
		{"negative pid", func(e *jobs.Entity) { e.PID = -1 }, check{"entity pid", 0}},
		{"metadata at the limit", func(e *jobs.Entity) { e.Metadata = logbook.Values{"a": quoted(16)} }, fine},
		{"all metadata at its bound", func(e *jobs.Entity) { e.Metadata = metadata(jobs.MaxMetadata) }, check{}},
		{"all metadata over it", func(e *jobs.Entity) { e.Metadata = metadata(jobs.MaxMetadata + 1) }, check{"entity metadata", jobs.MaxMetadata}},
		{"metadata over it", func(e *jobs.Entity) { e.Metadata = logbook.Values{"a": quoted(17)} }, check{"entity metadata.a", 16}},
	} {
		e := jobs.Entity{Kind: "worker", Name: "w1"}
		row.spoil(&e)
		row.want.compare(t, row.name, jobs.CheckEntity(limits, &e))
	}
}

func TestCheckClaimRequest(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(*jobs.ClaimRequest)
		want  check
	}{
		{"as it is", func(*jobs.ClaimRequest) {}, fine},
		{"no session", func(r *jobs.ClaimRequest) { r.Session = jobs.SessionID{} }, check{"claim session", 0}},
		{"no nonce", func(r *jobs.ClaimRequest) { r.Nonce = jobs.Nonce{} }, check{"claim nonce", 0}},
		{"claims at the limit", func(r *jobs.ClaimRequest) { r.Max = jobs.MaxClaims }, fine},
		{"claims over it", func(r *jobs.ClaimRequest) { r.Max = jobs.MaxClaims + 1 }, check{"claim max", jobs.MaxClaims}},
		{"negative claims", func(r *jobs.ClaimRequest) { r.Max = -1 }, check{"claim max", 0}},
		{"negative wait", func(r *jobs.ClaimRequest) { r.Wait = -1 }, check{"claim wait", 0}},
		{"boards at the limit", func(r *jobs.ClaimRequest) { r.Boards = names(jobs.MaxBoards) }, fine},
		{"boards over it", func(r *jobs.ClaimRequest) { r.Boards = names(jobs.MaxBoards + 1) }, check{"claim boards", jobs.MaxBoards}},
		{"one board twice", func(r *jobs.ClaimRequest) { r.Boards = []string{"a", "a"} }, check{"claim boards", 0}},
		{"kinds at the limit", func(r *jobs.ClaimRequest) { r.Kinds = names(jobs.MaxKinds) }, fine},
		{"kinds over it", func(r *jobs.ClaimRequest) { r.Kinds = names(jobs.MaxKinds + 1) }, check{"claim kinds", jobs.MaxKinds}},
		{"a kind without a name", func(r *jobs.ClaimRequest) { r.Kinds = []string{""} }, check{"claim kinds", 0}},
	} {
		r := jobs.ClaimRequest{Session: jobs.NewSessionID(), Nonce: jobs.NewNonce()}
		row.spoil(&r)
		row.want.compare(t, row.name, jobs.CheckClaimRequest(limits, &r))
	}
}

// metadata is small values with a total size in bytes, including their names.
func metadata(size int) logbook.Values {
	values := logbook.Values{}
	for n := 0; size > 0; n++ {
		name := fmt.Sprintf("%05d", n)
		const most = 16
		value := text(min(size-len(name), most) - 2)
		values[name] = json.RawMessage(`"` + value + `"`)
		size -= len(name) + len(value) + 2
		if size > 0 && size < 10 { // too little for a name and a value: the last value takes it
			values[name] = json.RawMessage(`"` + value[:len(value)-10+size] + `"`)
			size = 10
		}
	}
	return values
}

// TestTextsOfLimits: the texts have the words of the pages, and name all cases.
func TestTextsOfLimits(t *testing.T) {
	posting := jobs.NewPlainPosting("k", nil)
	for want, change := range map[string]func(*jobs.Posting){
		"posting retention is invalid: 5ms is not between 1s and 365 days":      func(p *jobs.Posting) { p.Retention = 5 * time.Millisecond },
		"posting deadline_after is invalid: 5ms is not between 1s and 365 days": func(p *jobs.Posting) { p.DeadlineAfter = 5 * time.Millisecond },
	} {
		changed := posting
		change(&changed)
		if err := jobs.CheckPosting(logbook.MaxLimits, &changed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	want := "claim expiry is invalid: 0s is not between 500ms and 365 days"
	if err := jobs.CheckExpiry(0); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if got := jobs.ErrSessionExpired.Error(); got != "the session has expired, or was closed" {
		t.Error(got)
	}
}
