package node_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// TestCountsAreOfOwnBoards: a conductor and a worker also serve other tenants. The counts that a
// caller sees of them include only the caller's boards.
func TestCountsAreOfOwnBoards(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	ctx := t.Context()
	session := opened(t, c.operator, time.Minute)
	boards := []string{"mine/a", "other/b"}
	for _, kind := range []string{jobs.EntityConductor, jobs.EntityWorker} {
		if err := c.operator.Register(ctx, session, jobs.Entity{Kind: kind, Name: "shared", Boards: boards, JobKinds: []string{"k"}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, board := range []string{"mine/a", "other/b", "other/b"} {
		job, err := jobs.PostOne(ctx, c.operator, jobs.Posting{Board: board, Name: "n", Kind: "k"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.operator.Claim(ctx, session, job.ID, jobs.NewNonce()); err != nil {
			t.Fatal(err)
		}
	}
	foreign := c.newTenant("other/c", "foreign")
	held := fmt.Sprintf(`{"session": %q, "holds": [{"id": {"flow": %q, "step": "s", "action": "execute", "attempt": 1}, "stopping": true}], "wait": "60s"}`, session, foreign.flow)
	everywhere, _ := c.token("auditor", time.Time{}, access.Grant{Role: access.Viewer, Boards: access.AllBoards}, access.Grant{Role: access.Worker, Boards: access.AllBoards})
	if status, answer := c.call(0, everywhere, "WorkerService/Pull", strings.Replace(held, "60s", "0s", 1)); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	mine, _ := c.token("mine", time.Time{}, access.Grant{Role: access.Viewer, Boards: "mine/*"})
	for _, row := range []struct{ name, token, claims, holds string }{
		{"of its own boards", mine, `"claims":1}`, ""},
		{"of all boards", everywhere, `"claims":3}`, `"holds":1`},
	} {
		_, entities := c.call(0, row.token, "SessionService/ListEntities", `{"kind": "conductor", "name": "shared"}`)
		if !strings.Contains(entities, row.claims) {
			t.Errorf("claims %s: %s", row.name, entities)
		}
		_, workers := c.call(0, row.token, "WorkerService/List", `{}`)
		if !strings.Contains(workers, row.claims[:len(row.claims)-1]) || strings.Contains(workers, `"holds"`) != (row.holds != "") || !strings.Contains(workers, row.holds) {
			t.Errorf("attempts %s: %s", row.name, workers)
		}
	}
}

// TestCursorsNameNothingHidden reads each list page by page. No answer and no next cursor names an
// object that is hidden from the caller, and each visible object is found once.
func TestCursorsNameNothingHidden(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	names := []string{"a", "mine-1", "mine-22", "z", "zz1", "zz2", "zzz"}
	for _, name := range names { // before and after its own names, by order and by length
		c.newTenant("board-"+name, name)
	}
	token, _ := c.token("reader", time.Time{}, access.Grant{Role: access.Viewer, Boards: "board-mine-*"})
	digits := regexp.MustCompile(`[0-9a-f]{40,}`)
	lists := []string{"BoardService/ListBoards", "LogbookService/ListBooks", "SessionService/ListEntities", "ScheduleService/List", "SessionService/ListSessions"}
	for i := range 4 * len(lists) {
		name, limit := lists[i%len(lists)], i/len(lists)+1
		all, pages, after := "", 0, ""
		for ; pages < 20; pages++ {
			status, answer := c.call(0, token, name, fmt.Sprintf(`{"limit": %d, "after": %q}`, limit, after))
			if status != http.StatusOK {
				t.Fatalf("%s after %q: %d %s", name, after, status, answer)
			}
			all += answer
			next := regexp.MustCompile(`"next":"([^"T]*)"`).FindStringSubmatch(answer)
			if next == nil {
				break
			}
			after = next[1]
		}
		all = digits.ReplaceAllStringFunc(all, func(text string) string {
			decoded, _ := hex.DecodeString(text)
			return text + string(decoded)
		})
		for _, hidden := range []string{"board-a", "board-z", `"a"`, `"z"`, "\x01a", "\x01z", "\x03zzz"} {
			if strings.Contains(all, hidden) {
				t.Errorf("%s reveals %q: %q", name, hidden, all)
			}
		}
		for _, own := range []string{"mine-1", "mine-22"} {
			if name != "SessionService/ListSessions" && strings.Count(all, `"name":"`+own)+strings.Count(all, `"name":"board-`+own) != 1 {
				t.Errorf("%s has %s not once: %s", name, own, all)
			}
		}
		if pages == 20 {
			t.Errorf("%s does not end", name)
		}
	}
}
