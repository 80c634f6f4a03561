package fsm_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func TestOpenSession(t *testing.T) {
	r := newRig(t)
	opening := func(ttl time.Duration, host string) *v1.Command {
		return &v1.Command{Kind: &v1.Command_OpenSession{OpenSession: &v1.Opening{
			Id: id("ann"), Name: "ann", Host: host, Pid: 7, Ttl: lasting(ttl),
		}}}
	}
	session := r.ok(opening(0, "h")).GetSession()
	if session.Ttl.AsDuration() != jobs.DefaultTTL || session.OpenedAt.AsTime() != start {
		t.Errorf("opened %v", session)
	}
	r.harmless(opening(jobs.DefaultTTL, "h"))
	r.refused(opening(time.Second, "h"), "conflict")
	r.refused(opening(0, "i"), "conflict")
	r.refused(&v1.Command{Kind: &v1.Command_OpenSession{OpenSession: &v1.Opening{Name: "x"}}}, "invalid")
	r.ok(closing("ann"))
	r.refused(opening(0, "h"), "session_expired")
	r.refused(closing("ann"), "session_expired")
}

func TestCloseSessionFreesAtOnce(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	r.ok(open("bob"))
	first := r.claimed("ann", flowPosting("a"))
	r.claimed("ann", posting("b", "k"))
	other := r.claimed("bob", posting("c", "k"))
	r.ok(register("ann", &v1.Entity{Kind: "conductor", Name: "one"}))
	r.ok(register("bob", &v1.Entity{Kind: "conductor", Name: "one"}))
	r.changes = nil
	r.ok(closing("ann"))
	for _, name := range []string{"a", "b"} {
		if job := r.job(id(name)); job.State != jobs.StateClaimable || job.Crashes != 0 || job.Claims != 1 || job.Claim != nil {
			t.Errorf("%s is %+v", name, job)
		}
	}
	if job := r.job(id("c")); job.State != jobs.StateClaimed || job.Token != other {
		t.Errorf("c is %+v", job)
	}
	r.refused(updateFlow(update("flow of a", first, 1, "running")), "fenced")
	sessions, err := r.Sessions()
	if err != nil || len(sessions) != 1 || sessions[0].ID != sessionID("bob") || sessions[0].Claims != 1 {
		t.Errorf("sessions %+v: %v", sessions, err)
	}
	entities, err := r.Entities("")
	if err != nil || len(entities) != 1 || entities[0].Session != sessionID("bob") {
		t.Errorf("entities %+v: %v", entities, err)
	}
	change := r.changes[0]
	if !slices.Equal(change.Ended, []jobs.SessionID{sessionID("ann")}) ||
		!slices.Equal(change.Claimable, []fsm.Queue{{Board: "default", Kind: "test"}, {Board: "default", Kind: "k"}}) || !change.Events {
		t.Errorf("changes %+v", change)
	}
}

func TestExpireSession(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	old := r.TimerEpoch()
	r.ok(beginLeadership())
	r.ok(open("ann"))
	r.claimed("ann", posting("a", "k"))
	r.refused(expire("ann", old, time.Second, 0), "conflict")
	r.refused(expire("nobody", r.TimerEpoch(), time.Second, 0), "session_expired")
	r.ok(expire("ann", r.TimerEpoch(), time.Second, 0))
	job := r.job(id("a"))
	if job.State != jobs.StateCooling || job.Crashes != 1 || !job.DueAt.Equal(r.now.Add(time.Second)) {
		t.Errorf("expired as %+v", job)
	}
	r.refused(expire("ann", r.TimerEpoch(), time.Second, 0), "session_expired")
	if sessions, err := r.Sessions(); err != nil || len(sessions) != 0 {
		t.Errorf("sessions %v: %v", sessions, err)
	}
}

func TestTooManyCrashes(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.posted(flowPosting("a"))
	for crash := 1; crash <= 3; crash++ {
		session := fmt.Sprint("session ", crash)
		r.ok(open(session))
		r.ok(claim(session, id("a"), session))
		r.ok(expire(session, r.TimerEpoch(), 0, 3))
		job := r.job(id("a"))
		if job.Crashes != crash || (job.State == jobs.StateTrashed) != (crash == 3) {
			t.Fatalf("after crash %d: %+v", crash, job)
		}
	}
	job := r.job(id("a"))
	if !job.Failure.Matches(logbook.FailureCrash) || job.Reason == "" || job.FinishedAt.IsZero() {
		t.Errorf("trashed without evidence: %+v", job)
	}
	want := []string{
		"posted a claimable", "claimed a claimed", "expired a claimable", "claimed a claimed", "expired a claimable",
		"claimed a claimed", "trashed a trashed",
	}
	if got := r.events(); !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}
	if _, err := r.Book(bookID("book of a")); err != nil {
		t.Error(err)
	}
	r.ok(destroyBook("book of a")) // its flow is free
}

func TestCoolDownBeyondAllTime(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("ann"))
	r.claimed("ann", posting("a", "k"))
	r.ok(expire("ann", r.TimerEpoch(), 1<<63-1, 0))
	if job := r.job(id("a")); job.State != jobs.StateCooling {
		t.Errorf("a is %s", job.State)
	}
}

func TestRegister(t *testing.T) {
	r := newRig(t)
	entity := func(name string, most uint32) *v1.Entity {
		return &v1.Entity{Kind: "conductor", Name: name, Boards: []string{"default"}, MaxJobs: most,
			Metadata: []*v1.NamedValue{{Name: "a", Value: value("2")}, {Name: "z", Value: value("1")}}}
	}
	r.refused(register("ann", entity("one", 1)), "session_expired")
	r.ok(open("ann"))
	r.ok(register("ann", entity("two", 1)))
	r.ok(register("ann", entity("one", 1)))
	r.now = r.now.Add(time.Second)
	r.harmless(register("ann", entity("one", 1)))
	r.ok(register("ann", entity("one", 2)))
	r.ok(register("ann", &v1.Entity{Kind: "other", Name: "three"}))
	entities, err := r.Entities("conductor")
	if err != nil || len(entities) != 2 || entities[0].Name != "one" || entities[0].MaxJobs != 2 ||
		entities[0].Session != sessionID("ann") || !entities[0].RegisteredAt.Equal(r.now) {
		t.Errorf("entities %+v: %v", entities, err)
	}
	if all, err := r.Entities(""); err != nil || len(all) != 3 {
		t.Errorf("all entities %+v: %v", all, err)
	}
	for i := 3; i < 256; i++ {
		r.do(register("ann", &v1.Entity{Kind: "many", Name: fmt.Sprint(i)}))
	}
	r.refused(register("ann", &v1.Entity{Kind: "many", Name: "one more"}), "over_limit")
}

func TestEndedSessionsAreForgottenInOrder(t *testing.T) {
	r := newRig(t)
	var commands []*v1.Command
	for i := range fsm.MaxEnded + 1 {
		commands = append(commands, open(fmt.Sprint(i)), closing(fmt.Sprint(i)))
	}
	for _, result := range r.do(commands...) {
		if result.GetError() != nil {
			t.Fatal(result.GetError())
		}
	}
	r.refused(open("1"), "session_expired")
	r.ok(open("0"))
	session := r.harmless(open("0")).GetSession()
	if opened, err := command.SessionFromProto(session); err != nil || opened.ID != sessionID("0") {
		t.Errorf("opened %+v: %v", opened, err)
	}
}
