package fsm

import (
	"fmt"
	"math"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// A board with ageing raises all its waiting jobs by one step of priority at the same moments. Two
// jobs never change their order, so the index sorts them by a constant rank: the priority minus the
// lag. The lag is the number of steps before the job first became claimable. The effective priority is
// the rank plus all steps until now. Only comparisons between boards need it.
//
// Changing the ageing of a board moves no job in the index. The steps continue from their current
// number: faster, slower, or not at all.

// ageBoard sets the waiting time for one step of priority.
func (t *txn) ageBoard(c *v1.AgeBoardCommand) error {
	board, err := t.existingBoard(c.GetBoard())
	if err != nil {
		return fmt.Errorf("cannot set the ageing of a board: %w", err)
	}
	step, err := command.DurationFromProto("board ageing", c.GetStep())
	if err == nil {
		err = jobs.CheckAgeing(step)
	}
	if err != nil || step == board.Ageing.Step {
		return err
	}
	board.Ageing = jobs.BoardAgeing{Step: step, Since: t.now, Steps: board.Ageing.Raised(t.now)}
	t.saveBoard(&board)
	return nil
}

// age sets the lag of a job that is claimable for the first time. A job that was claimable before its
// board had ageing has the lag 0.
func (t *txn) age(j *jobRecord) {
	if j.lag != nil {
		return
	}
	lag, ages := t.lagNow(j.Board)
	switch {
	case !ages:
		return
	case j.Claims > 0 || j.ClaimableAt.Before(t.now):
		lag = 0
	}
	j.lag = &lag
}

// ageAnew restarts the age of a reopened job, because a finished job does not wait.
func (t *txn) ageAnew(j *jobRecord) {
	if lag, ages := t.lagNow(j.Board); ages {
		j.lag = &lag
	}
}

// lagNow returns the lag of a job that first becomes claimable now. ages is false if the board never
// had ageing.
func (t *txn) lagNow(name string) (lag int64, ages bool) {
	board, _ := t.board(name)
	return board.Ageing.Raised(t.now), board.Ageing != (jobs.BoardAgeing{})
}

// effective returns the effective priority of an unfinished job at a time, as if the job were
// claimable. It is nil if the board never had ageing.
func (v *view) effective(j *jobRecord, now time.Time) *jobs.Priority {
	if j.State.Finished() {
		return nil
	}
	board, _ := v.board(j.Board)
	if board.Ageing == (jobs.BoardAgeing{}) {
		return nil
	}
	counted := int64(j.Priority)
	if j.lag != nil || j.Claims > 0 || j.State == jobs.StateClaimable { // otherwise its age has not started
		counted = int64(j.rank()) + board.Ageing.Raised(now)
	}
	effective := jobs.Priority(min(max(counted, math.MinInt32), math.MaxInt32))
	return &effective
}
