// Package guard determines the caller of a call, and the caller's permissions.
//
// The nouns: a Guard authenticates and authorizes. A principal is the identity that a caller has
// proven with the machine's socket, a certificate, an access token or a JSON web token. A scope is
// the object of a call: boards, a session, or the cluster. A refusal is a call that was not
// allowed.
//
// The called node authenticates. The answering node authorizes, from its own state. For objects
// that a caller may not read, the answer is the same as for missing objects. A long call ends
// within a second after its caller has lost the permission.
//
// The package assumes that connections come from package admission, and that members forward calls
// only for callers that they have authenticated.
package guard

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
	"github.com/prometheus/client_golang/prometheus"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/wire"
)

// NameOf is the name of a call's caller, or this node's own name for its own calls.
func (g *Guard) NameOf(ctx context.Context) string {
	if who := admission.CallerOf(ctx); who != nil {
		return who.Name
	}
	return admission.NodeCaller + g.Node
}

// Guard authenticates callers and authorizes their calls. The node that is called first
// authenticates. The node that answers authorizes, from its own state.
type Guard struct {
	Options

	Refuse   *connect.ErrorWriter
	log      admission.RefusalLog
	Refused  *refusals
	Watchers *admission.Watchers
	open     lastingCalls
	tokens   *webTokens // nil: JSON web tokens are not accepted
	Uses     *tokenUses

	building sync.Mutex // held while the next list is built
	list     atomic.Pointer[principals]
}

// Options connect a guard with its node.
type Options struct {
	Enforced bool   // access control is on
	Cluster  string // id
	Node     string // name of this node
	Machine  *fsm.Machine
	Now      func() time.Time
	Issuer   Issuer
	Metrics  *prometheus.Registry
	Logger   hclog.Logger
	IsMember func(node string) bool // according to this node's current members
	// Applied waits until this node has applied all entries that the leader had committed before
	// the call.
	Applied func(ctx context.Context) error
	// Elsewhere returns an error for a board of another cluster. nil: every board is here
	Elsewhere func(board string) error
}

// New makes a guard without open calls.
func New(o Options) *Guard {
	return &Guard{
		Options: o,
		Refuse:  connect.NewErrorWriter(wire.HandlerOptions()...), tokens: newWebTokens(o.Issuer, o.Now),
		Refused: newRefusals(o.Metrics), Uses: newTokenUses(), Watchers: admission.NewWatchers(),
		open: lastingCalls{open: make(map[*lastingCall]struct{})},
	}
}

// principals are the principals of the state at one entry, and their limits on watches.
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

// current returns the principals, and reads them again if they have changed.
func (g *Guard) current() (*principals, error) {
	if list := g.list.Load(); list != nil && list.index == g.Machine.AccessIndex() {
		return list, nil
	}
	g.building.Lock()
	defer g.building.Unlock()
	if list := g.list.Load(); list != nil && list.index == g.Machine.AccessIndex() {
		return list, nil
	}
	all, index, err := g.Machine.Principals()
	if err != nil {
		return nil, err
	}
	quotas, err := g.Machine.Quotas()
	if err != nil {
		return nil, err
	}
	list := &principals{
		index: index, byName: make(map[string]*access.Principal), byToken: make(map[[sha256.Size]byte]tokenOf), watches: make(map[string]uint64),
	}
	for i := range quotas { // newer ones than the index shows are read again
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

// Authenticate wraps a handler, so that every call has a caller, except calls to the open paths.
func (g *Guard) Authenticate(next http.Handler, open ...string) http.Handler {
	if !g.Enforced {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(open, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		who, err := g.authenticated(r)
		if err != nil {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second)) // net/http reads the end of a short body
			g.log.Warn(g.Logger, "refused a call", r.RemoteAddr, err)
			if errors.Is(err, access.ErrUnknown) {
				g.Refused.note(access.Refusal{From: hostOf(r.RemoteAddr), Verb: RefusedVerb(r.URL.Path), Error: admission.RefusalText(err)}, g.Now())
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			if admission.ConnOf(r.Context()).Trusted() { // the node was removed: its connection had no limits
				w.Header().Set("Connection", "close")
			}
			_ = g.Refuse.Write(w, r, wire.ErrorToConnect(err))
			return
		}
		if who.From == "" {
			who.From = hostOf(r.RemoteAddr)
		}
		admission.ConnOf(r.Context()).Authenticated(who)
		next.ServeHTTP(w, r.WithContext(admission.WithCaller(r.Context(), who)))
	})
}

// WriteRefusal sends err as the answer to a call that bypasses the interceptors. The caller pays
// for it as for other refused calls.
func (g *Guard) WriteRefusal(w http.ResponseWriter, r *http.Request, err error) {
	admission.ConnOf(r.Context()).PayRefusal(err)
	_ = g.Refuse.Write(w, r, err)
}

// Recognized wraps the handler of pages so that a request with a known token or certificate has a
// caller. Other requests come from unknown callers, who can sign in.
func (g *Guard) Recognized(tokenOf func(*http.Request) string, next http.Handler) http.Handler {
	if !g.Enforced {
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

// ApplyPatience is the time that a call of an unknown principal waits for entries that this node
// has not applied yet. It is well below a client's shortest try.
const ApplyPatience = time.Second

// authenticated returns the result of identify. An unknown principal or token may be in an
// entry that this node has not applied yet. The node therefore catches up with the leader
// before it refuses the caller. Callers share the questions to the leader.
func (g *Guard) authenticated(r *http.Request) (*admission.Caller, error) {
	who, err := g.identify(r)
	if !errors.Is(err, errNotFound) {
		return who, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), ApplyPatience)
	defer cancel()
	if behind := g.Applied(ctx); behind != nil {
		return nil, fmt.Errorf("%w: this node does not know the caller, and cannot ask the leader for new principals: %w", jobs.ErrUnavailable, behind)
	}
	return g.identify(r)
}

// errNotFound: this node does not know such a principal, token or member.
var (
	errNotFound = fmt.Errorf("%w", access.ErrUnknown)
	errRevoked  = fmt.Errorf("%w: the token does not belong to this cluster, or was revoked", errNotFound)
)

// identify finds the caller by, in this order: the socket of this machine, a node's certificate, an
// access token or a JSON web token, a client's certificate.
func (g *Guard) identify(r *http.Request) (*admission.Caller, error) {
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
		return nil, fmt.Errorf("%w: use a token (--token-file) or a client certificate (--cert-file and --key-file)", access.ErrUnknown)
	case strings.Contains(holder.Name, "/"):
		return nil, fmt.Errorf("%w: the common name %.64q of its certificate contains a /", access.ErrUnknown, holder.Name)
	}
	who := &admission.Caller{Name: holder.Name}
	_, err = g.Rights(who)
	return who, err
}

// holder returns the client or member of a request's certificate, which the handshake has verified;
// the zero value for a request without a certificate. It refuses the certificate of another
// cluster's node, of a node that is not a member, and a certificate that is neither a node's nor a
// client's.
func (g *Guard) holder(r *http.Request) (credentials.Holder, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return credentials.Holder{}, nil
	}
	holder, err := credentials.HolderOf(r.TLS.PeerCertificates[0])
	switch {
	case err != nil:
		return holder, fmt.Errorf("%w: %w", access.ErrUnknown, err)
	case holder.Cluster == "":
		return holder, nil
	case holder.Cluster != g.Cluster:
		return holder, fmt.Errorf("%w: its certificate is for %s, and this is cluster %q", access.ErrUnknown, holder, g.Cluster)
	}
	return holder, g.member(holder.Name)
}

// member returns an error unless a node is a member of the cluster.
func (g *Guard) member(node string) error {
	if node == g.Node || g.IsMember(node) {
		return nil
	}
	return fmt.Errorf("%w: node %.64q is not a member of cluster %q: an administrator adds the node with \"conductord cluster join\", with a token or a client certificate",
		errNotFound, node, g.Cluster)
}

// forwardedBy is the caller of a call that comes from a node: the caller for which the node
// forwards the call, or the node itself.
func forwardedBy(node string, header http.Header) (*admission.Caller, error) {
	name := header.Get(wire.HeaderPrincipal)
	if name == "" && header.Get(wire.HeaderHops) != "" {
		return nil, fmt.Errorf("%w: node %q forwards calls without the names of their callers: set access_control on all nodes", access.ErrUnknown, node)
	}
	who := &admission.Caller{Name: cmp.Or(name, admission.NodeCaller+node), From: header.Get(wire.HeaderFrom)}
	if id := header.Get(wire.HeaderToken); id != "" {
		token, err := uuid.Parse(id)
		if err != nil {
			return nil, fmt.Errorf("%w: %s is not the id of a token: %w", access.ErrUnknown, wire.HeaderToken, err)
		}
		who.Token.UUID = token
	}
	return who, nil
}

func (g *Guard) byToken(ctx context.Context, shown string) (*admission.Caller, error) {
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
		_, err = g.Rights(who)
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
	if _, err = g.Rights(who); err == nil {
		g.Uses.note(known, g.Now())
	}
	return who, err
}

// Rights returns the principal of a caller; nil for a trusted one. It refuses a token that has
// expired or was revoked since the caller was identified, and a node that was removed since then.
func (g *Guard) Rights(who *admission.Caller) (*access.Principal, error) {
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
	if !who.Expires.IsZero() && !who.Expires.After(g.Now()) {
		return nil, fmt.Errorf("%w: the token has expired at %s", access.ErrUnknown, who.Expires.UTC().Format(time.RFC3339))
	}
	p := list.byName[who.Name]
	switch isOwn := func(token access.Token) bool { return token.ID == who.Token }; {
	case p != nil && (who.Token == access.TokenID{} || slices.ContainsFunc(p.Tokens, isOwn)):
		return p, nil
	case who.Token != access.TokenID{}:
		return nil, errRevoked
	}
	// A certificate contains only a name: an old one would work again for a new principal with this name.
	return nil, fmt.Errorf("%w: there is no principal %q: if it was deleted, use credentials for another name; otherwise an administrator creates it with "+
		"\"conductord access save %s --grant ROLE=BOARDS\"", errNotFound, who.Name, who.Name)
}

// Page serves a page to callers that may read all boards.
func (g *Guard) Page(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.Allow(r.Context(), r.URL.Path, command.Read, nil); err != nil {
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

// FromNode reports whether a node of the cluster has sent a request. Without TLS, this is not
// verified.
func (g *Guard) FromNode(r *http.Request) bool {
	if r.TLS == nil {
		return r.Header.Get(wire.HeaderHops) != ""
	}
	holder, err := g.holder(r)
	return err == nil && holder.Cluster != ""
}
