package fsm_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func TestPostRefusals(t *testing.T) {
	r := newRig(t)
	r.ok(saveBook(book("two", "first", "second")))
	r.ok(saveBook(book("none")))
	r.posted(flowPosting("busy"))
	r.posted(posting("known", "k"))
	with := func(change func(*v1.Posting)) *v1.Posting {
		p := posting("new", "")
		change(p)
		return p
	}
	rows := []struct {
		name string
		p    *v1.Posting
		code string
	}{
		{"no id", &v1.Posting{Name: "x"}, "invalid"},
		{"an id that is none", &v1.Posting{Id: "x", Name: "x"}, "invalid"},
		{"the id of another posting", &v1.Posting{Id: id("known"), Name: "other"}, "conflict"},
		{"an unknown book", with(func(p *v1.Posting) { p.BookId = id("nowhere") }), "not_found"},
		{"an unknown flow", with(func(p *v1.Posting) { p.BookId, p.Flow = id("two"), id("third") }), "not_found"},
		{"a flow of another book", with(func(p *v1.Posting) { p.BookId, p.Flow = id("none"), id("first") }), "not_found"},
		{"two flows and none named", with(func(p *v1.Posting) { p.BookId = id("two") }), "invalid"},
		{"no flow at all", with(func(p *v1.Posting) { p.BookId = id("none") }), "invalid"},
		{"a flow without a book", with(func(p *v1.Posting) { p.Flow = id("first") }), "invalid"},
		{"a kind beside a book", with(func(p *v1.Posting) { p.BookId, p.Flow, p.Kind = id("two"), id("first"), "k" }), "invalid"},
		{"the flow of an unfinished job", with(func(p *v1.Posting) { p.BookId = id("book of busy") }), "conflict"},
		{"a book that differs from its id", with(func(p *v1.Posting) { p.Book, p.BookId = book("b", "f"), id("two") }), "invalid"},
		{"a flow that is in another book", with(func(p *v1.Posting) { p.Book = book("b", "first") }), "conflict"},
		{"a flow twice", with(func(p *v1.Posting) { p.Book, p.Flow = book("b", "f", "f"), id("f") }), "invalid"},
		{"a board of 256 bytes", with(func(p *v1.Posting) { p.Board = strings.Repeat("b", 256) }), "over_limit"},
		{"a kind of 256 bytes", with(func(p *v1.Posting) { p.Kind = strings.Repeat("b", 256) }), "over_limit"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			before, err := fsm.DigestBut(r.Machine)
			if err != nil {
				t.Fatal(err)
			}
			posted := r.ok(post(row.p)).GetPost().Posted[0]
			if posted.GetError().GetCode() != row.code {
				t.Errorf("answered with %v, not with %s", posted, row.code)
			}
			if after, err := fsm.DigestBut(r.Machine); err != nil || after != before {
				t.Errorf("the refused posting has changed the state (%v)", err)
			}
		})
	}
}

func TestPostEachForItself(t *testing.T) {
	r := newRig(t)
	posted := r.ok(post(posting("a", "k"), &v1.Posting{Name: "no id"}, posting("b", "k"), posting("a", "k"))).GetPost().Posted
	for i, want := range []struct {
		existed bool
		code    string
	}{{false, ""}, {false, "invalid"}, {false, ""}, {true, ""}} {
		if posted[i].Existed != want.existed || posted[i].GetError().GetCode() != want.code {
			t.Errorf("posting %d: %v", i, posted[i])
		}
	}
	if a, b := r.job(id("a")), r.job(id("b")); a.Sequence != 1 || b.Sequence != 2 {
		t.Errorf("sequences %d and %d", a.Sequence, b.Sequence)
	}
}

func TestPostWithBookIsOneWrite(t *testing.T) {
	r := newRig(t)
	p := flowPosting("trip")
	p.Details, p.Store = value(`{"z":1, "a":[ 2]}`), []*v1.NamedValue{{Name: "x", Value: value(`1.0`)}}
	p.Board, p.Priority = "orders", 7
	r.posted(p)
	repeat := r.harmless(post(proto.Clone(p).(*v1.Posting)))
	if !repeat.GetPost().Posted[0].Existed {
		t.Error("the repeat is not known as one")
	}
	job := r.job(p.Id)
	if job.Kind != "test" || job.BookName != "book of trip" || job.Flow != flowID("flow of trip") ||
		job.Board != "orders" || job.Priority != 7 || !job.PostedAt.Equal(start) || job.State != jobs.StateClaimable {
		t.Errorf("posted %+v", job)
	}
	if string(job.Details) != `{"z":1, "a":[ 2]}` || string(job.Store["x"]) != `1.0` {
		t.Errorf("values are not as they were given: %s %s", job.Details, job.Store["x"])
	}
	saved, err := r.Book(bookID("book of trip"))
	if err != nil {
		t.Fatal(err)
	}
	flow := saved.Flows[0]
	if flow.State != logbook.FlowPending || string(flow.Factory.Args) != `{"of":"flow of trip"}` || string(flow.Store["a"]) != ` 1` {
		t.Errorf("saved %+v", flow)
	}
}

// TestPostAnswersWithTheJob: the answer contains a new job as a read would return it. For an
// existing job, which may have changed, it contains only the id.
func TestPostAnswersWithTheJob(t *testing.T) {
	r := newRig(t)
	whole := flowPosting("trip")
	whole.Details, whole.Store = value(`{"z":1}`), []*v1.NamedValue{{Name: "x", Value: value(`1.0`)}}
	whole.Tags, whole.Labels, whole.Key = []string{"t"}, []string{"b", "a"}, "k"
	held := posting("held", "k")
	held.Hold = true
	posted := r.ok(post(whole, held, posting("plain", "k"), held, &v1.Posting{Id: id("other"), Name: "other", Kind: "k", Key: "k"})).GetPost().Posted
	for i, name := range []string{"trip", "held", "plain"} {
		job := r.job(id(name))
		if want := command.JobToProto(&job); !proto.Equal(posted[i].Posted, want) {
			t.Errorf("%s: the answer is %v, and the job %v", name, posted[i].Posted, want)
		}
	}
	for i, want := range []string{id("held"), id("trip")} {
		if got := posted[3+i]; got.Posted != nil || !got.Existed || got.Job != want {
			t.Errorf("a job that existed: %v", got)
		}
	}
}

func TestPostDelayed(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	late, past := posting("late", "k"), posting("past", "k")
	never := posting("never", "k")
	late.NotBefore = timestamppb.New(start.Add(time.Minute))
	past.NotBefore = timestamppb.New(start.Add(-time.Minute))
	never.NotBefore = timestamppb.New(time.Date(2261, 1, 1, 0, 0, 0, 0, time.UTC))
	r.ok(post(never, late, past))
	for name, state := range map[string]jobs.State{
		"late": jobs.StateDelayed, "past": jobs.StateClaimable, "never": jobs.StateDelayed,
	} {
		if job := r.job(id(name)); job.State != state {
			t.Errorf("%s is %s, not %s", name, job.State, state)
		}
	}
	if due := r.NextDue(); !due.Equal(start.Add(time.Minute)) {
		t.Errorf("next due: %s", due)
	}
	r.now = start.Add(time.Minute - 1)
	if done := r.ok(wake(r.TimerEpoch(), 10)).GetCount().Done; done != 0 {
		t.Errorf("%d woken early", done)
	}
	r.now = start.Add(time.Minute)
	if count := r.ok(wake(r.TimerEpoch(), 10)).GetCount(); count.Done != 1 || count.More {
		t.Errorf("woken: %v", count)
	}
	if job := r.job(id("late")); job.State != jobs.StateClaimable || !job.DueAt.IsZero() {
		t.Errorf("late is %s, due %s", job.State, job.DueAt)
	}
}

func TestUnknownJob(t *testing.T) {
	r := newRig(t)
	if _, err := r.Job(jobID(id("nobody"))); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, _, err := r.Claimed(jobID(id("nobody")), fsm.Unbounded); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
