package fsm

import (
	"bytes"
	"fmt"

	"github.com/conductord/conductord/jobs"
)

// MayClaim tells whether a request for the next jobs would be answered with
// any, as far as this machine has applied the log: because something is
// claimable, or because the request repeats one that was answered. It costs a
// look at each lane, so that a conductor which waits costs the log nothing.
// ErrSessionExpired.
func (m *Machine) MayClaim(request jobs.ClaimRequest) (bool, error) {
	may := false
	err := m.read(func(v *view) error {
		_, found, err := v.findSession(request.Session)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("session %s: %w", request.Session, jobs.ErrSessionExpired)
		}
		claims, err := v.claims(request.Session)
		if err != nil {
			return err
		}
		may = claims.knows(request.Nonce) || v.anyClaimable(request)
		return nil
	})
	return may, err
}

func (v *view) anyClaimable(request jobs.ClaimRequest) bool {
	for _, lane := range v.lanesOf(request) {
		if key, _ := v.cursor(lane.table).Seek(lane.prefix); bytes.HasPrefix(key, lane.prefix) {
			return true
		}
	}
	return false
}
