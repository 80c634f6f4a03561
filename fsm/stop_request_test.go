package fsm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// orders are the possible stop requests, as words of the rows below.
var orders = map[string]func() *v1.Command{
	"suspend": func() *v1.Command { return suspend(said()) },
	"resume":  func() *v1.Command { return resume(said()) },
	"stop":    func() *v1.Command { return cancel(said()) },
	"undo": func() *v1.Command {
		o := said()
		o.Revert = true
		return cancel(o)
	},
}

func said() *v1.JobCommand {
	return &v1.JobCommand{Job: id("a"), By: "ann@desk", Reason: "so it is to be"}
}

// brought brings job "a" into a state, with a started flow or without a flow.
func brought(t *testing.T, state jobs.State, begun bool) *rig {
	t.Helper()
	return broughtWith(t, state, begun, func(*v1.Posting) {})
}

// broughtWith is brought with further fields of the posting.
func broughtWith(t *testing.T, state jobs.State, begun bool, more func(*v1.Posting)) *rig {
	t.Helper()
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("bob"))
	p := posting("a", "k")
	if begun {
		p = flowPosting("a")
	}
	more(p)
	if state == jobs.StateDelayed || state == jobs.StateHeld {
		if p.Hold = state == jobs.StateHeld; !p.Hold {
			p.NotBefore = timestamppb.New(r.now.Add(time.Hour))
		}
		if begun { // by another job, whose flow this job continues
			before := flowPosting("before")
			before.Book = p.Book
			r.begin(before, "flow of a")
			r.ok(trash(ending("before", r.job(id("before")).Token)))
			p.Book, p.BookId = nil, p.Book.Id
		}
		r.posted(p)
		return r
	}
	token := r.claimed("bob", p)
	if begun {
		r.ok(updateFlow(update("flow of a", token, 1, "running", task("x", "running", executing(1)))))
	}
	e := ending("a", token)
	switch state {
	case jobs.StateClaimable, jobs.StateSuspended:
		r.ok(abandon(e))
	case jobs.StateCooling, jobs.StateWaiting:
		e.Delay, e.Waits = lasting(time.Minute), state == jobs.StateWaiting
		r.ok(abandon(e))
	case jobs.StateTrashed:
		r.ok(trash(e))
	case jobs.StateCompleted:
		e.Outcome = "success"
		if begun {
			e.Update = update("flow of a", token, 2, "success")
		}
		r.ok(consume(e))
	}
	if state == jobs.StateSuspended {
		r.ok(suspend(&v1.JobCommand{Job: id("a"), By: "before"}))
	}
	return r
}

// begin posts a job with a flow, claims it, and starts the flow.
func (r *rig) begin(p *v1.Posting, flow string) logbook.Token {
	r.Helper()
	token := r.claimed("bob", p)
	r.ok(updateFlow(update(flow, token, 1, "running", task("x", "running", executing(1)))))
	return token
}

// TestOrders is the table of jobs.Controller, for jobs without a flow and with a started flow.
func TestOrders(t *testing.T) {
	const same = "same"
	for _, row := range []struct {
		state       jobs.State
		order       string
		plain, flow string // the state and the stop request afterwards; or the code of a refusal
	}{
		{jobs.StateHeld, "suspend", "suspended suspend", "suspended suspend"},
		{jobs.StateHeld, "resume", same, same},
		{jobs.StateHeld, "stop", "completed cancel", "completed cancel"},
		{jobs.StateHeld, "undo", "completed cancel", "claimable cancel"},
		{jobs.StateDelayed, "suspend", "suspended suspend", "suspended suspend"},
		{jobs.StateDelayed, "resume", same, same},
		{jobs.StateDelayed, "stop", "completed cancel", "completed cancel"},
		{jobs.StateDelayed, "undo", "completed cancel", "claimable cancel"},
		{jobs.StateClaimable, "suspend", "suspended suspend", "suspended suspend"},
		{jobs.StateClaimable, "resume", same, same},
		{jobs.StateClaimable, "stop", "completed cancel", "completed cancel"},
		{jobs.StateClaimable, "undo", "completed cancel", "claimable cancel"},
		{jobs.StateCooling, "suspend", "suspended suspend", "suspended suspend"},
		{jobs.StateCooling, "resume", same, same},
		{jobs.StateCooling, "stop", "completed cancel", "completed cancel"},
		{jobs.StateCooling, "undo", "completed cancel", "claimable cancel"},
		{jobs.StateWaiting, "suspend", "suspended suspend", "suspended suspend"},
		{jobs.StateWaiting, "resume", same, same},
		{jobs.StateWaiting, "stop", "completed cancel", "completed cancel"},
		{jobs.StateWaiting, "undo", "completed cancel", "claimable cancel"},
		{jobs.StateClaimed, "suspend", "claimed suspend", "claimed suspend"},
		{jobs.StateClaimed, "resume", same, same},
		{jobs.StateClaimed, "stop", "claimed cancel", "claimed cancel"},
		{jobs.StateClaimed, "undo", "claimed cancel", "claimed cancel"},
		{jobs.StateSuspended, "suspend", same, same},
		{jobs.StateSuspended, "resume", "claimable -", "claimable -"},
		{jobs.StateSuspended, "stop", "completed cancel", "completed cancel"},
		{jobs.StateSuspended, "undo", "completed cancel", "claimable cancel"},
		{jobs.StateCompleted, "suspend", "conflict", "conflict"},
		{jobs.StateCompleted, "resume", "conflict", "conflict"},
		{jobs.StateCompleted, "stop", "conflict", "conflict"},
		{jobs.StateCompleted, "undo", "conflict", "conflict"},
		{jobs.StateTrashed, "suspend", "conflict", "conflict"},
		{jobs.StateTrashed, "resume", "conflict", "conflict"},
		{jobs.StateTrashed, "stop", "conflict", "conflict"},
		{jobs.StateTrashed, "undo", "conflict", "conflict"},
	} {
		for begun, want := range map[bool]string{false: row.plain, true: row.flow} {
			t.Run(fmt.Sprint(row.order, " of a ", row.state, " job, flow begun: ", begun), func(t *testing.T) {
				r := brought(t, row.state, begun)
				if got := r.job(id("a")).State; got != row.state {
					t.Fatalf("the row begins with a job that is %s", got)
				}
				r.now = r.now.Add(time.Second)
				switch want {
				case same:
					r.harmless(orders[row.order]())
				case "conflict":
					if message := r.refused(orders[row.order](), "conflict"); !strings.Contains(message, string(row.state)) {
						t.Errorf("the refusal does not say how the job stands: %s", message)
					}
				default:
					r.ok(orders[row.order]())
					r.stands(want)
					r.harmless(orders[row.order]())
				}
			})
		}
	}
}

// stands checks the state of job "a" and its stop request.
func (r *rig) stands(want string) {
	r.Helper()
	job := r.job(id("a"))
	under := "-"
	if job.StopRequest != nil {
		under = string(job.StopRequest.Kind)
		if job.StopRequest.By != "ann@desk" || job.StopRequest.Reason != "so it is to be" || !job.StopRequest.At.Equal(r.now) {
			r.Errorf("the order is kept as %+v", job.StopRequest)
		}
	}
	if got := fmt.Sprint(job.State, " ", under); got != want {
		r.Errorf("the job is %s, not %s", got, want)
	}
	if (job.Outcome == jobs.OutcomeCancelled) != (job.State == jobs.StateCompleted) {
		r.Errorf("the %s job has outcome %q", job.State, job.Outcome)
	}
	if job.State == jobs.StateCompleted && job.Reason != "so it is to be" {
		r.Errorf("the reason is %q", job.Reason)
	}
}

// TestOrdersOnOrders: the effect of a second request on a claimed job.
func TestOrdersOnOrders(t *testing.T) {
	for _, row := range []struct{ first, second, want string }{
		{"suspend", "resume", "claimed -"},
		{"suspend", "stop", "claimed cancel"},
		{"suspend", "undo", "claimed cancel"},
		{"stop", "suspend", "conflict"},
		{"stop", "resume", "conflict"},
		{"stop", "undo", "claimed cancel"},
		{"undo", "suspend", "conflict"},
		{"undo", "resume", "conflict"},
		{"undo", "stop", "claimed cancel"},
	} {
		t.Run(row.first+", then "+row.second, func(t *testing.T) {
			r := brought(t, jobs.StateClaimed, true)
			r.ok(orders[row.first]())
			if row.want == "conflict" {
				r.refused(orders[row.second](), "conflict")
				return
			}
			r.ok(orders[row.second]())
			r.stands(row.want)
			if order := r.job(id("a")).StopRequest; order != nil && order.Revert != (row.second == "undo") {
				t.Errorf("the order is %+v", order)
			}
		})
	}
}

// TestOwnersLetGoUnderOrders: after the owner's release, the job has the state that the
// request gives to an unclaimed job.
func TestOwnersLetGoUnderOrders(t *testing.T) {
	letGo := map[string]func(*rig){
		"abandoned": func(r *rig) { r.ok(abandon(ending("a", r.job(id("a")).Token))) },
		"closed":    func(r *rig) { r.ok(closing("bob")) },
		"expired":   func(r *rig) { r.ok(expire("bob", r.TimerEpoch(), 0, 0)) },
	}
	for _, row := range []struct {
		order       string
		plain, flow string
	}{
		{"suspend", "suspended suspend", "suspended suspend"},
		{"stop", "completed cancel", "completed cancel"},
		{"undo", "completed cancel", "claimable cancel"},
	} {
		for how, end := range letGo {
			for begun, want := range map[bool]string{false: row.plain, true: row.flow} {
				t.Run(fmt.Sprint(how, " under ", row.order, ", flow begun: ", begun), func(t *testing.T) {
					r := brought(t, jobs.StateClaimed, begun)
					r.ok(orders[row.order]())
					end(r)
					r.stands(want)
					flow, _, err := r.Flow(flowID("flow of a"), fsm.Part{MaxBytes: fsm.Unbounded})
					if begun && (err != nil || (flow.State == logbook.FlowSuspended) != (row.order == "stop")) {
						t.Errorf("the flow is %s: %v", flow.State, err)
					}
				})
			}
		}
	}
}

// TestUndoingAndCooling: a revert does not wait for the flow's due time, but for the cool-down
// after a lost owner.
func TestUndoingAndCooling(t *testing.T) {
	later := func(r *rig) {
		e := ending("a", r.job(id("a")).Token)
		e.Delay = lasting(time.Hour)
		r.ok(abandon(e))
	}
	crashes := func(r *rig) { r.ok(expire("bob", r.TimerEpoch(), time.Hour, 0)) }
	undo := func(r *rig) { r.ok(orders["undo"]()) }
	suspended := func(r *rig) { r.ok(orders["suspend"]()) }
	again := func(r *rig) {
		r.now = r.now.Add(time.Second)
		r.ok(claim("bob", id("a"), "again"))
	}
	for _, row := range []struct {
		name  string
		steps []func(*rig)
		want  jobs.State
	}{
		{"given back for later", []func(*rig){later, undo}, jobs.StateClaimable},
		{"given back for later, and suspended", []func(*rig){later, suspended, undo}, jobs.StateClaimable},
		{"given back for later by who does not know yet", []func(*rig){undo, later}, jobs.StateClaimable},
		{"given back for later by who knows", []func(*rig){later, undo, again, later}, jobs.StateCooling},
		{"its owner has vanished", []func(*rig){crashes, undo}, jobs.StateCooling},
		{"its owner vanishes", []func(*rig){undo, crashes}, jobs.StateCooling},
		{"its owner has vanished, and it was suspended", []func(*rig){crashes, suspended, undo}, jobs.StateCooling},
		{"its next owner gives it back for later", []func(*rig){later, undo, again, later, undo}, jobs.StateCooling},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := brought(t, jobs.StateClaimed, true)
			for _, step := range row.steps {
				r.now = r.now.Add(time.Second)
				step(r)
			}
			job := r.job(id("a"))
			if job.State != row.want || job.DueAt.IsZero() != (row.want == jobs.StateClaimable) {
				t.Errorf("the job is %s until %s", job.State, job.DueAt)
			}
		})
	}
}

func TestTooManyCrashesEndASuspendedJobToo(t *testing.T) {
	r := brought(t, jobs.StateClaimed, false)
	r.ok(orders["suspend"]())
	r.ok(expire("bob", r.TimerEpoch(), 0, 1))
	if job := r.job(id("a")); job.State != jobs.StateTrashed {
		t.Errorf("the job is %s", job.State)
	}
}

// TestSuspendedJobsKeepTheirTime: after a resume, a job continues its cool-down or its delay.
func TestSuspendedJobsKeepTheirTime(t *testing.T) {
	for _, row := range []struct {
		state jobs.State
		after time.Duration
		want  jobs.State
	}{
		{jobs.StateHeld, time.Minute, jobs.StateHeld},
		{jobs.StateDelayed, time.Minute, jobs.StateDelayed},
		{jobs.StateDelayed, 2 * time.Hour, jobs.StateClaimable},
		{jobs.StateCooling, time.Second, jobs.StateCooling},
		{jobs.StateCooling, time.Hour, jobs.StateClaimable},
		{jobs.StateWaiting, time.Second, jobs.StateWaiting},
		{jobs.StateWaiting, time.Hour, jobs.StateClaimable},
	} {
		t.Run(fmt.Sprint(row.state, " after ", row.after), func(t *testing.T) {
			r := brought(t, row.state, false)
			due := r.job(id("a")).DueAt
			r.ok(orders["suspend"]())
			r.now = r.now.Add(row.after)
			r.ok(wake(r.TimerEpoch(), 10))
			if job := r.job(id("a")); job.State != jobs.StateSuspended {
				t.Fatalf("time has made it %s", job.State)
			}
			r.refused(claim("bob", id("a"), "n"), "unclaimable")
			r.ok(orders["resume"]())
			job := r.job(id("a"))
			if job.State != row.want || (!job.DueAt.IsZero() && !job.DueAt.Equal(due)) {
				t.Errorf("resumed, it is %s until %s", job.State, job.DueAt)
			}
		})
	}
}

// TestConsumeOfCancelledJobs: the outcome cancelled needs a request, and a flow that is reverted,
// suspended or not started.
func TestConsumeOfCancelledJobs(t *testing.T) {
	for _, row := range []struct {
		order string
		path  []string // states of the flow; the last comes with the ending
		said  string
		want  string // code of the refusal; empty: none
	}{
		{"undo", []string{"running", "reverting", "reverted"}, "cancelled", ""},
		{"undo", []string{"running", "reverting", "reverted"}, "reverted", ""},
		{"stop", []string{"running", "suspended"}, "cancelled", ""},
		{"stop", nil, "cancelled", ""},
		{"stop", []string{"running"}, "cancelled", "invalid"},
		{"stop", []string{"running", "success"}, "cancelled", "invalid"},
		{"undo", []string{"running", "failure"}, "cancelled", "invalid"},
		{"stop", []string{"running", "success"}, "success", ""},
		{"stop", []string{"success"}, "success", ""}, // its whole run was one update
		{"suspend", []string{"running", "suspended"}, "cancelled", "invalid"},
		{"", []string{"running", "reverting", "reverted"}, "cancelled", "invalid"},
		{"", []string{"running", "suspended"}, "cancelled", "invalid"},
	} {
		t.Run(fmt.Sprint(row.order, row.path, row.said), func(t *testing.T) {
			r := newRig(t)
			r.ok(open("bob"))
			token := r.claimed("bob", flowPosting("a"))
			e := ending("a", token)
			e.Outcome = row.said
			for i, state := range row.path {
				u := update("flow of a", token, uint64(i+1), state)
				if i == len(row.path)-1 {
					e.Update = u
					break
				}
				r.ok(updateFlow(u))
			}
			if order := orders[row.order]; order != nil {
				r.ok(order())
			}
			if row.want != "" {
				r.refused(consume(e), row.want)
				return
			}
			r.ok(consume(e))
			r.harmless(consume(e))
			job := r.job(id("a"))
			if string(job.Outcome) != row.said || job.StopRequest == nil || (row.said == "cancelled") != (job.Reason == "so it is to be") {
				t.Errorf("consumed as %+v", job)
			}
		})
	}
}

// TestFlowsThatHaveEnded: a job whose flow has ended only needs an owner that consumes it.
func TestFlowsThatHaveEnded(t *testing.T) {
	for state, want := range map[string]string{"success": "conflict", "failure": "conflict", "reverted": ""} {
		t.Run(state, func(t *testing.T) {
			r := newRig(t)
			r.ok(open("bob"))
			token := r.begin(flowPosting("a"), "flow of a")
			if state == "reverted" {
				r.ok(updateFlow(update("flow of a", token, 2, "reverting")))
			}
			e := ending("a", token)
			e.Update = update("flow of a", token, 3, state)
			if state != "reverted" {
				e.Update.Sequence = 2
			}
			r.ok(abandon(e))
			if want != "" {
				r.refused(orders["undo"](), want)
				return
			}
			r.ok(orders["undo"]())
			r.stands("completed cancel")
		})
	}
}

func TestOrdersAreTold(t *testing.T) {
	r := newRig(t)
	r.ok(open("bob"))
	token := r.begin(flowPosting("a"), "flow of a")
	for _, order := range []string{"suspend", "resume", "suspend"} {
		r.ok(orders[order]())
	}
	r.ok(abandon(ending("a", token)))
	r.ok(orders["resume"]())
	r.ok(orders["suspend"]())
	r.ok(orders["stop"]())
	want := []string{
		"posted a claimable", "claimed a claimed", "flow a claimed",
		"stop_requested a claimed", "resumed a claimed", "stop_requested a claimed", "abandoned a suspended",
		"resumed a claimable", "suspended a suspended", "flow a suspended", "completed a completed",
	}
	if got := r.events(); strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("told %q, not %q", got, want)
	}
	events, err := r.Events(jobs.Position{Index: 1, Item: 1}, 0) // after the opening of the session
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range map[int]jobs.RequestKind{3: "suspend", 4: "resume", 5: "suspend", 7: "resume", 8: "suspend", 10: "cancel"} {
		event := events[i]
		if event.Request == nil || event.Request.Kind != kind || event.Request.By != "ann@desk" {
			t.Errorf("event %d contains the request %+v", i, event.Request)
		}
		if owned := i < 6; owned != (event.Owner == "bob") || (owned && event.Token != token) {
			t.Errorf("event %d names owner %q under %s", i, event.Owner, event.Token)
		}
	}
	r.refused(suspend(&v1.JobCommand{Job: id("nobody")}), "not_found")
}

// TestEventsOfOneOwner: events that do not name the owner are skipped, and count as read.
func TestEventsOfOneOwner(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	r.ok(open("bob"))
	r.claimed("ann", posting("a", "k"))
	r.claimed("bob", posting("b", "k"))
	r.posted(posting("c", "k"))
	for owner, want := range map[string]string{
		"ann": "session_opened , claimed a", "bob": "session_opened , claimed b", "eve": "",
		"": "session_opened , session_opened , posted a, claimed a, posted b, claimed b, posted c",
	} {
		page, err := r.EventsOf(&jobs.Watch{Owner: owner, Sessions: true}, jobs.Position{}, 0)
		var told []string
		for _, event := range page.Events {
			told = append(told, fmt.Sprint(event.Kind, " ", event.Name))
		}
		if err != nil || strings.Join(told, ", ") != want || page.Reached != r.LastPosition() {
			t.Errorf("of %q, up to %v: %q, not %q (%v)", owner, page.Reached, told, want, err)
		}
	}
	if page, err := r.EventsOf(&jobs.Watch{Owner: "ann"}, r.LastPosition(), 0); err != nil || page.Reached != r.LastPosition() {
		t.Errorf("after the last event: up to %v (%v)", page.Reached, err)
	}
}

// TestEventsByOthers: an owner does not get the events of its own endings, and the memory for this
// is freed in time.
func TestEventsByOthers(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	end := func(name string, recorded bool) {
		ending := success(name, r.claimed("ann", posting(name, "k")))
		ending.Recorded = recorded
		r.ok(consume(ending))
	}
	end("own", true)
	end("by hand", false)
	watch := &jobs.Watch{Owner: "ann", Kinds: []jobs.EventKind{jobs.EventCompleted}, Others: true}
	told := func() (names []string) {
		page, err := r.EventsOf(watch, jobs.Position{}, 0)
		if err != nil || page.Reached != r.LastPosition() {
			t.Fatal(page.Reached, err)
		}
		for _, event := range page.Events {
			names = append(names, fmt.Sprint(event.Kind, " ", event.Name))
		}
		return names
	}
	if got := strings.Join(told(), ", "); got != "completed by hand" {
		t.Errorf("by others: %q", got)
	}
	watch.Others = false
	if got := strings.Join(told(), ", "); got != "completed own, completed by hand" {
		t.Errorf("of all: %q", got)
	}
}

// TestEventsOfOneBoard: a watch decodes only the events of its boards and kinds, and counts all
// events as read.
func TestEventsOfOneBoard(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	r.claimed("ann", posting("a", "k"))
	other := posting("b", "k")
	other.Board = "other"
	r.posted(other)
	for _, row := range []struct {
		watch jobs.Watch
		want  string
	}{
		{jobs.Watch{Board: "other"}, "posted b"},
		{jobs.Watch{Boards: []string{"other", "none"}}, "posted b"},
		{jobs.Watch{Board: "none"}, ""},
		{jobs.Watch{Kinds: []jobs.EventKind{jobs.EventPosted}}, "posted a, posted b"},
		{jobs.Watch{Board: "other", Kinds: []jobs.EventKind{jobs.EventClaimed}}, ""},
		{jobs.Watch{Job: jobID(id("a"))}, "posted a, claimed a"},
	} {
		page, err := r.EventsOf(&row.watch, jobs.Position{}, 0)
		var told []string
		for _, event := range page.Events {
			told = append(told, fmt.Sprint(event.Kind, " ", event.Name))
		}
		if got := strings.Join(told, ", "); err != nil || got != row.want || page.Read != 4 || page.Reached != r.LastPosition() {
			t.Errorf("%+v decodes %q of %d events up to %v, and not %q of 4 (%v)", row.watch, got, page.Read, page.Reached, row.want, err)
		}
	}
}
