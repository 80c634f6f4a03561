package fsm

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/conductord/conductord/jobs"
)

// claimRow is one claim of a session. The last one of a request outlives its
// claim for a while, so that a late repeat of the request is known as one and
// takes no more jobs.
type claimRow struct {
	sequence uint64
	token    jobs.Token
	nonce    jobs.Nonce
}

func (r *claimRow) key(session jobs.SessionID) []byte {
	return claimKey(session, r.token, r.sequence)
}

func (r *claimRow) value(over bool) []byte {
	value := append(make([]byte, 0, idSize+1), r.nonce.UUID[:]...)
	if over {
		return append(value, 1)
	}
	return append(value, 0)
}

// sessionClaims are the claims of a session, in the order of their keys: that of
// their tokens.
type sessionClaims struct{ held, over []claimRow }

// knows reports whether a request with the nonce has been answered.
func (c *sessionClaims) knows(nonce jobs.Nonce) bool {
	for _, rows := range [][]claimRow{c.held, c.over} {
		for i := range rows {
			if rows[i].nonce == nonce {
				return true
			}
		}
	}
	return false
}

// hold adds a claim that has been granted.
func (c *sessionClaims) hold(row claimRow) { c.held = insertRow(c.held, row) }

// end takes a claim from those that are held. It is kept as one that is over if
// no other of its request is stored: one row is enough to know that again.
func (c *sessionClaims) end(row claimRow) (ended claimRow, kept bool) {
	if at, found := slices.BinarySearchFunc(c.held, row, compareRows); found {
		row = c.held[at]
		c.held = slices.Delete(c.held, at, at+1)
	}
	for _, rows := range [][]claimRow{c.held, c.over} {
		for i := range rows {
			if rows[i].token == row.token && rows[i].nonce == row.nonce {
				return row, false
			}
		}
	}
	c.over = insertRow(c.over, row)
	return row, true
}

func insertRow(rows []claimRow, row claimRow) []claimRow {
	at, _ := slices.BinarySearchFunc(rows, row, compareRows)
	return slices.Insert(rows, at, row)
}

// compareRows is the order of their keys.
func compareRows(a, b claimRow) int {
	return cmp.Or(a.token.Compare(b.token), cmp.Compare(a.sequence, b.sequence))
}

// maxKnownClaimants bounds the memory for the claims of sessions. Each has up to
// jobs.MaxClaims, and about maxOver besides: some 15 KiB.
const maxKnownClaimants = 512

// claimants caches the claims of the sessions that have claimed last, as they are after
// the last command. Each claim looks at all claims of its session, those that are over
// too. Reading them each time was a seventh of the cost of a job's life.
type claimants map[jobs.SessionID]*sessionClaims

// claimsOf are the claims of a session, which the writers of claims keep as they
// are stored.
func (t *txn) claimsOf(session jobs.SessionID) *sessionClaims {
	if known := t.claimants[session]; known != nil {
		return known
	}
	found := t.claims(session)
	if len(t.claimants) >= maxKnownClaimants {
		clear(t.claimants)
	}
	t.claimants[session] = &found
	return &found
}

func (v *view) claims(session jobs.SessionID) sessionClaims {
	const keySize, valueSize = idSize + 8 + 8 + sequenceSize, idSize + 1
	var claims sessionClaims
	v.scan(tableClaim, session.UUID[:], func(key, value []byte) bool {
		if len(key) != keySize || len(value) != valueSize {
			panic(corrupt("a claim of session %s has a key of %d bytes and a value of %d", session, len(key), len(value)))
		}
		row := claimRow{
			token: jobs.Token{
				Generation: binary.BigEndian.Uint64(key[idSize:]),
				Index:      binary.BigEndian.Uint64(key[idSize+8:]),
			},
			sequence: binary.BigEndian.Uint64(key[idSize+16:]),
		}
		copy(row.nonce.UUID[:], value)
		if value[idSize] == 0 {
			claims.held = append(claims.held, row)
		} else {
			claims.over = append(claims.over, row)
		}
		return true
	})
	return claims
}
