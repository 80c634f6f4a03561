package fsm_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
)

// TestDamagedRowsAreFaults damages rows of every table. No read and no command panics because of a
// damaged row. A damaged row that is read is an error, never an answer.
func TestDamagedRowsAreFaults(t *testing.T) {
	r := filled(t)
	epoch, _ := r.scheduled(every10("hourly", "queue"))
	r.ok(drainConductor("w9"))
	r.ok(limitBoard("default", &v1.BoardLimits{Jobs: 10}))
	stream := snapshot(t, r.Machine)
	rows, err := fsm.Rows(r.Machine)
	if err != nil {
		t.Fatal(err)
	}
	byTable := map[string][]string{}
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		table, _, _ := strings.Cut(row, "/")
		byTable[table] = append(byTable[table], row)
	}
	damages := map[string]func([]byte) []byte{
		"nothing": func([]byte) []byte { return []byte{} },
		"half":    func(value []byte) []byte { return value[:len(value)/2] },
		"noise":   func(value []byte) []byte { return bytes.Repeat([]byte{0xff}, len(value)) },
	}
	met := 0
	for table, of := range byTable {
		for _, row := range []string{of[0], of[len(of)-1]} {
			for name, damage := range damages {
				t.Run(fmt.Sprintf("%s with %s", table, name), func(t *testing.T) {
					damaged := newRig(t)
					if err := damaged.Restore(bytes.NewReader(stream)); err != nil {
						t.Fatal(err)
					}
					if err := fsm.Damage(damaged.Machine, row, damage([]byte(rows[row]))); err != nil {
						t.Fatal(err)
					}
					for _, err := range readsOf(damaged.Machine) {
						if err != nil && strings.Contains(err.Error(), "cannot be trusted") {
							met++
						}
					}
					damaged.index, damaged.now = r.index, r.now
					for _, c := range []*v1.Command{
						open("bob"), claimNext("bob", "nonce", 5, nil, nil), beginLeadership(), fire(epoch, "hourly", 1, 100, posting10(10)),
						{Kind: &v1.Command_CloseSession{CloseSession: &v1.CloseSessionCommand{Session: sessionID("ann").String()}}},
					} {
						if _, err := damaged.Apply([]fsm.Entry{damaged.entry(c)}); err != nil {
							met++
							break // the machine has stopped
						}
					}
				})
			}
		}
	}
	if len(byTable) < 20 || met < 50 {
		t.Errorf("%d tables have rows, and damage was met %d times", len(byTable), met)
	}
}

// TestMissingCountsAreFaults: subtracting from a missing or smaller count stops the machine,
// so no count wraps around.
func TestMissingCountsAreFaults(t *testing.T) {
	for _, left := range []string{"", "\x00\x00\x00\x00\x00\x00\x00\x01"} {
		r := newRig(t)
		r.ok(open("ann"))
		r.ok(post(posting("a", "k"), posting("b", "k"))) // at one time, so one row counts both
		rows, err := fsm.Rows(r.Machine)
		if err != nil {
			t.Fatal(err)
		}
		damaged := 0
		for row := range rows {
			if strings.HasPrefix(row, "waiting/") {
				damaged++
				if err := fsm.Damage(r.Machine, row, []byte(left)); err != nil {
					t.Fatal(err)
				}
			}
		}
		_, err = r.Apply([]fsm.Entry{r.entry(claimNext("ann", "nonce", 2, nil, nil))})
		if want := fmt.Sprintf("internal error: a row of table waiting would count %d", len(left)/8-2); damaged != 1 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d rows, %v; want %s", damaged, err, want)
		}
	}
}

// readsOf makes every read of the machine.
func readsOf(m *fsm.Machine) (errs []error) {
	add := func(_ any, err error) { errs = append(errs, err) }
	page, err := m.Jobs(jobs.Query{})
	add(page, err)
	for i := range page.Items {
		id := page.Items[i].ID
		add(m.Job(id))
		add(m.Situation(id, m.Time()))
		_, _, err := m.Claimed(id, 0)
		add(nil, err)
		if flow := page.Items[i].Flow; !flow.IsZero() {
			_, _, err := m.Flow(flow, fsm.Part{MaxBytes: fsm.Unbounded})
			add(nil, err)
		}
	}
	books, err := m.Books("", 0)
	add(books, err)
	for i := range books.Items {
		add(m.Book(books.Items[i].ID))
	}
	add(m.BoardList("", 0, m.Time()))
	add(m.BoardStatus(jobs.DefaultBoard, m.Time()))
	add(m.Sessions())
	add(m.Entities(""))
	add(m.Drains())
	add(m.Claims(jobs.ClaimQuery{}))
	add(m.ClaimTimers())
	add(m.Errors(jobs.ErrorQuery{}))
	add(m.Events(jobs.Position{}, 0))
	add(m.Schedules(schedules.Query{}))
	add(m.DueSchedules(m.Time().Add(1<<40), 10))
	add(m.Sweepable(m.Time(), 1, 1))
	add(m.Digest())
	return errs
}
