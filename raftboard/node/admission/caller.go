package admission

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs/access"
)

// Name prefixes of callers that are not stored principals. They have all permissions.
const (
	NodeCaller  = "node/"  // followed by the name of a node of the cluster
	LocalCaller = "local/" // followed by the number of the user that calls through the node's socket
)

// Caller is the authenticated sender of a call.
type Caller struct {
	Name    string
	From    string         // the calling host, or SocketHost
	Token   access.TokenID // the caller's access token; zero: none
	Expires time.Time      // expiry of its certificate or token; zero: none
}

// Trusted reports whether the caller is a node or a local caller. Such a caller has all
// permissions, a node only while it is a member.
func (c *Caller) Trusted() bool {
	return strings.HasPrefix(c.Name, NodeCaller) || strings.HasPrefix(c.Name, LocalCaller)
}

// callerKey is the key of the caller in a call's context.
type callerKey struct{}

// CallerOf is the caller of a call; nil: this node itself, or any caller without access control.
func CallerOf(ctx context.Context) *Caller {
	who, _ := ctx.Value(callerKey{}).(*Caller)
	return who
}

// WithCaller puts the caller into the context of its call.
func WithCaller(ctx context.Context, who *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, who)
}

// SocketHost is the host of calls through a node's socket.
const SocketHost = "socket"

// localKey is the key of the user in the context of calls through the socket.
type localKey struct{}

// LocalUser is the user that calls through the node's socket.
func LocalUser(ctx context.Context) (user string, local bool) {
	user, local = ctx.Value(localKey{}).(string)
	return user, local
}

// nodeKey is the key of a mark in the context of calls that a node has sent.
type nodeKey struct{}

// holderOf returns the principal of a call, or the client's address if the client is not
// authenticated. It is empty for nodes, operators at the socket and this process: for them, only
// the totals are limits.
func holderOf(ctx context.Context) (holder string) {
	if who := CallerOf(ctx); who != nil && who.Trusted() {
		return ""
	} else if who != nil {
		return who.Name // an address is not the name of a principal
	}
	if _, local := LocalUser(ctx); local {
		return ""
	}
	holder, _ = ctx.Value(clientKey{}).(string)
	return holder
}

// clientKey is the key of the client in a call's context.
type clientKey struct{}

// hostKey is the host of an address, or for IPv6 the /64 network, which usually belongs to one
// client.
func hostKey(address string) string {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	host := parsed.Addr().Unmap().WithZone("")
	if network, err := host.Prefix(64); err == nil && host.Is6() {
		return network.String()
	}
	return host.String()
}

// withClient puts a connection and its client into the context of its calls.
func withClient(ctx context.Context, conn net.Conn) context.Context {
	if _, local := conn.(*net.UnixConn); local {
		user := userOf(conn)
		ctx = context.WithValue(ctx, localKey{}, user)
		return context.WithValue(ctx, clientKey{}, LocalCaller+user)
	}
	client := conn.(*Conn)
	return context.WithValue(context.WithValue(ctx, connKey{}, client), clientKey{}, client.host)
}
