package admission

import (
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// refusalLines bounds the refused connections that a node logs in each
	// refusalPeriod; the others are counted. A stranger can connect thousands of
	// times a second, and must not fill the disk with log lines.
	refusalLines  = 5
	refusalPeriod = 10 * time.Second
	// maxRefusalText limits a reason that is logged or stored, in bytes, because it contains names
	// that an unknown caller chose.
	maxRefusalText = 256
)

// RefusalLog logs refused connections, at a limited rate. Its zero value is ready; its methods may
// be called concurrently.
type RefusalLog struct {
	mu      sync.Mutex
	began   time.Time // start of the current period; guarded by mu
	lines   int       // of the period; guarded by mu
	omitted int       // since the last line; guarded by mu
}

// Warn logs a refused connection, with the number of refusals omitted since the last line. Above
// the limit, it only counts.
func (r *RefusalLog) Warn(logger hclog.Logger, message string, remote any, reason error) {
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
	logger.Warn(message, "remote", remote, "reason", RefusalText(reason), "omitted", r.omitted)
	r.omitted = 0
}

// RefusalText returns the text of a reason for the log and the record of refusals.
func RefusalText(reason error) string {
	text := reason.Error()
	if len(text) > maxRefusalText {
		text = text[:maxRefusalText] + "..."
	}
	return strings.ToValidUTF8(text, "\uFFFD") // the cut or the caller can leave parts of characters
}
