package node_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
)

// flying claims a job with a flow of one step, fly, and returns a function that changes the step.
func flying(t *testing.T, client *raftboard.Client, board string) (job jobs.Job, fly func(state logbook.FlowState, to logbook.AtomState)) {
	t.Helper()
	ctx := t.Context()
	book := logbook.Book{ID: logbook.NewBookID(), Name: "b"}
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "f", Factory: logbook.Factory{Name: "f"}}}
	posted, err := jobs.PostOne(ctx, client, jobs.Posting{Board: board, Name: "j", Book: &book})
	if err != nil {
		t.Fatal(err)
	}
	granted, err := client.Claim(ctx, opened(t, client, time.Minute), posted.ID, jobs.NewNonce())
	if err != nil {
		t.Fatal(err)
	}
	sequence := uint64(0)
	return granted.Job, func(state logbook.FlowState, to logbook.AtomState) {
		t.Helper()
		sequence++
		update := logbook.Update{Flow: granted.Job.Flow, Token: granted.Job.Token, Sequence: sequence, State: state}
		update.Atoms = []logbook.AtomChange{{Name: "fly", Kind: logbook.KindTask, State: to}}
		verdicts, err := client.Update(ctx, update)
		if err := errors.Join(append(verdicts, err)...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStepIsAwaitedAcrossLeaders: a wait for a step continues when the leader is lost, and ends with the
// step under the next leader.
func TestStepIsAwaitedAcrossLeaders(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	client := c.client()
	job, fly := flying(t, client, "")
	fly(logbook.FlowRunning, logbook.AtomRunning)
	type end struct {
		step jobs.Step
		err  error
	}
	ended := make(chan end, 1)
	go func() { // ends with the step, or with the test's context
		step, err := client.WaitStep(t.Context(), job.ID, "fly")
		ended <- end{step, err}
	}()
	lost := c.leader()
	eventually(t, "the call waits at the leader", func() bool { return node.AwaitedSteps(c.nodes[lost]) == 1 })
	c.stop(lost)
	next := c.leader()
	eventually(t, "the call waits at the next leader", func() bool { return node.AwaitedSteps(c.nodes[next]) == 1 })
	select {
	case got := <-ended:
		t.Fatalf("the wait ended before the step: %+v, %v", got.step, got.err)
	default:
	}
	fly("", logbook.AtomSuccess)
	if got := <-ended; got.err != nil || got.step.Outcome != jobs.StepSuccess {
		t.Fatalf("the wait ended with %+v, %v", got.step, got.err)
	}
	if waiting := node.AwaitedSteps(c.nodes[next]); waiting != 0 {
		t.Errorf("%d calls still wait", waiting)
	}
}

// TestWaitsForStepsAreLimited: a wait counts for the quota of watches, and a call that does not wait never
// does. A timeout above the limit is shortened.
func TestWaitsForStepsAreLimited(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	own := c.newTenant("mine", "own")
	token, _ := c.token("mine", time.Time{}, access.Grant{Role: access.Viewer, Boards: "mine"})
	if err := c.operator.SaveQuota(t.Context(), access.Quota{Subject: access.Subject{Principal: "mine"}, Limits: access.Amounts{Watches: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := c.operator.Change(t.Context(), jobs.Change{Job: own.job, Release: true}); err != nil {
		t.Fatal(err)
	}
	request := fmt.Sprintf(`{"job": %q, "step": "s"`, own.job)
	answered := make(chan string, 1)
	go func() { // ends with the job
		_, answer := c.call(0, token, "BoardService/WaitStep", request+`, "timeout": "3600s"}`)
		answered <- answer
	}()
	eventually(t, "the call waits", func() bool { return node.AwaitedSteps(c.nodes[0]) == 1 })
	if status, answer := c.call(0, token, "BoardService/WaitStep", request+`, "timeout": "60s"}`); status == http.StatusOK || !strings.Contains(answer, "watches") {
		t.Errorf("a wait above the quota: %d %s", status, answer)
	}
	if status, answer := c.call(0, token, "BoardService/WaitStep", request+`}`); status != http.StatusOK {
		t.Errorf("a call that does not wait: %d %s", status, answer)
	}
	if err := c.operator.Cancel(t.Context(), jobs.JobCommand{Job: own.job}); err != nil {
		t.Fatal(err)
	}
	<-answered
}
