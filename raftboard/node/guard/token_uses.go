package guard

import (
	"maps"
	"slices"
	"sync"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs/access"
)

// tokenUses are the access tokens that callers of this node have shown, until they are
// reported. Each is reported once in access.TokenUseInterval.
type tokenUses struct {
	mu       sync.Mutex
	fresh    map[access.TokenID]string    // not reported yet, with their principals
	reported map[access.TokenID]time.Time // time of each token's last note; one entry per token
}

func newTokenUses() *tokenUses {
	return &tokenUses{fresh: make(map[access.TokenID]string), reported: make(map[access.TokenID]time.Time)}
}

// note records the use of a token, if the next report of this token is due.
func (u *tokenUses) note(used tokenOf, now time.Time) {
	if now.Sub(used.token.LastUsed) < access.TokenUseInterval {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if at, found := u.reported[used.token.ID]; found && now.Sub(at) < access.TokenUseInterval {
		return
	}
	u.reported[used.token.ID] = now
	u.fresh[used.token.ID] = used.principal
}

// Take returns the uses to report, and forgets uses that were reported long ago.
func (u *tokenUses) Take(now time.Time) []*conductordv1.TokenUse {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.reported, func(_ access.TokenID, at time.Time) bool { return now.Sub(at) >= access.TokenUseInterval })
	var uses []*conductordv1.TokenUse
	for id, principal := range u.fresh {
		if len(uses) == access.MaxTokenUses {
			break
		}
		delete(u.fresh, id)
		uses = append(uses, &conductordv1.TokenUse{Principal: principal, Id: id.String()})
	}
	return uses
}

// Forget drops recorded uses that could not be reported, so that the next use of these tokens is
// recorded again.
func (u *tokenUses) Forget(uses []*conductordv1.TokenUse) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.reported, func(id access.TokenID, _ time.Time) bool {
		return slices.ContainsFunc(uses, func(use *conductordv1.TokenUse) bool { return use.Id == id.String() })
	})
}
