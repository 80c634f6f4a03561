package jobstest

import (
	"github.com/conductord/conductord/jobs"
)

var conductorRows = []row{
	{"a drained conductor is given nothing", drainedGetsNothing},
	{"a drained conductor keeps its claims", drainedKeeps},
	{"a job goes past a drained conductor that waits", pastTheDrained},
	{"the end of a drain wakes waiting callers", undrainWakes},
	{"a parked request of a drained conductor ends with its session", drainedEndsWithSession},
	{"a drain outlives its conductor", drainOutlives},
	{"two conductors of one name are drained together", drainedTogether},
	{"a drain without a live conductor must be explicit", drainOfNobody},
	{"drains and their ends are events", drainsAreTold},
	{"an explanation names the drain", drainExplained},
	{"a wait for an idle conductor ends when it holds no job", idleAwaited},
}

// conductor opens a session and registers a conductor. Only this row uses the conductor's
// name.
func (k *kit) conductor(name string) jobs.SessionID {
	k.Helper()
	session := k.session(name)
	entity := jobs.Entity{Kind: jobs.EntityConductor, Name: name, Boards: []string{k.board}}
	k.wants("Register", k.Board.Register(k.ctx, session, entity), nil)
	return session
}

func (k *kit) drain(name string, finish bool) {
	k.Helper()
	order := jobs.DrainCommand{Conductor: name, By: "ann", Reason: "the roof leaks", Finish: finish}
	k.wants("DrainConductor", k.Board.DrainConductor(k.ctx, order), nil)
}

func (k *kit) undrain(name string) {
	k.Helper()
	k.wants("UndrainConductor", k.Board.UndrainConductor(k.ctx, jobs.DrainCommand{Conductor: name, By: "bob"}), nil)
}

// drained reads the drain of a name; nil if there is none.
func (k *kit) drained(name string) *jobs.Drain {
	k.Helper()
	drains, err := k.Board.Drains(k.ctx)
	if err != nil {
		k.Fatalf("Drains: %v", err)
	}
	for i := range drains {
		if drains[i].Conductor == name {
			return &drains[i]
		}
	}
	return nil
}

func drainedGetsNothing(k *kit) {
	name := "c " + k.board
	drained, other := k.conductor(name), k.session("other")
	job := k.posted("a")
	k.drain(name, false)
	first := k.drained(name)
	if first == nil || first.By != "ann" || first.Reason != "the roof leaks" || first.Finish || first.At.IsZero() {
		k.Fatalf("drained by %s", render(first))
	}
	k.wants("DrainConductor again", k.Board.DrainConductor(k.ctx, jobs.DrainCommand{Conductor: name, By: "bob"}), nil)
	k.same("the drain", k.drained(name), first)
	k.wants("DrainConductor otherwise", k.Board.DrainConductor(k.ctx, jobs.DrainCommand{Conductor: name, By: "bob", Finish: true}), nil)
	if later := k.drained(name); later == nil || later.By != "bob" || !later.Finish {
		k.Errorf("drained by %s", render(later))
	}

	k.same("ClaimNext", names(k.next(k.request(drained))), []string{})
	_, err := k.Board.Claim(k.ctx, drained, job.ID, jobs.NewNonce())
	k.wants("Claim", err, jobs.ErrUnclaimable)
	k.same("ClaimNext of another", names(k.next(k.request(other))), []string{"a"})

	k.posted("b")
	k.undrain(name)
	k.undrain(name)
	if left := k.drained(name); left != nil {
		k.Errorf("drained by %s", render(left))
	}
	k.same("ClaimNext after it", names(k.next(k.request(drained))), []string{"b"})
}

func drainedKeeps(k *kit) {
	name := "c " + k.board
	session := k.conductor(name)
	job := k.posted("a")
	nonce := jobs.NewNonce()
	claimed, err := k.Board.Claim(k.ctx, session, job.ID, nonce)
	k.wants("Claim", err, nil)
	request := k.request(session)
	k.posted("b")
	next := k.next(request)
	k.drain(name, false)

	again, err := k.Board.Claim(k.ctx, session, job.ID, nonce)
	if err != nil || again.Job.Token != claimed.Job.Token {
		k.Errorf("the claim repeated: %s, %v", render(again.Job), err)
	}
	k.same("ClaimNext repeated", names(k.next(request)), []string{"b"})
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(next[0])), nil)
	k.same("ClaimNext", names(k.next(k.request(session))), []string{})
}

func pastTheDrained(k *kit) {
	name := "c " + k.board
	drained, other := k.conductor(name), k.session("other")
	k.drain(name, true)
	asleep := k.asleep(drained)
	k.linger(other)
	answered := k.asleep(other)
	k.linger(other)
	for _, job := range []string{"a", "b", "c"} {
		k.posted(job)
		k.same("woken", k.wakes("ClaimNext", answered).Job.Name, job)
		answered = k.asleep(other)
	}
	k.linger(other)
	select {
	case got := <-asleep:
		k.Errorf("the drained one got %v, %v", names(got.claimed), got.err)
	default:
	}
}

func undrainWakes(k *kit) {
	name := "c " + k.board
	session, other := k.conductor(name), k.session("other")
	// A conductor that waits when it is drained, and one that starts afterwards.
	before := k.asleep(session)
	k.linger(other)
	k.drain(name, false)
	after := k.asleep(session)
	k.linger(other)
	k.post(k.posting("a"), k.posting("b"))
	k.linger(other)
	k.undrain(name)
	got := []string{k.wakes("the first", before).Job.Name, k.wakes("the second", after).Job.Name}
	if got[0] == got[1] {
		k.Errorf("both got %s", got[0])
	}
}

func drainedEndsWithSession(k *kit) {
	name := "c " + k.board
	session, other := k.conductor(name), k.session("other")
	k.drain(name, false)
	answered := k.asleep(session)
	k.linger(other)
	k.close(session)
	k.wants("ClaimNext", answer(k, "ClaimNext", answered).err, jobs.ErrSessionExpired)
	k.undrain(name)
}

func drainOutlives(k *kit) {
	name := "c " + k.board
	first := k.conductor(name)
	k.drain(name, false)
	k.close(first)
	second := k.conductor(name)
	k.posted("a")
	k.same("ClaimNext", names(k.next(k.request(second))), []string{})
	k.undrain(name)
	k.same("ClaimNext after it", names(k.next(k.request(second))), []string{"a"})
}

func drainedTogether(k *kit) {
	name := "c " + k.board
	one, two := k.conductor(name), k.conductor(name)
	near := k.conductor(name + " too")
	k.drain(name, false)
	k.post(k.posting("a"), k.posting("b"))
	k.same("ClaimNext of one", names(k.next(k.request(one))), []string{})
	k.same("ClaimNext of the other", names(k.next(k.request(two))), []string{})
	k.same("ClaimNext of a name that begins alike", names(k.next(k.request(near))), []string{"a"})
	k.undrain(name)
	k.same("ClaimNext after it", names(k.next(k.request(two))), []string{"b"})
}

func drainOfNobody(k *kit) {
	name := "c " + k.board
	k.session(name) // a session without a conductor
	nobody := jobs.DrainCommand{Conductor: name}
	k.wants("a drain of nobody", k.Board.DrainConductor(k.ctx, nobody), jobs.ErrNotFound)
	k.wants("an undrain of nobody", k.Board.UndrainConductor(k.ctx, nobody), jobs.ErrNotFound)
	nobody.Absent = true
	k.wants("a drain of somebody absent", k.Board.DrainConductor(k.ctx, nobody), nil)
	session := k.conductor(name)
	k.posted("a")
	k.same("ClaimNext", names(k.next(k.request(session))), []string{})
	k.undrain(name)
	k.wantsInvalid("a drain of no name", k.Board.DrainConductor(k.ctx, jobs.DrainCommand{}))
}

func drainsAreTold(k *kit) {
	name := "c " + k.board
	k.conductor(name)
	k.drain(name, false)
	k.drain(name, false)
	k.drain(name, true)
	k.undrain(name)
	events, err := k.watch(jobs.Watch{After: &jobs.Position{}, Owner: name}, 3)
	if err != nil || len(events) != 3 {
		k.Fatalf("events %s, %v", render(events), err)
	}
	for i, want := range []jobs.EventKind{jobs.EventDrained, jobs.EventDrained, jobs.EventUndrained} {
		if got := events[i]; got.Kind != want || got.Entity != name || got.EntityKind != jobs.EntityConductor || got.Request == nil || !got.Job.IsZero() {
			k.Errorf("event %d is %s, not %s", i, render(got), want)
		}
	}
	if first, last := events[0], events[2]; first.Request.By != "ann" || first.Reason != "the roof leaks" || last.Request.By != "bob" {
		k.Errorf("told as %s and %s", render(first), render(last))
	}
}

func drainExplained(k *kit) {
	name := "c " + k.board
	k.conductor(name)
	job := k.posted("a")
	k.drain(name, false)
	cause := func() jobs.Explanation {
		k.Helper()
		explanation, err := k.Board.Explain(k.ctx, job.ID)
		if err != nil {
			k.Fatalf("Explain: %v", err)
		}
		return explanation
	}
	if e := cause(); e.Cause != jobs.CauseDrained || e.Remedy != (jobs.Remedy{Verb: jobs.RemedyUndrain, Target: name}) {
		k.Errorf("explained by %s", render(e))
	}
	k.undrain(name)
	if e := cause(); e.Cause != jobs.CauseReady {
		k.Errorf("explained by %s", render(e))
	}
}

func idleAwaited(k *kit) {
	name := "c " + k.board
	one, two := k.conductor(name), k.conductor(name)
	first, second := k.owned(one, "a"), k.owned(two, "b")
	k.owned(k.session("other"), "c")
	k.drain(name, true)
	held, done := make(chan int, 10), make(chan error, 1)
	go func() { // ends with the row
		done <- jobs.AwaitIdle(k.ctx, k.Board, name, func(n int) { held <- n })
	}()
	k.same("held at the beginning", answer(k, "AwaitIdle", held), 2)
	k.wants("Consume", k.Board.Consume(k.ctx, success(first)), nil)
	k.same("held then", answer(k, "AwaitIdle", held), 1)
	k.posted("d")
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(second)), nil)
	k.wants("AwaitIdle", answer(k, "AwaitIdle", done), nil)
	k.wants("AwaitIdle of who holds nothing", jobs.AwaitIdle(k.ctx, k.Board, name, nil), nil)
	k.undrain(name)
}
