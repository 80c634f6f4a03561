package jobstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// ExerciseScheduler checks that a board with schedules keeps the promises of
// schedules.Scheduler. Harness.Scheduler and Harness.Dormant must be set. As with Exercise,
// runs may share a cluster.
func ExerciseScheduler(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	exercise(t, open, []group{{"schedules", scheduleRows}, {"slots", slotRows}})
}

var scheduleRows = []row{
	{"a schedule is saved, and saved again", scheduleSaved},
	{"a schedule is changed, and keeps its history", scheduleChanged},
	{"parallel saves leave one schedule", savedAtOnce},
	{"a wrong schedule is refused", wrongSchedules},
	{"schedules are listed by board and name", schedulesListed},
	{"calls for an unknown schedule return not found", unknownSchedule},
	{"the next five slots are known", nextFive},
	{"slots follow the clocks of the zone", slotsThroughClockChanges},
	{"a slot posts what the schedule says", slotPosts},
	{"a pause holds slots back, and skips them at its end", pausedSchedule},
	{"a job is run now, once for each request", runNow},
	{"slots of the past are posted once", backfilled},
	{"large postings of the past take several writes", backfilledByParts},
	{"a schedule that is deleted leaves its jobs", deletedSchedule},
}

// hourly is a schedule of the row's board with a slot at each hour since its start. The last
// slot was half an hour ago, so no slot comes during the row.
func (k *kit) hourly(name string, overlap schedules.Overlap, hours int) schedules.Schedule {
	return schedules.Schedule{
		Board: k.board, Name: name, Rule: "@every 1h", Overlap: overlap,
		Start:   time.Now().Add(-30*time.Minute - time.Duration(hours-1)*time.Hour).Truncate(time.Second).UTC(),
		Posting: jobs.Posting{Kind: k.kind},
	}
}

// save saves a schedule, and deletes it after the row.
func (k *kit) save(schedule schedules.Schedule) schedules.Schedule {
	k.Helper()
	saved, err := k.Scheduler.SaveSchedule(k.ctx, schedule)
	if err != nil {
		k.Fatalf("SaveSchedule: %v", err)
	}
	k.gone(schedule.Name)
	return saved
}

// late saves a schedule as if no node had led since before its first slot, and waits until all
// slots are decided.
func (k *kit) late(schedule schedules.Schedule) schedules.Report {
	k.Helper()
	if _, err := k.Dormant(schedule, schedule.Start.Add(-time.Second)); err != nil {
		k.Fatalf("Dormant: %v", err)
	}
	k.gone(schedule.Name)
	began := time.Now()
	return k.until(schedule.Name, "all slots are decided", func(r *schedules.Report) bool { return r.Schedule.Next.After(began) })
}

// gone deletes a schedule after the row, so that it does not continue in a shared cluster.
func (k *kit) gone(name string) {
	k.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), promptly)
		defer cancel()
		if err := k.Scheduler.DeleteSchedule(ctx, k.called(name)); err != nil && !errors.Is(err, jobs.ErrNotFound) {
			k.Logf("cannot delete schedule %s: %v", name, err)
		}
	})
}

func (k *kit) called(name string) schedules.Ref {
	return schedules.Ref{Board: k.board, Name: name}
}

// report reads a schedule with five slots and all of its records.
func (k *kit) report(name string) schedules.Report {
	k.Helper()
	report, err := k.Scheduler.Schedule(k.ctx, k.called(name), schedules.Look{Upcoming: 5, History: schedules.MaxSlotRecords})
	if err != nil {
		k.Fatalf("Schedule: %v", err)
	}
	return report
}

// until reads a schedule until it is as it is wanted.
func (k *kit) until(name, what string, wanted func(*schedules.Report) bool) schedules.Report {
	k.Helper()
	const often = 20 * time.Millisecond
	ticker := time.NewTicker(often)
	defer ticker.Stop()
	for {
		report := k.report(name)
		if wanted(&report) {
			return report
		}
		select {
		case <-ticker.C:
		case <-k.ctx.Done():
			k.Fatalf("not in time: %s; it is %s", what, render(report))
		}
	}
}

// fates are the outcomes of slots, earliest first: "posted", "waiting" or "skipped: why", with
// a count if several are equal.
func fates(history []schedules.SlotRecord) []string {
	said := []string{}
	for _, r := range slices.Backward(history) {
		fate := string(r.State)
		if r.Reason != "" {
			fate += ": " + r.Reason
		}
		if r.Slots() > 1 {
			fate += fmt.Sprintf(" (%d)", r.Slots())
		}
		said = append(said, fate)
	}
	return said
}

func (k *kit) command(name string) schedules.Command {
	return schedules.Command{Ref: k.called(name), By: "ann", Reason: "the roof leaks", Nonce: jobs.NewNonce()}
}

func scheduleSaved(k *kit) {
	given := schedules.Schedule{
		Board: k.board, Name: "yearly", Rule: "0 0 1 1 *", Zone: "Europe/Berlin", Overlap: schedules.OverlapQueue,
		Missed: schedules.Missed{Policy: schedules.MissedWindow, Window: time.Hour}, End: time.Now().AddDate(30, 0, 0).Truncate(time.Second).UTC(),
		Posting: jobs.Posting{
			Kind: k.kind, Name: "fireworks", Priority: 7, Details: json.RawMessage(`{"rockets": 3}`), Store: logbook.Values{"city": json.RawMessage(`"Oslo"`)},
			Key: "sky", Front: true, Hold: true, Tags: []string{"loud"}, Labels: []string{"licence"}, MaxCrashes: 2,
		},
	}
	before := time.Now().Add(-time.Minute)
	saved := k.save(given)
	if saved.ID.IsZero() || saved.Revision == 0 || !saved.CreatedAt.After(before) || !saved.Next.After(before) || saved.Next.In(time.UTC).Hour() != 23 {
		k.Errorf("saved %s", render(saved))
	}
	again := k.save(given)
	k.same("what is saved again", again, saved)
	report := k.report("yearly")
	k.same("the posting", report.Schedule.Posting, given.Posting)
	report.Schedule.Posting = saved.Posting
	k.same("the schedule", report.Schedule, saved)
	if len(report.History) != 0 || report.Schedule.Missed.Window != time.Hour {
		k.Errorf("read %s", render(report))
	}
}

func scheduleChanged(k *kit) {
	given := k.hourly("changed", schedules.OverlapAllow, 3)
	given.Missed = schedules.Missed{Policy: schedules.MissedLast, Last: 2}
	first := k.late(given)
	given.Overlap = schedules.OverlapQueue
	k.save(given)
	second := k.report("changed")
	if second.Schedule.Revision == first.Schedule.Revision || second.Schedule.ID != first.Schedule.ID || !second.Schedule.Next.Equal(first.Schedule.Next) {
		k.Errorf("with another policy %s, before %s", render(second.Schedule), render(first.Schedule))
	}
	given.Rule, given.Start = "0 0 1 1 *", time.Time{}
	k.save(given)
	third := k.report("changed")
	k.same("history", third.History, first.History)
	if third.Schedule.Next.Equal(first.Schedule.Next) || third.Schedule.ID != first.Schedule.ID || third.Schedule.Posted != 2 {
		k.Errorf("with another rule %s, before %s", render(third.Schedule), render(first.Schedule))
	}
}

func savedAtOnce(k *kit) {
	const people = 4
	var all sync.WaitGroup
	saved := make([]schedules.Schedule, people)
	for i := range people {
		given := k.hourly("contested", schedules.OverlapAllow, 1)
		given.Posting.Name = fmt.Sprint("that of ", i)
		k.gone("contested")
		all.Go(func() {
			var err error
			if saved[i], err = k.Scheduler.SaveSchedule(k.ctx, given); err != nil {
				k.Errorf("SaveSchedule by %d: %v", i, err)
			}
		})
	}
	all.Wait()
	report := k.report("contested")
	last := slices.IndexFunc(saved, func(s schedules.Schedule) bool { return s.Revision == report.Schedule.Revision })
	if last < 0 || report.Schedule.Posting.Name != fmt.Sprint("that of ", last) {
		k.Errorf("revision %d, of %q, is not that of who was told so: %s", report.Schedule.Revision, report.Schedule.Posting.Name, render(saved))
	}
	for i := range saved {
		k.same("id", saved[i].ID, report.Schedule.ID)
	}
}

func wrongSchedules(k *kit) {
	long := strings.Repeat("x", schedules.MaxRule+1)
	for what, spoil := range map[string]func(*schedules.Schedule){
		"no name": func(s *schedules.Schedule) { s.Name = "" }, "no rule": func(s *schedules.Schedule) { s.Rule = "" },
		"a rule of words": func(s *schedules.Schedule) { s.Rule = "soon" }, "a rule that never comes": func(s *schedules.Schedule) { s.Rule = "0 0 31 2 *" },
		"an unknown zone": func(s *schedules.Schedule) { s.Zone = "Europe/Atlantis" }, "an unknown overlap": func(s *schedules.Schedule) { s.Overlap = "perhaps" },
		"an unknown policy for the missed": func(s *schedules.Schedule) { s.Missed.Policy = "cry" },
		"a window without a time":          func(s *schedules.Schedule) { s.Missed.Policy = schedules.MissedWindow },
		"an id of the job":                 func(s *schedules.Schedule) { s.Posting.ID = jobs.NewJobID() },
		"a board of the job":               func(s *schedules.Schedule) { s.Posting.Board = "other" },
		"a time of the job":                func(s *schedules.Schedule) { s.Posting.NotBefore = time.Now() },
		"a deadline of the job":            func(s *schedules.Schedule) { s.Posting.Deadline = time.Now() },
		"a saved book":                     func(s *schedules.Schedule) { s.Posting.BookID = logbook.NewBookID() },
		"details that are no JSON":         func(s *schedules.Schedule) { s.Posting = jobs.NewPlainPosting(k.kind, func() {}) },
		"the slot in the store":            func(s *schedules.Schedule) { s.Posting.Store = logbook.Values{schedules.SlotKey: json.RawMessage("1")} },
		"the name in the store":            func(s *schedules.Schedule) { s.Posting.Store = logbook.Values{schedules.NameKey: json.RawMessage("1")} },
	} {
		given := k.hourly("wrong", "", 1)
		spoil(&given)
		_, err := k.Scheduler.SaveSchedule(k.ctx, given)
		k.wantsInvalid(what, err)
	}
	for what, spoil := range map[string]func(*schedules.Schedule){
		"a long rule":         func(s *schedules.Schedule) { s.Rule = long },
		"a long name":         func(s *schedules.Schedule) { s.Name = long },
		"many missed":         func(s *schedules.Schedule) { s.Missed.Last = schedules.MaxCatchUp + 1 },
		"many tags of a slot": func(s *schedules.Schedule) { s.Posting.Tags = make([]string, jobs.MaxTags+1) },
	} {
		given := k.hourly("wrong", "", 1)
		spoil(&given)
		_, err := k.Scheduler.SaveSchedule(k.ctx, given)
		k.wants(what, err, jobs.ErrLimit)
	}
	_, err := k.Scheduler.Schedule(k.ctx, k.called("wrong"), schedules.Look{})
	k.wants("what was refused", err, jobs.ErrNotFound)
}

func schedulesListed(k *kit) {
	for _, name := range []string{"d", "b", "a", "c", "e"} {
		k.save(k.hourly(name, "", 1))
	}
	var names []string
	for query := (schedules.Query{Board: k.board, Limit: 2}); ; {
		page, err := k.Scheduler.Schedules(k.ctx, query)
		if err != nil || len(page.Items) > 2 {
			k.Fatalf("Schedules: %d, %v", len(page.Items), err)
		}
		for _, s := range page.Items {
			if s.Posting.Kind != "" || s.Board != k.board || s.Next.IsZero() {
				k.Errorf("listed %s", render(s))
			}
			names = append(names, s.Name)
		}
		if query.After = page.Next; query.After == "" {
			break
		}
	}
	k.same("names", names, []string{"a", "b", "c", "d", "e"})
	k.wants("DeleteBoard of one with schedules", k.Board.DeleteBoard(k.ctx, k.board), jobs.ErrNotFound)
	k.posted("a job")
	k.wants("DeleteBoard of one with schedules and a job", k.Board.DeleteBoard(k.ctx, k.board), jobs.ErrConflict)
}

func unknownSchedule(k *kit) {
	order := k.command("nothing")
	for what, do := range map[string]func() error{
		"pause":  func() error { return k.Scheduler.PauseSchedule(k.ctx, order) },
		"resume": func() error { return k.Scheduler.ResumeSchedule(k.ctx, order) },
		"run":    func() error { _, err := k.Scheduler.RunSchedule(k.ctx, order); return err },
		"read": func() error {
			_, err := k.Scheduler.Schedule(k.ctx, order.Ref, schedules.Look{})
			return err
		},
		"backfill": func() error {
			_, err := k.Scheduler.BackfillSchedule(k.ctx, schedules.Backfill{Ref: order.Ref, From: time.Unix(0, 0), To: time.Unix(9, 0)})
			return err
		},
	} {
		k.wants(what, do(), jobs.ErrNotFound)
	}
	k.wantsGone("delete", func() error { return k.Scheduler.DeleteSchedule(k.ctx, order.Ref) })
}

func nextFive(k *kit) {
	given := k.hourly("five", "", 1)
	given.End = given.Start.Add(3*time.Hour + time.Minute)
	k.save(given)
	want := []time.Time{given.Start.Add(time.Hour), given.Start.Add(2 * time.Hour), given.Start.Add(3 * time.Hour)}
	k.same("up to the end", k.report("five").Upcoming, want)
	given.End = time.Time{}
	k.save(given)
	want = append(want, given.Start.Add(4*time.Hour), given.Start.Add(5*time.Hour))
	k.same("without an end", k.report("five").Upcoming, want)
	k.wants("PauseSchedule", k.Scheduler.PauseSchedule(k.ctx, k.command("five")), nil)
	k.same("of a paused one", k.report("five").Upcoming, want)
	for _, look := range []schedules.Look{{Upcoming: schedules.MaxUpcoming + 1}, {History: schedules.MaxSlotRecords + 1}} {
		_, err := k.Scheduler.Schedule(k.ctx, k.called("five"), look)
		k.wantsLimit("Schedule", err, look.Upcoming+look.History-1, look.Upcoming+look.History)
	}
}

// slotsThroughClockChanges backfills past days on which clocks changed: the slots of those
// days will never change.
func slotsThroughClockChanges(k *kit) {
	for i, row := range []struct {
		what, rule, zone, from, to string
		want                       []string
	}{
		{"a local time that does not exist", "30 2 * * *", "Europe/Berlin", "2025-03-29T12:00:00Z", "2025-04-01T00:00:00Z",
			[]string{"2025-03-30T01:00:00Z", "2025-03-31T00:30:00Z"}},
		{"a local time that exists twice", "30 2 * * *", "Europe/Berlin", "2025-10-25T12:00:00Z", "2025-10-28T00:00:00Z",
			[]string{"2025-10-26T00:30:00Z", "2025-10-27T01:30:00Z"}},
		{"an hour that exists twice", "*/30 2 * * *", "Europe/Berlin", "2025-10-25T12:00:00Z", "2025-10-26T12:00:00Z",
			[]string{"2025-10-26T00:00:00Z", "2025-10-26T00:30:00Z"}},
		{"every hour, one of which does not exist", "@hourly", "America/New_York", "2025-03-09T06:00:00Z", "2025-03-09T08:30:00Z",
			[]string{"2025-03-09T06:00:00Z", "2025-03-09T07:00:00Z", "2025-03-09T08:00:00Z"}},
		{"every hour, one of which exists twice", "@hourly", "America/New_York", "2025-11-02T04:30:00Z", "2025-11-02T07:30:00Z",
			[]string{"2025-11-02T05:00:00Z", "2025-11-02T06:00:00Z", "2025-11-02T07:00:00Z"}},
		{"a change of half an hour", "15 2 * * *", "Australia/Lord_Howe", "2025-10-03T16:00:00Z", "2025-10-05T16:00:00Z",
			[]string{"2025-10-04T15:30:00Z", "2025-10-05T15:15:00Z"}},
	} {
		name := fmt.Sprint("clocks ", i)
		k.save(schedules.Schedule{Board: k.board, Name: name, Rule: row.rule, Zone: row.zone, Overlap: schedules.OverlapAllow, Posting: jobs.Posting{Kind: k.kind}})
		records := k.fill(schedules.Backfill{Ref: k.called(name), From: moment(row.from), To: moment(row.to)})
		told := []string{}
		for _, record := range records {
			var slot string
			if err := json.Unmarshal(k.job(record.Job).Store[schedules.SlotKey], &slot); err != nil || slot != schedules.SlotText(record.Slot) {
				k.Errorf("%s: the job of slot %s is told %q, %v", row.what, record.Slot, slot, err)
			}
			told = append(told, slot)
		}
		k.same(row.what, told, row.want)
	}
}

// moment reads a time of a row.
func moment(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return at
}

func (k *kit) fill(backfill schedules.Backfill) []schedules.SlotRecord {
	k.Helper()
	records, err := k.Scheduler.BackfillSchedule(k.ctx, backfill)
	if err != nil {
		k.Fatalf("BackfillSchedule: %v", err)
	}
	return records
}

func slotPosts(k *kit) {
	book := journey("out")
	given := k.hourly("travels", schedules.OverlapAllow, 2)
	given.Missed = schedules.Missed{Policy: schedules.MissedLast, Last: 2}
	given.Posting = jobs.Posting{
		Book: &book, Priority: 3, Details: json.RawMessage(`{"seats": 2}`), Store: logbook.Values{"city": json.RawMessage(`"Rome"`)},
		Tags: []string{"b", "a"}, Labels: []string{"bus"}, MaxCrashes: 4,
	}
	report := k.late(given)
	k.same("what became of the slots", fates(report.History), []string{"posted", "posted"})
	seen := map[string]bool{}
	for _, record := range report.History {
		job := k.job(record.Job)
		slot := schedules.SlotText(record.Slot)
		k.same("id", job.ID, report.Schedule.ID.SlotJob(record.Slot))
		k.same("what a job is", []any{job.Board, job.Name, job.Priority, job.Tags, job.Labels, job.MaxCrashes, job.State},
			[]any{k.board, "travels", 3, []string{"b", "a"}, []string{"bus"}, 4, jobs.StateClaimable})
		k.same("its store", job.Store, map[string]any{"city": "Rome", schedules.SlotKey: slot, schedules.NameKey: "travels"})
		k.same("its details", string(job.Details), `{"seats": 2}`)
		k.same("its schedule and slot", []any{job.Schedule, job.Slot}, []any{"travels", record.Slot})
		k.same("its flow's name", k.flow(job.Flow).Name, "out")
		if seen[job.Book.String()] || seen[job.Flow.String()] || job.Book == book.ID {
			k.Errorf("job %s shares its book or its flow with another", job.ID)
		}
		seen[job.Book.String()], seen[job.Flow.String()] = true, true
	}
}

func pausedSchedule(k *kit) {
	given := schedules.Schedule{Board: k.board, Name: "ticks", Rule: "@every 1s", Overlap: schedules.OverlapAllow, Posting: jobs.Posting{Kind: k.kind}}
	given.Missed = schedules.Missed{Policy: schedules.MissedLast, Last: schedules.MaxCatchUp} // a busy machine must not skip any
	k.save(given)
	k.until("ticks", "the first slot is posted", func(r *schedules.Report) bool { return r.Schedule.Posted > 0 })
	order := k.command("ticks")
	k.wants("PauseSchedule", k.Scheduler.PauseSchedule(k.ctx, order), nil)
	paused := k.report("ticks")
	order.Reason = "another"
	k.wants("PauseSchedule again", k.Scheduler.PauseSchedule(k.ctx, order), nil)
	if pause := k.report("ticks").Schedule.Pause; pause == nil || pause.By != "ann" || pause.Reason != "the roof leaks" {
		k.Errorf("paused: %s", render(pause))
	}
	over := paused.Schedule.Decided.Add(2500 * time.Millisecond) // two slots of the pause are due
	k.until("ticks", "slots pass", func(*schedules.Report) bool { return time.Now().After(over) })
	k.same("posted in the pause", k.report("ticks").Schedule.Posted, paused.Schedule.Posted)
	for range 2 {
		k.wants("ResumeSchedule", k.Scheduler.ResumeSchedule(k.ctx, order), nil)
	}
	report := k.until("ticks", "it goes on", func(r *schedules.Report) bool { return r.Schedule.Posted > paused.Schedule.Posted })
	skipped := report.History[slices.IndexFunc(report.History, func(r schedules.SlotRecord) bool { return r.State == schedules.SlotSkipped })]
	if report.Schedule.Pause != nil || skipped.Slots() < 2 || skipped.Reason != "the schedule was paused" || report.Schedule.Skipped != skipped.Slots() {
		k.Errorf("resumed: %s", render(report))
	}
	k.accounted("ticks")
}

func runNow(k *kit) {
	k.save(k.hourly("on demand", schedules.OverlapSkip, 1))
	k.wants("PauseSchedule", k.Scheduler.PauseSchedule(k.ctx, k.command("on demand")), nil)
	order, before := k.command("on demand"), time.Now().Add(-time.Minute)
	run := func(order schedules.Command) schedules.SlotRecord {
		k.Helper()
		record, err := k.Scheduler.RunSchedule(k.ctx, order)
		if err != nil {
			k.Fatalf("RunSchedule: %v", err)
		}
		return record
	}
	first := run(order)
	if first.State != schedules.SlotPosted || first.Trigger != schedules.TriggerRun || first.By != "ann" || !first.Slot.After(before) {
		k.Errorf("ran %s", render(first))
	}
	k.same("run again", run(order), first)
	second := run(k.command("on demand")) // in addition to the first
	if second.Job == first.Job || k.job(second.Job).State != jobs.StateClaimable {
		k.Errorf("ran %s and %s", render(first), render(second))
	}
	k.wants("LimitBoard", k.Board.LimitBoard(k.ctx, k.board, jobs.BoardLimits{Jobs: 2}), nil)
	third := k.command("on demand")
	refused := run(third)
	if refused.State != schedules.SlotSkipped || refused.Reason == "" || !refused.Job.IsZero() {
		k.Errorf("ran on a full board %s", render(refused))
	}
	k.wants("LimitBoard", k.Board.LimitBoard(k.ctx, k.board, jobs.BoardLimits{}), nil)
	k.same("the refused one again", run(third), refused)
	k.same("another one", run(k.command("on demand")).State, schedules.SlotPosted)
	if report := k.report("on demand"); len(report.History) != 4 || report.Schedule.Posted != 3 || report.Schedule.Skipped != 1 || report.Schedule.Active != 3 {
		k.Errorf("in the end %s", render(report))
	}
}

func backfilled(k *kit) {
	given := k.hourly("filled", schedules.OverlapSkip, 5)
	given.Missed = schedules.Missed{Policy: schedules.MissedLast, Last: 1}
	first := k.late(given)
	k.same("at first", fates(first.History), []string{"skipped: missed, and not among the last 1 (4)", "posted"})
	wanted := schedules.Backfill{Ref: k.called("filled"), From: given.Start.Add(2 * time.Hour), To: time.Now(), By: "ann", Nonce: jobs.NewNonce()}
	records := k.fill(wanted)
	states := func(records []schedules.SlotRecord) (list []string) {
		for _, r := range records {
			list = append(list, fmt.Sprint(r.State, " by ", r.Trigger, r.By))
		}
		return list
	}
	want := []string{"waiting by backfillann", "waiting by backfillann", "posted by schedule"}
	k.same("filled in", states(records), want)
	k.same("filled in again", k.fill(wanted), records)
	wanted.Nonce = jobs.NewNonce()
	k.same("filled in by another request", k.fill(wanted), records)

	session := k.session("worker")
	for range 3 { // one after the other
		claimed := k.soon(session)
		if n := k.report("filled").Schedule.Active; n != 1 {
			k.Errorf("%d jobs at once", n)
		}
		k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
	}
	for i := range want {
		want[i] = strings.Replace(want[i], "waiting", "posted", 1)
	}
	k.same("at last", states(k.fill(wanted)), want)
	k.refusedBackfills(given.Start)
}

func backfilledByParts(k *kit) {
	const slots, size = 20, 250 << 10
	given := k.hourly("large", schedules.OverlapAllow, slots)
	given.Missed = schedules.Missed{Policy: schedules.MissedNone}
	given.Posting.Details = json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
	k.late(given)
	wanted := schedules.Backfill{Ref: k.called("large"), From: given.Start, To: time.Now(), Nonce: jobs.NewNonce()}
	records := k.fill(wanted)
	k.same("filled in again", k.fill(wanted), records)
	var hours []int
	for i, record := range records {
		hours = append(hours, int(record.Slot.Sub(given.Start)/time.Hour))
		if record.State != schedules.SlotPosted || hours[i] != i {
			k.Fatalf("slot %d is %s", i, render(record))
		}
	}
	writes := map[uint64]int{}
	for _, event := range k.events(jobs.Watch{Board: k.board, Kinds: []jobs.EventKind{jobs.EventPosted}}, slots) {
		writes[event.Position.Index]++
	}
	for index, count := range writes {
		if count*size > schedules.MaxSlotBytes {
			k.Errorf("entry %d posts %d jobs of %d bytes", index, count, size)
		}
	}
	if len(hours) != slots || len(writes) != 2 {
		k.Errorf("%d slots in %d writes", len(hours), len(writes))
	}
}

// refusedBackfills are backfills without a slot, and with too many slots.
func (k *kit) refusedBackfills(started time.Time) {
	k.Helper()
	wanted := schedules.Backfill{Ref: k.called("filled"), From: started.Add(time.Second), To: started.Add(time.Minute)}
	_, err := k.Scheduler.BackfillSchedule(k.ctx, wanted)
	k.wantsInvalid("a time without a slot", err)
	wanted.From, wanted.To = time.Now().Add(time.Hour), time.Now().Add(9*time.Hour)
	_, err = k.Scheduler.BackfillSchedule(k.ctx, wanted)
	k.wantsInvalid("the future", err)
	seconds := k.hourly("filled", schedules.OverlapQueue, 1)
	seconds.Rule, seconds.Start = "0 0 1 1 *", time.Time{}
	seconds.Rule = "* * * * *"
	k.save(seconds)
	wanted.From, wanted.To = moment("2025-01-01T00:00:00Z"), moment("2025-01-01T00:00:00Z").Add((schedules.MaxBackfill+1)*time.Minute)
	_, err = k.Scheduler.BackfillSchedule(k.ctx, wanted)
	k.wantsLimit("a slot too many", err, schedules.MaxBackfill, schedules.MaxBackfill+1)
}

func deletedSchedule(k *kit) {
	given := k.hourly("goes", schedules.OverlapQueue, 3)
	given.Missed = schedules.Missed{Policy: schedules.MissedLast, Last: 3}
	before := k.late(given)
	k.same("before", fates(before.History), []string{"posted", "waiting", "waiting"})
	session := k.session("worker")
	claimed := k.soon(session)
	k.wants("DeleteSchedule", k.Scheduler.DeleteSchedule(k.ctx, k.called("goes")), nil)
	k.wantsGone("DeleteSchedule again", func() error { return k.Scheduler.DeleteSchedule(k.ctx, k.called("goes")) })
	k.same("its job", k.job(claimed.Job.ID).State, jobs.StateClaimed)

	anew := k.save(given) // before the job of the other schedule ends
	if anew.ID == before.Schedule.ID || anew.Active != 0 || anew.Waiting != 0 || anew.Posted != 0 {
		k.Errorf("made anew: %s", render(anew))
	}
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
	k.same("jobs in the end", k.list(jobs.Query{Board: k.board}, 0), []string{"goes"})
	k.same("records of the new one", len(k.report("goes").History), 0)
	filled := k.fill(schedules.Backfill{Ref: k.called("goes"), From: given.Start, To: given.Start.Add(time.Second)})
	if len(filled) != 1 || filled[0].State != schedules.SlotPosted || filled[0].Job == claimed.Job.ID {
		k.Errorf("the slot of the old one, by the new one: %s", render(filled))
	}
}
