package lead

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/guard"
)

// heldClaim names a claim for its timer.
type heldClaim struct {
	job   jobs.JobID
	token jobs.Token
}

// timeClaims arms and disarms the timers of claims.
func (l *Leadership) timeClaims(timers []fsm.ClaimTimer, now time.Time) {
	for _, timer := range timers {
		id := heldClaim{timer.Job, timer.Token}
		if timer.Expiry == 0 {
			l.claims.Disarm(id)
			continue
		}
		l.claims.Arm(id, timer.Expiry, timer.Extensions, now)
	}
}

// expireClaims proposes the end of claims whose own TTL has passed. If an extension is earlier in
// the log, it wins: it arms the timer again, and the state machine refuses the expiry, because the
// expiry names an older number of extensions.
func (t *Tasks) expireClaims(ctx context.Context, current *Leadership, now time.Time) {
	late := current.claims.TakeDue(now, expiriesAtOnce)
	if len(late) == 0 {
		return
	}
	commands := make([]*conductordv1.Command, len(late))
	for i := range late {
		commands[i] = &conductordv1.Command{Kind: &conductordv1.Command_ExpireClaim{ExpireClaim: &conductordv1.ExpireClaimCommand{
			Job: late[i].ID.job.String(), Token: command.TokenToProto(late[i].ID.token), Extensions: uint32(late[i].Round),
			TimerEpoch: current.epoch, CoolDown: durationpb.New(t.Timings.CoolDown),
			MaxCrashes: uint32(max(t.Timings.MaxCrashes, 0)),
		}}}
	}
	_, results, err := t.Proposer.Propose(ctx, commands...)
	for i := range late {
		id, verdict := late[i].ID, verdictOf(err, results, i)
		switch {
		case verdict == nil, errors.Is(verdict, jobs.ErrFenced), errors.Is(verdict, jobs.ErrNotFound):
			t.Logger.Info("claim expired", "job", id.job, "token", id.token, "already_ended", verdict != nil)
			current.claims.Disarm(id)
		default:
			t.Logger.Warn("cannot expire a claim", "job", id.job, "token", id.token, "error", verdict)
			current.claims.Spare(id, time.Now().Add(spareTime))
		}
	}
}

// TimeHolder adds the timers of this node to a claim, if the node leads.
func (s *State) TimeHolder(held *jobs.HeldClaim) {
	if current, err := s.Serving(); err == nil {
		current.timeHolder(held, time.Now())
	}
}

func (l *Leadership) timeHolder(held *jobs.HeldClaim, now time.Time) {
	left, silent, known := l.deadlines.Look(held.Claim.Session, now)
	if !known {
		return
	}
	own, _, timed := l.claims.Look(heldClaim{held.Job, held.Claim.Token}, now)
	if timed {
		held.Left = min(left, own)
	} else {
		held.Left = left
	}
	// The full TTL is the time of silence plus the time left.
	ttl := left + silent - l.deadlines.Grace()
	held.Silent, held.Suspect = silent, silent > jobs.SuspectAfter(ttl)
}

// takeClaims releases jobs whose claimants may no longer work on their boards. As after the loss of
// a conductor, the jobs cool down, because steps can still be running. takeClaims ends with ctx.
func (t *Tasks) takeClaims(ctx context.Context) {
	judged := uint64(0)
	for range clock.Every(ctx, guard.RightsLook) {
		now := t.Machine.AccessIndex()
		if now == judged {
			continue
		}
		if err := t.takeClaimsOnce(ctx); err != nil {
			t.Logger.Warn("cannot release claims of principals without rights", "error", err)
			continue
		}
		judged = now
	}
}

func (t *Tasks) takeClaimsOnce(ctx context.Context) error {
	all, _, err := t.Machine.Principals()
	if err != nil {
		return err
	}
	mayWork := guard.WorksOn(all)
	for query := (jobs.ClaimQuery{}); ; {
		page, err := t.Machine.Claims(query)
		if err != nil {
			return err
		}
		var commands []*conductordv1.Command
		for i := range page.Items {
			held := &page.Items[i]
			session, err := t.Machine.Session(held.Claim.Session)
			if err != nil || mayWork(session.Principal, held.Board) {
				continue // an ended session has no claims
			}
			t.Logger.Info("claim released", "job", held.Job, "board", held.Board, "principal", session.Principal, "reason", "the principal has lost the permission to work on the board")
			commands = append(commands, GiveBack(held.Job.String(), held.Claim.Token, t.Timings.CoolDown,
				fmt.Sprintf("principal %q has lost the permission to work on board %q", session.Principal, held.Board)))
		}
		if len(commands) > 0 {
			if _, _, err := t.Proposer.Propose(ctx, commands...); err != nil {
				return err
			}
		}
		if query.After = page.Next; query.After == "" {
			return nil
		}
	}
}

// GiveBack is the command that ends a claim on behalf of the node.
func GiveBack(job string, token jobs.Token, coolDown time.Duration, reason string) *conductordv1.Command {
	return &conductordv1.Command{Kind: &conductordv1.Command_Abandon{Abandon: &conductordv1.Ending{
		Job: job, Token: command.TokenToProto(token), Delay: durationpb.New(coolDown), Reason: reason,
	}}}
}
