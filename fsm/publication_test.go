package fsm_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// publication makes a publication to topic pay with key 7.
func publication(id, to string, keep time.Duration) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Publish{Publish: &v1.PublishCommand{Topic: "pay", Key: "7", Id: id, To: to, Keep: lasting(keep)}}}
}

// subscribed lets a step of a new job wait for topic pay with key 7.
func (r *rig) subscribed(job string) logbook.Token {
	r.Helper()
	token := r.claimed("worker", flowPosting(job))
	attempt := executing(1)
	attempt.Asked = 1
	attempt.Wait = &v1.Wait{Topic: "pay", Key: "7", Since: timestamppb.New(start), Until: timestamppb.New(start.Add(1_000 * time.Hour))}
	r.ok(updateFlow(update("flow of "+job, token, 1, "running", task("pay", "pending", attempt))))
	return token
}

// TestKeptPublicationsExpire: a board removes a kept publication at its end, also after a restore. Later waits do not
// get it, and repeats are still known.
func TestKeptPublicationsExpire(t *testing.T) {
	first := newRig(t)
	first.ok(open("worker"))
	for hours := range 3 {
		first.ok(publication(fmt.Sprint(hours+1), "one", time.Duration(hours+1)*time.Hour))
	}
	if due := first.NextDue(); !due.Equal(start.Add(time.Hour)) {
		t.Errorf("the first timer is due at %s", due)
	}
	r := newRig(t)
	if err := r.Restore(bytes.NewReader(snapshot(t, first.Machine))); err != nil {
		t.Fatal(err)
	}
	r.index = first.index
	r.ok(beginLeadership())
	r.wakeAt(2, r.index)
	if due := r.NextDue(); !due.Equal(start.Add(3 * time.Hour)) {
		t.Errorf("the next timer is due at %s", due)
	}
	events, err := r.Events(jobs.Position{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var expired []jobs.Event
	for _, event := range events {
		if event.Kind == jobs.EventPublicationExpired {
			expired = append(expired, event)
		}
	}
	if len(expired) != 2 || expired[0].Board != "default" || expired[0].Signal != "pay" || expired[0].Key != "7" || !expired[0].Job.IsZero() {
		t.Errorf("the events of expired publications are %+v", expired)
	}
	if answer := r.ok(publication("1", "one", 0)).GetPublish(); answer.First != "kept" {
		t.Errorf("the repeat: %v", answer)
	}
	r.subscribed("a") // takes the third
	r.refused(publication("4", "all", 0), "nobody_waits")
	r.subscribed("b") // finds none
	if answer := r.ok(publication("4", "all", 0)).GetPublish(); answer.Waits != 1 {
		t.Errorf("the answer is %v", answer)
	}
}

// TestSubscriptionsMoveWithTheJob: a publication on the present board of a waiting job reaches its step, and a
// publication on the old board does not. A step that arrives takes the publication that the new board keeps.
func TestSubscriptionsMoveWithTheJob(t *testing.T) {
	on := func(board string, c *v1.Command) *v1.Command {
		c.GetPublish().Board = board
		return c
	}
	r := newRig(t)
	r.ok(open("worker"))
	r.ok(&v1.Command{Kind: &v1.Command_CreateBoard{CreateBoard: &v1.BoardCommand{Board: "other"}}})
	r.ok(abandon(ending("a", r.subscribed("a"))))
	r.ok(change(&v1.Change{Job: id("a"), Board: "other"}))
	r.refused(publication("1", "one", 0), "nobody_waits")
	r.ok(change(&v1.Change{Job: id("a"), Board: "default"}))
	r.ok(&v1.Command{Kind: &v1.Command_DeleteBoard{DeleteBoard: &v1.BoardCommand{Board: "other"}}})
	r.ok(&v1.Command{Kind: &v1.Command_CreateBoard{CreateBoard: &v1.BoardCommand{Board: "other"}}})
	r.ok(on("other", publication("2", "one", time.Hour)))
	if answer := r.ok(publication("3", "one", 0)).GetPublish(); answer.Waits != 1 {
		t.Errorf("the publication on the present board: %v", answer)
	}
	r.ok(abandon(ending("b", r.subscribed("b"))))
	r.ok(change(&v1.Change{Job: id("b"), Board: "other"})) // takes the kept publication
	r.refused(on("other", publication("4", "one", 0)), "nobody_waits")
	if err := fsm.Verify(r.Machine); err != nil {
		t.Error(err)
	}
}

// TestPublicationLimits: a publication for too many waits, or with too much data for them, changes nothing. A board
// recognises the repeats of its latest publications, and forgets older ones.
func TestPublicationLimits(t *testing.T) {
	longtest.Skip(t)
	r := newRig(t)
	r.ok(open("worker"))
	token, sequence := r.claimed("worker", flowPosting("job")), uint64(0)
	wait := func(from, to int) {
		var waits []*v1.AtomChange
		for i := from; i < to; i++ {
			attempt := executing(1)
			attempt.Asked = 1
			attempt.Wait = &v1.Wait{Topic: "pay", Key: "7", Since: timestamppb.New(start), Until: timestamppb.New(start.Add(10_000 * time.Hour))}
			waits = append(waits, task(fmt.Sprint("pay ", i), "pending", attempt))
		}
		sequence++
		r.ok(updateFlow(update("flow of job", token, sequence, "running", waits...)))
	}
	wait(0, jobs.MaxPublishedWaits)
	large := publication("large", "all", 0)
	large.GetPublish().Data = &v1.Value{Json: fmt.Appendf(nil, "%q", bytes.Repeat([]byte("x"), jobs.MaxPublishedBytes/jobs.MaxPublishedWaits))}
	if said := r.refused(large, "over_limit"); !strings.Contains(said, fmt.Sprint(jobs.MaxPublishedBytes)) {
		t.Errorf("too much data: %s", said)
	}
	wait(jobs.MaxPublishedWaits, jobs.MaxPublishedWaits+1)
	if said := r.refused(publication("many", "all", 0), "over_limit"); !strings.Contains(said, fmt.Sprint(jobs.MaxPublishedWaits)) {
		t.Errorf("too many waits: %s", said)
	}
	if answer := r.ok(publication("one", "one", 0)).GetPublish(); answer.Answer != "taken" {
		t.Errorf("one of many waits: %v", answer)
	}
	if answer := r.ok(publication("all", "all", 0)).GetPublish(); answer.Waits != jobs.MaxPublishedWaits {
		t.Errorf("all waits: %v", answer)
	}
	epoch := r.index + 1
	r.ok(beginLeadership())
	for i := range jobs.MaxPublicationIDs - 1 {
		if i%jobs.MaxKept == 0 {
			r.now = r.now.Add(time.Hour)
			r.do(wake(epoch, jobs.MaxKept))
		}
		r.do(publication(fmt.Sprint(i), "one", time.Nanosecond))
	}
	if answer := r.ok(publication("all", "one", 0)).GetPublish(); answer.First != "taken" {
		t.Errorf("the repeat of a recent publication: %v", answer)
	}
	r.refused(publication("one", "one", 0), "nobody_waits") // forgotten
}
