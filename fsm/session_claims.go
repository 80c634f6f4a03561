package fsm

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/conductord/conductord/jobs"
)

// claimRow is one claim of a session. One row of each request outlives its claim for a while, so a late
// repeat of the request is recognised and claims no more jobs.
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

// sessionClaims are the current and the ended claims of a session, both in the order of their keys, which
// is the order of their tokens.
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

// end removes a claim from held. If no other row of its request remains, the row moves to over and kept
// is true: one row is enough to recognise the request.
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

// compareRows compares rows in the order of their keys.
func compareRows(a, b claimRow) int {
	return cmp.Or(a.token.Compare(b.token), cmp.Compare(a.sequence, b.sequence))
}

// maxKnownClaimants bounds the cache of claims. A session has up to jobs.MaxClaims current claims and
// about maxOver ended ones: some 15 KiB.
const maxKnownClaimants = 512

// claimants caches the current state of the claims of recently active sessions. Each claim command reads
// all claims of its session, including the ended ones. Without the cache, that was a seventh of the cost
// of a job.
type claimants map[jobs.SessionID]*sessionClaims

// claimsOf returns the cached claims of a session. Callers that write claims also change the cached
// claims.
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
