package fsm_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// second is a time in the tests: seconds after their start.
func second(n int) *timestamppb.Timestamp {
	return timestamppb.New(start.Add(time.Duration(n) * time.Second))
}

func seconds(t *timestamppb.Timestamp) int { return int(t.AsTime().Sub(start) / time.Second) }

// every10 is a schedule with a slot every ten seconds.
func every10(name, overlap string) *v1.Schedule {
	return &v1.Schedule{
		Id: id("schedule " + name), Name: name, Rule: "@every 10s", Overlap: overlap,
		Posting: &v1.Posting{Kind: "tick", Details: value(`{"a":1}`)},
	}
}

func saveSchedule(s *v1.Schedule, revision uint64, from, next int) *v1.Command {
	return &v1.Command{Kind: &v1.Command_SaveSchedule{SaveSchedule: &v1.SaveScheduleCommand{
		Schedule: s, Revision: revision, From: second(from), Next: second(next),
	}}}
}

func posting10(n int) *v1.SlotDecision {
	return &v1.SlotDecision{Slot: second(n), Through: second(n), Count: 1}
}

func skipping(from, through, count int, why string) *v1.SlotDecision {
	return &v1.SlotDecision{Slot: second(from), Through: second(through), Count: uint64(count), Skip: why}
}

func fire(epoch uint64, name string, revision uint64, next int, decisions ...*v1.SlotDecision) *v1.Command {
	return &v1.Command{Kind: &v1.Command_FireSchedule{FireSchedule: &v1.FireScheduleCommand{
		TimerEpoch: epoch, Schedule: id("schedule " + name), Revision: revision, Next: second(next), Decisions: decisions,
	}}}
}

func pauseSchedule(name, reason string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_PauseSchedule{PauseSchedule: &v1.PauseScheduleCommand{Name: name, By: "ann", Reason: reason}}}
}

func resumeSchedule(name string, revision uint64, next int, skipped *v1.SlotDecision) *v1.Command {
	return &v1.Command{Kind: &v1.Command_ResumeSchedule{ResumeSchedule: &v1.ResumeScheduleCommand{
		Name: name, Revision: revision, Skipped: skipped, Next: second(next),
	}}}
}

func deleteSchedule(name string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_DeleteSchedule{DeleteSchedule: &v1.DeleteScheduleCommand{Name: name}}}
}

func runSchedule(name, nonce string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_RunSchedule{RunSchedule: &v1.RunScheduleCommand{Name: name, Nonce: id(nonce), By: "ann"}}}
}

// backfill has a separate nonce for each list of slots.
func backfill(name string, revision uint64, slots ...int) *v1.Command {
	return backfillAs(fmt.Sprint("backfill of ", slots), name, revision, slots...)
}

func backfillAs(nonce, name string, revision uint64, slots ...int) *v1.Command {
	c := &v1.BackfillScheduleCommand{Name: name, Revision: revision, By: "ann", Nonce: id(nonce)}
	for _, slot := range slots {
		c.Slots = append(c.Slots, second(slot))
	}
	return &v1.Command{Kind: &v1.Command_BackfillSchedule{BackfillSchedule: c}}
}

// scheduled saves a schedule at second 5, under a new epoch.
func (r *rig) scheduled(s *v1.Schedule) (epoch, revision uint64) {
	r.Helper()
	r.ok(beginLeadership())
	saved := r.ok(saveSchedule(s, 0, 5, 10)).GetSchedule().GetSchedule()
	return r.TimerEpoch(), saved.GetRevision()
}

// schedule reads a schedule with its records, the earliest first, each as "10 posted" or "20-40 (3)
// skipped: why".
func (r *rig) schedule(name string) (schedules.Schedule, string) {
	r.Helper()
	s, records, err := r.Machine.Schedule(schedules.Ref{Name: name}, schedules.MaxSlotRecords)
	if err != nil {
		r.Fatal(err)
	}
	slices.Reverse(records)
	var words []string
	for _, record := range records {
		word := fmt.Sprint(int(record.Slot.Sub(start) / time.Second))
		if record.Count > 0 {
			word += fmt.Sprintf("-%d (%d)", int(record.Through.Sub(start)/time.Second), record.Count)
		}
		word += " " + string(record.State)
		if record.Reason != "" {
			word += ": " + record.Reason
		}
		words = append(words, word)
	}
	return s, strings.Join(words, "; ")
}

// recorded checks the records of a schedule's slots.
func (r *rig) recorded(name, want string) {
	r.Helper()
	if _, got := r.schedule(name); got != want {
		r.Fatalf("recorded: %s\nwant:     %s", got, want)
	}
}

// finishTick claims the first job of the schedules and consumes it.
func (r *rig) finishTick() {
	r.Helper()
	granted := r.ok(claimNext("ann", fmt.Sprint("nonce ", r.index), 1, nil, []string{"tick"})).GetClaim().Granted
	if len(granted) != 1 {
		r.Fatal("no job to finish")
	}
	r.ok(consume(&v1.Ending{Job: granted[0].Job, Token: granted[0].Token, Outcome: "success"}))
}

func TestASlotIsPostedOnce(t *testing.T) {
	r := newRig(t)
	epoch, revision := r.scheduled(every10("s", ""))
	if got := r.NextSlot(); !got.Equal(start.Add(10 * time.Second)) {
		t.Fatalf("the next slot is %s", got)
	}
	r.ok(fire(epoch, "s", revision, 20, posting10(10)))
	r.recorded("s", "10 posted")
	r.refused(fire(epoch, "s", revision, 20, posting10(10)), command.CodeConflict)
	r.refused(fire(epoch-1, "s", revision, 30, posting10(20)), command.CodeConflict)
	r.refused(fire(epoch, "s", revision+1, 30, posting10(20)), command.CodeConflict)
	r.refused(fire(epoch, "s", revision, 30, posting10(30), posting10(20)), command.CodeConflict)
	r.refused(fire(epoch, "s", revision, 20, posting10(20)), command.CodeInvalid)
	r.refused(fire(epoch, "none", revision, 30, posting10(20)), command.CodeNotFound)

	s, _ := r.schedule("s")
	job, err := r.Job(s.ID.SlotJob(start.Add(10 * time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	const slot = "2030-01-02T03:04:15Z"
	if job.Name != "s" || job.Kind != "tick" || string(job.Details) != `{"a":1}` || string(job.Store["slot"]) != `"`+slot+`"` ||
		string(job.Store["schedule"]) != `"s"` || job.Schedule != "s" || schedules.SlotText(job.Slot) != slot {
		t.Errorf("the job is %+v", job)
	}
}

func TestOverlap(t *testing.T) {
	for _, row := range []struct{ policy, recorded, after string }{
		{"skip", "10 posted; 20-30 (2) skipped: a job of the schedule is not finished",
			"10 posted; 20-30 (2) skipped: a job of the schedule is not finished"},
		{"", "10 posted; 20-30 (2) skipped: a job of the schedule is not finished",
			"10 posted; 20-30 (2) skipped: a job of the schedule is not finished"},
		{"queue", "10 posted; 20 waiting; 30 waiting", "10 posted; 20 posted; 30 waiting"},
		{"cancel", "10 posted; 20 skipped: replaced by a later slot; 30 waiting",
			"10 posted; 20 skipped: replaced by a later slot; 30 posted"},
		{"allow", "10 posted; 20 posted; 30 posted", "10 posted; 20 posted; 30 posted"},
	} {
		t.Run("policy "+row.policy, func(t *testing.T) {
			r := newRig(t)
			r.ok(open("ann"))
			epoch, revision := r.scheduled(every10("s", row.policy))
			r.ok(fire(epoch, "s", revision, 20, posting10(10)))
			s, _ := r.schedule("s")
			job := s.ID.SlotJob(start.Add(10 * time.Second)).String()
			token := r.claimedAgain("ann", job)
			r.ok(fire(epoch, "s", revision, 40, posting10(20), posting10(30)))
			r.recorded("s", row.recorded)
			if held := r.job(job); (held.StopRequest != nil) != (row.policy == "cancel") {
				t.Errorf("the order on the job: %+v", held.StopRequest)
			}
			outcome := "success"
			if row.policy == "cancel" {
				outcome = "cancelled"
			}
			r.ok(consume(&v1.Ending{Job: job, Token: command.TokenToProto(token), Outcome: outcome}))
			r.recorded("s", row.after)
		})
	}
	t.Run("cancel finishes at once what nobody has claimed", func(t *testing.T) {
		r := newRig(t)
		epoch, revision := r.scheduled(every10("s", "cancel"))
		r.ok(fire(epoch, "s", revision, 40, posting10(10), posting10(20), posting10(30)))
		r.recorded("s", "10 posted; 20 posted; 30 posted")
		if s, _ := r.schedule("s"); s.Active != 1 || s.Posted != 3 {
			t.Errorf("%+v", s)
		}
	})
}

func TestWaitingSlotsArePostedInOrder(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	epoch, revision := r.scheduled(every10("s", "queue"))
	r.ok(fire(epoch, "s", revision, 40, posting10(10), posting10(20), posting10(30)))
	r.ok(pauseSchedule("s", "wait"))
	r.finishTick()
	r.recorded("s", "10 posted; 20 waiting; 30 waiting") // a paused schedule posts nothing
	r.ok(resumeSchedule("s", revision, 40, nil))
	r.recorded("s", "10 posted; 20 posted; 30 waiting")
	r.finishTick()
	r.finishTick()
	r.recorded("s", "10 posted; 20 posted; 30 posted")
	if s, _ := r.schedule("s"); s.Active != 0 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}

// TestTheQueueOfSlotsIsBounded: the queue is limited, and a history of alternating records too.
func TestTheQueueOfSlotsIsBounded(t *testing.T) {
	r := newRig(t)
	epoch, revision := r.scheduled(every10("s", "queue"))
	for slot := 10; slot <= 10*(schedules.MaxWaitingSlots+3); slot += 10 {
		if result := r.do(fire(epoch, "s", revision, slot+10, posting10(slot)))[0]; result.GetError() != nil {
			t.Fatal(result.GetError())
		}
	}
	s, recorded := r.schedule("s")
	if s.Waiting != schedules.MaxWaitingSlots || !strings.HasSuffix(recorded, "10020-10030 (2) skipped: 1000 slots are already queued") {
		t.Errorf("%+v: …%s", s, recorded[len(recorded)-100:])
	}
	if err := fsm.Verify(r.Machine); err != nil {
		t.Fatal(err)
	}

	r = newRig(t)
	epoch, revision = r.scheduled(every10("s", "allow"))
	for slot := 10; slot <= 10*(schedules.MaxSlotRecords+9); slot += 10 {
		if result := r.do(fire(epoch, "s", revision, slot+10, posting10(slot)))[0]; result.GetError() != nil {
			t.Fatal(result.GetError())
		}
	}
	s, recorded = r.schedule("s")
	if s.Records != schedules.MaxSlotRecords || !strings.HasPrefix(recorded, "100 posted; ") || s.Posted != schedules.MaxSlotRecords+9 {
		t.Errorf("%+v: %.50s", s, recorded)
	}
	if err := fsm.Verify(r.Machine); err != nil {
		t.Fatal(err)
	}
}

func TestPauseAndResume(t *testing.T) {
	r := newRig(t)
	epoch, revision := r.scheduled(every10("s", ""))
	r.ok(pauseSchedule("s", "let me look"))
	r.harmless(pauseSchedule("s", "another reason"))
	s, _ := r.schedule("s")
	if s.Pause == nil || s.Pause.By != "ann" || s.Pause.Reason != "let me look" || !r.NextSlot().IsZero() {
		t.Errorf("%+v, next slot %s", s.Pause, r.NextSlot())
	}
	r.refused(fire(epoch, "s", revision, 20, posting10(10)), command.CodeConflict)
	r.refused(resumeSchedule("s", revision+1, 40, nil), command.CodeConflict)
	r.refused(resumeSchedule("s", revision, 40, skipping(5, 30, 3, "the schedule was paused")), command.CodeConflict)
	r.ok(resumeSchedule("s", revision, 40, skipping(10, 30, 3, "the schedule was paused")))
	r.harmless(resumeSchedule("s", revision, 40, skipping(10, 30, 3, "the schedule was paused")))
	r.ok(fire(epoch, "s", revision, 50, posting10(40)))
	r.recorded("s", "10-30 (3) skipped: the schedule was paused; 40 posted")
	for _, c := range []*v1.Command{pauseSchedule("x", ""), resumeSchedule("x", 1, 10, nil), deleteSchedule("x"), runSchedule("x", "n"), backfill("x", 1, 1)} {
		r.refused(c, command.CodeNotFound)
	}
}

func TestAScheduleIsChanged(t *testing.T) {
	r := newRig(t)
	epoch, revision := r.scheduled(every10("s", ""))
	r.harmless(saveSchedule(every10("s", ""), 0, 7, 10)) // an unchanged schedule, for any revision
	r.ok(fire(epoch, "s", revision, 20, posting10(10)))

	other := every10("s", "allow")
	r.refused(saveSchedule(other, 0, 12, 20), command.CodeConflict)
	r.ok(saveSchedule(other, revision, 12, 99))
	s, _ := r.schedule("s")
	if s.Revision == revision || s.Overlap != "allow" || !s.Next.Equal(start.Add(20*time.Second)) {
		t.Errorf("another policy has moved the slots: %+v", s)
	}
	r.refused(fire(epoch, "s", revision, 30, posting10(20)), command.CodeConflict)

	faster := every10("s", "allow")
	faster.Rule = "@every 5s"
	r.refused(saveSchedule(faster, s.Revision, 9, 35), command.CodeConflict) // starts before decided slots
	c := saveSchedule(faster, s.Revision, 33, 35)
	c.GetSaveSchedule().Skipped = skipping(20, 30, 2, "the schedule was changed")
	r.ok(c)
	s, _ = r.schedule("s")
	r.ok(fire(epoch, "s", s.Revision, 40, posting10(35)))
	r.recorded("s", "10 posted; 20-30 (2) skipped: the schedule was changed; 35 posted")

	r.ok(deleteSchedule("s"))
	r.refused(deleteSchedule("s"), command.CodeNotFound)
	if !r.NextSlot().IsZero() {
		t.Errorf("a deleted schedule has a slot at %s", r.NextSlot())
	}
	r.ok(open("ann"))
	r.finishTick() // a job outlives its schedule
	r.scheduled(func() *v1.Schedule { s := every10("s", ""); s.Id = id("another"); return s }())
}

func TestRunAndBackfill(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	epoch, revision := r.scheduled(every10("s", ""))
	r.ok(fire(epoch, "s", revision, 40, posting10(10), skipping(20, 30, 2, "missed")))
	if skipped := r.changes[len(r.changes)-1].Skipped; skipped != 2 {
		t.Errorf("%d slots were skipped", skipped)
	}
	slots := r.ok(runSchedule("s", "now")).GetSchedule().Slots
	if len(slots) != 1 || slots[0].State != "posted" || slots[0].Trigger != "run" || slots[0].By != "ann" {
		t.Fatalf("%v", slots)
	}
	if again := r.harmless(runSchedule("s", "now")).GetSchedule().Slots; again[0].Job != slots[0].Job {
		t.Errorf("a repeat gives %v", again)
	}
	r.refused(backfill("s", revision, 50), command.CodeInvalid)
	r.refused(backfill("s", revision, 20, 10), command.CodeInvalid)
	r.refused(backfill("s", revision+1, 10), command.CodeConflict)
	filled := r.ok(backfill("s", revision, -10, 10, 20, 30)).GetSchedule().Slots
	var states []string
	for _, slot := range filled {
		states = append(states, fmt.Sprint(seconds(slot.Slot), " ", slot.State, " by ", slot.Trigger))
	}
	want := "-10 waiting by backfill, 10 posted by schedule, 20 waiting by backfill, 30 waiting by backfill"
	if got := strings.Join(states, ", "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	r.harmless(backfill("s", revision, -10, 10, 20, 30))
	for range 5 {
		r.finishTick()
	}
	if s, _ := r.schedule("s"); s.Posted != 5 || s.Active != 0 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}

// TestARefusedSlotIsRecorded: a slot that the board refuses does not stop the schedule.
func TestARefusedSlotIsRecorded(t *testing.T) {
	r := newRig(t)
	epoch, revision := r.scheduled(every10("s", ""))
	s, _ := r.schedule("s")
	taken := posting("squatter", "k")
	taken.Id = s.ID.SlotJob(start.Add(10 * time.Second)).String()
	r.posted(taken)
	r.ok(fire(epoch, "s", revision, 30, posting10(10), posting10(20)))
	if _, recorded := r.schedule("s"); !strings.HasPrefix(recorded, "10 skipped: conflict: the id belongs to another posting; use a new id") || !strings.HasSuffix(recorded, "; 20 posted") {
		t.Errorf("recorded: %s", recorded)
	}
}

// TestARefusalIsAnsweredOnce: a request that is repeated after a refusal gets the same answer, and
// leaves no second record. A request with another nonce tries again.
func TestARefusalIsAnsweredOnce(t *testing.T) {
	r := newRig(t)
	_, revision := r.scheduled(every10("s", "allow"))
	r.ok(fire(r.TimerEpoch(), "s", revision, 20, posting10(10)))
	r.ok(limitBoard("default", &v1.BoardLimits{Jobs: 1}))
	first := r.ok(runSchedule("s", "first"))
	filled := r.ok(backfillAs("filling", "s", revision, -10, 0))
	for _, again := range []struct {
		command *v1.Command
		want    *v1.Result
	}{{runSchedule("s", "first"), first}, {backfillAs("filling", "s", revision, -10, 0), filled}} {
		if got := r.harmless(again.command); !proto.Equal(got, again.want) {
			t.Errorf("%v\nand again %v", again.want, got)
		}
	}
	r.ok(limitBoard("default", &v1.BoardLimits{}))
	r.harmless(runSchedule("s", "first"))
	r.ok(runSchedule("s", "second"))
	r.ok(backfillAs("filling again", "s", revision, -20, -10, 0))
	_, recorded := r.schedule("s")
	if got := strings.Count(recorded, "skipped"); got != 3 || strings.Count(recorded, "posted") != 5 {
		t.Errorf("recorded: %s", recorded)
	}
	if got := r.harmless(backfillAs("filling", "s", revision, -10, 0)); !proto.Equal(got, filled) {
		t.Errorf("after others: %v, want %v", got, filled)
	}
}

// TestABackfillOverTheQueueIsRecorded: each slot without room is answered with its own record.
func TestABackfillOverTheQueueIsRecorded(t *testing.T) {
	r := newRig(t)
	epoch, revision := r.scheduled(every10("s", "queue"))
	r.ok(fire(epoch, "s", revision, 30, posting10(10), posting10(20))) // one slot waits
	var slots []int
	for n := range schedules.MaxBackfill {
		slots = append(slots, -10*(schedules.MaxBackfill-n))
	}
	filled := r.ok(backfillAs("all", "s", revision, slots...)).GetSchedule().Slots
	last := filled[len(filled)-1]
	if filled[len(filled)-2].State != "waiting" || last.State != "skipped" || last.Trigger != "backfill" || last.Number == 0 {
		t.Errorf("the last two: %v", filled[len(filled)-2:])
	}
	r.harmless(backfillAs("all", "s", revision, slots...))
}

func TestSchedulesAreListedAndBounded(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"b", "a", "c"} {
		s := every10(name, "")
		if name == "c" {
			s.Board = "a board before default"
		}
		r.ok(saveSchedule(s, 0, 5, 10+len(name)))
	}
	list := func(query schedules.Query) string {
		listed, err := r.Schedules(query)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range listed.Items {
			names = append(names, s.Name)
		}
		return strings.Join(names, " ")
	}
	for want, query := range map[string]schedules.Query{
		"a b c": {}, "a b": {Board: "default"}, "c": {Board: "a board before default"}, "a": {Limit: 1},
		"b c": {After: hex.EncodeToString([]byte("\x07defaulta"))}, "": {Board: "none"},
	} {
		if got := list(query); got != want {
			t.Errorf("%+v: %q, want %q", query, got, want)
		}
	}
	for i := 3; i < schedules.MaxSchedules; i += 100 {
		var more []*v1.Command
		for j := i; j < min(i+100, schedules.MaxSchedules); j++ {
			more = append(more, saveSchedule(every10(fmt.Sprint("more ", j), ""), 0, 5, 10))
		}
		r.do(more...)
	}
	r.refused(saveSchedule(every10("one too many", ""), 0, 5, 10), command.CodeOverLimit)
	r.ok(deleteSchedule("a"))
	r.ok(saveSchedule(every10("one too many", ""), 0, 5, 10))
}

// TestEverySlotOnceOverFailovers: leaders come and go, propose late, twice, out
// of date and with other clocks, and people pause, run and fill in. At the end
// every slot up to the last decided one has one job or one record of its skip.
func TestEverySlotOnceOverFailovers(t *testing.T) {
	openMachine := openMachines(t)
	rapid.Check(t, func(t *rapid.T) {
		a := &author{T: t, machine: openMachine(t), now: start}
		rule, err := schedules.ParseRule(&schedules.Schedule{Rule: "@every 10s"})
		if err != nil {
			t.Fatal(err)
		}
		begin := start.Add(5 * time.Second)
		apply := func(commands ...*v1.Command) []*v1.Result {
			a.index++
			results, err := a.machine.Apply([]fsm.Entry{encodeEntry(t, a.index, a.now, commands...)})
			if err != nil {
				t.Fatal(err)
			}
			return results[0]
		}
		s := every10("s", a.oneOf("overlap", "skip", "queue", "cancel", "allow"))
		apply(beginLeadership(), open("ann"), saveSchedule(s, 0, 5, 10))
		name := schedules.Ref{Name: "s"}
		var late []*v1.Command // delayed proposals
		for range 5 + a.draw("steps", 40) {
			a.now = a.now.Add(time.Duration(a.draw("passing", 30)) * time.Second)
			known, _, err := a.machine.Schedule(name, 0)
			if err != nil {
				t.Fatal(err)
			}
			switch a.draw("step", 9) {
			case 0:
				apply(beginLeadership())
			case 1:
				apply(pauseSchedule("s", "why"))
			case 2:
				span, next := rule.Span(known.Decided, a.now, "the schedule was paused")
				apply(&v1.Command{Kind: &v1.Command_ResumeSchedule{ResumeSchedule: &v1.ResumeScheduleCommand{
					Name: "s", Revision: known.Revision, Skipped: command.SlotDecisionToProto(span), Next: command.TimeToProto(next),
				}}})
			case 3:
				apply(runSchedule("s", fmt.Sprint("run ", a.index)))
			case 4:
				apply(claimNext("ann", fmt.Sprint("nonce ", a.index), 5, nil, nil))
			case 5:
				a.finishHeld(apply)
			default: // a leader with a different clock
				leadersNow := a.now.Add(time.Duration(a.draw("clock ahead", 20)) * time.Second)
				missed := schedules.Missed{Policy: schedules.MissedPolicy(a.oneOf("missed", "none", "last"))}
				decisions, next := rule.Decide(known.Decided, leadersNow, missed)
				c := &v1.FireScheduleCommand{
					TimerEpoch: a.machine.TimerEpoch(), Schedule: known.ID.String(), Revision: known.Revision, Next: command.TimeToProto(next),
				}
				for i := range decisions {
					c.Decisions = append(c.Decisions, command.SlotDecisionToProto(&decisions[i]))
				}
				late = append(late, &v1.Command{Kind: &v1.Command_FireSchedule{FireSchedule: c}})
			}
			for len(late) > 0 && a.draw("arrives", 1) == 0 {
				apply(late[a.draw("which", len(late)-1)]) // possibly repeated
			}
			if err := fsm.Verify(a.machine); err != nil {
				t.Fatal(err)
			}
		}
		accounted(t, a.machine, rule, name, begin)
	})
}

// finishHeld consumes all claimed jobs.
func (a *author) finishHeld(apply func(...*v1.Command) []*v1.Result) {
	page, err := a.machine.Jobs(jobs.Query{States: []jobs.State{jobs.StateClaimed}})
	if err != nil {
		a.Fatal(err)
	}
	for _, job := range page.Items {
		outcome := "success"
		if job.StopRequest != nil {
			outcome = "cancelled"
		}
		apply(consume(&v1.Ending{Job: job.ID.String(), Token: command.TokenToProto(job.Token), Outcome: outcome}))
	}
}

// accounted walks the slots and the records side by side.
func accounted(t *rapid.T, m *fsm.Machine, rule *schedules.Rule, name schedules.Ref, begin time.Time) {
	s, records, err := m.Schedule(name, schedules.MaxSlotRecords)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(records)
	slices.SortStableFunc(records, func(a, b schedules.SlotRecord) int { return a.Slot.Compare(b.Slot) })
	at, posted := begin, 0
	for _, record := range records {
		if record.Trigger != schedules.TriggerSchedule {
			continue
		}
		for range record.Slots() {
			next := rule.Next(at)
			if next.Before(record.Slot) || (record.Slots() == 1 && !next.Equal(record.Slot)) {
				t.Fatalf("slot %s has no record; the next is of %s", next, record.Slot)
			}
			at = next
		}
		if record.Slots() > 1 && !at.Equal(record.Through) {
			t.Fatalf("%d slots from %s end at %s, and not at %s", record.Slots(), record.Slot, at, record.Through)
		}
		if record.State == schedules.SlotPosted {
			posted++
			if _, err := m.Job(s.ID.SlotJob(record.Slot)); err != nil {
				t.Fatalf("slot %s is posted: %v", record.Slot, err)
			}
		}
	}
	if at.After(s.Decided) || (!rule.Next(at).After(s.Decided)) {
		t.Fatalf("accounted up to %s, and decided up to %s", at, s.Decided)
	}
	ticks := 0
	for after := ""; ; {
		page, err := m.Jobs(jobs.Query{Kind: "tick", After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range page.Items {
			if !slices.ContainsFunc(records, func(r schedules.SlotRecord) bool { return r.Job == job.ID && r.State == schedules.SlotPosted }) {
				t.Fatalf("job %s does not belong to a slot", job.ID)
			}
			ticks++
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if uint64(ticks) != s.Posted {
		t.Fatalf("%d jobs, and %d were counted", ticks, s.Posted)
	}
}

// schedule draws a command about a schedule, for the tests of whole logs.
func (a *author) schedule() *v1.Command {
	name := a.oneOf("schedule", "s", "s", "t")
	known, _, err := a.machine.Schedule(schedules.Ref{Name: name}, 0)
	next := int(a.now.Sub(start)/(10*time.Second))*10 + 10
	if err != nil {
		s := every10(name, a.oneOf("overlap", "", "queue", "cancel", "allow"))
		s.Id = id(fmt.Sprint("schedule ", name, a.index))
		return saveSchedule(s, 0, next-10, next)
	}
	switch a.draw("what", 5) {
	case 0:
		return pauseSchedule(name, "why")
	case 1:
		return resumeSchedule(name, known.Revision, max(next, int(known.Next.Sub(start)/time.Second)), nil)
	case 2:
		return runSchedule(name, fmt.Sprint("nonce ", a.index))
	case 3:
		return backfillAs(fmt.Sprint("nonce ", a.index), name, known.Revision, -10*a.draw("slot", 3)-10, int(known.Decided.Sub(start)/(10*time.Second))*10)
	case 4:
		return saveSchedule(every10(name, a.oneOf("overlap", "", "queue", "cancel", "allow")), known.Revision, next-10, next)
	}
	return deleteSchedule(name)
}

// fire draws the decision of a slot, usually a correct one.
func (a *author) fire() *v1.Command {
	name := a.oneOf("schedule", "s", "s", "t")
	known, _, err := a.machine.Schedule(schedules.Ref{Name: name}, 0)
	if err != nil {
		return a.schedule()
	}
	slot := int(known.Next.Sub(start) / time.Second)
	decisions := []*v1.SlotDecision{posting10(slot), posting10(slot + 10)}
	if a.draw("skip", 3) == 0 {
		decisions[0] = skipping(slot, slot, 1, "missed")
	}
	c := fire(a.machine.TimerEpoch(), name, known.Revision, slot+20, decisions...)
	c.GetFireSchedule().Schedule = known.ID.String()
	return c
}

// TestScheduleReadsAreRefusedByName: reads of missing schedules return ErrNotFound.
func TestScheduleReadsAreRefusedByName(t *testing.T) {
	r := newRig(t)
	for _, name := range []schedules.Ref{{Name: "x"}, {Board: strings.Repeat("b", 300), Name: "x"}} {
		if _, _, err := r.Machine.Schedule(name, 1); err == nil || !strings.Contains(err.Error(), logbook.ErrNotFound.Error()) {
			t.Errorf("%v: %v", name, err)
		}
	}
}

// TestReasonsOfRefusalsAreText: a shortened reason is not cut within a character. Otherwise it
// could be written and never read.
func TestReasonsOfRefusalsAreText(t *testing.T) {
	for extra := range len("€") {
		long := fmt.Errorf("%s%s", strings.Repeat("x", extra), strings.Repeat("€", jobs.MaxReason))
		if reason := fsm.RefusalOf(jobs.NewJobID(), long); !utf8.ValidString(reason) || len(reason) > jobs.MaxReason {
			t.Errorf("a reason of %d bytes, text: %t", len(reason), utf8.ValidString(reason))
		}
	}
}
