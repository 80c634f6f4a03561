package admission

import (
	"sync"
	"time"
)

const (
	// knownFor is the time that a host stays known after a call of an authenticated caller.
	// renoteHost is the interval at which a connection renews this time.
	knownFor, renoteHost = 10 * time.Minute, time.Minute
	// maxKnownHosts limits the known hosts. Above the limit, the host that was silent longest is
	// forgotten.
	maxKnownHosts = 4_096
)

// knownHosts are the hosts from which a caller was authenticated recently.
type knownHosts struct {
	mu   sync.Mutex
	last map[string]time.Time // time of the last call; guarded by mu
}

// note adds a host.
func (k *knownHosts) note(host string, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil {
		k.last = make(map[string]time.Time)
	}
	if _, known := k.last[host]; !known && len(k.last) >= maxKnownHosts {
		k.forgetLocked(now)
	}
	k.last[host] = now
}

// forgetLocked forgets the hosts whose time is over, and at least the host that was silent longest.
func (k *knownHosts) forgetLocked(now time.Time) {
	var silent string
	for host, last := range k.last {
		if now.Sub(last) > knownFor {
			delete(k.last, host)
		} else if silent == "" || last.Before(k.last[silent]) {
			silent = host
		}
	}
	delete(k.last, silent)
}

// has reports whether a host is known.
func (k *knownHosts) has(host string, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, known := k.last[host]
	return known && now.Sub(last) <= knownFor
}
