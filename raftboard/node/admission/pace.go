package admission

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxRequestRate limits the requests per second on one connection to the HTTP port, and the burst
// after an idle time. A message of a stream counts as one request. The client library packs calls:
// on two processors, 64 callers post 28,000 jobs a second in 500 messages, and read 45,000 in
// 2,700.
const maxRequestRate = 10_000

// pace is the token bucket of a connection. Over the rate, a request waits before it is
// authenticated or read. At most maxStreams requests of a connection wait, so no request waits
// longer than a tenth of a second. The wait continues after the client has cancelled the request:
// otherwise, cancelled requests would have no limit.
type pace struct {
	rate int64 // per second, and in one burst

	mu   sync.Mutex
	next time.Time // time at which the taken tokens are refilled; guarded by mu
}

// delay takes a token, and returns the time that its request must wait.
func (p *pace) delay(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if full := now.Add(-time.Second); p.next.Before(full) {
		p.next = full
	}
	p.next = p.next.Add(time.Second / time.Duration(p.rate))
	return p.next.Sub(now)
}

// paceKey is the key of the connection's pace in a call's context.
type paceKey struct{}

// withPace puts a new connection's pace into the context of its calls. Calls through the node's
// socket have none.
func (a *Server) withPace(ctx context.Context, conn net.Conn) context.Context {
	if _, local := conn.(*net.UnixConn); local {
		return ctx
	}
	return context.WithValue(ctx, paceKey{}, &pace{rate: a.requestRate.Load()})
}

// KeepPace waits until the connection's pace allows another request.
func KeepPace(ctx context.Context) {
	if p, ok := ctx.Value(paceKey{}).(*pace); ok {
		time.Sleep(p.delay(time.Now()))
	}
}

// Paced wraps a handler so that the requests of a connection keep its pace. Nodes are exempt,
// because their connections carry the calls of many clients.
func Paced(next http.Handler, fromNode func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := ConnOf(r.Context())
		if conn != nil && conn.shaken != nil {
			r.TLS = conn.shaken // net/http did not see the handshake
		}
		if fromNode(r) {
			conn.trust()
			r = r.WithContext(context.WithValue(r.Context(), nodeKey{}, true))
		} else {
			conn.payRequest()
			KeepPace(r.Context())
		}
		next.ServeHTTP(w, r)
	})
}
