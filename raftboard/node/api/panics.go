package api

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/wire"
)

// panicPeriod is the minimum interval of logged panics of one call, because a caller can repeat the
// request that causes them.
const panicPeriod = time.Minute

// Panics answers requests whose handlers panic. It logs the panics of one call at most once per
// panicPeriod. Its methods may be called concurrently.
type Panics struct {
	logger hclog.Logger

	mu    sync.Mutex
	kinds map[string]*panicKind // by call, of which there are few; guarded by mu
}

// panicKind has the time when panics of a call were last logged, and the number of later panics.
type panicKind struct {
	logged  time.Time
	omitted int
}

// NewPanics makes a Panics that has seen no panic.
func NewPanics(logger hclog.Logger) *Panics {
	return &Panics{logger: logger, kinds: make(map[string]*panicKind)}
}

// note logs a panic with its stack, and returns the answer to the caller. The answer is
// ErrUncertain, because the call can have had an effect before the panic.
func (p *Panics) note(call string, cause any, stack []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind := p.kinds[call]
	if kind == nil {
		kind = &panicKind{}
		p.kinds[call] = kind
	}
	if now := time.Now(); now.Sub(kind.logged) >= panicPeriod {
		p.logger.Error("handler panicked", "call", call, "cause", cause, "omitted", kind.omitted, "stack", string(stack))
		kind.logged, kind.omitted = now, 0
	} else {
		kind.omitted++
	}
	return fmt.Errorf("%w: the call %s failed in the node; the reason is in the log of the node", jobs.ErrUncertain, call)
}

// option returns the connect option that answers calls whose handlers panic.
func (p *Panics) option() connect.HandlerOption {
	return connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, cause any) error {
		return wire.ErrorToConnect(p.note(procedureName(spec.Procedure), cause, debug.Stack()))
	})
}

// Around wraps a handler of requests that are not calls, such as requests for pages, and answers
// requests whose handler panics.
func (p *Panics) Around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause != http.ErrAbortHandler {
				why := p.note(guard.RefusedVerb(r.URL.Path), cause, debug.Stack())
				if w.Header().Get("Content-Type") == "" { // nothing has been written
					http.Error(w, why.Error(), http.StatusInternalServerError)
					return
				}
			}
			panic(http.ErrAbortHandler) // ends the exchange, without a line in the log
		}()
		next.ServeHTTP(w, r)
	})
}
