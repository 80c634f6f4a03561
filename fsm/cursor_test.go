package fsm_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

// pages are the lists that are read with a cursor: each returns the number of rows of a page, and
// the next cursor.
func pages(m *fsm.Machine, kind string) map[string]func(after string, limit int) (int, string, error) {
	list := func(order jobs.Order, query jobs.Query) func(string, int) (int, string, error) {
		return func(after string, limit int) (int, string, error) {
			query.Order, query.After, query.Limit = order, after, limit
			page, err := m.Jobs(query)
			return len(page.Items), page.Next, err
		}
	}
	return map[string]func(after string, limit int) (int, string, error){
		"jobs":          list("", jobs.Query{}),
		"jobs of kind":  list("", jobs.Query{Kind: kind}),
		"newest jobs":   list(jobs.OrderNewest, jobs.Query{}),
		"jobs by claim": list(jobs.OrderClaim, jobs.Query{Board: jobs.DefaultBoard}),
		"of a kind":     list(jobs.OrderClaim, jobs.Query{Board: jobs.DefaultBoard, Kind: kind}),
		"claims": func(after string, limit int) (int, string, error) {
			page, err := m.Claims(jobs.ClaimQuery{After: after, Limit: limit})
			return len(page.Items), page.Next, err
		},
		"errors": func(after string, limit int) (int, string, error) {
			page, err := m.Errors(jobs.ErrorQuery{After: after, Limit: limit})
			return len(page.Items), page.Next, err
		},
		"books": func(after string, limit int) (int, string, error) {
			page, err := m.Books(after, limit)
			return len(page.Items), page.Next, err
		},
		"boards": func(after string, limit int) (int, string, error) {
			page, err := m.BoardList(after, limit, time.Now())
			return len(page.Items), page.Next, err
		},
		"schedules": func(after string, limit int) (int, string, error) {
			page, err := m.Schedules(schedules.Query{After: after, Limit: limit})
			return len(page.Items), page.Next, err
		},
		"audit": func(after string, limit int) (int, string, error) {
			page, err := m.Audit(access.RecordQuery{After: after, Limit: limit})
			return len(page.Items), page.Next, err
		},
		"entities": func(after string, limit int) (int, string, error) {
			page, next, err := m.EntityPage("", "", after, limit)
			return len(page), next, err
		},
		"drains": func(after string, _ int) (int, string, error) {
			page, next, err := m.DrainPage(after)
			return len(page), next, err
		},
	}
}

// listed is a board with a few rows of each list.
func listed(t testing.TB) *fsm.Machine {
	board, session := boardtest.New(t, boardtest.Options{}), jobs.NewSessionID()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := board.OpenSession(t.Context(), jobs.Opening{ID: session, Name: "s"})
	must(err)
	for i := range 12 {
		posting := jobs.Posting{ID: jobs.NewJobID(), Name: fmt.Sprint("j", i), Kind: []string{"k", "l"}[i%2], Priority: jobs.Priority(i % 3)}
		if i%4 == 1 {
			posting.Labels = []string{"gpu"}
		}
		if i >= 9 {
			posting.Book = &logbook.Book{ID: logbook.NewBookID(), Name: "b"}
		}
		_, err := board.Post(t.Context(), posting)
		must(err)
		must(board.CreateBoard(t.Context(), fmt.Sprint("board ", i)))
		must(board.Register(t.Context(), session, jobs.Entity{Kind: "e", Name: fmt.Sprint(i)}))
		must(board.DrainConductor(t.Context(), jobs.DrainCommand{Conductor: fmt.Sprint(i), Absent: true}))
	}
	claimed, err := board.ClaimNext(t.Context(), jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Max: 4})
	must(err)
	for _, c := range claimed[:2] {
		must(board.Trash(t.Context(), jobs.Ending{Job: c.Job.ID, Token: c.Job.Token, Failure: &logbook.Failure{Kind: "x", Message: "m"}}))
	}
	return board.Machine()
}

// FuzzListCursors: reading pages from any cursor is refused or ends. Reading from the start returns
// each row once, for every page size.
func FuzzListCursors(f *testing.F) {
	m := listed(f)
	lists := pages(m, "k")
	whole := map[string]int{}
	for name, read := range lists {
		count, next, err := read("", 0)
		if err != nil || next != "" && count == 0 {
			f.Fatalf("%s: %d, %q, %v", name, count, next, err)
		}
		whole[name] = count
		_, next, _ = read("", 1)
		f.Add(next, uint8(1))
	}
	for _, text := range []string{"claim-", "claim-00", "18446744073709551615", "18446744073709551614", "-1", "zz", "7.1", "00000000-0000-0000-0000-000000000000", "claim-" + fmt.Sprintf("%0200x", 1)} {
		f.Add(text, uint8(3))
	}
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		// from reads all pages from a cursor on.
		from := func(name, after string) (count int, err error) {
			for calls := 0; ; calls++ {
				found, next, err := lists[name](after, int(size))
				if count, after = count+found, next; err != nil || next == "" {
					return count, err
				}
				if calls > 100 {
					t.Fatalf("%s from %q on have no end", name, text)
				}
			}
		}
		for name := range lists {
			if count, err := from(name, ""); err != nil || count != whole[name] {
				t.Fatalf("%s by %d: %d rows, and there are %d: %v", name, size, count, whole[name], err)
			}
			switch count, err := from(name, text); {
			case err == nil && count > whole[name]:
				t.Fatalf("%s from %q on, by %d: %d rows, and there are %d", name, text, size, count, whole[name])
			case err != nil && (!errors.Is(err, jobs.ErrInvalid) || len(err.Error()) > 1000):
				t.Fatalf("%s from %q on: %.2000v", name, text, err)
			}
		}
	})
}
