package jobstest

import (
	"context"
	"fmt"
	"time"

	"github.com/conductord/conductord/jobs"
)

var wakingRows = []row{
	{"a parked request is woken by a post", wokenByPost},
	{"a parked request is woken by a job of its kinds only", wokenByItsKinds},
	{"a parked request is woken when a job is due", wokenWhenDue},
	{"a parked request is woken by the end of another's claim", wokenByEndOfClaim},
	{"four parked requests get a job each", fourParked},
	{"a parked request gives up after its time", parkedGivesUp},
	{"a parked request ends with its context", parkedEndsWithContext},
	{"a parked request ends with its session", parkedEndsWithSession},
	{"a due job is claimable in its order", dueJobInOrder},
}

// woken is the answer to a waiting request.
type woken struct {
	claimed []jobs.Claimed
	err     error
}

// park requests jobs in a goroutine, which ends with its answer.
func (k *kit) park(ctx context.Context, request jobs.ClaimRequest) <-chan woken {
	answered := make(chan woken, 1)
	go func() {
		claimed, err := k.Board.ClaimNext(ctx, request)
		answered <- woken{claimed, err}
	}()
	return answered
}

// asleep makes a waiting request of a session for one job of the row's board.
func (k *kit) asleep(session jobs.SessionID) <-chan woken {
	request := k.request(session)
	request.Wait = parked
	return k.park(k.ctx, request)
}

// linger lets a moment pass, so that new calls are waiting by now. It makes a claim on a board
// without jobs. Rows pass without linger; with it, they also test calls that already wait, and
// not only calls that arrive.
func (k *kit) linger(session jobs.SessionID) {
	k.Helper()
	request := k.request(session)
	request.Boards, request.Wait = []string{k.board + " nobody"}, 100*time.Millisecond
	k.same("jobs of a board that nobody posts to", names(k.next(request)), []string{})
}

// wakes waits for a waiting request, and returns its job.
func (k *kit) wakes(what string, answered <-chan woken) jobs.Claimed {
	k.Helper()
	got := answer(k, what, answered)
	if got.err != nil || len(got.claimed) != 1 {
		k.Fatalf("%s: %d jobs, %v; want 1", what, len(got.claimed), got.err)
	}
	return got.claimed[0]
}

func wokenByPost(k *kit) {
	session := k.session("worker")
	// Repeat, so that the post meets a request that already waits, a request that is arriving,
	// and a later one.
	for i := range 10 {
		answered := k.asleep(session)
		if i%3 == 0 {
			k.linger(session)
		}
		want := k.posted(fmt.Sprint("job ", i))
		if got := k.wakes("ClaimNext", answered); got.Job.ID != want.ID {
			k.Errorf("woken with %s, want %s", got.Job.Name, want.Name)
		}
	}
}

func wokenByItsKinds(k *kit) {
	session := k.session("worker")
	request := k.request(session)
	request.Kinds, request.Wait = []string{k.kind + " 2", k.kind + " 3"}, parked
	answered := k.park(k.ctx, request)
	k.linger(session)
	k.posted("of another kind")
	k.linger(session)
	select {
	case got := <-answered:
		k.Errorf("answered %v, %v for a job of another kind", names(got.claimed), got.err)
	default:
	}
	posting := k.posting("of its kind")
	posting.Kind += " 3"
	k.post(posting)
	k.same("job", k.wakes("ClaimNext", answered).Job.Name, "of its kind")
}

func wokenWhenDue(k *kit) {
	session := k.session("worker")
	answered := k.asleep(session)
	posting := k.posting("soon")
	posting.NotBefore = time.Now().Add(600 * time.Millisecond).UTC()
	k.post(posting)
	job := k.wakes("ClaimNext", answered).Job
	if job.ID != posting.ID || job.Claim.Since.Before(posting.NotBefore) {
		k.Errorf("got %s, want it claimed no sooner than %v", render(job), posting.NotBefore)
	}
}

func wokenByEndOfClaim(k *kit) {
	for _, end := range []struct {
		name string
		make func(owner jobs.SessionID, claimed jobs.Claimed)
	}{
		{"abandoning", func(_ jobs.SessionID, claimed jobs.Claimed) {
			k.wants("Abandon", k.Board.Abandon(k.ctx, release(claimed)), nil)
		}},
		{"abandoning with a delay", func(_ jobs.SessionID, claimed jobs.Claimed) {
			ending := release(claimed)
			ending.Delay = 300 * time.Millisecond
			k.wants("Abandon", k.Board.Abandon(k.ctx, ending), nil)
		}},
		{"closing the session", func(owner jobs.SessionID, _ jobs.Claimed) { k.close(owner) }},
		{"the death of the owner", func(owner jobs.SessionID, _ jobs.Claimed) { k.lapse(owner) }},
	} {
		owner, heir := k.mortal("owner"), k.session("heir")
		claimed := k.owned(owner, "plain")
		answered := k.asleep(heir)
		k.linger(heir)
		end.make(owner, claimed)
		got := k.wakes(end.name, answered)
		if got.Job.ID != claimed.Job.ID || got.Job.Claim.Session != heir || got.Job.Token.Compare(claimed.Job.Token) <= 0 {
			k.Errorf("%s: got %s, want the job under a token above %s", end.name, render(got.Job), claimed.Job.Token)
		}
		k.wants("Consume", k.Board.Consume(k.ctx, success(got)), nil)
	}
}

func fourParked(k *kit) {
	var answers []<-chan woken
	for i := range 4 {
		answers = append(answers, k.asleep(k.session(fmt.Sprint("worker ", i))))
	}
	k.linger(k.session("idler"))
	k.post(k.posting("1"), k.posting("2"), k.posting("3"), k.posting("4"))
	given := make(map[jobs.JobID]bool)
	for _, answered := range answers {
		got := k.wakes("ClaimNext", answered)
		if given[got.Job.ID] {
			k.Errorf("%s was given twice", got.Job.Name)
		}
		given[got.Job.ID] = true
	}
}

func parkedGivesUp(k *kit) {
	const wait = 150 * time.Millisecond
	request := k.request(k.session("worker"))
	request.Wait = wait
	before := time.Now()
	k.same("jobs of an empty board", names(k.next(request)), []string{})
	if took := time.Since(before); took < wait {
		k.Errorf("gave up after %s, want no sooner than %s", took, wait)
	}
}

func parkedEndsWithContext(k *kit) {
	request := k.request(k.session("worker"))
	request.Wait = parked
	ctx, cancel := context.WithCancel(k.ctx)
	answered := k.park(ctx, request)
	k.linger(request.Session)
	cancel()
	k.wants("ClaimNext", answer(k, "ClaimNext", answered).err, context.Canceled)
}

func parkedEndsWithSession(k *kit) {
	for name, end := range map[string]func(jobs.SessionID){"closed": k.close, "lapsed": k.lapse} {
		session := k.doomed(name, "worker")
		answered := k.asleep(session)
		k.linger(session)
		end(session)
		got := answer(k, "ClaimNext of a session that is "+name, answered)
		k.wants("ClaimNext of a session that is "+name, got.err, jobs.ErrSessionExpired)
	}
}

func dueJobInOrder(k *kit) {
	soon, urgent := k.posting("soon"), k.posting("urgent")
	soon.NotBefore = time.Now().Add(400 * time.Millisecond).UTC()
	urgent.NotBefore, urgent.Priority = soon.NotBefore, jobs.High
	k.post(soon, urgent)
	session := k.session("worker")
	first, second := k.soon(session), k.soon(session)
	k.same("order", []string{first.Job.Name, second.Job.Name}, []string{"urgent", "soon"})
}
