package jobstest

import (
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
)

var slotRows = []row{
	{"a slot is skipped while a job is not finished", overlapSkips},
	{"a slot waits while a job is not finished", overlapQueues},
	{"a slot has the jobs before it cancelled", overlapCancels},
	{"a slot is posted beside the jobs before it", overlapAllows},
	{"missed slots are posted or skipped as the policy says", missedSlots},
	{"a slot that a full board refuses is recorded", refusedSlots},
	{"a slot whose key is taken is recorded", slotUnderAKey},
	{"every slot is posted once", everySlotOnce},
}

// three makes a schedule with three missed slots, which are all posted late.
func (k *kit) three(name string, overlap schedules.Overlap) schedules.Schedule {
	s := k.hourly(name, overlap, 3)
	s.Missed = schedules.Missed{Policy: schedules.MissedLast, Last: 3}
	return s
}

const (
	afterUnfinished = "skipped: a job of the schedule is not finished"
	afterLater      = "skipped: replaced by a later slot"
)

func overlapSkips(k *kit) {
	k.same("slots", fates(k.late(k.three("s", schedules.OverlapSkip)).History), []string{"posted", afterUnfinished + " (2)"})
	session := k.session("worker")
	claimed := k.soon(session)
	trash := release(claimed)
	trash.Reason = "nobody can do it"
	k.wants("Trash", k.Board.Trash(k.ctx, trash), nil)
	if s := k.report("s").Schedule; s.Active != 0 || s.Posted != 1 || s.Skipped != 2 {
		k.Errorf("a trashed job is not finished: %s", render(s))
	}
}

func overlapQueues(k *kit) {
	k.same("slots", fates(k.late(k.three("s", schedules.OverlapQueue)).History), []string{"posted", "waiting", "waiting"})
	session := k.session("worker")
	for _, want := range [][]string{{"posted", "posted", "waiting"}, {"posted", "posted", "posted"}, {"posted", "posted", "posted"}} {
		claimed := k.soon(session)
		k.wants("Abandon", k.Board.Abandon(k.ctx, release(claimed)), nil) // which does not end the job
		claimed = k.soon(session)
		k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
		k.same("as soon as one is finished", fates(k.report("s").History), want)
	}
	if s := k.report("s").Schedule; s.Active != 0 || s.Waiting != 0 || s.Posted != 3 {
		k.Errorf("in the end %s", render(s))
	}
}

func overlapCancels(k *kit) {
	unclaimed := k.late(k.three("s", schedules.OverlapCancel))
	k.same("slots", fates(unclaimed.History), []string{"posted", "posted", "posted"})
	for i, record := range slices.Backward(unclaimed.History) {
		job := k.job(record.Job)
		if cancelled := job.Outcome == jobs.OutcomeCancelled; cancelled == (i == 0) {
			k.Errorf("slot %d: %s", i, render(job))
		}
	}

	session := k.session("worker")
	claimed := k.soon(session)
	before := k.report("s")
	filled := k.fill(schedules.Backfill{Ref: k.called("s"), From: before.Schedule.Start.Add(-time.Second), To: time.Now()})
	k.same("a backfill cancels nothing", len(filled), 3)
	k.under(claimed.Job.ID, jobs.StateClaimed, "")

	k.wants("DeleteSchedule", k.Scheduler.DeleteSchedule(k.ctx, k.called("s")), nil)
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
	given := schedules.Schedule{Board: k.board, Name: "t", Rule: "@every 1s", Overlap: schedules.OverlapCancel, Posting: jobs.Posting{Kind: k.kind}}
	k.save(given)
	held := k.soon(session)
	report := k.until("t", "a slot waits, and another takes its place", func(r *schedules.Report) bool {
		return r.Schedule.Waiting == 1 && slices.Contains(fates(r.History), afterLater)
	})
	job := k.job(held.Job.ID)
	if job.StopRequest == nil || job.StopRequest.Kind != jobs.RequestCancel || !job.StopRequest.Revert || report.Schedule.Active != 1 {
		k.Errorf("the job before is %s, the schedule %s", render(job), render(report.Schedule))
	}
	ending := release(held)
	ending.Outcome = jobs.OutcomeCancelled
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
	k.until("t", "the slot that waits is posted", func(r *schedules.Report) bool { return r.Schedule.Posted >= 2 })
}

func overlapAllows(k *kit) {
	report := k.late(k.three("s", schedules.OverlapAllow))
	k.same("slots", fates(report.History), []string{"posted", "posted", "posted"})
	k.same("jobs at once", report.Schedule.Active, 3)
	slotsSeen := []time.Time{}
	for _, record := range slices.Backward(report.History) {
		k.same("state", k.job(record.Job).State, jobs.StateClaimable)
		slotsSeen = append(slotsSeen, record.Slot)
	}
	start := report.Schedule.Start
	k.same("the slots", slotsSeen, []time.Time{start, start.Add(time.Hour), start.Add(2 * time.Hour)})
}

func missedSlots(k *kit) {
	for name, row := range map[string]struct {
		missed schedules.Missed
		want   []string
	}{
		"unset":  {schedules.Missed{}, []string{"skipped: missed, and not among the last 1 (10)", "posted"}},
		"none":   {schedules.Missed{Policy: schedules.MissedNone}, []string{"skipped: missed (11)"}},
		"last":   {schedules.Missed{Policy: schedules.MissedLast, Last: 2}, []string{"skipped: missed, and not among the last 2 (9)", "posted", "posted"}},
		"more":   {schedules.Missed{Policy: schedules.MissedLast, Last: 20}, slices.Repeat([]string{"posted"}, 11)},
		"window": {schedules.Missed{Policy: schedules.MissedWindow, Window: 3 * time.Hour}, []string{"skipped: missed, and older than 3h0m0s (8)", "posted", "posted", "posted"}},
	} {
		given := k.hourly(name, schedules.OverlapAllow, 11)
		given.Missed = row.missed
		k.same(name, fates(k.late(given).History), row.want)
		k.accounted(name)
	}
}

func refusedSlots(k *kit) {
	k.posted("fills the board")
	k.wants("LimitBoard", k.Board.LimitBoard(k.ctx, k.board, jobs.BoardLimits{Jobs: 2}), nil)
	report := k.late(k.three("s", schedules.OverlapAllow))
	got := fates(report.History)
	if len(got) != 2 || got[0] != "posted" || !strings.HasPrefix(got[1], "skipped: ") || !strings.Contains(got[1], "limit") || !strings.HasSuffix(got[1], " (2)") {
		k.Errorf("slots of a full board: %q", got)
	}
	k.wants("LimitBoard", k.Board.LimitBoard(k.ctx, k.board, jobs.BoardLimits{}), nil)
	wanted := schedules.Backfill{Ref: k.called("s"), From: report.Schedule.Start, To: time.Now()}
	for _, record := range k.fill(wanted) {
		k.same("filled in when there is room", record.State, schedules.SlotPosted)
	}
	if s := k.report("s").Schedule; s.Posted != 3 || s.Skipped != 2 || s.Active != 3 {
		k.Errorf("in the end %s", render(s))
	}
}

func slotUnderAKey(k *kit) {
	given := k.three("s", schedules.OverlapAllow)
	given.Posting.Key = "the roof"
	report := k.late(given)
	first := report.History[len(report.History)-1].Job
	k.same("slots", fates(report.History), []string{"posted", "skipped: job " + first.String() + " has the key of the posting (2)"})
	k.same("jobs", k.list(jobs.Query{Board: k.board}, 0), []string{"s"})
}

// everySlotOnce runs a schedule while operators request its slots.
func everySlotOnce(k *kit) {
	given := schedules.Schedule{Board: k.board, Name: "ticks", Rule: "@every 1s", Overlap: schedules.OverlapAllow, Posting: jobs.Posting{Kind: k.kind}}
	k.save(given)
	order := k.command("ticks")
	for posted := range uint64(4) {
		report := k.until("ticks", "slots are posted", func(r *schedules.Report) bool { return r.Schedule.Posted > posted })
		slot := report.Schedule.Decided
		k.fill(schedules.Backfill{Ref: k.called("ticks"), From: slot.Add(-2 * time.Second), To: slot.Add(time.Second)})
		if _, err := k.Scheduler.RunSchedule(k.ctx, order); err != nil { // the same each time
			k.Errorf("RunSchedule: %v", err)
		}
		k.wants("PauseSchedule", k.Scheduler.PauseSchedule(k.ctx, order), nil)
		k.wants("ResumeSchedule", k.Scheduler.ResumeSchedule(k.ctx, order), nil)
	}
	k.wants("PauseSchedule", k.Scheduler.PauseSchedule(k.ctx, order), nil)
	k.accounted("ticks")
}

// accounted checks that each slot that the schedule has passed by itself is recorded once,
// without gaps, and that the schedule's jobs match its records.
func (k *kit) accounted(name string) {
	k.Helper()
	report := k.report(name)
	rule, err := schedules.ParseRule(&report.Schedule)
	if err != nil {
		k.Fatal(err)
	}
	jobsOf, at := map[jobs.JobID]bool{}, time.Time{}
	for _, record := range slices.Backward(report.History) {
		if record.State == schedules.SlotPosted {
			if jobsOf[record.Job] {
				k.Errorf("job %s belongs to two slots", record.Job)
			}
			jobsOf[record.Job] = true
			k.job(record.Job)
		}
		if record.Trigger != schedules.TriggerSchedule {
			continue
		}
		if !at.IsZero() && !rule.Next(at).Equal(record.Slot) {
			k.Errorf("after slot %s comes %s", at, record.Slot)
		}
		if at = record.Slot; record.Slots() > 1 {
			at = record.Through
		}
	}
	if uint64(len(jobsOf)) != report.Schedule.Posted {
		k.Errorf("%d jobs are recorded, and %d were posted", len(jobsOf), report.Schedule.Posted)
	}
}
