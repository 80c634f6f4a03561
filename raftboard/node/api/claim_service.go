package api

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
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/node/polls"
	"github.com/conductord/conductord/raftboard/node/proposer"
	"github.com/conductord/conductord/raftboard/wire"
)

// maxClaimedFlow limits a flow's detail in the answer to a claim, in bytes. A larger one is
// omitted, and read in parts.
const maxClaimedFlow = wire.PageBytes

// claimService answers calls that claim jobs, and lists the claims.
type claimService struct {
	limits   logbook.Limits
	machine  *fsm.Machine
	leader   *lead.State
	polls    *polls.Polls
	proposer *proposer.Proposer // its end also ends the wait for a piggybacked claim
	submit   *Submitter
}

func (s *claimService) claim(ctx context.Context, message *conductordv1.ClaimCommand) (*conductordv1.ClaimResponse, uint64, error) {
	index, result, err := s.submit.One(ctx, &conductordv1.Command{Kind: &conductordv1.Command_Claim{Claim: message}})
	if err != nil {
		return nil, 0, err
	}
	claimed, err := s.claimed(result.GetClaim().GetGranted())
	if err != nil {
		return nil, 0, err
	}
	if len(claimed) == 0 {
		return nil, 0, fmt.Errorf("cannot claim job %s: %w: the claim was granted, and has ended since; claim it with a new nonce", message.Job, jobs.ErrUnclaimable)
	}
	return &conductordv1.ClaimResponse{Claimed: claimed[0]}, index, nil
}

// claimed returns the jobs and flows that a claimant needs to start: from the state machine's answer, or
// read now if the answer would be long. A claim that has ended since it was granted is then left
// out: its job can have another owner, and the answer would contain that owner's token.
func (s *claimService) claimed(granted []*conductordv1.Granted) ([]*conductordv1.Claimed, error) {
	var answer []*conductordv1.Claimed
	budget := maxClaimedFlow
	for _, grant := range granted {
		if grant.Claimed != nil {
			answer = append(answer, grant.Claimed)
			continue
		}
		id, err := jobs.ParseJobID(grant.Job)
		if err != nil {
			return nil, err
		}
		claimed, omitted, err := s.machine.Claimed(id, budget)
		if errors.Is(err, jobs.ErrNotFound) {
			continue // the job has finished and was removed
		}
		if err != nil {
			return nil, err
		}
		if claimed.Job.Claim == nil || claimed.Job.Claim.Token != command.TokenFromProto(grant.Token) {
			continue
		}
		message := command.ClaimedToProto(&claimed)
		message.FlowOmitted = omitted
		budget = max(0, budget-command.SizeOf(message.Flow))
		answer = append(answer, message)
	}
	return answer, nil
}

// claimNext waits until there is a job. If the caller has lost the permission to claim meanwhile,
// claimNext releases the job.
func (s *claimService) claimNext(ctx context.Context, message *conductordv1.ClaimNextRequest) (*conductordv1.ClaimNextResponse, uint64, error) {
	still := func() error { return s.submit.Guard.Allow(ctx, "BoardService/ClaimNext", command.Work, message) }
	within, end := s.submit.Guard.While(ctx, still)
	defer end()
	answer, index, err := s.awaitClaim(ctx, within, still, message)
	refusal := still()
	if refusal == nil {
		return answer, index, err
	}
	for _, claimed := range answer.GetClaimed() {
		job := claimed.GetJob()
		_, _, err := s.submit.One(context.Background(), lead.GiveBack(job.GetId(), command.TokenFromProto(job.GetToken()), 0, "its owner no longer has permission to claim"))
		if err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, refusal
}

// awaitClaim waits within a context, and proposes in another one, because the outcome of a proposal
// must be known. Waiting writes nothing to the log: awaitClaim proposes a command only when the
// state machine has a job to claim.
func (s *claimService) awaitClaim(ctx, within context.Context, still func() error, message *conductordv1.ClaimNextRequest) (*conductordv1.ClaimNextResponse, uint64, error) {
	wait, err := pollTime("wait", message.Wait)
	if err != nil {
		return nil, 0, err
	}
	claim := claimNextCommand(message.GetClaim())
	if err := s.submit.Guard.Sign(ctx, claim); err != nil { // signed even if the claim is piggybacked
		return nil, 0, err
	}
	request, err := command.CheckClaimNext(s.limits, claim)
	if err != nil {
		return nil, 0, err
	}
	current, err := s.leader.Serving()
	if err != nil {
		return nil, 0, err
	}
	release, err := s.submit.Guard.HoldPoll(ctx, wait, s.polls.Waits(polls.IDOf(&request)))
	if err != nil {
		return nil, 0, err
	}
	defer release()
	if err := s.awaitEarlierTry(ctx, polls.IDOf(&request)); err != nil {
		return nil, 0, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var passOn []fsm.Queue // queues of this claim's wake-ups, for the next waiter
	var waiter *polls.Waiter
	for {
		waiter = s.polls.Add(request, claim, waiter)
		waiter.Still = still
		granted, index, err := s.tryClaim(ctx, waiter, claim)
		if errors.Is(err, errClaimantDrained) {
			s.polls.ExcludeDrained(waiter)
			s.polls.Wake(passOn) // for waiters that can take it
			passOn, err = nil, nil
		}
		if err != nil || len(granted) > 0 {
			s.polls.Leave(waiter)
			s.polls.Wake(passOn) // there may be more jobs for the next waiter
			return s.claimNextResponse(granted, index, err)
		}
		s.polls.SetIdle(waiter)
		next := s.awaitJobs(ctx, within, current, timer.C, waiter)
		if granted, index, err = grantedOf(next.outcome); err != nil || len(granted) > 0 {
			return s.claimNextResponse(granted, index, err)
		}
		if next.over && next.err != nil {
			return nil, 0, next.err
		}
		if next.over {
			return s.claimNextResponse(nil, s.machine.AppliedIndex(), nil)
		}
		passOn = next.passOn
	}
}

// awaitEarlierTry waits for the outcome of an earlier, piggybacked attempt, so that a repeat gets
// its jobs at once.
func (s *claimService) awaitEarlierTry(ctx context.Context, id polls.RequestID) error {
	earlier := s.polls.UndeliveredOutcome(id)
	if earlier == nil {
		return nil
	}
	if got := s.awaitOutcome(ctx, id, earlier); errors.Is(got.Err, jobs.ErrUncertain) {
		return got.Err
	}
	return nil
}

// wakeUp is the reason why a claim stops waiting.
type wakeUp struct {
	passOn  []fsm.Queue      // jobs may be claimable there
	outcome proposer.Outcome // of the claim, if it was piggybacked
	over    bool             // the call ends
	err     error            // the reason, unless the wait is over
}

func (s *claimService) awaitJobs(ctx, within context.Context, current *lead.Leadership, timeUp <-chan time.Time, waiter *polls.Waiter) wakeUp {
	var next wakeUp
	select {
	case next.passOn = <-waiter.Woken:
		return next
	case next.outcome = <-waiter.Outcome:
		waiter.Outcome <- next.outcome
		s.polls.Delivered(polls.IDOf(&waiter.Request))
		return next
	case <-timeUp:
	case <-waiter.Repeated:
		next.err = fmt.Errorf("%w: the claim was repeated by another call", jobs.ErrUncertain)
	case <-current.Over:
		next.err = s.leader.Ended()
	case <-within.Done():
		next.err = within.Err()
	}
	next.over = true
	if s.polls.Leave(waiter) { // the claim may still be granted
		next.outcome = s.awaitOutcome(ctx, polls.IDOf(&waiter.Request), waiter.Outcome)
	}
	return next
}

// awaitOutcome waits for the outcome of a piggybacked claim. It puts the outcome back for a repeat
// that also waits for it.
func (s *claimService) awaitOutcome(ctx context.Context, id polls.RequestID, outcome chan proposer.Outcome) proposer.Outcome {
	select {
	case got := <-outcome:
		outcome <- got
		s.polls.Delivered(id)
		return got
	case <-ctx.Done():
		return proposer.Outcome{Err: fmt.Errorf("%w: %w", jobs.ErrUncertain, ctx.Err())}
	case <-s.proposer.Stopped():
		return proposer.Outcome{Err: fmt.Errorf("%w: the node is stopping", jobs.ErrUncertain)}
	}
}

// grantedOf reads the outcome of one claim.
func grantedOf(p proposer.Outcome) ([]*conductordv1.Granted, uint64, error) {
	if p.Err != nil || len(p.Results) == 0 {
		return nil, 0, p.Err
	}
	return p.Results[0].GetClaim().GetGranted(), p.Index, command.ErrorFromProto(p.Results[0].GetError())
}

func (s *claimService) claimNextResponse(granted []*conductordv1.Granted, index uint64, err error) (*conductordv1.ClaimNextResponse, uint64, error) {
	if err != nil {
		return nil, 0, err
	}
	claimed, err := s.claimed(granted)
	return &conductordv1.ClaimNextResponse{Claimed: claimed}, index, err
}

// claimNextCommand returns the command of a claim, with the defaults of the API.
func claimNextCommand(claim *conductordv1.ClaimNextCommand) *conductordv1.Command {
	if claim == nil {
		claim = &conductordv1.ClaimNextCommand{}
	}
	if len(claim.Boards) == 0 {
		claim.Boards = []string{jobs.DefaultBoard}
	}
	claim.Max = max(claim.Max, 1)
	return &conductordv1.Command{Kind: &conductordv1.Command_ClaimNext{ClaimNext: claim}}
}

// errClaimantDrained: the caller's conductor is drained. This error never reaches a caller.
var errClaimantDrained = errors.New("the conductor is drained")

// tryClaim claims if there is a job to claim, or if the nonce may have been answered before. The
// claim was signed and checked before it waited; its caller must still have the permission.
func (s *claimService) tryClaim(ctx context.Context, waiter *polls.Waiter, claim *conductordv1.Command) ([]*conductordv1.Granted, uint64, error) {
	prospect, err := s.machine.MayClaim(waiter.Request)
	switch {
	case err != nil:
		return nil, 0, err
	case prospect == fsm.ClaimantDrained:
		return nil, 0, errClaimantDrained
	case prospect == fsm.NothingToClaim:
		return nil, 0, nil
	}
	if err := waiter.Still(); err != nil {
		return nil, 0, err
	}
	index, results, err := s.proposer.Propose(ctx, claim)
	return grantedOf(proposer.Outcome{Index: index, Results: results, Err: err})
}

// pollTime reads the time that a call may wait.
func pollTime(field string, given *durationpb.Duration) (time.Duration, error) {
	wait, err := command.DurationFromProto(field, given)
	if err != nil {
		return 0, err
	}
	if wait < 0 {
		return 0, &logbook.InvalidError{Field: field, Reason: "negative"}
	}
	return min(wait, wire.MaxPoll), nil
}

// listClaims has no stale form, because only the leader knows the times.
func (s *claimService) listClaims(ctx context.Context, message *conductordv1.ListClaimsRequest) (*conductordv1.ListClaimsResponse, error) {
	query := jobs.ClaimQuery{Owner: message.Owner, Board: message.Board, After: message.After, Limit: int(min(message.Limit, logbook.MaxPage))}
	if message.Job != "" {
		job, err := jobs.ParseJobID(message.Job)
		if err != nil {
			return nil, err
		}
		query.Job = job
	}
	if message.Session != "" {
		session, err := jobs.ParseSessionID(message.Session)
		if err != nil {
			return nil, err
		}
		query.Session = session
	}
	shows, err := s.submit.Guard.ShownBoards(ctx)
	if err != nil {
		return nil, err
	}
	found, next, err := shown(query.After, func(after string) ([]jobs.HeldClaim, string, error) {
		query.After = after
		page, err := s.machine.Claims(query)
		return page.Items, page.Next, err
	}, func(claim *jobs.HeldClaim) bool { return shows(claim.Board) }, nil)
	for i := range found {
		s.leader.TimeHolder(&found[i])
	}
	return &conductordv1.ListClaimsResponse{Next: next, Claims: ToProto(found, command.HeldClaimToProto)}, err
}
