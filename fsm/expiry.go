package fsm

import (
	"bytes"
	"encoding/hex"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// timed reports a claim with its own TTL to the leader.
func (t *txn) timed(j *jobRecord) {
	if j.Claim.Expiry > 0 {
		t.changes.Timed = append(t.changes.Timed, timerOf(j))
	}
}

func timerOf(j *jobRecord) ClaimTimer {
	return ClaimTimer{Job: j.ID, Token: j.Claim.Token, Expiry: j.Claim.Expiry, Extensions: j.Claim.Extensions}
}

// extendClaim sets the claim's own TTL. It stores the duration and not the end, because each leader measures it by its
// own clock.
func (t *txn) extendClaim(c *v1.ExtendClaimCommand) error {
	expiry, err := command.DurationFromProto("claim expiry", c.GetExpiry())
	if err != nil {
		return err
	}
	j, err := t.claimedJob(c.GetJob(), command.TokenFromProto(c.GetToken()))
	if err != nil {
		return err
	}
	extended := *j.Claim
	extended.Expiry = expiry
	extended.Extensions++
	j.Claim = &extended
	t.putJob(j)
	t.timed(j)
	return nil
}

// expireClaim ends a claim whose own TTL has passed. Its session continues.
func (t *txn) expireClaim(c *v1.ExpireClaimCommand) error {
	coolDown, err := command.DurationFromProto("cool_down", c.GetCoolDown())
	if err != nil {
		return err
	}
	if err := t.checkEpoch(c.GetTimerEpoch()); err != nil {
		return fmt.Errorf("cannot expire the claim of job %s: %w", c.GetJob(), err)
	}
	j, err := t.claimedJob(c.GetJob(), command.TokenFromProto(c.GetToken()))
	switch {
	case err != nil:
		return fmt.Errorf("cannot expire: %w", err)
	case j.Claim.Expiry == 0 || j.Claim.Extensions != int(c.GetExtensions()):
		return fmt.Errorf("cannot expire the claim of job %s: %w: it was extended %d times, not %d",
			j.ID, jobs.ErrConflict, j.Claim.Extensions, c.GetExtensions())
	}
	reason := fmt.Sprintf("its owner %s neither ended nor extended the claim within %s", j.Claim.Owner, j.Claim.Expiry)
	t.crash(j, lapse{coolDown, int(c.GetMaxCrashes()), reason})
	return nil
}

// claimedJob reads a job that is claimed under a token. ErrNotFound, ErrFenced.
func (t *txn) claimedJob(text string, token jobs.Token) (*jobRecord, error) {
	id, err := jobs.ParseJobID(text)
	if err != nil {
		return nil, err
	}
	j, err := t.jobByID(id)
	if err != nil {
		return nil, err
	}
	return j, t.checkToken(j, token)
}

// ClaimTimers reads the claims with their own TTL.
func (m *Machine) ClaimTimers() ([]ClaimTimer, error) {
	var timers []ClaimTimer
	err := m.read(func(v *view) error {
		v.scan(tableClaim, nil, func(key, value []byte) bool {
			if j := v.heldBy(key, value); j != nil && j.Claim.Expiry > 0 {
				timers = append(timers, timerOf(j))
			}
			return true
		})
		return nil
	})
	return timers, err
}

// heldBy reads the job of a claim; nil if the claim has ended.
func (v *view) heldBy(key, value []byte) *jobRecord {
	if len(key) != claimKeySize || len(value) != idSize+1 {
		panic(corrupt("a claim has a key of %d bytes and a value of %d", len(key), len(value)))
	}
	if value[idSize] != 0 {
		return nil
	}
	sequence := sequenceAtEnd(key)
	j := v.job(sequence)
	if j.Claim == nil || !bytes.Equal(key, claimKey(j.Claim.Session, j.Claim.Token, sequence)) {
		panic(corrupt("a claim refers to job %s, and the job has no such claim", j.ID))
	}
	return j
}

const claimKeySize = idSize + 8 + 8 + sequenceSize

// Claims reads a page of current claims, sorted by session and then by time. It does not set the fields that only the
// leader's timers know.
func (m *Machine) Claims(query jobs.ClaimQuery) (page jobs.Page[jobs.HeldClaim], err error) {
	after, err := hex.DecodeString(query.After)
	if err != nil || (len(after) != 0 && len(after) != claimKeySize) {
		return page, badCursor("claims")
	}
	err = m.read(func(v *view) error {
		page = v.heldClaims(query, after)
		return nil
	})
	return page, err
}

func (v *view) heldClaims(query jobs.ClaimQuery, after []byte) (page jobs.Page[jobs.HeldClaim]) {
	var prefix []byte
	switch {
	case !query.Job.IsZero():
		j, err := v.jobByID(query.Job)
		if err != nil || j.Claim == nil || (!query.Session.IsZero() && j.Claim.Session != query.Session) {
			return page
		}
		prefix = claimKey(j.Claim.Session, j.Claim.Token, j.Sequence)
	case !query.Session.IsZero():
		prefix = query.Session.UUID[:]
	}
	limit, examined, last := pageSize(query.Limit), 0, bytes.Clone(after)
	cursor := v.cursor(tableClaim)
	key, value := cursor.Seek(prefix)
	if bytes.Compare(after, prefix) > 0 {
		if key, value = cursor.Seek(after); bytes.Equal(key, after) {
			key, value = cursor.Next()
		}
	}
	for ; key != nil && bytes.HasPrefix(key, prefix); key, value = cursor.Next() {
		if len(page.Items) >= limit || examined >= maxExamined {
			page.Next = hex.EncodeToString(last)
			return page
		}
		examined++
		last = append(last[:0], key...)
		j := v.heldBy(key, value)
		if j == nil || (query.Owner != "" && j.Claim.Owner != query.Owner) || (query.Board != "" && j.Board != query.Board) {
			continue
		}
		page.Items = append(page.Items, jobs.HeldClaim{Job: j.ID, Board: j.Board, Name: j.Name, Kind: j.Kind, Claim: *j.Claim})
	}
	return page
}
