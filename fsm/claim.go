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

// maxOver is how many requests of a session are remembered after their claims
// are over. A repeat that is later than that many requests has been on its way
// for longer than any call may take.
const maxOver = 64

// maxResultBytes bounds a job, as stored, that the result of its claim contains.
const maxResultBytes = 64 << 10

// claim takes one job for a session.
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
		return nil, fmt.Errorf("cannot claim job %s: %w: the claim that the nonce stands for is over", id, jobs.ErrUnclaimable)
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
		return nil, fmt.Errorf("cannot claim job %s: %w: it was released, or an operator intervened in its flow, in this same log entry; try again", id, jobs.ErrUnclaimable)
	case len(claims.held) >= jobs.MaxClaims:
		return nil, tooManyClaims(len(claims.held))
	}
	t.grant(session, claims, []*jobRecord{j}, grant{nonce: nonce})
	return t.granted([]*jobRecord{j}), nil
}

// claimNext takes the first jobs in order that the session can do; none is an
// answer too.
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

// claimant reads what both ways to claim need.
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

// grantedBefore repeats an answer: the claims of it that are still held.
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
		return nil, fmt.Errorf("cannot claim: %w: the claims that the nonce stands for are over", jobs.ErrUnclaimable)
	}
	return t.granted(held), nil
}

// grant is what the claims of one request have in common.
type grant struct {
	nonce  jobs.Nonce
	expiry time.Duration // of each by itself; 0: none
	begins bool          // its owner begins the flows at once
}

// grant ties jobs to a session.
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

// release ends the claim of a job; the caller moves the job on. One row is
// enough to know a request again, so that of the claim stays only if it is the
// last one of its request.
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

// claimed is what the owner of a claim needs to start, so that the node does not read again
// what this command has in its hands. It is nil for a job that is long or whose flow has
// been at work: the node reads such a one, so that it does not hold up the next commands.
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
