package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/wire"
)

// nameOf is the name of a call's caller; for this node itself, its own.
func (g *guard) nameOf(ctx context.Context) string {
	if who := admission.CallerOf(ctx); who != nil {
		return who.Name
	}
	return admission.NodeCaller + g.node
}

// guard authenticates callers and authorizes their calls. The node that is called first
// authenticates. The node that answers authorizes, from its own state.
type guard struct {
	enforced  bool   // access control is on
	cluster   string // id
	node      string // name of this one
	machine   *fsm.Machine
	now       func() time.Time
	refuse    *connect.ErrorWriter
	logger    hclog.Logger
	log       admission.RefusalLog
	refused   *refusals
	watchers  *admission.Watchers
	lasting   lastingCalls
	elsewhere *elsewhere
	tokens    *webTokens // nil: JSON web tokens do not count
	uses      *tokenUses
	isMember  func(node string) bool // as this node knows the members now
	// applied waits until this node has applied what the leader had committed.
	applied func(ctx context.Context) error

	building sync.Mutex // the next list
	list     atomic.Pointer[principals]
}

func newGuard(o Options, machine *fsm.Machine, now func() time.Time, applied func(ctx context.Context) error) *guard {
	g := &guard{
		enforced: o.AccessControl, cluster: o.Cluster, node: o.Name, machine: machine, now: now,
		refuse: connect.NewErrorWriter(wire.HandlerOptions()...), logger: o.Logger, tokens: newWebTokens(o.Issuer, now),
		refused: newRefusals(o.Metrics), uses: newTokenUses(), applied: applied,
		watchers:  admission.NewWatchers(),
		lasting:   lastingCalls{open: make(map[*lastingCall]struct{})},
		elsewhere: newElsewhere(o, machine),
	}
	g.elsewhere.allow, g.elsewhere.hide = g.allow, g.hide
	return g
}

// principals are those of the state at one entry, and their limits on watches.
type principals struct {
	index   uint64
	byName  map[string]*access.Principal
	byToken map[[sha256.Size]byte]tokenOf
	watches map[string]uint64 // limits, by principal
}

type tokenOf struct {
	principal string // name
	token     access.Token
}

// current gives the principals, read again if they have changed.
func (g *guard) current() (*principals, error) {
	if list := g.list.Load(); list != nil && list.index == g.machine.AccessIndex() {
		return list, nil
	}
	g.building.Lock()
	defer g.building.Unlock()
	if list := g.list.Load(); list != nil && list.index == g.machine.AccessIndex() {
		return list, nil
	}
	all, index, err := g.machine.Principals()
	if err != nil {
		return nil, err
	}
	quotas, err := g.machine.Quotas()
	if err != nil {
		return nil, err
	}
	list := &principals{
		index: index, byName: make(map[string]*access.Principal), byToken: make(map[[sha256.Size]byte]tokenOf), watches: make(map[string]uint64),
	}
	for i := range quotas { // newer ones than the index says are read again
		list.watches[quotas[i].Principal] = quotas[i].Limits.Watches
	}
	for i := range all {
		p := &all[i]
		list.byName[p.Name] = p
		for _, token := range p.Tokens {
			list.byToken[token.Hash] = tokenOf{p.Name, token}
		}
	}
	g.list.Store(list)
	return list, nil
}

// authenticate wraps a handler so that every call but those for health has a caller.
func (g *guard) authenticate(next http.Handler) http.Handler {
	if !g.enforced {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == healthPath || r.URL.Path == readyPath {
			next.ServeHTTP(w, r)
			return
		}
		who, err := g.authenticated(r)
		if err != nil {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second)) // net/http reads the end of a short body
			g.log.Warn(g.logger, "refused a call", r.RemoteAddr, err)
			if errors.Is(err, access.ErrUnknown) {
				g.refused.note(access.Refusal{From: hostOf(r.RemoteAddr), Verb: refusedVerb(r.URL.Path), Error: admission.RefusalText(err)}, g.now())
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			_ = g.refuse.Write(w, r, wire.ErrorToConnect(err))
			return
		}
		if who.From == "" {
			who.From = hostOf(r.RemoteAddr)
		}
		admission.ConnOf(r.Context()).Authenticated(who)
		next.ServeHTTP(w, r.WithContext(admission.WithCaller(r.Context(), who)))
	})
}

// recognized wraps the handler of pages so that a request with a known token or certificate has a
// caller. The others are of strangers, who may sign in.
func (g *guard) recognized(tokenOf func(*http.Request) string, next http.Handler) http.Handler {
	if !g.enforced {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := *r
		if tokenOf != nil {
			shown.Header = r.Header.Clone()
			if token := tokenOf(r); token != "" {
				shown.Header.Set("Authorization", "Bearer "+token)
			}
		}
		if who, err := g.identify(&shown); err == nil {
			admission.ConnOf(r.Context()).Authenticated(who)
			r = r.WithContext(admission.WithCaller(r.Context(), who))
		}
		next.ServeHTTP(w, r)
	})
}

// applyPatience is how long a caller that this node does not know waits for the entries that
// this node has not applied yet. It is well below the time of a client's shortest try.
const applyPatience = time.Second

// authenticated is identify. A principal or token that this node does not know may be in an
// entry that it has not applied yet, so it catches up with the leader before it refuses the
// caller. Callers share the questions to the leader.
func (g *guard) authenticated(r *http.Request) (*admission.Caller, error) {
	who, err := g.identify(r)
	if !errors.Is(err, errNotFound) {
		return who, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), applyPatience)
	defer cancel()
	if behind := g.applied(ctx); behind != nil {
		return nil, fmt.Errorf("%w: this node does not know the caller, and cannot ask the leader whether it is new: %w", jobs.ErrUnavailable, behind)
	}
	return g.identify(r)
}

// errNotFound: there is no such principal, token or member, as far as this node knows.
var (
	errNotFound = fmt.Errorf("%w", access.ErrUnknown)
	errRevoked  = fmt.Errorf("%w: the token is not one of this cluster, or was revoked", errNotFound)
)

// identify finds the caller by, in this order: the socket of this machine, a node's
// certificate, an access token or a JSON web token, a client's certificate.
func (g *guard) identify(r *http.Request) (*admission.Caller, error) {
	if user, local := admission.LocalUser(r.Context()); local {
		return &admission.Caller{Name: admission.LocalCaller + user, From: admission.SocketHost}, nil
	}
	holder, err := g.holder(r)
	if err == nil && holder.Cluster != "" {
		return forwardedBy(holder.Name, r.Header)
	}
	if shown := r.Header.Get("Authorization"); shown != "" {
		return g.byToken(r.Context(), shown)
	}
	switch {
	case err != nil:
		return nil, err
	case holder.Name == "":
		return nil, fmt.Errorf("%w: give a token (--token-file) or a client certificate (--cert-file and --key-file)", access.ErrUnknown)
	case strings.Contains(holder.Name, "/"):
		return nil, fmt.Errorf("%w: the common name %.64q of its certificate holds a /", access.ErrUnknown, holder.Name)
	}
	who := &admission.Caller{Name: holder.Name}
	_, err = g.rights(who)
	return who, err
}

// holder is the client or the member whose certificate a request comes with, verified by the
// handshake; the zero value: it has none. It returns an error for a certificate that is nobody's
// here: one of another cluster's node, of a node that is no member, or of neither node nor client.
func (g *guard) holder(r *http.Request) (credentials.Holder, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return credentials.Holder{}, nil
	}
	holder, err := credentials.HolderOf(r.TLS.PeerCertificates[0])
	switch {
	case err != nil:
		return holder, fmt.Errorf("%w: %w", access.ErrUnknown, err)
	case holder.Cluster == "":
		return holder, nil
	case holder.Cluster != g.cluster:
		return holder, fmt.Errorf("%w: its certificate is of %s, and this is cluster %q", access.ErrUnknown, holder, g.cluster)
	}
	return holder, g.member(holder.Name)
}

// member returns an error unless a node is a member of the cluster.
func (g *guard) member(node string) error {
	if node == g.node || g.isMember(node) {
		return nil
	}
	return fmt.Errorf("%w: node %.64q is not a member of cluster %q: an administrator makes it one by \"conductord cluster join\" with a token or a client certificate",
		errNotFound, node, g.cluster)
}

// forwardedBy is the caller of a call that comes from a node: the one for which the node
// forwards it, or the node itself.
func forwardedBy(node string, header http.Header) (*admission.Caller, error) {
	name := header.Get(wire.HeaderPrincipal)
	if name == "" && header.Get(wire.HeaderHops) != "" {
		return nil, fmt.Errorf("%w: node %q forwards calls without asking who makes them: set access_control on all nodes", access.ErrUnknown, node)
	}
	who := &admission.Caller{Name: cmp.Or(name, admission.NodeCaller+node), From: header.Get(wire.HeaderFrom)}
	if id := header.Get(wire.HeaderToken); id != "" {
		token, err := uuid.Parse(id)
		if err != nil {
			return nil, fmt.Errorf("%w: %s is no id of a token: %w", access.ErrUnknown, wire.HeaderToken, err)
		}
		who.Token.UUID = token
	}
	return who, nil
}

func (g *guard) byToken(ctx context.Context, shown string) (*admission.Caller, error) {
	text, ok := strings.CutPrefix(shown, "Bearer ")
	if !ok {
		return nil, fmt.Errorf("%w: the header Authorization is not \"Bearer\" and a token", access.ErrUnknown)
	}
	if g.tokens != nil && !access.IsToken(text) {
		name, expires, err := g.tokens.verify(ctx, text)
		if err != nil {
			return nil, err
		}
		who := &admission.Caller{Name: name, Expires: expires}
		_, err = g.rights(who)
		return who, err
	}
	list, err := g.current()
	if err != nil {
		return nil, err
	}
	known, found := list.byToken[access.Hash(text)]
	if !found {
		return nil, errRevoked
	}
	who := &admission.Caller{Name: known.principal, Token: known.token.ID, Expires: known.token.Expires}
	if _, err = g.rights(who); err == nil {
		g.uses.note(known, g.now())
	}
	return who, err
}

// rights finds the principal of a caller; nil for a trusted one. It refuses a token that was
// revoked, or has expired, and a node that was removed, since the caller was identified.
func (g *guard) rights(who *admission.Caller) (*access.Principal, error) {
	if node, is := strings.CutPrefix(who.Name, admission.NodeCaller); is {
		return nil, g.member(node)
	}
	if who.Trusted() {
		return nil, nil
	}
	list, err := g.current()
	if err != nil {
		return nil, err
	}
	if !who.Expires.IsZero() && !who.Expires.After(g.now()) {
		return nil, fmt.Errorf("%w: the token has expired at %s", access.ErrUnknown, who.Expires.UTC().Format(time.RFC3339))
	}
	p := list.byName[who.Name]
	switch isOwn := func(token access.Token) bool { return token.ID == who.Token }; {
	case p != nil && (who.Token == access.TokenID{} || slices.ContainsFunc(p.Tokens, isOwn)):
		return p, nil
	case who.Token != access.TokenID{}:
		return nil, errRevoked
	}
	return nil, fmt.Errorf("%w: there is no principal %q: an administrator makes it by \"conductord access save %s --grant ROLE=BOARDS\"", errNotFound, who.Name, who.Name)
}

// whoAmI answers who the caller is.
func (g *guard) whoAmI(ctx context.Context, _ *connect.Request[conductordv1.WhoAmIRequest]) (*connect.Response[conductordv1.WhoAmIResponse], error) {
	answer := &conductordv1.WhoAmIResponse{Enforced: g.enforced}
	who := admission.CallerOf(ctx)
	if who == nil {
		return connect.NewResponse(answer), nil
	}
	answer.Name = who.Name
	switch p, err := g.rights(who); {
	case err != nil:
		return nil, wire.ErrorToConnect(err)
	case p == nil:
		answer.Grants = command.GrantsToProto([]access.Grant{{Role: access.Administrator, Boards: access.AllBoards}})
	default:
		quota, err := g.machine.Quota(who.Name, g.now())
		if err != nil {
			return nil, wire.ErrorToConnect(err)
		}
		if quota != nil {
			quota.Used.Watches = g.watchers.Of(who.Name)
		}
		answer.Grants, answer.HideValues, answer.Quota = command.GrantsToProto(p.Grants), p.HideValues, command.QuotaToProto(quota)
	}
	return connect.NewResponse(answer), nil
}

// page serves a page to callers that may read all boards.
func (g *guard) page(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.allow(r.Context(), r.URL.Path, command.Read, nil); err != nil {
			status := http.StatusForbidden
			if errors.Is(err, access.ErrUnknown) {
				status = http.StatusUnauthorized
			}
			http.Error(w, err.Error(), status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// fromNode reports whether a node of the cluster has sent a request. Without TLS its word for
// that must do.
func (g *guard) fromNode(r *http.Request) bool {
	if r.TLS == nil {
		return r.Header.Get(wire.HeaderHops) != ""
	}
	holder, err := g.holder(r)
	return err == nil && holder.Cluster != ""
}
