package fsm

import (
	"bytes"
	"fmt"

	"github.com/conductord/conductord/jobs"
)

// Prospect is the expected result of a ClaimNext request.
type Prospect int

// The prospects.
const (
	NothingToClaim Prospect = iota
	SomethingToClaim
	ClaimantDrained // no job, until the drain of the session's conductor ends
)

// MayClaim returns whether a ClaimNext request would get jobs in the current state: a job is claimable, or the request
// is a repeat. It only reads the head of each queue, so a waiting conductor writes nothing to the log.
// ErrSessionExpired.
func (m *Machine) MayClaim(request jobs.ClaimRequest) (Prospect, error) {
	prospect := NothingToClaim
	err := m.read(func(v *view) error {
		if v.get(tableSession, request.Session.UUID[:]) == nil {
			return fmt.Errorf("session %s: %w", request.Session, jobs.ErrSessionExpired)
		}
		drain := v.drainOf(request.Session)
		if drain == nil && v.anyClaimable(request) {
			prospect = SomethingToClaim
			return nil
		}
		switch {
		case v.hasAnswered(&request):
			prospect = SomethingToClaim
		case drain != nil:
			prospect = ClaimantDrained
		}
		return nil
	})
	return prospect, err
}

// hasAnswered reports whether a claim of the request is stored.
func (v *view) hasAnswered(request *jobs.ClaimRequest) (found bool) {
	v.scan(tableClaim, request.Session.UUID[:], func(_, value []byte) bool {
		found = bytes.HasPrefix(value, request.Nonce.UUID[:])
		return !found
	})
	return found
}

func (v *view) anyClaimable(request jobs.ClaimRequest) bool {
	for range v.queuesOf(request) {
		return true
	}
	return v.anyReserved(request.Session, &request)
}
