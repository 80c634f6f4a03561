package node

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// heldClaim names a claim for its timer.
type heldClaim struct {
	job   jobs.JobID
	token jobs.Token
}

// timeClaims arms and disarms the timers of claims.
func (l *leadership) timeClaims(timers []fsm.ClaimTimer, now time.Time) {
	for _, timer := range timers {
		id := heldClaim{timer.Job, timer.Token}
		if timer.Expiry == 0 {
			l.claims.disarm(id)
			continue
		}
		l.claims.arm(id, timer.Expiry, timer.Extensions, now)
	}
}

// expireClaims proposes the end of claims whose own time is up. An extension that is
// first in the log wins: it arms the timer again, and the expiry names an old round and
// is refused.
func (t *leaderTasks) expireClaims(ctx context.Context, current *leadership, now time.Time) {
	late := current.claims.due(now, expiriesAtOnce)
	if len(late) == 0 {
		return
	}
	commands := make([]*conductordv1.Command, len(late))
	for i := range late {
		commands[i] = &conductordv1.Command{Kind: &conductordv1.Command_ExpireClaim{ExpireClaim: &conductordv1.ExpireClaimCommand{
			Job: late[i].id.job.String(), Token: command.TokenToProto(late[i].id.token), Extensions: uint32(late[i].round),
			TimerEpoch: current.epoch, CoolDown: durationpb.New(t.timings.CoolDown),
			MaxCrashes: uint32(max(t.timings.MaxCrashes, 0)),
		}}}
	}
	_, results, err := t.proposer.propose(ctx, commands...)
	for i := range late {
		id, verdict := late[i].id, verdictOf(err, results, i)
		switch {
		case verdict == nil, errors.Is(verdict, jobs.ErrFenced), errors.Is(verdict, jobs.ErrNotFound):
			t.logger.Info("claim expired", "job", id.job, "token", id.token, "already_ended", verdict != nil)
			current.claims.disarm(id)
		default:
			t.logger.Warn("cannot expire a claim yet", "job", id.job, "token", id.token, "error", verdict)
			current.claims.spare(id, time.Now().Add(spareTime))
		}
	}
}

// timeHolder adds to a claim what the timers of this node know of it, if it leads.
func (s *leaderState) timeHolder(held *jobs.HeldClaim) {
	if current, err := s.serving(); err == nil {
		current.timeHolder(held, time.Now())
	}
}

func (l *leadership) timeHolder(held *jobs.HeldClaim, now time.Time) {
	left, silent, known := l.deadlines.look(held.Claim.Session, now)
	if !known {
		return
	}
	own, _, timed := l.claims.look(heldClaim{held.Job, held.Claim.Token}, now)
	if timed {
		held.Left = min(left, own)
	} else {
		held.Left = left
	}
	// The full time is what has passed in silence and what is left.
	ttl := left + silent - l.deadlines.grace
	held.Silent, held.Suspect = silent, silent > jobs.SuspectAfter(ttl)
}
