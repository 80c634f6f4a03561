package api_test

import (
	"flag"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/jobstest"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/logbooktest"
)

// TestConformance: the promises of jobs.Board and logbook.Connection hold through the client and the
// services of a node over a log in memory.
func TestConformance(t *testing.T) {
	t.Parallel()
	a, client := newAPI(t)
	lapse := func(id jobs.SessionID) {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			sessions, err := client.Sessions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(sessions, func(s jobs.Session) bool { return s.ID == id }) {
				return
			}
		}
		t.Fatalf("session %s does not expire", id)
	}
	dormant := func(schedule schedules.Schedule, since time.Time) (schedules.Schedule, error) {
		save, err := command.PlanSave(&schedule, nil, schedules.NewID(), since)
		if err != nil {
			return schedule, err
		}
		_, result, err := a.Router.Submit.One(t.Context(), save)
		if err != nil {
			return schedule, err
		}
		return command.ScheduleFromProto(result.GetSchedule().GetSchedule())
	}
	harness := func(*testing.T) jobstest.Harness {
		return jobstest.Harness{Board: client, Logbook: client, Lapse: lapse, TTL: 3 * time.Second, Scheduler: client, Dormant: dormant}
	}
	t.Run("board", func(t *testing.T) { t.Parallel(); jobstest.Exercise(t, harness) })
	t.Run("scheduler", func(t *testing.T) { t.Parallel(); jobstest.ExerciseScheduler(t, harness) })
	t.Run("logbook", func(t *testing.T) {
		t.Parallel()
		logbooktest.Exercise(t, func(*testing.T) logbook.Connection { return client })
	})
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "10"); err != nil { // the tests wait far more than they compute
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
