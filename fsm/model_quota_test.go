package fsm_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// modelQuota is a saved quota.
type modelQuota struct {
	access.Quota
	modelBucket
}

// modelBucket is the number of postings taken from a bucket of one second.
type modelBucket struct {
	missing uint64    // in billionths of a posting
	charged time.Time // the time of this value
}

const billion = uint64(time.Second)

func (b *modelBucket) missingAt(now time.Time, perSecond uint64) uint64 {
	missing := min(b.missing, perSecond*billion)
	return missing - min(missing, perSecond*uint64(min(now.Sub(b.charged), time.Second)))
}

func (b *modelBucket) full(now time.Time, perSecond uint64) bool {
	return perSecond > 0 && b.missingAt(now, perSecond)+billion > perSecond*billion
}

func (b *modelBucket) charge(now time.Time, perSecond uint64) {
	if perSecond > 0 {
		b.missing, b.charged = b.missingAt(now, perSecond)+billion, now
	}
}

func (m *model) saveQuota(c *v1.SaveQuotaCommand) {
	q := command.SavedQuota(c)
	known := m.quotas[q.Subject]
	if known == nil {
		known = &modelQuota{Quota: access.Quota{Subject: q.Subject}}
		m.quotas[q.Subject] = known
	}
	if known.Limits == q.Limits {
		return
	}
	known.Limits, known.UpdatedAt, known.By = q.Limits, m.now, m.by
	if q.Limits.PostingsPerSecond == 0 {
		known.modelBucket = modelBucket{}
	}
}

func (m *model) deleteQuota(c *v1.DeleteQuotaCommand) error {
	subject := command.DeletedQuota(c)
	if m.quotas[subject] == nil {
		return jobs.ErrNotFound
	}
	delete(m.quotas, subject)
	return nil
}

// allQuotas are the quotas of boards by name, and then the quotas of principals.
func (m *model) allQuotas() []*modelQuota {
	return slices.SortedFunc(maps.Values(m.quotas), func(a, b *modelQuota) int {
		return cmp.Or(cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Boards, b.Boards))
	})
}

// covering are the quotas of a job: the quota of its principal, and then the quota of its board.
func (m *model) covering(board, principal string) (covering []*modelQuota) {
	if q := m.quotas[access.Subject{Principal: principal}]; q != nil && principal != "" {
		covering = append(covering, q)
	}
	for _, q := range m.allQuotas() {
		if q.Boards != "" && access.Covers(q.Boards, board) {
			covering = append(covering, q)
		}
	}
	return covering
}

// used is the usage of a quota's subject.
func (m *model) used(q *modelQuota) (used access.Amounts) {
	for _, j := range m.jobs {
		if own := q.Principal != "" && j.PostedBy == q.Principal || q.Boards != "" && access.Covers(q.Boards, j.Board); own && !j.State.Finished() {
			used.Jobs++
			used.Bytes += j.Size
		}
	}
	for _, s := range m.sessions {
		if q.Principal != "" && s.principal == q.Principal {
			used.Sessions++
		}
	}
	used.PostingsPerSecond = (q.missingAt(m.now, q.Limits.PostingsPerSecond) + billion - 1) / billion
	return used
}

func overQuota(q *modelQuota, what string, limit, size uint64, unit string) error {
	return fmt.Errorf("quota of %s is at its limit: at most %d %s; try again later, or ask an administrator for a higher limit%w", q.Subject, limit, singular(limit, unit), silent{&logbook.LimitError{Field: what, Limit: int64(limit), Size: int64(size), Unit: unit}})
}

// quotasHold refuses a job that exceeds a quota.
func (m *model) quotasHold(board, principal string, size uint64, isNew bool) error {
	for _, q := range m.covering(board, principal) {
		used := m.used(q)
		switch {
		case q.Limits.Jobs > 0 && used.Jobs >= q.Limits.Jobs:
			return overQuota(q, "jobs", q.Limits.Jobs, used.Jobs+1, "unfinished jobs")
		case q.Limits.Bytes > 0 && used.Bytes+size > q.Limits.Bytes:
			return overQuota(q, "bytes", q.Limits.Bytes, used.Bytes+size, "bytes of unfinished jobs")
		case isNew && q.full(m.now, q.Limits.PostingsPerSecond):
			return overQuota(q, "postings_per_second", q.Limits.PostingsPerSecond, q.Limits.PostingsPerSecond+1, "postings a second")
		}
	}
	return nil
}

func quotaLine(q *access.Quota) string {
	return fmt.Sprintf("quota of %s: %+v of %+v, since %s by %q", q.Subject, q.Used, q.Limits, ago(q.UpdatedAt), q.By)
}

func (m *model) quotaLines() (lines []string) {
	for _, q := range m.allQuotas() {
		shown := q.Quota
		shown.Used = m.used(q)
		lines = append(lines, quotaLine(&shown))
	}
	return lines
}

// quotaLines are the lines of quotas that the machine must show.
func (w *walker) quotaLines() (lines []string) {
	all, next, err := w.machine.QuotaPage("", w.now)
	if err != nil || next != "" {
		w.Fatal(next, err)
	}
	for i := range all {
		lines = append(lines, quotaLine(&all[i]))
	}
	return lines
}

// quotas draws the save of a quota with limits that are reached, or its removal.
func (a *author) quotas() *v1.Command {
	subject := access.Subject{Principal: a.oneOf("quota of", "ann", "bob", "")}
	if subject.Principal == "" {
		subject.Boards = a.oneOf("quota of boards", "*", "other", "o*", "night", "d*")
	}
	if a.draw("delete quota", 3) == 0 {
		return &v1.Command{Kind: &v1.Command_DeleteQuota{DeleteQuota: &v1.DeleteQuotaCommand{Principal: subject.Principal, Boards: subject.Boards}}}
	}
	limits := access.Amounts{Jobs: uint64(a.draw("jobs", 6)), Bytes: uint64(150 * a.draw("bytes", 3)), PostingsPerSecond: uint64(1 + a.draw("rate", 2))}
	if subject.Principal != "" {
		limits.Sessions = uint64(min(a.draw("sessions", 2), 1))
	}
	return a.as(saveQuota(subject, limits))
}

func saveQuota(subject access.Subject, limits access.Amounts) *v1.Command {
	return &v1.Command{Kind: &v1.Command_SaveQuota{SaveQuota: command.SaveQuotaToProto(&access.Quota{Subject: subject, Limits: limits})}}
}

// as sends a command for a principal, usually for none.
func (a *author) as(c *v1.Command) *v1.Command {
	c.Principal = a.oneOf("principal", "", "", "ann", "bob")
	return c
}
