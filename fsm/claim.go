package fsm

import (
	"fmt"
	"slices"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// maxOver is the number of a session's requests that are remembered after their claims have ended. An even later repeat
// has been in transit for longer than any call may take.
const maxOver = 64

// maxResultBytes bounds the stored size of a job for which the result of the claim includes the job.
const maxResultBytes = 64 << 10

// claim claims one job for a session.
func (t *txn) claim(c *v1.ClaimCommand) (*v1.Result, error) {
	session, claims, nonce, err := t.claimant(c.GetSession(), c.GetNonce())
	if err != nil {
		return nil, fmt.Errorf("cannot claim: %w", err)
	}
	id, err := jobs.ParseJobID(c.GetJob())
	if err != nil {
		return nil, err
	}
	j, err := t.jobByID(id)
	if err != nil {
		return nil, fmt.Errorf("cannot claim: %w", err)
	}
	for _, row := range claims.held {
		if row.nonce == nonce && row.sequence == j.Sequence {
			return t.granted([]*jobRecord{j}), nil
		}
	}
	drain := t.drainOf(session.ID)
	switch {
	case claims.knows(nonce):
		return nil, fmt.Errorf("cannot claim job %s: %w: the claim with this nonce has ended; use a new nonce", id, jobs.ErrUnclaimable)
	case j.State == jobs.StateClaimed:
		return nil, fmt.Errorf("cannot claim job %s: %w: %s holds it under token %s", id, jobs.ErrUnclaimable, j.Claim.Owner, j.Token)
	case j.State != jobs.StateClaimable:
		return nil, fmt.Errorf("cannot claim job %s: %w: it is %s", id, jobs.ErrUnclaimable, j.State)
	case drain != nil:
		return nil, fmt.Errorf("cannot claim job %s: %w: conductor %q is drained; undrain it first", id, jobs.ErrUnclaimable, drain.Conductor)
	case j.Reserved != nil && !t.isConductor(session.ID, j.Reserved.Conductor):
		return nil, fmt.Errorf("cannot claim job %s: %w: it is reserved for conductor %q until %s", id, jobs.ErrUnclaimable, j.Reserved.Conductor, timeText(j.Reserved.Until))
	case t.paused(j.Board):
		return nil, fmt.Errorf("cannot claim job %s: %w: board %q is paused", id, jobs.ErrUnclaimable, j.Board)
	case t.overdue(j):
		return nil, fmt.Errorf("cannot claim job %s: %w: its deadline, %s, has passed", id, jobs.ErrUnclaimable, deadlineText(j))
	case !t.mayGrant(j):
		return nil, fmt.Errorf("cannot claim job %s: %w: it was released, or an operator intervened in its flow, in the same log entry; try again", id, jobs.ErrUnclaimable)
	case len(claims.held) >= jobs.MaxClaims:
		return nil, tooManyClaims(len(claims.held))
	}
	t.grant(session, claims, []*jobRecord{j}, grant{nonce: nonce})
	return t.granted([]*jobRecord{j}), nil
}

// claimNext claims the first matching jobs for a session. A result without jobs is no error.
func (t *txn) claimNext(c *v1.ClaimNextCommand) (*v1.Result, error) {
	session, claims, nonce, err := t.claimant(c.GetSession(), c.GetNonce())
	if err != nil {
		return nil, fmt.Errorf("cannot claim: %w", err)
	}
	if claims.knows(nonce) {
		return t.grantedBefore(claims, nonce)
	}
	if len(claims.held) >= jobs.MaxClaims {
		return nil, tooManyClaims(len(claims.held))
	}
	if drain := t.drainOf(session.ID); drain != nil {
		return t.granted(nil), nil
	}
	request, err := command.ClaimRequestFromProto(c)
	if err != nil {
		return nil, err
	}
	most := min(max(request.Max, 1), jobs.MaxClaims-len(claims.held))
	var found []*jobRecord
	if reserved := t.reservedFor(session.ID, &request); reserved != nil {
		found = append(found, reserved)
	} else {
		found = t.firstClaimable(request, most)
	}
	t.grant(session, claims, found, grant{nonce: nonce, expiry: request.Expiry, begins: request.Begins})
	return t.granted(found), nil
}

// claimant reads the session, its claims and the nonce of a claim command.
func (t *txn) claimant(session, nonce string) (jobs.Session, *sessionClaims, jobs.Nonce, error) {
	parsed, err := jobs.ParseNonce(nonce)
	if err != nil {
		return jobs.Session{}, nil, jobs.Nonce{}, err
	}
	owner, err := t.ownSession(session)
	if err != nil {
		return jobs.Session{}, nil, jobs.Nonce{}, err
	}
	claims := t.claimsOf(owner.ID)
	return owner, claims, parsed, nil
}

// grantedBefore answers a repeat with the claims of the request that have not ended.
func (t *txn) grantedBefore(claims *sessionClaims, nonce jobs.Nonce) (*v1.Result, error) {
	var held []*jobRecord
	for _, row := range claims.held {
		if row.nonce != nonce {
			continue
		}
		j := t.job(row.sequence)
		held = append(held, j)
	}
	if len(held) == 0 {
		return nil, fmt.Errorf("cannot claim: %w: the claims with this nonce have ended; use a new nonce", jobs.ErrUnclaimable)
	}
	return t.granted(held), nil
}

// grant has the common fields of the claims of one request.
type grant struct {
	nonce  jobs.Nonce
	expiry time.Duration // TTL of each claim; 0: none
	begins bool          // see jobs.ClaimRequest
}

// grant makes a session the owner of jobs.
func (t *txn) grant(session jobs.Session, claims *sessionClaims, found []*jobRecord, how grant) {
	for _, j := range found {
		j.Claim = &jobs.Claim{Session: session.ID, Owner: session.Name, Token: t.token(), Since: t.now, Expiry: how.expiry, Begins: how.begins}
		j.Token, j.end = t.token(), endNone
		j.Claims++
		if j.StartedAt.IsZero() {
			j.StartedAt = t.now
		}
		t.placeJob(j)
		row := claimRow{sequence: j.Sequence, token: j.Token, nonce: how.nonce}
		t.put(tableClaim, row.key(session.ID), row.value(false))
		claims.hold(row)
		t.timed(j)
		t.event(jobs.EventClaimed, j, jobs.Event{Owner: session.Name, Token: j.Token})
	}
	if len(found) == 0 {
		return
	}
	many := max(len(claims.over)-maxOver, 0)
	for i := range many {
		t.delete(tableClaim, claims.over[i].key(session.ID))
	}
	claims.over = slices.Delete(claims.over, 0, many)
}

// release ends the claim of a job. The caller changes the job's other facts and calls placeJob. The row of the claim
// stays only if it is the last row of its request: one row is enough to recognise a repeat.
func (t *txn) release(j *jobRecord, how end) {
	session := j.Claim.Session
	claims := t.claimsOf(session)
	row, kept := claims.end(claimRow{sequence: j.Sequence, token: j.Claim.Token})
	if kept {
		t.put(tableClaim, row.key(session), row.value(true))
	} else {
		t.delete(tableClaim, row.key(session))
	}
	if j.Claim.Expiry > 0 {
		t.changes.Timed = append(t.changes.Timed, ClaimTimer{Job: j.ID, Token: j.Claim.Token})
	}
	j.Claim, j.LastOwner, j.end = nil, j.Claim.Owner, how
}

func (t *txn) granted(found []*jobRecord) *v1.Result {
	if !t.answered {
		return nil
	}
	answer := &v1.ClaimResult{}
	for _, j := range found {
		answer.Granted = append(answer.Granted, &v1.Granted{Job: j.ID.String(), Token: command.TokenToProto(j.Token), Claimed: t.claimed(j)})
	}
	return &v1.Result{Kind: &v1.Result_Claim{Claim: answer}}
}

// claimed returns the data that the owner of a claim needs to start, so the node need not read it again. It returns
// nil for a large job, and for a flow that has started. The node reads these after the command, so that they do not
// delay other commands.
func (t *txn) claimed(j *jobRecord) *v1.Claimed {
	if t.answerSize(j) > maxResultBytes {
		return nil
	}
	claimed := jobs.Claimed{Job: t.complete(j)}
	if !j.Flow.IsZero() {
		book, found := t.book(j.Book)
		record := t.flow(j.Flow)
		if !found || record == nil || record.Sequence > 0 || len(record.Interventions) > 0 {
			return nil
		}
		claimed.Book, claimed.Flow = &book, t.flowBody(record)
	}
	return command.ClaimedToProto(&claimed)
}

func tooManyClaims(held int) error {
	return &logbook.LimitError{Field: "claims of the session", Limit: jobs.MaxClaims, Size: int64(held) + 1, Unit: "jobs"}
}
