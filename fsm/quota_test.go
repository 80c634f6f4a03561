package fsm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/schedules"
)

// by sends a command for a principal.
func by(principal string, c *v1.Command) *v1.Command {
	c.Principal = principal
	return c
}

var (
	ofAnn    = access.Subject{Principal: "ann"}
	ofOrders = access.Subject{Boards: "orders/*"}
)

func (r *rig) used(of access.Subject) access.Amounts {
	r.Helper()
	page, _, err := r.QuotaPage("", r.now)
	if err != nil {
		r.Fatal(err)
	}
	for _, q := range page {
		if q.Subject == of {
			return q.Used
		}
	}
	r.Fatalf("there is no quota of %s: %+v", of, page)
	return access.Amounts{}
}

// postedBy posts a job for a principal, and returns the refusal.
func (r *rig) postedBy(principal string, p *v1.Posting) string {
	r.Helper()
	return r.ok(by(principal, post(p))).GetPost().Posted[0].GetError().GetMessage()
}

func onBoard(name, board string) *v1.Posting {
	p := posting(name, "k")
	p.Board = board
	return p
}

// TestQuotaOfPrincipal: a principal's unfinished jobs count on every board, also jobs from
// before the quota.
func TestQuotaOfPrincipal(t *testing.T) {
	r := newRig(t)
	r.ok(by("worker", open("w")))
	r.postedBy("ann", onBoard("a", "x"))
	r.postedBy("bob", onBoard("b", "x"))
	r.ok(saveQuota(ofAnn, access.Amounts{Jobs: 2}))
	r.harmless(saveQuota(ofAnn, access.Amounts{Jobs: 2}))
	if refusal := r.postedBy("ann", onBoard("c", "y")); refusal != "" {
		t.Error(refusal)
	}
	if refusal := r.postedBy("ann", onBoard("d", "z")); !strings.Contains(refusal, `quota of principal "ann" is at its limit: at most 2 unfinished jobs`) {
		t.Errorf("refused with %q", refusal)
	}
	for _, principal := range []string{"bob", "worker", ""} {
		if refusal := r.postedBy(principal, onBoard("of "+principal, "y")); refusal != "" {
			t.Errorf("%s: %s", principal, refusal)
		}
	}
	token := r.claimedAgain("w", id("a"))
	r.ok(by("worker", consume(success("a", token))))
	if used := r.used(ofAnn); used.Jobs != 1 {
		t.Errorf("used %+v", used)
	}
	if refusal := r.postedBy("ann", onBoard("d", "z")); refusal != "" {
		t.Error(refusal)
	}
	r.ok(saveQuota(ofAnn, access.Amounts{Bytes: r.used(ofAnn).Bytes}))
	if refusal := r.postedBy("ann", onBoard("e", "z")); !strings.Contains(refusal, "bytes of unfinished jobs") {
		t.Errorf("refused with %q", refusal)
	}
	r.ok(&v1.Command{Kind: &v1.Command_DeleteQuota{DeleteQuota: &v1.DeleteQuotaCommand{Principal: "ann"}}})
	r.refused(&v1.Command{Kind: &v1.Command_DeleteQuota{DeleteQuota: &v1.DeleteQuotaCommand{Principal: "ann"}}}, "not_found")
	if refusal := r.postedBy("ann", onBoard("e", "z")); refusal != "" {
		t.Error(refusal)
	}
}

// TestQuotaOfRate: the postings of a second can arrive together, and further ones as tokens refill.
// The time is the entries' time.
func TestQuotaOfRate(t *testing.T) {
	r := newRig(t)
	r.ok(saveQuota(ofAnn, access.Amounts{PostingsPerSecond: 4}))
	r.ok(saveQuota(ofOrders, access.Amounts{PostingsPerSecond: 100}))
	n := 0
	accepted := func() (count int) {
		for range 6 {
			if n++; r.postedBy("ann", onBoard(fmt.Sprint("job ", n), "orders/eu")) == "" {
				count++
			}
		}
		return count
	}
	for _, row := range []struct {
		after time.Duration
		want  int
	}{{0, 4}, {0, 0}, {250 * time.Millisecond, 1}, {500 * time.Millisecond, 2}, {time.Hour, 4}} {
		r.now = r.now.Add(row.after)
		if got := accepted(); got != row.want {
			t.Errorf("after %s %d were accepted, and not %d", row.after, got, row.want)
		}
		if used := r.used(ofAnn).PostingsPerSecond; used != 4 {
			t.Errorf("%d of 4 are taken", used)
		}
	}
	if used := r.used(ofOrders); used.Jobs != 11 || used.PostingsPerSecond != 4 {
		t.Errorf("refused postings count for the boards: %+v", used)
	}
}

// TestQuotaOfSessions: a quota limits the open sessions of a principal. An ended session no longer
// counts. A repeated opening does not count again.
func TestQuotaOfSessions(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(by("ann", open("one")))
	r.ok(saveQuota(ofAnn, access.Amounts{Sessions: 2}))
	r.ok(by("ann", open("two")))
	r.ok(by("ann", open("two")))
	r.refused(by("ann", open("three")), "over_limit")
	r.ok(by("bob", open("his")))
	if used := r.used(ofAnn).Sessions; used != 2 {
		t.Errorf("%d are open", used)
	}
	r.ok(expire("one", r.TimerEpoch(), time.Second, 0))
	r.ok(by("ann", open("three")))
	r.refused(by("ann", open("four")), "over_limit")
	r.ok(by("ann", closing("two")))
	r.ok(by("ann", open("four")))
}

// TestQuotaOfSlots: the job of a slot counts for the principal that has saved the schedule, for
// every command that can post it.
func TestQuotaOfSlots(t *testing.T) {
	r := newRig(t)
	r.ok(by("worker", open("w")))
	s := every10("s", "queue")
	s.Posting.Kind = "k"
	saved := r.ok(by("ann", saveSchedule(s, 0, 0, 10))).GetSchedule().GetSchedule()
	r.ok(beginLeadership())
	r.ok(saveQuota(ofAnn, access.Amounts{Jobs: 1}))
	r.now = start.Add(20 * time.Second)
	c := fire(r.TimerEpoch(), "s", saved.Revision, 30, posting10(10), posting10(20))
	c.GetFireSchedule().Schedule = saved.Id
	r.ok(c)
	if used := r.used(ofAnn); used.Jobs != 1 {
		t.Fatalf("used %+v", used)
	}
	if refusal := r.postedBy("ann", posting("more", "k")); refusal == "" {
		t.Error("the job of the slot does not count")
	}
	taken := r.ok(by("worker", claimNext("w", "n", 1, []string{"default"}, []string{"k"}))).GetClaim().Granted[0]
	r.ok(by("worker", consume(&v1.Ending{Job: taken.Job, Token: taken.Token, Outcome: "success"}))) // posts the waiting slot
	if used := r.used(ofAnn); used.Jobs != 1 {
		t.Errorf("the slot that waited counts for another principal: %+v", used)
	}
	r.ok(by("bob", runSchedule("s", "now")))
	_, records, err := r.Machine.Schedule(schedules.Ref{Name: "s"}, 10)
	if err != nil || !strings.Contains(records[0].Reason, `quota of principal "ann"`) {
		t.Errorf("%+v, %v", records, err)
	}
}

// TestQuotasAreBounded: at the limit, a quota can still be replaced.
func TestQuotasAreBounded(t *testing.T) {
	r := newRig(t)
	var many []*v1.Command
	for i := range access.MaxQuotas {
		many = append(many, saveQuota(access.Subject{Principal: fmt.Sprint("p", i)}, access.Amounts{Jobs: 1}))
	}
	r.do(many...)
	r.refused(saveQuota(ofOrders, access.Amounts{Jobs: 1}), "over_limit")
	r.ok(saveQuota(access.Subject{Principal: "p7"}, access.Amounts{Jobs: 2}))
	r.refused(saveQuota(access.Subject{Principal: strings.Repeat("x", 256)}, access.Amounts{Jobs: 2}), "over_limit")
}

// TestQuotasSurviveSnapshots: a machine that starts from a snapshot continues its counts.
func TestQuotasSurviveSnapshots(t *testing.T) {
	r, other := newRig(t), newRig(t)
	r.ok(saveQuota(ofAnn, access.Amounts{Jobs: 1, PostingsPerSecond: 9}))
	r.ok(saveQuota(ofOrders, access.Amounts{Jobs: 2}))
	r.postedBy("ann", onBoard("a", "orders/eu"))
	other.ok(saveQuota(access.Subject{Principal: "bob"}, access.Amounts{Jobs: 1})) // the snapshot replaces this quota
	if err := other.Restore(strings.NewReader(string(snapshot(t, r.Machine)))); err != nil {
		t.Fatal(err)
	}
	other.index, other.now = r.index, r.now
	for _, machine := range []*rig{r, other} {
		for _, row := range []struct{ principal, refusal string }{
			{"ann", `quota of principal "ann"`}, {"bob", ""}, {"eve", `quota of boards "orders/*"`},
		} {
			refusal := machine.postedBy(row.principal, onBoard("of "+row.principal, "orders/us"))
			if (refusal == "") != (row.refusal == "") || !strings.Contains(refusal, row.refusal) {
				t.Errorf("%s: %q", row.principal, refusal)
			}
		}
	}
	if digest(t, r.Machine) != digest(t, other.Machine) {
		t.Error("the states differ")
	}
	if err := fsm.Verify(other.Machine); err != nil {
		t.Error(err)
	}
}

// TestSharesOfBoards: a principal's postings can create at most half of the remaining boards, so
// that each further principal can create some. A deleted board no longer counts.
func TestSharesOfBoards(t *testing.T) {
	r := newRig(t)
	number := 0
	createBoard := func(name string) *v1.Command {
		return &v1.Command{Kind: &v1.Command_CreateBoard{CreateBoard: &v1.BoardCommand{Board: name}}}
	}
	makes := func(principal string) (made int, refusal string) {
		t.Helper()
		for {
			var batch []*v1.Posting
			for range command.MaxPostings {
				number++
				p := onBoard(fmt.Sprintf("job %d", number), fmt.Sprintf("board %d", number))
				batch = append(batch, p)
			}
			for _, posted := range r.do(by(principal, post(batch...)))[0].GetPost().Posted {
				if refusal = posted.GetError().GetMessage(); refusal != "" {
					return made, refusal
				}
				made++
			}
		}
	}
	posts := func(principal string, p *v1.Posting) string {
		return r.do(by(principal, post(p)))[0].GetPost().Posted[0].GetError().GetMessage()
	}
	left := jobs.MaxKeptBoards
	for _, principal := range []string{"eve", "ann", "bob"} {
		made, refusal := makes(principal)
		if want := fmt.Sprintf("the share of principal %q in the boards is at its limit: at most %d boards", principal, (left+1)/2); made != (left+1)/2 || !strings.Contains(refusal, want) {
			t.Errorf("%s has made %d of %d boards, and is refused with %q, want %q", principal, made, left, refusal, want)
		}
		left -= made
	}
	if refusal := posts("eve", onBoard("again", "board 1")); refusal != "" {
		t.Errorf("a job on a board that exists: %s", refusal)
	}
	if why := r.do(by("eve", createBoard("of eve")))[0].GetError(); why.GetCode() != "over_limit" || !strings.Contains(why.GetMessage(), "eve") { // CreateBoard is limited too
		t.Errorf("a board without a job: %v", why)
	}
	for _, operator := range []string{"", "local/0"} {
		if why := r.do(by(operator, createBoard("of "+operator)))[0].GetError(); why != nil {
			t.Errorf("%q makes a board: %v", operator, why)
		}
	}
	for _, name := range []string{"job 1", "again"} {
		r.do(cancel(&v1.JobCommand{Job: id(name)}), purge(&v1.JobCommand{Job: id(name)}))
	}
	r.ok(&v1.Command{Kind: &v1.Command_DeleteBoard{DeleteBoard: &v1.BoardCommand{Board: "board 1"}}})
	if refusal := posts("eve", onBoard("new", "another")); refusal == "" {
		t.Error("eve has half of the boards, and makes one more")
	}
	if refusal := posts("carl", onBoard("of carl", "of carl")); refusal != "" {
		t.Errorf("a fourth principal: %s", refusal)
	}
}
