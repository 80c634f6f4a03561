package conductor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestFlowsThatOthersCanBuild: a job whose flow cannot be built here is given
// back while another conductor says that it could, and trashed when none does.
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
		there.Name, there.MaxJobs, there.Metadata = "there", 1, logbook.Values{"can": []byte("true")}
		var started diary
		there.Notify = started.note
		owner := running(t, there)
		post(t, c, "pinch", nil)
		until(t, "the one who could is busy", func() bool { return started.count(conductor.MomentStarted) == 1 })

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
		until(t, "the job is given back", func() bool { return notices.count(conductor.MomentAbandoned) >= 2 })
		lacks.Pause() // or it may win the job again and again, and each time the delay doubles
		close(release)
		if got := finished(t, c, job.ID); got.Outcome != jobs.OutcomeSuccess || got.Failures != 0 {
			t.Errorf("the job is %s %q after %d failures: %s", got.State, got.Outcome, got.Failures, got.Reason)
		}

		drain(t, owner)
		lacks.Unpause()
		if got := finished(t, c, post(t, c, "rare", nil).ID); got.State != jobs.StateTrashed || kindOf(got.Failure) != logbook.FailureBuild {
			t.Errorf("nobody can build it, and it is %s: %+v", got.State, got.Failure)
		}
	})
}
