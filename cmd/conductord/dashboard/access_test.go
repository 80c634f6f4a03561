package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/conductord/conductord/jobs/access"
)

// Administrators see principals and tokens, and can delete principals and revoke tokens. Others see
// nothing of them.
func TestAccessPage(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.principal(access.Principal{Name: "admin", Grants: []access.Grant{{Role: access.Administrator, Boards: access.AllBoards}}})
	principals, err := s.operator.Principals(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	id := ""
	for _, p := range principals.Items {
		if p.Name == "viewer" {
			id = p.Tokens[0].ID.String()
		}
	}
	_, page := s.request(http.MethodGet, "admin", "/dashboard/access", nil)
	s.holds(page, "the page of an administrator", []string{"viewer of one", "operator of all boards", "<td>hidden</td>", id, `/access/viewer/revoke"`, "conductord token revoke viewer", ">Access</a>"}, []string{s.tokens["viewer"]})
	refused, page := s.request(http.MethodGet, "operator", "/dashboard/access", nil)
	s.holds(page, "the page of an operator", []string{"has no permission"}, []string{id, ">Access</a>"})
	if refused.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", refused.StatusCode)
	}
	if response, _ := s.request(http.MethodPost, "operator", "/dashboard/access/viewer/revoke", url.Values{"token": {id}}); response.StatusCode != http.StatusForbidden {
		t.Errorf("an operator revokes a token: status %d", response.StatusCode)
	}
	if response, _ := s.request(http.MethodGet, "viewer", "/dashboard/jobs", nil); response.StatusCode != http.StatusOK {
		t.Fatalf("status %d", response.StatusCode)
	}
	if response, text := s.request(http.MethodPost, "admin", "/dashboard/access/viewer/revoke", url.Values{"token": {id}}); response.StatusCode != http.StatusSeeOther {
		t.Fatalf("status %d: %s", response.StatusCode, text)
	}
	if response, _ := s.request(http.MethodGet, "viewer", "/dashboard/jobs", nil); response.StatusCode != http.StatusSeeOther || !strings.Contains(response.Header.Get("Location"), "sign-in") {
		t.Errorf("a revoked token: status %d", response.StatusCode)
	}
	if response, _ := s.request(http.MethodPost, "admin", "/dashboard/access/blind/delete", nil); response.StatusCode != http.StatusSeeOther {
		t.Errorf("status %d", response.StatusCode)
	}
	_, page = s.request(http.MethodGet, "admin", "/dashboard/access", nil)
	s.holds(page, "the page after that", []string{`<span class="quiet">none</span>`}, []string{"principal-blind", id})
}
