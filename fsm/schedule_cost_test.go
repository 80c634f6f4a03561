package fsm_test

import (
	"runtime"
	"strings"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs/schedules"
)

// TestBackfillCostsWhatItHolds: the cost per slot does not depend on the number of slots. This
// applies to new slots, slots with dropped records, and slots that were backfilled before.
func TestBackfillCostsWhatItHolds(t *testing.T) {
	costs := func(slots int) (costs [3]uint64) {
		r := newRig(t)
		s := every10("s", "queue")
		r.ok(beginLeadership())
		revision := r.ok(saveSchedule(s, 0, 100_000, 100_010)).GetSchedule().GetSchedule().GetRevision()
		for i, from := range []int{0, slots, 0} {
			var times []int
			for n := from; n < from+slots; n++ {
				times = append(times, 10*n)
			}
			entry := r.entry(backfill("s", revision, times...))
			before := mallocs()
			r.apply(entry)
			costs[i] = mallocs() - before
		}
		return costs
	}
	few, many := costs(20), costs(1_000)
	for i, what := range []string{"new", "more", "again"} {
		if many[i] > 3*50*few[i] {
			t.Errorf("%s: 1,000 slots take %d allocations, and 20 take %d", what, many[i], few[i])
		}
	}
	t.Logf("of 20 slots %d allocations, of 1,000 %d", few, many)
}

func mallocs() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.Mallocs
}

// TestTheJobsOfAScheduleAreBounded: at the limit, a slot or a run is skipped with the reason. A
// later slot that cancels all jobs is one command.
func TestTheJobsOfAScheduleAreBounded(t *testing.T) {
	r := newRig(t)
	epoch, revision := r.scheduled(every10("s", "allow"))
	const step = 100
	for slot := 10; slot <= 10*schedules.MaxScheduleJobs; slot += 10 * step {
		var decisions []*v1.SlotDecision
		for n := range step {
			decisions = append(decisions, posting10(slot+10*n))
		}
		r.apply(r.entry(fire(epoch, "s", revision, slot+10*step, decisions...)))
	}
	r.ok(runSchedule("s", "one more"))
	r.ok(fire(epoch, "s", revision, 60_000, posting10(50_010)))
	s, recorded := r.schedule("s")
	if s.Active != schedules.MaxScheduleJobs || s.Skipped != 2 || !strings.HasSuffix(recorded, "50010 skipped: 5000 jobs of the schedule are not finished") {
		t.Fatalf("%d jobs, %d skipped: ...%s", s.Active, s.Skipped, recorded[len(recorded)-100:])
	}
	revision = r.ok(saveSchedule(every10("s", "cancel"), revision, 50_010, 60_000)).GetSchedule().GetSchedule().GetRevision()
	r.ok(fire(epoch, "s", revision, 60_010, posting10(60_000)))
	if s, _ := r.schedule("s"); s.Active != 1 {
		t.Fatalf("%d jobs are not finished", s.Active)
	}
}
