package node_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/wire"
)

// begin starts a call over HTTP/2 with a token, from a host of this machine. The channel gets the
// status of the answer, or 0 if the call was cut off.
func (c *tenants) begin(host, token, path string, length int64, body io.Reader) <-chan int {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.options[0].Members[0].API+path, body)
	if err != nil {
		c.t.Fatal(err)
	}
	request.ContentLength = length
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	transport := &http.Transport{TLSClientConfig: opening(c.t, c.anybody()).Client(), ForceAttemptHTTP2: true, DialContext: dialer.DialContext}
	answered := make(chan int, 1)
	go func() { // ends with the test
		defer transport.CloseIdleConnections()
		answer, err := transport.RoundTrip(request)
		if err != nil {
			answered <- 0
			return
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		answered <- answer.StatusCode
	}()
	c.t.Cleanup(cancel)
	return answered
}

// A waiting call holds only its body's size of the body budget, with or without a declared length.
func TestCallsThatWaitHoldTheirBodiesAlone(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	ann, _ := c.token("ann", time.Time{}, access.Grant{Role: access.Operator, Boards: access.AllBoards})
	sent := 0
	for i, known := range []bool{true, false} {
		job, err := jobs.PostOne(t.Context(), c.operator, jobs.Posting{Name: "j", Kind: "none"})
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"id":%q,"timeout":"60s"}`, job.ID)
		length := int64(len(body))
		if sent += len(body); !known {
			length = -1
		}
		c.begin("127.0.0.1", ann, "/conductord.v1.BoardService/WaitJob", length, struct{ io.Reader }{strings.NewReader(body)})
		eventually(t, "a call waits", func() bool { return node.Finishes(c.nodes[0]) == i+1 })
	}
	if held := node.Held(c.nodes[0]).Bytes; held != int64(sent) {
		t.Errorf("two calls that wait hold %d bytes, and their bodies have %d", held, sent)
	}
}

// One principal cannot take the whole budget of bodies, calls, streams or waits.
func TestOnePrincipalLeavesRoom(t *testing.T) {
	t.Parallel()
	const budget, part, senders = 1 << 20, 60 << 10, 40
	c := newTenants(t, 1)
	node.Tune(c.nodes[0], func(b *admission.Bounds) { b.BodyBytes = budget })
	ann, _ := c.token("ann", time.Time{}, access.Grant{Role: access.Viewer, Boards: "a"})
	bob, _ := c.token("bob", time.Time{}, access.Grant{Role: access.Poster, Boards: "b"})
	for range senders {
		body := &halfBody{part: io.LimitReader(zeros{}, part), over: make(chan struct{})}
		t.Cleanup(func() { _ = body.Close() })
		c.begin("127.0.0.2", ann, postPath, part+1, body)
	}
	eventually(t, "ann holds what she can", func() bool { held := node.Held(c.nodes[0]).Bytes; return held > budget/4 })
	client := c.as(bob)
	began := time.Now()
	for range 20 {
		if _, err := jobs.PostOne(t.Context(), client, jobs.Posting{Board: "b", Name: "good", Kind: "none"}); err != nil {
			t.Fatal(err)
		}
		if held := node.Held(c.nodes[0]).Bytes; held > budget/2+part {
			t.Errorf("ann holds %d of %d bytes", held, budget)
		}
	}
	if took := time.Since(began); took > pressedPatience {
		t.Logf("the other principal's postings took %s", took)
	}
}

// Bodies of unknown callers do not use the body budget, and each host can send few of them in
// parallel.
func TestBodiesOfStrangersAreApart(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1, func(o *node.Options) {
		o.PagesPath, o.Pages = "/pages/", func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
		}
	})
	half := func(host, path string) <-chan int {
		body := &halfBody{part: strings.NewReader("x"), over: make(chan struct{})}
		t.Cleanup(func() { _ = body.Close() })
		return c.begin(host, "", path, -1, body)
	}
	for _, path := range []string{"/pages/sign-in", "/healthz"} {
		var answers []<-chan int
		for range strangerBodies {
			answers = append(answers, half("127.0.0.1", path))
		}
		eventually(t, "bodies of a stranger are waited for", func() bool { return node.Held(c.nodes[0]).Waiting == strangerBodies })
		if held := node.Held(c.nodes[0]).Bytes; held != 0 {
			t.Errorf("%s: strangers hold %d bytes of the budget of callers", path, held)
		}
		if status := <-half("127.0.0.1", path); status != http.StatusServiceUnavailable {
			t.Errorf("%s: one body more of the same host: %d", path, status)
		}
		half("127.0.0.2", path)
		eventually(t, "another host's body is waited for", func() bool { return node.Held(c.nodes[0]).Waiting > strangerBodies })
		for _, answer := range answers {
			if status := <-answer; status != http.StatusServiceUnavailable {
				t.Errorf("%s: half a body is answered with %d", path, status)
			}
		}
		eventually(t, "all have ended", func() bool { return node.Held(c.nodes[0]).Waiting == 0 })
	}
	if status := <-c.begin("127.0.0.1", "", "/pages/sign-in", -1, bytes.NewReader(make([]byte, 4<<10))); status != http.StatusOK {
		t.Errorf("a form of a stranger: %d", status)
	}
	if status := <-c.begin("127.0.0.1", "", "/pages/sign-in", -1, bytes.NewReader(make([]byte, 64<<10))); status != http.StatusTooManyRequests {
		t.Errorf("a large form of a stranger: %d", status)
	}
	ann, _ := c.token("ann", time.Time{}, access.Grant{Role: access.Viewer, Boards: "a"})
	if status := <-c.begin("127.0.0.1", ann, "/pages/form", -1, bytes.NewReader(make([]byte, 60<<10))); status != http.StatusOK {
		t.Errorf("a form of a principal: %d", status)
	}
}

// Refused openings do not use the session limit of other principals of the host. A client cannot
// claim to be a node.
func TestRefusedOpeningsTakeNoPlacesOfOthers(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	weak, _ := c.token("weak", time.Time{}, access.Grant{Role: access.Viewer, Boards: "zzz"})
	worker, _ := c.token("worker", time.Time{}, access.Grant{Role: access.Worker, Boards: "a"})
	other, _ := c.token("other", time.Time{}, access.Grant{Role: access.Worker, Boards: "b"})
	node.SetMaxClientSessions(c.nodes[0], 3)
	open := func(token string, header ...string) int {
		status, _ := c.call(0, token, "SessionService/Open", fmt.Sprintf(`{"opening":{"id":%q,"name":"w","ttl":"3600s"}}`, jobs.NewSessionID()), header...)
		return status
	}
	for i, row := range []struct {
		token, hops string
		want        int
	}{
		{weak, "", 403}, {weak, "", 403}, {weak, "", 403}, {weak, "", 429}, {weak, "1", 429},
		{worker, "", 200}, {worker, "", 200}, {worker, "", 200}, {worker, "", 429}, {worker, "1", 429},
		{other, "", 200}, {other, "1", 200}, {other, "1", 200}, {other, "1", 429},
	} {
		var header []string
		if row.hops != "" {
			header = []string{wire.HeaderHops, row.hops}
		}
		if status := open(row.token, header...); status != row.want {
			t.Errorf("opening %d: %d, and not %d", i, status, row.want)
		}
	}
}

// A client that sends too many frames of any kind is slowed, together with its principal's other
// connections. Other principals and addresses are not slowed.
func TestFramesArePaced(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	ann, _ := c.token("ann", time.Time{}, access.Grant{Role: access.Viewer, Boards: "a"})
	bob, _ := c.token("bob", time.Time{}, access.Grant{Role: access.Poster, Boards: "b"})
	client := c.as(bob)
	post := func() {
		if _, err := jobs.PostOne(t.Context(), client, jobs.Posting{Board: "b", Name: "good", Kind: "none"}); err != nil {
			t.Error(err)
		}
	}
	post()
	for _, token := range []string{"", ann} {
		node.Tune(c.nodes[0], func(b *admission.Bounds) { b.CallerUnits, b.StrangerUnits = 1_600, 1_600 })
		const sent = 3_000
		for kind, one := range map[string]string{"PING": frame(6, 0, 0, "12345678"), "PRIORITY": frame(2, 0, 3, "\x00\x00\x00\x01\x10"), "an unknown kind": frame(0xbb, 0, 0, "")} {
			conn := c.http2("127.0.0.2", token)
			began := time.Now()
			_, err := io.WriteString(conn, strings.Repeat(one, sent)+frame(6, 0, 0, "the last"))
			for last := []byte(nil); err == nil && !bytes.HasSuffix(last, []byte("the last")); {
				part := make([]byte, 4<<10)
				var n int
				n, err = conn.Read(part)
				last = append(last, part[:n]...)[max(0, len(last)+n-32):]
			}
			if took := time.Since(began); err != nil || took < 2*meterSpan {
				t.Errorf("%d frames %s with token %.8q take %s, %v", sent, kind, token, took, err)
			}
			post()
			_ = conn.Close()
		}
	}
}

// TestRefusedCallsArePaced: a refused call costs its caller more than its frames. The refusal can
// come from an interceptor or from a handler without one.
func TestRefusedCallsArePaced(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	ann, _ := c.token("ann", time.Time{}, access.Grant{Role: access.Viewer, Boards: "anns"})
	for name, request := range map[string]string{
		"BoardService/ListJobs": `{"board": "bobs"}`, // unary
		"BoardService/Watch":    `{"board": "bobs"}`, // a stream in plain JSON
		"ClusterService/Backup": `{}`,                // raw bytes
	} {
		node.Tune(c.nodes[0], func(b *admission.Bounds) { b.CallerUnits = 160 })
		const calls = 40 // of 64 units each; alone, a principal uses 80 units in a span
		began := time.Now()
		for range calls {
			if status, text := c.call(0, ann, name, request); status != http.StatusForbidden {
				t.Fatalf("%s: %d %s", name, status, text)
			}
		}
		if took := time.Since(began); took < 20*meterSpan {
			t.Errorf("%d refused calls of %s take %s", calls, name, took)
		}
	}
}

// http2 opens a connection without the client library, and authenticates it with a token.
func (c *tenants) http2(host, token string) net.Conn {
	c.t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	config := opening(c.t, c.anybody()).Client()
	config.NextProtos = []string{"h2"}
	conn, err := tls.DialWithDialer(dialer, "tcp", c.options[0].Members[0].API, config)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	header := func(name, value string) string {
		return "\x00" + string(byte(len(name))) + name + string(byte(len(value))) + value
	}
	call := header(":method", "POST") + header(":scheme", "https") + header(":path", wire.Prefix+"AccessService/WhoAmI") + header("content-type", "application/json")
	if token != "" {
		call += header("authorization", "Bearer "+token)
	}
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+frame(4, 0, 0, "")+frame(1, 4, 1, call)+frame(0, 1, 1, "{}")); err != nil {
		c.t.Fatal(err)
	}
	for answered := false; !answered; { // the end of stream 1
		head := make([]byte, 9)
		if _, err := io.ReadFull(conn, head); err != nil {
			c.t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, conn, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
			c.t.Fatal(err)
		}
		answered = head[3] <= 1 && head[4]&1 != 0
	}
	return conn
}

// Connections of unknown callers have their own limit. Above it, the address with the most
// connections loses one.
func TestConnectionsOfStrangersAreApart(t *testing.T) {
	t.Parallel()
	const all = 12
	c := newTenants(t, 1)
	node.Tune(c.nodes[0], func(b *admission.Bounds) { b.Strangers = all })
	ann, _ := c.token("ann", time.Time{}, access.Grant{Role: access.Viewer, Boards: "a"})
	client := c.as(ann)
	known := c.http2("127.0.0.2", ann)
	open := func(host string, n int) (conns []net.Conn) {
		for range n {
			conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}).Dial("tcp", c.options[0].Members[0].API)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			conns = append(conns, conn)
		}
		return conns
	}
	count := func(host string) int { return node.Held(c.nodes[0]).Strangers[host] }
	open("127.0.0.2", 40)
	eventually(t, "one address has all", func() bool { return count("127.0.0.2") == all })
	for _, host := range []string{"127.0.0.3", "127.0.0.4", "127.0.0.5"} {
		open(host, 4)
	}
	eventually(t, "all have room", func() bool {
		held := node.Held(c.nodes[0]).Strangers
		return len(held) == 4 && held["127.0.0.2"] <= 3+1 && held["127.0.0.3"]+held["127.0.0.4"]+held["127.0.0.5"]+held["127.0.0.2"] == all
	})
	open("127.0.0.6", 1)
	eventually(t, "a newcomer has a place", func() bool { return count("127.0.0.6") == 1 })
	if _, err := io.WriteString(known, frame(6, 0, 0, "12345678")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(known, make([]byte, 17)); err != nil {
		t.Errorf("a connection of a caller at the address of strangers: %v", err)
	}
	if _, err := client.WhoAmI(t.Context()); err != nil {
		t.Error(err)
	}
}

// frame is a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload string) string {
	head := append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind)), flags)
	return string(binary.BigEndian.AppendUint32(head, stream)) + payload
}
