package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// TestSignalByForm: the page of a job shows what its steps wait for, and sends the signal of a form.
func TestSignalByForm(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.principal(access.Principal{Name: "sender", Grants: []access.Grant{{Role: access.Signaller, Boards: "one"}, {Role: access.Viewer, Boards: "one"}}})
	job := s.asking("ask", "")
	now := time.Now().UTC()
	attempt := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, StartedAt: now, Asked: 1, Wait: &logbook.Wait{Signals: []string{"paid"}, Since: now, Until: now.Add(48 * time.Hour)}}
	results, err := s.operator.Update(t.Context(), logbook.Update{Flow: job.Flow, Token: job.Claim.Token, Sequence: 2,
		Atoms: []logbook.AtomChange{{Name: "payment", Kind: logbook.KindTask, State: logbook.AtomPending, Attempts: []logbook.Attempt{attempt}}}})
	if err != nil || results[0] != nil {
		t.Fatal(err, results)
	}
	page := "/dashboard/jobs/" + job.ID.String()
	if _, text := s.request(http.MethodGet, "sender", page, nil); !strings.Contains(text, "waits for signal paid until") || !strings.Contains(text, page+`/signal"`) || !strings.Contains(text, `name="signal" value="paid" required`) || !strings.Contains(text, "/ask\">Decide</a>") {
		t.Errorf("the page is\n%s", text)
	}
	if _, text := s.request(http.MethodGet, "viewer", page, nil); strings.Contains(text, page+`/signal"`) || !strings.Contains(text, "waits for signal paid until") {
		t.Errorf("the page of the viewer is\n%s", text)
	}
	for _, row := range []struct {
		who    string
		form   url.Values
		status int
		taken  string // data of the taken signal
	}{
		{"viewer", url.Values{"signal": {"paid"}}, 403, ""},
		{"sender", url.Values{"signal": {"paid"}, "data": {"{"}}, 400, ""},
		{"sender", url.Values{"signal": {"paid"}, "data": {"7"}, "reject": {"no"}}, 400, ""},
		{"sender", url.Values{"signal": {"paid"}, "data": {`{"amount": 7}`}}, 303, `{"amount":7}`},
	} {
		response, text := s.request(http.MethodPost, row.who, page+"/signal", row.form)
		detail, err := s.operator.FlowDetail(t.Context(), job.Flow)
		if err != nil {
			t.Fatal(err)
		}
		atom, _ := detail.Atom("payment")
		taken := ""
		if signal := atom.Attempts[0].Wait.Signal; signal != nil {
			taken = strings.ReplaceAll(string(signal.Data), " ", "")
		}
		if response.StatusCode != row.status || taken != row.taken {
			t.Errorf("%v by %s: status %d, and the step took %q; want %d and %q\n%s", row.form, row.who, response.StatusCode, taken, row.status, row.taken, text)
		}
	}
	if _, text := s.request(http.MethodGet, "sender", page, nil); strings.Contains(text, page+`/signal"`) {
		t.Errorf("after the signal, the page is\n%s", text)
	}
}
