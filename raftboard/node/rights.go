package node

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/node/admission"
)

// rightsLook is how often a node looks whether the callers of calls that last may still make them: what
// is no longer allowed ends within a second.
const rightsLook = 500 * time.Millisecond

// lastingCalls are the calls that last: long polls, watches, streams, backups.
type lastingCalls struct {
	mu   sync.Mutex
	open map[*lastingCall]struct{} // under mu
	none chan struct{}             // closed when no call lasts; nil: no goroutine looks at them; under mu
}

// lastingCall is a call that lasts.
type lastingCall struct {
	still func() error // the refusal of the call, if it began now
	end   context.CancelCauseFunc
}

// while makes the context of a call that lasts. It ends soon after the right to the call, with the
// refusal as its cause. Before the call answers, it asks still once more.
func (g *guard) while(ctx context.Context, still func() error) (context.Context, context.CancelFunc) {
	if who := admission.CallerOf(ctx); who == nil || who.Trusted() {
		return context.WithCancel(ctx)
	}
	ctx, end := context.WithCancelCause(ctx)
	call, l := &lastingCall{still, end}, &g.lasting
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[call] = struct{}{}
	if l.none == nil {
		l.none = make(chan struct{})
		go l.look(l.none) // ends when no call lasts
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

// look ends the calls whose callers may no longer make them.
func (l *lastingCalls) look(none <-chan struct{}) {
	ticker := time.NewTicker(rightsLook)
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

// lasting is leading, for a call that waits: its caller must also have the right to it when it is answered.
func lasting[Req, Res any](r *router, local func(context.Context, *Req) (*Res, uint64, error)) func(call) unary[Req, Res] {
	return func(row call) unary[Req, Res] {
		return leading(r, func(ctx context.Context, message *Req) (*Res, uint64, error) {
			still := func() error { return r.guard.allow(ctx, row.name, row.permission, message) }
			within, release := r.guard.while(ctx, still)
			defer release()
			answer, index, err := local(within, message)
			if refusal := still(); refusal != nil {
				return nil, 0, refusal
			}
			return answer, index, err
		})(row)
	}
}

// whileKnown ends the exchanges of a handler when their callers are no longer known.
func (g *guard) whileKnown(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, release := g.while(r.Context(), func() error {
			_, err := g.rights(admission.CallerOf(r.Context()))
			return err
		})
		defer release()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// worksOn reports whether the principal that opened a session may work on a board now. Nodes, users of
// a node's socket, and callers where there was no access control may do everything.
func (p *principals) worksOn(opener, board string) bool {
	known := p.byName[opener]
	return opener == "" || (&admission.Caller{Name: opener}).Trusted() || known != nil && may(known, command.Work, board)
}

// worksOn reports whether the principal that opened a session may work on a board now.
func (g *guard) worksOn(id jobs.SessionID, board string) (bool, error) {
	if !g.enforced {
		return true, nil
	}
	session, err := g.machine.Session(id)
	if err != nil {
		return false, err
	}
	list, err := g.current()
	return err == nil && list.worksOn(session.Principal, board), err
}

// takeClaims gives back the jobs whose claimants may no longer work on their boards. They cool down, as those of a
// lost conductor do: its steps may still run. It ends with ctx.
func (t *leaderTasks) takeClaims(ctx context.Context) {
	judged := uint64(0)
	for range every(ctx, rightsLook) {
		now := t.machine.AccessIndex()
		if now == judged {
			continue
		}
		if err := t.takeClaimsOnce(ctx); err != nil {
			t.logger.Warn("cannot give back the claims of principals without a right to them yet", "error", err)
			continue
		}
		judged = now
	}
}

func (t *leaderTasks) takeClaimsOnce(ctx context.Context) error {
	all, _, err := t.machine.Principals()
	if err != nil {
		return err
	}
	list := &principals{byName: make(map[string]*access.Principal, len(all))}
	for i := range all {
		list.byName[all[i].Name] = &all[i]
	}
	for query := (jobs.ClaimQuery{}); ; {
		page, err := t.machine.Claims(query)
		if err != nil {
			return err
		}
		var commands []*conductordv1.Command
		for i := range page.Items {
			held := &page.Items[i]
			session, err := t.machine.Session(held.Claim.Session)
			if err != nil || list.worksOn(session.Principal, held.Board) {
				continue // a session that has ended holds nothing
			}
			t.logger.Info("claim given back: its claimant may no longer work there", "job", held.Job, "board", held.Board, "principal", session.Principal)
			commands = append(commands, giveBack(held.Job.String(), held.Claim.Token, t.timings.CoolDown,
				fmt.Sprintf("principal %q may no longer work on board %q", session.Principal, held.Board)))
		}
		if len(commands) > 0 {
			if _, _, err := t.proposer.propose(ctx, commands...); err != nil {
				return err
			}
		}
		if query.After = page.Next; query.After == "" {
			return nil
		}
	}
}

// giveBack is the command that ends a claim in the node's own name.
func giveBack(job string, token jobs.Token, coolDown time.Duration, reason string) *conductordv1.Command {
	return &conductordv1.Command{Kind: &conductordv1.Command_Abandon{Abandon: &conductordv1.Ending{
		Job: job, Token: command.TokenToProto(token), Delay: durationpb.New(coolDown), Reason: reason,
	}}}
}
