package fsm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// flowByID reads a flow.
func (r *rig) flowByID(id logbook.FlowID) logbook.FlowDetail {
	r.Helper()
	flow, more, err := r.Flow(id, fsm.Part{MaxBytes: fsm.Unbounded})
	if err != nil || more {
		r.Fatal(more, err)
	}
	return flow
}

func retryNowOf(job string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_RetryNow{RetryNow: &v1.JobCommand{Job: id(job)}}}
}

func signalOf(job, name, signal string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Signal{Signal: &v1.SignalCommand{Job: id(job), Name: name, Id: signal}}}
}

// awaitingChange is a step that waits for a signal.
func awaitingChange(step, signal string) *v1.AtomChange {
	attempt := executing(1)
	attempt.Asked = 1
	attempt.Wait = &v1.Wait{Signals: []string{signal}, Since: timestamppb.New(start), Until: timestamppb.New(start.Add(time.Hour))}
	return task(step, "pending", attempt)
}

// continuing returns the ending of an iteration of job "a", whose only step has succeeded. The job is claimed first.
func (r *rig) continuing(month int, delay time.Duration) *v1.Ending {
	r.Helper()
	token := r.claimedAgain("bob", id("a"))
	u := update("", token, 1, "running", task("x", "running", executing(1)))
	u.Flow = r.job(id("a")).Flow.String()
	r.ok(updateFlow(u))
	e := success("a", token)
	e.Update = update("", token, 2, "success", task("x", "success", executed(1, "1")))
	e.Update.Flow = u.Flow
	e.Again = &v1.Continuation{Store: []*v1.NamedValue{{Name: "month", Value: value(fmt.Sprint(month))}}, Delay: lasting(delay)}
	return e
}

// TestIterations: one entry ends an iteration and begins the next one, with the values that it gives. The job keeps its
// id, key and other values. The record of an iteration begins empty, and the latest ten are kept.
func TestIterations(t *testing.T) {
	p := flowPosting("a")
	p.Key, p.Store = "billing", []*v1.NamedValue{{Name: "month", Value: value("0")}, {Name: "customer", Value: value(`"ann"`)}}
	r := retrying(t, p)
	flows := []logbook.FlowID{flowID("flow of a")}
	for month := 1; month <= 12; month++ {
		e := r.continuing(month, 0)
		r.ok(consume(e))
		r.harmless(consume(e))
		job := r.job(id("a"))
		want := iterationID(job.ID, month+1)
		if job.State != jobs.StateClaimable || job.Iteration != month+1 || job.Flow != want || job.Key != "billing" || job.Outcome != "" {
			t.Fatalf("after iteration %d the job is %s in iteration %d with flow %s", month, job.State, job.Iteration, job.Flow)
		}
		if string(job.Store["month"]) != fmt.Sprint(month) || string(job.Store["customer"]) != `"ann"` {
			t.Fatalf("the values of iteration %d are %s", month+1, job.Store)
		}
		flow := r.flowByID(job.Flow)
		if flow.State != logbook.FlowPending || len(flow.Atoms) > 0 || flow.Iteration != month+1 || flow.Previous != flows[month-1] ||
			flow.Origin != flows[0] || string(flow.Store["month"]) != fmt.Sprint(month) || string(flow.Store["a"]) != " 1" || string(flow.Factory.Args) != `{"of":"flow of a"}` {
			t.Fatalf("the flow of iteration %d is %+v", month+1, flow)
		}
		if old := r.flowByID(flows[month-1]); old.State != logbook.FlowSuccess || !old.Continued || len(old.Atoms) != 1 || month > 1 && string(old.Store["month"]) != fmt.Sprint(month-1) {
			t.Fatalf("the flow of iteration %d is %+v", month, old)
		}
		flows = append(flows, want)
	}
	book, err := r.Book(bookID("book of a"))
	if err != nil || len(book.Flows) != 1 || book.Flows[0].ID != flows[12] {
		t.Fatalf("the book has %+v (%v)", book.Flows, err)
	}
	for i, flow := range flows {
		_, _, err := r.Flow(flow, fsm.Part{MaxBytes: fsm.Unbounded})
		if kept := i >= len(flows)-jobs.KeptIterations; kept != (err == nil) {
			t.Errorf("iteration %d: %v", i+1, err)
		}
	}
	if oldest := r.flowByID(flows[3]); !oldest.Previous.IsZero() {
		t.Errorf("the oldest iteration that is kept follows %s", oldest.Previous)
	}
	if n := strings.Count(strings.Join(r.events(), ";"), "continued a claimable"); n != 12 {
		t.Errorf("%d events of continued", n)
	}
	restored := newRig(t)
	if err := restored.Restore(strings.NewReader(string(snapshot(t, r.Machine)))); err != nil {
		t.Fatal(err)
	}
	if digest(t, restored.Machine) != digest(t, r.Machine) {
		t.Error("a restored snapshot differs")
	}
	r.ok(cancel(&v1.JobCommand{Job: id("a")}))
	r.ok(destroyBook("book of a"))
	for i, flow := range flows {
		if _, _, err := r.Flow(flow, fsm.Part{MaxBytes: fsm.Unbounded}); err == nil {
			t.Errorf("iteration %d is kept after its book", i+1)
		}
	}
}

// TestIterationRequests: requests that come before the end of an iteration.
func TestIterationRequests(t *testing.T) {
	for _, row := range []struct {
		name    string
		request func(r *rig)
		want    string
	}{
		{"none", func(*rig) {}, "waiting iteration 2, flow PENDING"},
		{"suspend", func(r *rig) { r.ok(suspend(&v1.JobCommand{Job: id("a")})) }, "suspended iteration 2, flow PENDING"},
		{"suspend and resume", func(r *rig) {
			r.ok(suspend(&v1.JobCommand{Job: id("a")}))
			r.ok(resume(&v1.JobCommand{Job: id("a")}))
		}, "waiting iteration 2, flow PENDING"},
		{"cancel", func(r *rig) { r.ok(cancel(&v1.JobCommand{Job: id("a"), Reason: "closed"})) }, "completed success closed, flow SUCCESS"},
		{"cancel and revert", func(r *rig) { r.ok(cancel(&v1.JobCommand{Job: id("a"), Revert: true, Reason: "closed"})) }, "completed success closed, flow SUCCESS"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := retrying(t, flowPosting("a"))
			e := r.continuing(1, time.Hour)
			row.request(r)
			r.ok(consume(e))
			r.harmless(consume(e))
			job := r.job(id("a"))
			got := fmt.Sprintf("%s iteration %d", job.State, job.Iteration)
			if job.State.Finished() {
				got = fmt.Sprintf("%s %s %s", job.State, job.Outcome, job.Reason)
			}
			if got += ", flow " + string(r.flowByID(job.Flow).State); !strings.EqualFold(got, row.want) {
				t.Errorf("the job is %q, want %q", got, row.want)
			}
		})
	}
}

// TestIterationsBegin: the next iteration waits for its delay, and nothing of the iteration before counts in it.
func TestIterationsBegin(t *testing.T) {
	p := patient(3, "")
	p.Deadline = timestamppb.New(start.Add(48 * time.Hour))
	r := retrying(t, p)
	r.ok(consume(r.attempt("reverted")))
	r.rest(10 * time.Second)
	token := r.claimedAgain("bob", id("a"))
	step := func(number uint64, state string, atoms ...*v1.AtomChange) *v1.Update {
		return update("flow of a", token, number, state, atoms...)
	}
	r.ok(updateFlow(step(1, "running", task("x", "pending"), task("x", "running", executing(2)))))
	e := success("a", token)
	e.Update, e.Again = step(2, "success", task("x", "success", executed(2, "1"))), &v1.Continuation{Delay: lasting(time.Hour)}
	r.ok(consume(e))
	job := r.job(id("a"))
	if job.State != jobs.StateWaiting || !job.DueAt.Equal(r.now.Add(time.Hour)) || job.Attempts != 0 || job.Attempted != "" || !job.StartedAt.IsZero() || !job.Deadline.Equal(start.Add(48*time.Hour)) {
		t.Fatalf("the job waits as %+v", job)
	}
	r.refused(claim("bob", id("a"), "early"), "unclaimable")
	r.rest(time.Hour)
	if job := r.job(id("a")); job.State != jobs.StateClaimable {
		t.Fatalf("after its delay the job is %s", job.State)
	}
	r.ok(consume(r.continuing(2, time.Hour)))
	r.ok(retryNowOf("a"))
	if job := r.job(id("a")); job.State != jobs.StateClaimable || job.Iteration != 3 {
		t.Fatalf("after retry-now the job is %s in iteration %d", job.State, job.Iteration)
	}
}

// TestIterationSignals: unread signals stay with the job, and the next iteration takes them.
func TestIterationSignals(t *testing.T) {
	r := retrying(t, flowPosting("a"))
	e := r.continuing(1, 0)
	r.ok(signalOf("a", "paid", "1"))
	r.ok(consume(e))
	if job := r.job(id("a")); job.UnreadSignals != 1 {
		t.Fatalf("%d signals are unread", job.UnreadSignals)
	}
	r.refused(retryNowOf("a"), "conflict")
	token := r.claimedAgain("bob", id("a"))
	u := update("", token, 1, "running", task("x", "running", executing(1)), awaitingChange("x", "paid"))
	u.Flow = r.job(id("a")).Flow.String()
	r.ok(updateFlow(u))
	flow := r.flowByID(r.job(id("a")).Flow)
	if job := r.job(id("a")); job.UnreadSignals != 0 || flow.Atoms[0].OpenWait().Signal.ID != "1" {
		t.Fatalf("the wait of the second iteration has %+v, and %d signals are unread", flow.Atoms[0].OpenWait(), job.UnreadSignals)
	}
}

// TestEarlierIterations: nothing runs in the flow of an earlier iteration.
func TestEarlierIterations(t *testing.T) {
	r := retrying(t, flowPosting("a"))
	r.posted(&v1.Posting{Id: id("other"), Name: "other", Kind: "k"})
	taken := iterationID(jobID(id("a")), 2)
	b := book("other book", "other flow")
	b.Flows[0].Id = taken.String()
	r.ok(saveBook(b)) // another client has used the id of the next flow
	old := r.continuing(1, 0)
	r.ok(consume(old))
	job := r.job(id("a"))
	if job.Flow == taken || job.Iteration != 2 {
		t.Fatalf("iteration %d has flow %s, which is taken", job.Iteration, job.Flow)
	}
	r.refused(intervene(&v1.Intervention{Id: id("i"), Flow: id("flow of a"), Kind: "rerun", By: "ann"}), "conflict")
	posted := r.do(post(&v1.Posting{Id: id("second"), Name: "second", BookId: id("book of a"), Flow: id("flow of a")}))[0].GetPost().Posted[0]
	if posted.GetError().GetCode() != "conflict" {
		t.Errorf("a posting of an earlier iteration: %v", posted)
	}
	stale := update("flow of a", command.TokenFromProto(old.Token), 3, "running")
	r.refused(updateFlow(stale), "fenced")
}

// TestIterationsRefused: endings that cannot continue a job.
func TestIterationsRefused(t *testing.T) {
	p := flowPosting("a")
	p.Store = []*v1.NamedValue{}
	for i := range logbook.MaxValues {
		p.Store = append(p.Store, &v1.NamedValue{Name: fmt.Sprintf("v%04d", i), Value: value("1")})
	}
	r := retrying(t, p)
	text := r.refused(consume(r.continuing(1, 0)), "over_limit")
	if !strings.Contains(text, "store of the next iteration") || !strings.Contains(text, "1000") {
		t.Errorf("the refusal is %q", text)
	}
	full := flowPosting("a")
	full.Book.Flows[0].Store = p.Store
	filled := retrying(t, full)
	if text := filled.refused(consume(filled.continuing(1, 0)), "over_limit"); !strings.Contains(text, "flow store of the next iteration") {
		t.Errorf("the refusal is %q", text)
	}
	r.posted(posting("b", "k"))
	e := success("b", r.claimedAgain("bob", id("b")))
	e.Again = &v1.Continuation{}
	if text := r.refused(consume(e), "invalid"); !strings.Contains(text, "has no flow") {
		t.Errorf("the refusal is %q", text)
	}
}
