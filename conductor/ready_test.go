package conductor_test

import (
	"testing"
	"testing/synctest"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/jobs"
)

// A conductor can be drained at any time. It stops, before or during Run, and takes no job
// afterwards.
func TestDrainBesideRun(t *testing.T) {
	for _, row := range []struct {
		name   string
		before func(c *conductor.Conductor) // before Drain
	}{
		{"at once", func(*conductor.Conductor) {}},
		{"when all goroutines wait", func(*conductor.Conductor) { synctest.Wait() }},
		{"when it is ready", func(c *conductor.Conductor) { <-c.Ready() }},
	} {
		for range 20 {
			synctest.Test(t, func(t *testing.T) {
				c := openCluster(t)
				worker, ended := ends(t, options(c, simple(t)))
				row.before(worker)
				drain(t, worker)
				if err := <-ended; err != nil {
					t.Errorf("%s: Run returned %v", row.name, err)
				}
				drain(t, worker)
				job := post(t, c, "work", nil)
				if err := worker.Run(t.Context()); err != nil {
					t.Errorf("%s: another Run returned %v", row.name, err)
				}
				under(t, c, job.ID, jobs.StateClaimable)
			})
		}
	}
}

// Ready is closed when the board knows the conductor, and stays closed after Run has returned.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		worker, run := made(t, options(c, simple(t)))
		select {
		case <-worker.Ready():
			t.Error("ready before Run")
		default:
		}
		run()
		<-worker.Ready()
		if entities, err := c.Entities(t.Context(), jobs.EntityConductor); err != nil || len(entities) != 1 {
			t.Errorf("the board knows %d conductors, %v", len(entities), err)
		}
		expireSessions(t, c) // the conductor registers again
		job := finished(t, c, post(t, c, "work", nil).ID)
		if job.Outcome != jobs.OutcomeSuccess {
			t.Errorf("outcome %q under its second session", job.Outcome)
		}
		drain(t, worker)
		<-worker.Ready()
	})
}
