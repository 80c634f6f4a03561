package dashboard_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/schedules"
)

// follow returns the page that a browser shows for a link: browsers and net/http resolve "." and "..", also
// as %2E.
func (s *site) follow(who, page, link string) (status int, text string) {
	s.t.Helper()
	target, err := url.Parse(link)
	if err != nil {
		s.t.Fatal(err)
	}
	base := &url.URL{Path: "/dashboard/" + page}
	resolved := base.ResolveReference(target).EscapedPath()
	for _, part := range strings.Split(strings.ToLower(resolved), "/") {
		if part = strings.ReplaceAll(part, "%2e", "."); part == "." || part == ".." {
			s.t.Errorf("page %s links to %s, which browsers shorten", page, link)
		}
	}
	response, text := s.request(http.MethodGet, who, resolved, nil)
	return response.StatusCode, text
}

// For every name of a board, a schedule or a conductor, its page and its actions work.
func TestPagesOfOddNames(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx := t.Context()
	s.principal(access.Principal{Name: "admin", Grants: []access.Grant{{Role: access.Administrator, Boards: access.AllBoards}}})
	names := []string{".", "..", "~", "~.", "~~", "a/b", "%2e", "a?b#c", "...", "-x", "--limit"}
	for _, name := range names {
		s.post(name, "mine")
		if _, err := s.operator.SaveSchedule(ctx, schedules.Schedule{Board: name, Name: name, Rule: "@daily", Posting: jobs.Posting{Kind: "work"}}); err != nil {
			t.Fatal(err)
		}
		if err := s.operator.DrainConductor(ctx, jobs.DrainCommand{Conductor: name, Absent: true}); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct{ page, path, action, done string }{
		{"boards", "boards/", "/pause", "paused"}, {"schedules", "schedules/", "/pause", "paused"}, {"conductors", "conductors/", "/undrain", "/drain"},
	} {
		_, list := s.request(http.MethodGet, "admin", "/dashboard/"+row.page, nil)
		seen := map[string]bool{}
		for _, found := range regexp.MustCompile(`href="(/dashboard/`+row.path+`[^"]+)"`).FindAllStringSubmatch(list, -1) {
			if seen[found[1]] {
				continue
			}
			seen[found[1]] = true
			status, text := s.follow("admin", row.page, found[1])
			if status != http.StatusOK || !strings.Contains(text, found[1]+row.action) {
				t.Errorf("link %s of page %s: status %d\n%s", found[1], row.page, status, facts(text))
				continue
			}
			response, text := s.request(http.MethodPost, "admin", found[1]+row.action, nil)
			if response.StatusCode != http.StatusSeeOther {
				t.Errorf("%s: status %d\n%s", found[1]+row.action, response.StatusCode, text)
				continue
			}
			if status, text := s.follow("admin", row.page, response.Header.Get("Location")); status != http.StatusOK || !strings.Contains(text, row.done) {
				t.Errorf("after %s: status %d\n%s", found[1]+row.action, status, facts(text))
			}
		}
		if want := len(names); len(seen) < want {
			t.Errorf("page %s has links to %d of %d names", row.page, len(seen), want)
		}
	}
	for _, name := range names {
		if b, err := s.operator.BoardStatus(ctx, name); err != nil || b.Pause == nil {
			t.Errorf("board %q is not paused: %v", name, err)
		}
	}
}

// A board that has only schedules has a page.
func TestBoardOfSchedulesAlone(t *testing.T) {
	t.Parallel()
	s := open(t)
	if _, err := s.operator.SaveSchedule(t.Context(), schedules.Schedule{Board: "one", Name: "nightly", Rule: "@daily", Posting: jobs.Posting{Kind: "work"}}); err != nil {
		t.Fatal(err)
	}
	if response, text := s.request(http.MethodGet, "viewer", "/dashboard/boards/one", nil); response.StatusCode != http.StatusOK || !strings.Contains(text, `schedules?board=one`) {
		t.Errorf("status %d\n%s", response.StatusCode, text)
	}
}
