package node

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// refusalLines is how many refused connections a node logs in each
	// refusalPeriod. A stranger can connect thousands of times a second, and must
	// not fill the disk with lines about it; the lines left out are counted.
	refusalLines  = 5
	refusalPeriod = 10 * time.Second
	// maxRefusalText bounds a reason in the log, in bytes: it repeats names that
	// the stranger chose.
	maxRefusalText = 256
)

// refusalLog writes the log lines about refused connections, at a bounded
// rate. Its zero value is ready; its methods may be called concurrently.
type refusalLog struct {
	mu      sync.Mutex
	began   time.Time // of the present period; under mu
	lines   int       // of the period; under mu
	omitted int       // since the last line; under mu
}

func (r *refusalLog) warn(logger hclog.Logger, message string, remote any, reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.began) >= refusalPeriod {
		r.began, r.lines = now, 0
	}
	if r.lines >= refusalLines {
		r.omitted++
		return
	}
	r.lines++
	text := reason.Error()
	if len(text) > maxRefusalText {
		text = text[:maxRefusalText] + "..."
	}
	logger.Warn(message, "remote", remote, "reason", text, "omitted", r.omitted)
	r.omitted = 0
}

// errHandshaking: the connection is one more than may have no handshake yet.
var errHandshaking = fmt.Errorf("%d connections have not completed the handshake yet", maxHandshaking)
