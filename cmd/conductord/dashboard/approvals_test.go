package dashboard_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

const answerSchema = `{"required": ["ticket", "size"], "properties": {"ticket": {"type": "string", "title": "Ticket"}, "size": {"type": "integer"},
	"share": {"type": "number"}, "urgent": {"type": "boolean"}, "tier": {"enum": ["gold", 2]}, "hosts": {"type": "array"}}}`

// asking posts a job of a principal on board "one" whose step asks for an approval by two dbas.
func (s *site) asking(step, fields string) jobs.Job {
	s.t.Helper()
	book := logbook.Book{ID: logbook.NewBookID(), Name: "deletion"}
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "deletion", Factory: logbook.Factory{Name: "work"}}}
	job := s.claim(jobs.Posting{Board: "one", Name: "deletion", Book: &book})
	now := time.Now().UTC()
	approval := &logbook.Approval{Text: "Delete <sda>?", Need: []logbook.Need{{Role: "dba", Count: 2}}, Fields: json.RawMessage(fields), Remind: []logbook.Reminder{{At: now.Add(time.Hour)}}}
	attempt := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, StartedAt: now, Asked: 1, Wait: &logbook.Wait{Since: now, Until: now.Add(48 * time.Hour), Approval: approval}}
	results, err := s.operator.Update(s.t.Context(), logbook.Update{Flow: job.Flow, Token: job.Claim.Token, Sequence: 1, State: logbook.FlowRunning,
		Atoms: []logbook.AtomChange{{Name: step, Kind: logbook.KindTask, State: logbook.AtomPending, Attempts: []logbook.Attempt{attempt}}}})
	if err != nil || results[0] != nil {
		s.t.Fatal(err, results)
	}
	return job
}

func (s *site) approver(name string, roles ...string) {
	s.principal(access.Principal{Name: name, Grants: []access.Grant{{Role: access.Approver, Boards: "one"}}, Approves: roles})
}

// TestApprovalPages: the pages list what waits, show the fields as a form, and offer the decisions that the user may make.
func TestApprovalPages(t *testing.T) {
	t.Parallel()
	s := open(t)
	job := s.asking("ask/1", answerSchema)
	s.principal(access.Principal{Name: "admin", Grants: []access.Grant{{Role: access.Administrator, Boards: access.AllBoards}}})
	s.principal(access.Principal{Name: "other", Grants: []access.Grant{{Role: access.Approver, Boards: "two"}}})
	s.approver("ann", "dba")
	s.approver("eve", "hr")
	page := "/dashboard/approvals/" + job.ID.String() + "/ask%2F1"
	for _, row := range []struct {
		who, path string
		status    int
		has, not  []string
	}{
		{"ann", "/dashboard/approvals", 200, []string{page + `"`, "Delete &lt;sda&gt;?", "2 of dba", `aria-current="page">Approvals (1)<`}, []string{"Access control is off"}},
		{"other", "/dashboard/approvals", 200, []string{"No step waits for an approval", `>Approvals<`}, []string{"Delete"}},
		{"viewer", "/dashboard/jobs", 200, []string{`>Approvals (1)<`}, nil},
		{"ann", page, 200, []string{page + `/approve"`, page + `/reject"`, `name="field-ticket" required maxlength`, ">Ticket</label>", `name="field-size" required type="number" step="1"`, `name="field-share" type="number" step="any"`,
			`<option>true</option>`, `<option>gold</option><option>2</option>`, `<textarea id="field-hosts-approve"`, `name="wait" value="`, "Reminders", "No decisions yet"}, []string{page + `/withdraw"`, page + `/override"`, `name="by"`}},
		{"eve", page, 200, []string{"none of the needed roles"}, []string{page + `/approve"`}},
		{"viewer", page, 200, []string{"Delete &lt;sda&gt;?"}, []string{page + `/approve"`, "none of the needed roles"}},
		{"blind", page, 200, []string{"2 of dba"}, []string{"sda"}},
		{"admin", page, 200, []string{page + `/override"`}, []string{page + `/approve"`}},
		{"other", page, 404, nil, []string{"sda"}},
	} {
		response, text := s.request(http.MethodGet, row.who, row.path, nil)
		_, main, _ := strings.Cut(text, "<body")
		if response.StatusCode != row.status {
			t.Errorf("%s of %s: status %d, want %d\n%s", row.path, row.who, response.StatusCode, row.status, text)
		}
		for _, part := range row.has {
			if !strings.Contains(main, part) {
				t.Errorf("%s of %s does not show %q:\n%s", row.path, row.who, part, main)
			}
		}
		for _, part := range row.not {
			if strings.Contains(main, part) {
				t.Errorf("%s of %s shows %q:\n%s", row.path, row.who, part, main)
			}
		}
	}
}

// TestDecisionsByForm: forms decide as the user, with answers of the schema's types. The cluster refuses all others.
func TestDecisionsByForm(t *testing.T) {
	t.Parallel()
	s := open(t)
	job := s.asking("ask", answerSchema)
	s.principal(access.Principal{Name: "admin", Grants: []access.Grant{{Role: access.Administrator, Boards: access.AllBoards}}})
	for _, name := range []string{"ann", "bob"} {
		s.approver(name, "dba")
	}
	s.approver("eve", "hr")
	read := func() jobs.StepApproval {
		a, err := s.operator.Approval(t.Context(), job.ID, "ask")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	wait, page := fmt.Sprint(read().Wait.Number), "/dashboard/approvals/"+job.ID.String()+"/ask"
	full := url.Values{"wait": {wait}, "id": {"1"}, "field-ticket": {"7"}, "field-size": {"3"}, "field-urgent": {"true"}, "field-tier": {"2"}, "field-hosts": {`["a"]`}, "field-share": {""}}
	with := func(pairs ...string) url.Values {
		form := url.Values{}
		for name, value := range full {
			form[name] = value
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			form.Set(pairs[i], pairs[i+1])
		}
		return form
	}
	for _, row := range []struct {
		who, verb string
		form      url.Values
		status    int
		text      string
		standing  int
		outcome   logbook.Outcome
	}{
		{"ann", "approve", with("field-hosts", "a,b"), 400, "field hosts is", 0, ""},
		{"ann", "approve", with("field-size", "many"), 400, "field size is", 0, ""},
		{"ann", "approve", with("field-ticket", ""), 400, "ticket", 0, ""},
		{"ann", "approve", with("wait", "1"), 409, "waits for a new approval", 0, ""},
		{"ann", "approve", with("wait", "x"), 400, "number of the wait", 0, ""},
		{"eve", "approve", full, 403, "none of the needed roles", 0, ""},
		{"viewer", "approve", full, 403, "", 0, ""},
		{"ann", "reject", with("id", "2"), 400, "need a reason", 0, ""},
		{"ann", "paint", full, 404, "", 0, ""},
		{"ann", "approve", full, 303, "", 1, ""},
		{"ann", "approve", full, 303, "", 1, ""}, // the same form
		{"ann", "withdraw", with("id", "3"), 303, "", 0, ""},
		{"ann", "override", with("id", "4", "kind", "approve", "reason", "fire"), 403, "", 0, ""},
		{"ann", "approve", with("id", "5"), 303, "", 1, ""},
		{"bob", "approve", with("id", "6", "reason", "fine"), 303, "", 2, logbook.Approved},
		{"admin", "override", with("id", "7", "kind", "reject", "reason", "late"), 409, "approved by ann, bob", 2, logbook.Approved},
	} {
		response, text := s.request(http.MethodPost, row.who, page+"/"+row.verb, row.form)
		a := read()
		if n := len(a.Wait.Approval.Standing()); response.StatusCode != row.status || !strings.Contains(text, row.text) || n != row.standing || a.Outcome != row.outcome {
			t.Errorf("%s by %s: status %d, %d approvals, outcome %q; want %d with %q, %d, %q\n%s", row.verb, row.who, response.StatusCode, n, a.Outcome, row.status, row.text, row.standing, row.outcome, text)
		}
	}
	if got := string(read().Wait.Approval.Standing()[0].Answers); got != `{"hosts":["a"],"size":3,"ticket":"7","tier":2,"urgent":true}` {
		t.Errorf("the answers are %s", got)
	}
	if _, text := s.request(http.MethodGet, "ann", page, nil); !strings.Contains(text, "approved by ann, bob at ") || strings.Contains(text, `/approve"`) {
		t.Errorf("after the end, the page is\n%s", text)
	}
	other := s.asking("other", "")
	id := fmt.Sprint(func() uint64 { a, _ := s.operator.Approval(t.Context(), other.ID, "other"); return a.Wait.Number }())
	if response, text := s.request(http.MethodPost, "admin", "/dashboard/approvals/"+other.ID.String()+"/other/override", url.Values{"wait": {id}, "id": {"1"}, "kind": {"reject"}, "reason": {"late"}}); response.StatusCode != http.StatusSeeOther {
		t.Errorf("the override: status %d\n%s", response.StatusCode, text)
	}
	if response, _ := s.request(http.MethodPost, "admin", page+"/override", full, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"); response.StatusCode != http.StatusForbidden {
		t.Errorf("a form of another site: status %d", response.StatusCode)
	}
}

// TestCountOfApprovals: the navigation counts the open approvals, up to a limit, and only when it is shown.
func TestCountOfApprovals(t *testing.T) {
	t.Parallel()
	s := open(t)
	counted := func(path string) string {
		_, text := s.request(http.MethodGet, "viewer", path, nil)
		_, after, _ := strings.Cut(text, ">Approvals")
		count, _, _ := strings.Cut(after, "</a>")
		return html.UnescapeString(count)
	}
	for range 20 {
		s.asking("ask", `{}`)
	}
	if got, want := counted("/dashboard/"), " (20)"; got != want {
		t.Errorf("the count is %q, want %q", got, want)
	}
	s.asking("ask", `{}`)
	if got, want := counted("/dashboard/"), " (20+)"; got != want {
		t.Errorf("the count is %q, want %q", got, want)
	}
}
