package fsm

import (
	"cmp"
	"fmt"
	"iter"
	"strings"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// The counters of principals exist without a quota too, because no other row has the sum of a principal's jobs.
// The counters of a quota's boards start when the quota is saved, with the sum of the boards' counters.

// quotaCounters returns the key of a subject's counters: they belong to a board without a name.
func quotaCounters(s access.Subject) (board string, what byte, of []byte) {
	if s.Principal != "" {
		return "", countersOfPrincipal, []byte(s.Principal)
	}
	return "", countersOfQuota, []byte(s.Boards)
}

// covering yields the quotas that cover a job: the quota of the principal that posted it, and the quotas of its
// board.
func (t *txn) covering(j *jobFacts) iter.Seq[*access.Quota] {
	return func(yield func(*access.Quota) bool) {
		known := t.knownQuotas()
		if quota := known.ofPrincipal[j.PostedBy]; quota != nil && !yield(quota) {
			return
		}
		for _, quota := range known.on(j.Board) {
			if !yield(quota) {
				return
			}
		}
	}
}

// checkQuotas refuses a new or reopened job for which a quota has no room. Rates apply only to new jobs.
func (t *txn) checkQuotas(j *jobRecord, isNew bool) error {
	for quota := range t.covering(&j.jobFacts) {
		counted := t.countersOf(quotaCounters(quota.Subject))
		over := overLoad(quota.Limits.Jobs, quota.Limits.Bytes, counted.active, counted.bytes, j.Size)
		if over == nil && isNew {
			_, over = overRate(counted.bucket, t.now, quota.Limits.PostingsPerSecond)
		}
		if over != nil {
			return ofQuota(quota, over)
		}
	}
	return nil
}

func ofQuota(q *access.Quota, over *logbook.LimitError) error {
	over.Field = fmt.Sprintf("quota of %s: %s", q.Subject, over.Field)
	return &fullError{fmt.Sprintf("quota of %s", q.Subject), over, raiseLimit}
}

// RoomFor refuses a posting if the principal's quota or the limits of the board have no room for it now. ahead is the
// number of the principal's postings before it. RoomFor only saves work for postings that would be refused: applying
// a posting decides again. It accepts postings with a key, and postings with the id of an existing job.
func (m *Machine) RoomFor(principal string, p *v1.Posting, ahead uint64, now time.Time) error {
	return m.read(func(v *view) error {
		id, err := jobs.ParseJobID(p.GetId())
		if _, unknown := v.sequenceOf(id); err != nil || unknown == nil || p.GetKey() != "" {
			return nil
		}
		if board, _ := v.board(cmp.Or(p.GetBoard(), jobs.DefaultBoard)); board.Limits.Jobs > 0 {
			counted := v.counters(countersKey(board.Name, countersOfBoard, nil))
			if over := overLoad(board.Limits.Jobs, 0, counted.unfinished(), 0, 0); over != nil {
				return ofBoard(board.Name, over)
			}
		}
		value := v.get(tableQuota, quotaKey(access.Subject{Principal: principal}))
		if value == nil {
			return nil
		}
		quota := decode(value, &v1.Quota{}, command.QuotaFromProto)
		counted := v.counters(countersKey(quotaCounters(quota.Subject)))
		over := overLoad(quota.Limits.Jobs, quota.Limits.Bytes, counted.active+ahead, counted.bytes, 0)
		for before := uint64(0); over == nil && before <= ahead; before++ {
			counted.bucket, over = overRate(counted.bucket, now, quota.Limits.PostingsPerSecond)
		}
		if over == nil {
			return nil
		}
		return ofQuota(&quota, over)
	})
}

// chargeQuotas counts a new job in the rates of the quotas that cover it.
func (t *txn) chargeQuotas(j *jobRecord) {
	for quota := range t.covering(&j.jobFacts) {
		if perSecond := quota.Limits.PostingsPerSecond; perSecond > 0 {
			counted := t.changedCounters(quotaCounters(quota.Subject))
			counted.bucket, _ = counted.bucket.charge(t.now, perSecond)
		}
	}
}

// countUse adds by (1 or -1) unfinished jobs to the counters of the job's principal, and of its board's quotas.
func (t *txn) countUse(j *jobFacts, by int) {
	n := uint64(by) // sums wrap around, so adding uint64(-1) subtracts 1
	if j.PostedBy != "" {
		counted := t.changedCounters(quotaCounters(access.Subject{Principal: j.PostedBy}))
		counted.active, counted.bytes = counted.active+n, counted.bytes+n*j.Size
	}
	for _, quota := range t.knownQuotas().on(j.Board) {
		counted := t.changedCounters(quotaCounters(quota.Subject))
		counted.active, counted.bytes = counted.active+n, counted.bytes+n*j.Size
	}
}

// roomForSession refuses a session over the quota of the current command's principal.
func (t *txn) roomForSession() error {
	quota := t.knownQuotas().ofPrincipal[t.by]
	if quota == nil || quota.Limits.Sessions == 0 {
		return nil
	}
	open := t.countersOf(quotaCounters(quota.Subject)).sessions
	if open < quota.Limits.Sessions {
		return nil
	}
	return ofQuota(quota, &logbook.LimitError{Field: "sessions", Limit: int64(quota.Limits.Sessions), Size: int64(open) + 1, Unit: "open sessions"})
}

func (t *txn) countSession(principal string, by int) {
	if principal != "" {
		t.changedCounters(quotaCounters(access.Subject{Principal: principal})).sessions += uint64(by)
	}
}

// saveQuota creates a quota, or replaces its limits.
func (t *txn) saveQuota(c *v1.SaveQuotaCommand) error {
	quota := command.SavedQuota(c)
	if size := max(len(quota.Principal), len(quota.Boards)); size > maxKeyName {
		return &logbook.LimitError{Field: "quota principal or boards", Limit: maxKeyName, Size: int64(size), Unit: "bytes"}
	}
	known := t.knownQuotas()
	stored := t.get(tableQuota, quotaKey(quota.Subject))
	switch count := len(known.ofPrincipal) + len(known.ofBoards); {
	case stored != nil && decode(stored, &v1.Quota{}, command.QuotaFromProto).Limits == quota.Limits:
		return nil
	case stored == nil && count >= access.MaxQuotas:
		return &logbook.LimitError{Field: "quotas", Limit: access.MaxQuotas, Size: int64(count) + 1, Unit: "quotas"}
	}
	quota.UpdatedAt, quota.By = t.now, t.by
	counted := t.changedCounters(quotaCounters(quota.Subject))
	if stored == nil && quota.Boards != "" {
		counted.active, counted.bytes = t.load(quota.Boards)
	}
	if quota.Limits.PostingsPerSecond == 0 {
		counted.bucket = bucket{} // an unused one has no row
	}
	t.putMessage(tableQuota, quotaKey(quota.Subject), nil, command.QuotaToProto(&quota))
	t.quotasChanged()
	return nil
}

// deleteQuota removes a quota.
func (t *txn) deleteQuota(c *v1.DeleteQuotaCommand) error {
	subject := command.DeletedQuota(c)
	if t.get(tableQuota, quotaKey(subject)) == nil {
		return fmt.Errorf("cannot delete: quota of %s: %w", subject, jobs.ErrNotFound)
	}
	counted := t.changedCounters(quotaCounters(subject))
	counted.bucket = bucket{}
	if subject.Boards != "" {
		counted.active, counted.bytes = 0, 0
	}
	t.delete(tableQuota, quotaKey(subject))
	t.quotasChanged()
	return nil
}

func (t *txn) quotasChanged() {
	*t.quotas = quotas{}
	t.AccessIndex = t.Index
}

// load returns the unfinished jobs on the boards of a quota, and the bytes of their postings.
func (t *txn) load(boards string) (unfinished, bytes uint64) {
	for _, name := range t.keys(tableBoard, []byte(strings.TrimSuffix(boards, "*"))) {
		if access.Covers(boards, string(name)) {
			counted := t.countersOf(string(name), countersOfBoard, nil)
			unfinished, bytes = unfinished+counted.unfinished(), bytes+counted.bytes
		}
	}
	return unfinished, bytes
}

// fillUsed adds the use of a quota, without watches.
func (v *view) fillUsed(q *access.Quota, now time.Time) {
	counted := v.counters(countersKey(quotaCounters(q.Subject)))
	q.Used = access.Amounts{
		Jobs: counted.active, Bytes: counted.bytes, Sessions: counted.sessions,
		PostingsPerSecond: counted.bucket.taken(now, q.Limits.PostingsPerSecond),
	}
}

// Quotas reads all quotas, without their use.
func (m *Machine) Quotas() (all []access.Quota, err error) {
	err = m.read(func(v *view) error {
		v.eachQuota(func(q access.Quota) { all = append(all, q) })
		return nil
	})
	return all, err
}

// Quota reads the quota of a principal with its use at the time now, without watches; nil if there is none.
func (m *Machine) Quota(principal string, now time.Time) (quota *access.Quota, err error) {
	err = m.read(func(v *view) error {
		if value := v.get(tableQuota, quotaKey(access.Subject{Principal: principal})); value != nil {
			found := decode(value, &v1.Quota{}, command.QuotaFromProto)
			v.fillUsed(&found, now)
			quota = &found
		}
		return nil
	})
	return quota, err
}

// QuotaPage reads a page of quotas with their use at the time now, without watches: quotas of boards, then quotas of
// principals, each by name. after is the next of the previous page. next is empty at the end.
func (m *Machine) QuotaPage(after string, now time.Time) (page []access.Quota, next string, err error) {
	err = m.read(func(v *view) error {
		next = string(v.page(tableQuota, nil, []byte(after), maxPageBytes, 0, func(value []byte) {
			page = append(page, decode(value, &v1.Quota{}, command.QuotaFromProto))
		}))
		for i := range page {
			v.fillUsed(&page[i], now)
		}
		return nil
	})
	return page, next, err
}
