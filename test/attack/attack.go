package attack

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
	"github.com/conductord/conductord/raftboard/wire"
)

const (
	// tryTime limits a try. holdTime limits the open time of a slow try.
	tryTime  = 3 * time.Second
	holdTime = 500 * time.Millisecond
	// atOnce limits the parallel tries. Tries over the limit are omitted.
	atOnce = 64
	// pipelined is the number of requests that a flood sends together on its connection;
	// opened is the number of connections or streams that one try opens.
	pipelined = 100
	opened    = 20
)

// attacks are tries against a node. An error means that the attack succeeded; every kind of refusal
// returns nil. A try chooses its node and its variant by its number, counted from 0.
var attacks = []struct {
	name string
	try  func(ctx context.Context, c *Cluster, n int) error
}{
	{"raft: expired certificate", member("expired", 0)},
	{"raft: certificate of another name", member("of another name", 0)},
	{"raft: certificate of another cluster", member("of another cluster", 0)},
	{"raft: certificate of another authority", member("of another authority", 0)},
	{"raft: certificate of a client", member("of a client", 0)},
	{"raft: no certificate", member("", 0)},
	{"raft: TLS 1.2", member("right", tls.VersionTLS12)},
	{"raft: no TLS", func(ctx context.Context, c *Cluster, n int) error { return c.greet(ctx, n, nil) }},
	{"raft: half-open handshake", raw(raftPort, "\x16\x03\x01", holdTime)},
	{"raft: slow bytes", raw(raftPort, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", 2*holdTime)},
	{"raft: garbage", raw(raftPort, strings.Repeat("\x00\xff\x16CDR1R", 1<<10), 0)},
	{"raft: HTTP", raw(raftPort, "POST /conductord.v1.BoardService/Post HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 0)},

	{"API: no token", post("", nil)},
	{"API: wrong token", post("wrong", nil)},
	{"API: expired token", post("expired", nil)},
	{"API: revoked token", post("revoked", nil)},
	{"API: another tenant's board", post("guest", nil)},
	{"API: large headers", post("guest", func(_ int, r *http.Request) { r.Header.Set("X-Large", strings.Repeat("x", 64<<10)) })},
	{"API: names of callers in headers", post("guest", vouch)},
	{"API: names of callers without a token", post("", vouch)},
	{"API: deep JSON", post("guest", func(_ int, r *http.Request) { setBody(r, strings.NewReader(strings.Repeat(`{"postings":[`, 100_000))) })},
	{"API: compressed body", post("guest", func(_ int, r *http.Request) {
		setBody(r, bytes.NewReader(bomb))
		r.Header.Set("Content-Encoding", "gzip")
	})},
	{"API: path", post("", setPath)},
	{"API: path of a guest", post("guest", setPath)},
	{"API: half-open handshake", raw(apiPort, "\x16\x03\x01", holdTime)},
	{"API: garbage", raw(apiPort, strings.Repeat("\x00\xff", 1<<10), 0)},
	{"API: many connections", manyConnections},
	{"API: many watches", manyWatches},
	{"API: slow body", slowBody},
	{"API: flood on a connection", flood},
}

// Names are the names of all attacks.
func Names() []string {
	var names []string
	for _, attack := range attacks {
		names = append(names, attack.name)
	}
	return names
}

// Result is the result of the attacks.
type Result struct {
	Tries map[string]int // by name
	In    []error        // successful attacks
}

// Run makes the attacks in turns, at a rate of tries a second, until ctx ends. It returns when all
// tries have ended.
func (c *Cluster) Run(ctx context.Context, perSecond int) Result {
	result := Result{Tries: map[string]int{}}
	var mu sync.Mutex
	var tries sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	pace := time.NewTicker(time.Second / time.Duration(perSecond))
	defer pace.Stop()
	for n := 0; ; n++ {
		select {
		case <-pace.C:
		case <-ctx.Done():
			tries.Wait()
			return result
		}
		select {
		case slots <- struct{}{}:
		default:
			continue
		}
		attack := attacks[n%len(attacks)]
		tries.Go(func() { // ends within tryTime
			defer func() { <-slots }()
			trying, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryTime)
			defer cancel()
			err := attack.try(trying, c, n/len(attacks))
			mu.Lock()
			defer mu.Unlock()
			result.Tries[attack.name]++
			if err != nil {
				result.In = append(result.In, fmt.Errorf("%s: %w", attack.name, err))
			}
		})
	}
}

type port func(c *Cluster, n int) string

func raftPort(c *Cluster, n int) string { return c.node(n).Raft }
func apiPort(c *Cluster, n int) string  { return c.node(n).API }

// dial connects for the time of a try.
func dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	end, _ := ctx.Deadline()
	return conn, conn.SetDeadline(end)
}

// member sends a member's hello to the raft port, with a certificate; empty: without one.
func member(certificate string, version uint16) func(context.Context, *Cluster, int) error {
	return func(ctx context.Context, c *Cluster, n int) error {
		config := &tls.Config{InsecureSkipVerify: true, MaxVersion: version}
		if certificate != "" {
			config.Certificates = []tls.Certificate{c.certificates[certificate]}
		}
		return c.greet(ctx, n, config)
	}
}

// Control sends the hello of a member with the right certificate. It is accepted, which proves that
// the other hellos are refused because of their certificates.
func (c *Cluster) Control(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	if member("right", 0)(ctx, c, 0) == nil {
		return errors.New("a member's greeting with the right certificate is not heard")
	}
	return nil
}

// greet sends the hello of a member. Any welcome, even a refusal, reveals the cluster.
func (c *Cluster) greet(ctx context.Context, n int, config *tls.Config) error {
	conn, err := dial(ctx, raftPort(c, n))
	if err != nil {
		return nil
	}
	defer conn.Close()
	if config != nil {
		conn = tls.Client(conn, config)
	}
	if welcome, err := transport.Greet(conn, transport.PurposeRaft, c.hello); err == nil {
		return errIn("%+v", welcome)
	}
	return nil
}

// raw sends bytes over the time slow, and reads the answer.
func raw(where port, said string, slow time.Duration) func(context.Context, *Cluster, int) error {
	return func(ctx context.Context, c *Cluster, n int) error {
		conn, err := dial(ctx, where(c, n))
		if err != nil {
			return nil
		}
		defer conn.Close()
		if slow == 0 {
			_, _ = io.WriteString(conn, said)
		} else {
			for i := range len(said) {
				_, _ = io.WriteString(conn, said[i:i+1])
				time.Sleep(slow / time.Duration(len(said)))
			}
			_ = conn.SetReadDeadline(time.Now())
		}
		answer, _ := io.ReadAll(io.LimitReader(conn, 64<<10))
		for _, node := range c.Nodes {
			if bytes.Contains(answer, []byte(node.Name)) {
				return errIn("it is told %q", answer)
			}
		}
		return nil
	}
}

// post posts a job with a token, after change has modified the request.
func post(token string, change func(n int, r *http.Request)) func(context.Context, *Cluster, int) error {
	return func(ctx context.Context, c *Cluster, n int) error {
		request, err := c.request(ctx, n, token, "BoardService/Post", fmt.Sprintf(`{"postings": [{"board": %q, "name": "attack", "kind": "none"}]}`, Board))
		if err != nil {
			return err
		}
		if change != nil {
			change(n, request)
		}
		transport := &http.Transport{TLSClientConfig: c.client.Clone(), ForceAttemptHTTP2: n%2 == 0}
		defer transport.CloseIdleConnections()
		answer, err := transport.RoundTrip(request)
		if err != nil {
			return nil // the connection was closed
		}
		defer answer.Body.Close()
		said, _ := io.ReadAll(answer.Body)
		if refused := bytes.Contains(said, []byte(`"not_allowed"`)); answer.StatusCode == http.StatusOK && !refused { // each posting has its own result
			return errIn("%s %s", answer.Status, said)
		}
		return nil
	}
}

func (c *Cluster) request(ctx context.Context, n int, token, call, body string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.node(n).API+wire.Prefix+call, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+c.tokens[token])
	}
	return request, nil
}

func setBody(r *http.Request, body io.Reader) {
	r.Body, r.ContentLength = io.NopCloser(body), -1
}

// vouch adds headers that claim that the call comes from a node, for a principal with all
// permissions.
func vouch(n int, r *http.Request) {
	for name, values := range map[string][]string{
		wire.HeaderPrincipal: {"node/node1", "local/0", "shop", "", "node/"},
		wire.HeaderHops:      {"1", "", "0", "-1", "1e9", "255"},
		wire.HeaderFrom:      {"socket", "127.0.0.1", "x\ty"},
		wire.HeaderToken:     {"", "00000000-0000-0000-0000-000000000000", "x"},
	} {
		r.Header.Set(name, values[n%len(values)])
	}
}

func setPath(n int, r *http.Request) {
	paths := []string{
		"/", "//conductord.v1.BoardService/Post", "/conductord.v1.BoardService/../BoardService/Post", "/%ff%1b[31m", "/conductord.v1.Board%53ervice/Post",
		"/debug/pprof/", "/conductord.v1.None/None", "/" + strings.Repeat("x", 8<<10), "/conductord.v1.BoardService/Post/", fmt.Sprint("/", n),
	}
	path, query := paths[n%len(paths)], ""
	r.URL.Opaque, r.URL.RawQuery = "//"+r.URL.Host+path, query
}

// bomb is 16 MiB of zeros, compressed.
var bomb = func() []byte {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = writer.Write(make([]byte, 16<<20))
	_ = writer.Close()
	return packed.Bytes()
}()

// manyConnections opens connections that send nothing.
func manyConnections(ctx context.Context, c *Cluster, n int) error {
	for range opened {
		if conn, err := dial(ctx, apiPort(c, n)); err == nil {
			defer conn.Close()
		}
	}
	time.Sleep(holdTime)
	return nil
}

// manyWatches opens permitted watches of the guest's board on one connection.
func manyWatches(ctx context.Context, c *Cluster, n int) error {
	ctx, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: c.client.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	var watches sync.WaitGroup
	defer watches.Wait()
	for range opened {
		request, err := c.request(ctx, n, "guest", "BoardService/Watch", fmt.Sprintf(`{"board": %q}`, guestBoard))
		if err != nil {
			return err
		}
		watches.Go(func() { // ends with ctx
			if answer, err := transport.RoundTrip(request); err == nil {
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
			}
		})
	}
	return nil
}

// secure makes a connection of HTTP 1.1 to the API.
func (c *Cluster) secure(ctx context.Context, n int) (*tls.Conn, error) {
	conn, err := dial(ctx, apiPort(c, n))
	if err != nil {
		return nil, err
	}
	config := c.client.Clone()
	config.ServerName = "127.0.0.1"
	return tls.Client(conn, config), nil
}

// slowBody sends a part of a body, byte by byte.
func slowBody(ctx context.Context, c *Cluster, n int) error {
	conn, err := c.secure(ctx, n)
	if err != nil {
		return nil
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "POST %sBoardService/Post HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: 100000\r\n\r\n", wire.Prefix, c.tokens["guest"])
	for range 10 {
		_, _ = io.WriteString(conn, "{")
		time.Sleep(holdTime / 10)
	}
	return nil
}

// flood sends many requests together on one connection.
func flood(ctx context.Context, c *Cluster, n int) error {
	conn, err := c.secure(ctx, n)
	if err != nil {
		return nil
	}
	defer conn.Close()
	request := fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", n, c.tokens["wrong"])
	_, _ = io.WriteString(conn, strings.Repeat(request, pipelined))
	answers := bufio.NewReader(conn)
	for range pipelined {
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			return nil
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		if answer.StatusCode == http.StatusOK {
			return errIn("%s", answer.Status)
		}
	}
	return nil
}
