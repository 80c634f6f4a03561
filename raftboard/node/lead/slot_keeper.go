package lead

import (
	"context"
	"errors"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
)

// schedulesAtOnce limits the schedules in one proposal of slots.
const schedulesAtOnce = 64

// slotKeeper posts the slots of schedules during one leadership. It belongs to one
// goroutine.
type slotKeeper struct {
	*Tasks
	leadership *Leadership
	rules      map[schedules.ID]keptRule
	pause      time.Duration // before the next attempt, after a failure
}

// keptRule is the rule of a schedule at a revision, or the error of its evaluation.
type keptRule struct {
	revision uint64
	rule     *schedules.Rule
	err      error
}

// serveSchedules posts slots until ctx ends. The state machine takes each slot once, from the
// current leader and in order. So nothing here has to be exact: failed proposals are repeated, and
// a slot that was proposed already is refused.
func (t *Tasks) serveSchedules(ctx context.Context, current *Leadership) {
	k := &slotKeeper{Tasks: t, leadership: current, rules: map[schedules.ID]keptRule{}}
	for {
		select {
		case <-ctx.Done():
			return
		case <-current.slots:
		case <-time.After(k.sleep()):
		}
		k.pause = 0
		if t.Disk.MayGrow(0) != nil {
			k.pause = longestSleep // the slots are not lost: they are decided when there is space
			continue
		}
		now := t.Clock.Now()
		if next := t.Machine.NextSlot(); !next.IsZero() && !next.After(now) {
			k.fire(ctx, now)
		}
	}
}

// sleep is the time until the next known slot is due.
func (k *slotKeeper) sleep() time.Duration {
	next := k.Machine.NextSlot()
	if next.IsZero() {
		return longestSleep
	}
	return max(min(next.Sub(k.Clock.Now()), longestSleep), overduePause, k.pause)
}

// fire proposes the decisions about the due slots.
func (k *slotKeeper) fire(ctx context.Context, now time.Time) {
	due, err := k.Machine.DueSchedules(now, schedulesAtOnce+k.broken())
	if err != nil {
		k.failed(ctx, "cannot read due schedules", err)
		return
	}
	var commands []*conductordv1.Command
	for i := range due {
		if c := k.command(&due[i], now); c != nil && len(commands) < schedulesAtOnce {
			commands = append(commands, c)
		}
	}
	if len(commands) == 0 {
		k.pause = longestSleep // only schedules that cannot be read are due
		return
	}
	_, results, err := k.Proposer.Propose(ctx, commands...)
	if err != nil {
		k.failed(ctx, "cannot post slots", err)
		return
	}
	for i, result := range results {
		// Meanwhile, the schedule was changed, paused or deleted, or its slots were already
		// decided: read the schedule again after a pause.
		if err := command.ErrorFromProto(result.GetError()); err != nil {
			k.Logger.Debug("slots refused", "schedule", commands[i].GetFireSchedule().GetSchedule(), "error", err)
			k.pause = spareTime
		}
	}
}

func (k *slotKeeper) failed(ctx context.Context, message string, err error) {
	k.pause = spareTime
	if ctx.Err() == nil {
		k.Logger.Warn(message, "error", err)
	}
}

// command decides the slots of one schedule; nil if its rule cannot be read.
func (k *slotKeeper) command(s *schedules.Schedule, now time.Time) *conductordv1.Command {
	kept, known := k.rules[s.ID]
	if !known || kept.revision != s.Revision {
		kept = keptRule{revision: s.Revision}
		if kept.rule, kept.err = schedules.ParseRule(s); kept.err != nil {
			k.Logger.Error("cannot read a schedule's rule", "schedule", s.Name, "board", s.Board, "error", kept.err)
		}
		if len(k.rules) >= schedules.MaxSchedules { // others have been deleted
			clear(k.rules)
		}
		k.rules[s.ID] = kept
	}
	if kept.err != nil {
		return nil
	}
	return command.PlanFire(s, kept.rule, k.leadership.epoch, now)
}

// broken counts the schedules whose rules this node cannot read. They stay due, and must not delay
// other schedules.
func (k *slotKeeper) broken() int {
	broken := 0
	for _, kept := range k.rules {
		if errors.Is(kept.err, jobs.ErrInvalid) {
			broken++
		}
	}
	return broken
}
