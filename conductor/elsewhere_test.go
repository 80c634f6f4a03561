package conductor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func can() logbook.Values { return logbook.Values{"can": []byte("true")} }

// TestFlowsThatOthersCanBuild: a job whose flow cannot be built here is released while
// another conductor could build it, and trashed when none could.
func TestFlowsThatOthersCanBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		release := make(chan struct{})
		busy := factories{
			"pinch": func() ([]flow.Node, error) {
				return []flow.Node{do("wait", func(ctx context.Context) error {
					select {
					case <-release:
					case <-ctx.Done():
					}
					return nil
				})}, nil
			},
			"rare": func() ([]flow.Node, error) { return []flow.Node{do("a", well)}, nil },
		}
		there := options(c, busy.registry(t))
		there.Name, there.MaxJobs, there.Metadata = "there", 1, can
		var started diary
		there.Notify = started.note
		owner := running(t, there)
		post(t, c, "pinch", nil)
		until(t, "the suitable conductor is busy", func() bool { return started.count(conductor.MomentStarted) == 1 })
		registered(t, c, 1)

		lacking := factories{"rare": func() ([]flow.Node, error) { return nil, errors.New("a part is not on this machine") }}
		here := options(c, lacking.registry(t))
		here.Name = "here"
		here.Elsewhere = func(detail *logbook.FlowDetail, other jobs.Entity) bool {
			return detail.Factory.Name == "rare" && other.Name != "here" && other.Metadata["can"] != nil
		}
		var notices diary
		here.Notify = notices.note
		lacks := running(t, here)
		job := post(t, c, "rare", nil)
		until(t, "the job is released", func() bool { return notices.count(conductor.MomentAbandoned) >= 2 })
		lacks.Pause() // otherwise it can win the job again, and the delay doubles each time
		close(release)
		if got := finished(t, c, job.ID); got.Outcome != jobs.OutcomeSuccess || got.Failures != 0 {
			t.Errorf("the job is %s %q after %d failures: %s", got.State, got.Outcome, got.Failures, got.Reason)
		}

		drain(t, owner)
		lacks.Unpause()
		if got := finished(t, c, post(t, c, "rare", nil).ID); got.State != jobs.StateTrashed || kindOf(got.Failure) != logbook.FailureBuild {
			t.Errorf("no conductor can build the flow, and the job is %s: %+v", got.State, got.Failure)
		}
	})
}

// TestFlowsThatADrainedOneCanBuild: if only a drained conductor could build a job's flow, the job
// waits for that conductor, and its explanation names the drain.
func TestFlowsThatADrainedOneCanBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		able := factories{"rare": func() ([]flow.Node, error) { return []flow.Node{do("a", well)}, nil }}
		there := options(c, able.registry(t))
		there.Name, there.Metadata = "there", can
		running(t, there)
		registered(t, c, 1)
		drain := jobs.DrainCommand{Conductor: "there", By: "ann", Reason: "a new disk"}
		if err := c.DrainConductor(t.Context(), drain); err != nil {
			t.Fatal(err)
		}

		lacking := factories{"rare": func() ([]flow.Node, error) { return nil, errors.New("a part is not on this machine") }}
		here := options(c, lacking.registry(t))
		here.Name = "here"
		here.Elsewhere = func(_ *logbook.FlowDetail, other jobs.Entity) bool { return other.Metadata["can"] != nil }
		here.AbandonDelay, here.MaxAbandonDelay = time.Hour, time.Hour
		var notices diary
		here.Notify = notices.note
		running(t, here)
		job := post(t, c, "rare", nil)
		until(t, "the job is released", func() bool { return notices.count(conductor.MomentAbandoned) == 1 })
		got, err := c.Explain(t.Context(), job.ID)
		const says = "only there can, but it is drained by ann (a new disk); undrain it"
		if err != nil || got.Cause != jobs.CauseCooling || !strings.Contains(got.Text, says) {
			t.Errorf("it waits because of %+v, %v", got, err)
		}
	})
}
