package dashboard_test

import (
	"net/http"
	"testing"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// The audit log is shown to administrators only, and its filter is in the address.
func TestAuditPage(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.principal(access.Principal{Name: "chief", Grants: []access.Grant{{Role: access.Administrator, Boards: access.AllBoards}}})
	posted, err := jobs.PostOne(t.Context(), s.operator, jobs.Posting{Board: "one", Name: "mine", Kind: "work"})
	if err != nil {
		t.Fatal(err)
	}
	id := posted.ID.String()
	s.request(http.MethodPost, "chief", "/dashboard/jobs/"+id+"/suspend", nil)
	const entry = `href="/dashboard/audit"`
	for _, row := range []struct {
		who, path string
		status    int
		has, not  []string
	}{
		{"chief", "audit?target=" + id, 200, []string{entry, ">chief</th>", "conductord audit search --target " + id}, nil},
		{"chief", "audit?principal=viewer", 200, []string{"No record matches", "--principal viewer"}, []string{">chief</th>"}},
		{"chief", "audit?from=2030-01-02T03:04&to=2031-01-02T03:04", 200, []string{"--since &#39;2030-01-02T03:04:00Z&#39; --until &#39;2031-01-02T03:04:00Z&#39;"}, nil},
		{"chief", "audit?from=soon", 400, []string{"field from is"}, nil},
		{"viewer", "audit", 403, nil, []string{entry}},
	} {
		response, text := s.request(http.MethodGet, row.who, "/dashboard/"+row.path, nil)
		if response.StatusCode != row.status {
			t.Errorf("%s by %s: status %d, want %d", row.path, row.who, response.StatusCode, row.status)
		}
		s.holds(text, row.path+" of "+row.who, row.has, row.not)
	}
}
