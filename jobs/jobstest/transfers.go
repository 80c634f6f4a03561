package jobstest

import (
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
)

// transfer is a command to transfer a job.
func transfer(id jobs.JobID, to string) jobs.JobCommand {
	o := command(id)
	o.To, o.Within = to, jobs.MaxReservation
	return o
}

// reserved checks for which conductor a job is reserved.
func (k *kit) reserved(id jobs.JobID, name string) {
	k.Helper()
	job, got := k.job(id), ""
	if job.Reserved != nil {
		got = job.Reserved.Conductor
	}
	k.same("reserved for", got, name)
	if name == "" {
		return
	}
	if left := time.Until(job.Reserved.Until); left < jobs.MaxReservation/2 || left > 2*jobs.MaxReservation {
		k.Errorf("it is reserved for another %s", left)
	}
	explanation, err := k.Board.Explain(k.ctx, id)
	if err != nil || explanation.Cause != jobs.CauseReserved || !explanation.Until.Equal(job.Reserved.Until) || !strings.Contains(explanation.Text, name) {
		k.Errorf("explained by %s, %v", render(explanation), err)
	}
}

func transferredAtOnce(k *kit) {
	name := "to " + k.board
	to, other := k.conductor(name), k.session("other")
	job := k.posted("a")
	for range 2 {
		k.wants("Transfer", k.Board.Transfer(k.ctx, transfer(job.ID, name)), nil)
	}
	k.reserved(job.ID, name)
	k.posted("b")
	_, err := k.Board.Claim(k.ctx, other, job.ID, jobs.NewNonce())
	k.wants("Claim by another", err, jobs.ErrUnclaimable)
	k.same("jobs of another", names(k.next(k.request(other))), []string{"b"})
	urgent := k.posting("urgent")
	urgent.Priority = jobs.VeryHigh
	k.post(urgent)
	k.same("jobs of the conductor", names(k.next(k.request(to))), []string{"a"})
	k.reserved(job.ID, "")
	k.wants("Transfer to its owner", k.Board.Transfer(k.ctx, transfer(job.ID, name)), nil)
	k.under(job.ID, jobs.StateClaimed, "")
}

func transferredByOwner(k *kit) {
	name := "to " + k.board
	to, owner := k.conductor(name), k.session("owner")
	k.posted("a")
	claimed := k.soon(owner)
	for range 2 {
		k.wants("Transfer", k.Board.Transfer(k.ctx, transfer(claimed.Job.ID, name)), nil)
		k.under(claimed.Job.ID, jobs.StateClaimed, jobs.RequestTransfer)
	}
	asleep, answered := k.asleep(owner), k.asleep(to)
	k.linger(to)
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(claimed)), nil)
	got := k.wakes("ClaimNext", answered)
	k.same("claimed by the conductor", got.Job.ID, claimed.Job.ID)
	k.under(claimed.Job.ID, jobs.StateClaimed, "")
	select {
	case got := <-asleep:
		k.Errorf("the owner got %v, %v", names(got.claimed), got.err)
	default:
	}
}

// A job that ends first, or is cancelled, is not transferred.
func transferredTooLate(k *kit) {
	name := "to " + k.board
	k.conductor(name)
	last := k.owned(k.session("third"), "b")
	k.wants("Transfer", k.Board.Transfer(k.ctx, transfer(last.Job.ID, name)), nil)
	k.wants("Consume", k.Board.Consume(k.ctx, success(last)), nil)
	k.under(last.Job.ID, jobs.StateCompleted, "")
	cancelled := k.owned(k.session("fourth"), "c")
	k.wants("Transfer", k.Board.Transfer(k.ctx, transfer(cancelled.Job.ID, name)), nil)
	k.wants("Cancel", k.Board.Cancel(k.ctx, command(cancelled.Job.ID)), nil)
	k.wants("Transfer of a cancelled job", k.Board.Transfer(k.ctx, transfer(cancelled.Job.ID, name)), jobs.ErrConflict)
}

func reservationEnds(k *kit) {
	name := "to " + k.board
	k.conductor(name)
	other := k.session("other")
	job := k.posted("a")
	brief := transfer(job.ID, name)
	brief.Within = 500 * time.Millisecond
	k.wants("Transfer", k.Board.Transfer(k.ctx, brief), nil)
	k.same("claimed when the reservation is over", k.wakes("ClaimNext", k.asleep(other)).Job.ID, job.ID)
	k.reserved(job.ID, "")
}

func unreserved(k *kit) {
	name := "to " + k.board
	k.conductor(name)
	other := k.session("other")
	job := k.posted("a")
	k.wants("Unreserve without a reservation", k.Board.Unreserve(k.ctx, command(job.ID)), nil)
	k.wants("Transfer", k.Board.Transfer(k.ctx, transfer(job.ID, name)), nil)
	waits := k.asleep(other)
	for range 2 {
		k.wants("Unreserve", k.Board.Unreserve(k.ctx, command(job.ID)), nil)
	}
	k.same("claimed by another", k.wakes("ClaimNext", waits).Job.ID, job.ID)
	k.wants("Transfer of a claimed job", k.Board.Transfer(k.ctx, transfer(job.ID, name)), nil)
	k.wants("Unreserve before the owner has handed over", k.Board.Unreserve(k.ctx, command(job.ID)), jobs.ErrConflict)
	k.wants("Unreserve of nothing", k.Board.Unreserve(k.ctx, command(jobs.NewJobID())), jobs.ErrNotFound)
	k.wantsInvalid("Unreserve for a conductor", k.Board.Unreserve(k.ctx, transfer(job.ID, name)))
}

func senselessTransfers(k *kit) {
	name, deaf := "to "+k.board, "deaf "+k.board
	k.conductor(name)
	k.wants("Register", k.Board.Register(k.ctx, k.session("deaf"), jobs.Entity{
		Kind: jobs.EntityConductor, Name: deaf, Boards: []string{k.board}, JobKinds: []string{"none"},
	}), nil)
	job := k.posted("a")
	err := k.Board.Transfer(k.ctx, transfer(job.ID, "nobody"))
	k.wants("Transfer to nobody", err, jobs.ErrNotFound)
	if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), deaf) {
		k.Errorf("it does not name the conductor that could: %v", err)
	}
	k.wants("Transfer to another kind", k.Board.Transfer(k.ctx, transfer(job.ID, deaf)), jobs.ErrConflict)
	k.wants("Transfer of nothing", k.Board.Transfer(k.ctx, transfer(jobs.NewJobID(), name)), jobs.ErrNotFound)
	k.wantsInvalid("Transfer without a conductor", k.Board.Transfer(k.ctx, command(job.ID)))
	long := transfer(job.ID, name)
	long.Within++
	k.wantsInvalid("Transfer for too long", k.Board.Transfer(k.ctx, long))
	k.wantsInvalid("Suspend with a conductor", k.Board.Suspend(k.ctx, transfer(job.ID, name)))
	k.drain(name, true)
	k.wants("Transfer to a drained one", k.Board.Transfer(k.ctx, transfer(job.ID, name)), jobs.ErrConflict)
	k.undrain(name)
	k.wants("Suspend", k.Board.Suspend(k.ctx, command(job.ID)), nil)
	k.wants("Transfer of a suspended job", k.Board.Transfer(k.ctx, transfer(job.ID, name)), jobs.ErrConflict)
}
