package guard

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/node/admission"
)

// RightsLook is the interval at which a node checks the permissions of long calls: calls that are
// no longer allowed end within a second.
const RightsLook = 500 * time.Millisecond

// lastingCalls are calls of long duration: long polls, watches, streams, backups.
type lastingCalls struct {
	mu   sync.Mutex
	open map[*lastingCall]struct{} // guarded by mu
	none chan struct{}             // closed when no long call is open; nil: no goroutine checks them; guarded by mu
}

// lastingCall is a call of long duration.
type lastingCall struct {
	still func() error // the refusal of the call if it started now
	end   context.CancelCauseFunc
}

// While makes the context of a long call. The context ends soon after the caller loses the
// permission, with the refusal as its cause. Call still once more before the answer.
func (g *Guard) While(ctx context.Context, still func() error) (context.Context, context.CancelFunc) {
	if who := admission.CallerOf(ctx); who == nil || who.Trusted() {
		return context.WithCancel(ctx)
	}
	ctx, end := context.WithCancelCause(ctx)
	call, l := &lastingCall{still, end}, &g.open
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[call] = struct{}{}
	if l.none == nil {
		l.none = make(chan struct{})
		go l.look(l.none) // ends when no long call is open
	}
	return ctx, func() {
		l.mu.Lock()
		if delete(l.open, call); len(l.open) == 0 && l.none != nil {
			close(l.none)
			l.none = nil
		}
		l.mu.Unlock()
		end(nil)
	}
}

// Lasting returns the number of long calls whose permissions the node checks.
func (g *Guard) Lasting() int {
	g.open.mu.Lock()
	defer g.open.mu.Unlock()
	return len(g.open.open)
}

// look ends the calls whose callers have lost the permission.
func (l *lastingCalls) look(none <-chan struct{}) {
	ticker := time.NewTicker(RightsLook)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-none:
			return
		}
		l.mu.Lock()
		open := slices.Collect(maps.Keys(l.open))
		l.mu.Unlock()
		for _, call := range open {
			if refusal := call.still(); refusal != nil {
				call.end(refusal)
			}
		}
	}
}

// WhileKnown ends the calls of a handler when their callers are no longer valid.
func (g *Guard) WhileKnown(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, release := g.While(r.Context(), func() error {
			_, err := g.Rights(admission.CallerOf(r.Context()))
			return err
		})
		defer release()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// worksOn reports whether the principal that opened a session may work on a board now. Nodes, users
// of a node's socket, and callers without access control have all permissions.
func (p *principals) worksOn(opener, board string) bool {
	known := p.byName[opener]
	return opener == "" || (&admission.Caller{Name: opener}).Trusted() || known != nil && may(known, command.Work, board)
}

// WorksOn reports, for the given principals, whether the opener of a session may work on a board.
func WorksOn(all []access.Principal) func(opener, board string) bool {
	list := &principals{byName: make(map[string]*access.Principal, len(all))}
	for i := range all {
		list.byName[all[i].Name] = &all[i]
	}
	return list.worksOn
}

// WorksOn reports whether the principal that opened a session may work on a board now.
func (g *Guard) WorksOn(id jobs.SessionID, board string) (bool, error) {
	if !g.Enforced {
		return true, nil
	}
	session, err := g.Machine.Session(id)
	if err != nil {
		return false, err
	}
	list, err := g.current()
	return err == nil && list.worksOn(session.Principal, board), err
}
