package fsm

import (
	"fmt"
	"math"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// A board that ages its jobs raises all that wait by one step of priority at the
// same moments. Two of them never change places, so the index orders them by a
// rank that does not change with time: the priority, less the lag, which is the number
// of steps before the job became claimable first. The priority that a job counts for is
// its rank and all steps until now; only a comparison of several boards needs it.
//
// Nothing is moved in the index when ageing is switched on, changed or switched
// off: the steps go on from where they were, faster, slower or not at all.

// ageBoard says how long a job waits for one step of priority.
func (t *txn) ageBoard(c *v1.AgeBoardCommand) error {
	board, err := t.existingBoard(c.GetBoard())
	if err != nil {
		return fmt.Errorf("cannot age jobs: %w", err)
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

// age notes when a job has become claimable first. One that was so before its
// board aged jobs has waited from the beginning.
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

// ageAnew has a job that was finished wait from now: it has not waited since.
func (t *txn) ageAnew(j *jobRecord) {
	if lag, ages := t.lagNow(j.Board); ages {
		j.lag = &lag
	}
}

// lagNow is the lag of a job that becomes claimable now.
func (t *txn) lagNow(name string) (lag int64, ages bool) {
	board, _ := t.board(name)
	return board.Ageing.Raised(t.now), board.Ageing != (jobs.BoardAgeing{})
}

// effective is what an unfinished job counts for at a time, or would if it were
// claimable; nil if its board never aged jobs.
func (v *view) effective(j *jobRecord, now time.Time) *jobs.Priority {
	if j.State.Finished() {
		return nil
	}
	board, _ := v.board(j.Board)
	if board.Ageing == (jobs.BoardAgeing{}) {
		return nil
	}
	counted := int64(j.Priority)
	if j.lag != nil || j.Claims > 0 || j.State == jobs.StateClaimable { // else its age has not begun
		counted = int64(j.rank()) + board.Ageing.Raised(now)
	}
	effective := jobs.Priority(min(max(counted, math.MinInt32), math.MaxInt32))
	return &effective
}
