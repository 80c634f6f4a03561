package node_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/wire"
)

const postPath = "/conductord.v1.BoardService/Post"

// clientOf makes an HTTP client of one protocol, with small windows.
func clientOf(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 128 << 10}}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// overHTTP runs a test over each protocol of the port.
func overHTTP(t *testing.T, test func(t *testing.T, http2 bool)) {
	for _, http2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "HTTP 1.1", true: "HTTP 2"}[http2], func(t *testing.T) {
			t.Parallel()
			test(t, http2)
		})
	}
}

// halfBody is a body that sends a part, and then nothing until it is closed.
type halfBody struct {
	part io.Reader
	over chan struct{}
	once sync.Once
}

func (h *halfBody) Read(into []byte) (int, error) {
	if n, err := h.part.Read(into); err == nil {
		return n, nil
	}
	<-h.over
	return 0, io.ErrUnexpectedEOF
}

func (h *halfBody) Close() error {
	h.once.Do(func() { close(h.over) })
	return nil
}

// Half-sent bodies hold limited memory for a limited time, and other calls continue.
func TestHalfSentBodies(t *testing.T) {
	t.Parallel()
	overHTTP(t, func(t *testing.T, http2 bool) {
		const budget, part, senders = 1 << 20, 200 << 10, 32
		c := newCluster(t, 1).startAll()
		node.Tune(c.nodes[0], func(b *admission.Bounds) { b.BodyBytes = budget })
		node.Tune(c.nodes[0], func(b *admission.Bounds) { b.Patience = time.Second })
		var answered sync.WaitGroup
		for range senders {
			client := clientOf(t, http2)
			body := &halfBody{part: io.LimitReader(zeros{}, part), over: make(chan struct{})}
			defer func() { _ = body.Close() }()
			request, err := http.NewRequest(http.MethodPost, "http://"+c.endpoints()[0]+postPath, body)
			if err != nil {
				t.Fatal(err)
			}
			request.ContentLength = part + 1
			request.Header.Set("Content-Type", "application/json")
			answered.Go(func() {
				answer, err := client.Do(request)
				if err != nil {
					return // the connection was closed
				}
				defer func() { _ = answer.Body.Close() }()
				said, _ := io.ReadAll(answer.Body)
				if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" || !bytes.Contains(said, []byte("overloaded")) {
					t.Errorf("half a body is answered with %d %v %s", answer.StatusCode, answer.Header, said)
				}
			})
		}
		all := make(chan struct{})
		go func() { answered.Wait(); close(all) }()
		most, deadline, client := int64(0), time.After(patience), c.client()
		for over := false; !over; {
			select {
			case <-all:
				over = true
			case <-deadline:
				t.Fatal("half-sent bodies are held without end")
			default:
				held := node.Held(c.nodes[0]).Bytes
				most = max(most, held)
				if _, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "good", Kind: "none"}); err != nil {
					t.Fatalf("another client's posting: %v", err)
				}
			}
		}
		if most < part || most > budget {
			t.Errorf("half-sent bodies held %d bytes, and the limit is %d", most, budget)
		}
		eventually(t, "nothing is held", func() bool { held := node.Held(c.nodes[0]); return held.Waiting == 0 && held.Bytes == 0 })
	})
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) { clear(into); return len(into), nil }

// large posts a job whose answer is large.
func large(t *testing.T, c *cluster) jobs.Job {
	t.Helper()
	job, err := jobs.PostOne(t.Context(), c.client(), jobs.Posting{
		Name: "large", Kind: "none", Details: json.RawMessage(`"` + strings.Repeat("x", 250<<10) + `"`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// Answers that no client reads hold memory for a limited time.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	overHTTP(t, func(t *testing.T, http2 bool) {
		c := newCluster(t, 1).startAll()
		node.Tune(c.nodes[0], func(b *admission.Bounds) { b.Patience = time.Second })
		job := large(t, c)
		path, body := "/conductord.v1.BoardService/GetJob", fmt.Sprintf(`{"id":%q}`, job.ID)
		var broken func() bool
		if http2 {
			answer, err := clientOf(t, true).Post("http://"+c.endpoints()[0]+path, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = answer.Body.Close() }()
			broken = func() bool { _, err := io.Copy(io.Discard, answer.Body); return err != nil }
		} else {
			others := node.Held(c.nodes[0]).Connections
			conn, err := net.Dial("tcp", c.endpoints()[0])
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			call := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
			go func() { _, _ = io.WriteString(conn, strings.Repeat(call, 100)) }() // ends with the connection
			broken = func() bool {
				// A pause between two answers also shows no waiting: wait for the end of the
				// connection.
				eventually(t, "its connection is closed", func() bool { return node.Held(c.nodes[0]).Connections <= others })
				n, _ := io.Copy(io.Discard, conn)
				return n < 100*250<<10
			}
		}
		eventually(t, "an answer waits to be read", func() bool { held := node.Held(c.nodes[0]); return held.Waiting == 1 && held.Bytes > 250<<10 })
		eventually(t, "the node has ended the call", func() bool { held := node.Held(c.nodes[0]); return held.Waiting == 0 && held.Bytes == 0 })
		if !broken() {
			t.Error("the answer came after all")
		}
	})
}

// A client that reads slowly gets its answers, and a connection serves one call after another.
func TestPatienceIsForEachCall(t *testing.T) {
	overHTTP(t, func(t *testing.T, http2 bool) {
		c := newCluster(t, 1).startAll()
		node.Tune(c.nodes[0], func(b *admission.Bounds) { b.Patience = 200 * time.Millisecond })
		client, id := clientOf(t, http2), large(t, c).ID
		for range 3 {
			// A long poll takes longer than the patience, and is not interrupted.
			body := fmt.Sprintf(`{"id":%q,"timeout":"0.5s"}`, id)
			answer, err := client.Post("http://"+c.endpoints()[0]+"/conductord.v1.BoardService/WaitJob", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			said, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusOK || len(said) < 250<<10 {
				t.Fatalf("a long poll is answered with %d and %d bytes: %v", answer.StatusCode, len(said), err)
			}
		}
	})
}

// A compressed request is refused by its header. The node does not wait for its body, so a
// decompression bomb has no effect.
func TestCompressedRequests(t *testing.T) {
	t.Parallel()
	overHTTP(t, func(t *testing.T, http2 bool) {
		c := newCluster(t, 1).startAll()
		for _, row := range []struct{ path, media, header, want string }{
			{postPath, "application/json", "Content-Encoding", "unimplemented"},
			{postPath, "application/grpc", "Grpc-Encoding", "12"},
			{"/conductord.v1.BoardService/Watch", "application/json", "Content-Encoding", "unimplemented"},
			{"/conductord.v1.BoardService/Watch", "application/connect+json", "Connect-Content-Encoding", "unimplemented"},
			{"/conductord.v1.StreamService/Carry", "application/connect+proto", "Connect-Content-Encoding", "unimplemented"},
		} {
			bomb := &halfBody{part: strings.NewReader(""), over: make(chan struct{})}
			defer func() { _ = bomb.Close() }()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.endpoints()[0]+row.path, bomb)
			if err != nil {
				t.Fatal(err)
			}
			request.ContentLength = wire.MaxMessage
			request.Header.Set("Content-Type", row.media)
			request.Header.Set(row.header, "gzip")
			answer, err := clientOf(t, http2).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			said, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			all := fmt.Sprint(answer.Header, answer.Trailer, string(said))
			if !strings.Contains(all, row.want) || !strings.Contains(all, "identity") {
				t.Errorf("a compressed %s to %s is answered with %d %s", row.media, row.path, answer.StatusCode, all)
			}
			if row.media == "application/json" && answer.StatusCode != http.StatusNotImplemented {
				t.Errorf("a compressed %s has status %d", row.media, answer.StatusCode)
			}
		}
		if held := node.Held(c.nodes[0]).Bytes; held != 0 {
			t.Errorf("refused bodies hold %d bytes", held)
		}
	})
}

// A body over the limit is refused by its header. A body without a length is refused when it
// exceeds the limit.
func TestTooLargeBodies(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	for _, row := range []struct{ name, header, part string }{
		{"by its length", "Content-Length: 999999999999", ""},
		{"without a length", "Transfer-Encoding: chunked", "100000\r\n" + strings.Repeat(" ", 1<<20) + "\r\n"},
	} {
		conn, err := net.Dial("tcp", c.endpoints()[0])
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(patience))
		go func() { // ends with the connection
			_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n\r\n", postPath, row.header)
			for err == nil && row.part != "" {
				_, err = io.WriteString(conn, row.part)
			}
		}()
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		if said, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusTooManyRequests || !answer.Close {
			t.Errorf("%s: it is answered with %d %s", row.name, answer.StatusCode, said)
		}
		_ = answer.Body.Close()
	}
}

// A web page cannot call the API, even under its own site's name.
func TestWebPagesAreRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	for origin, want := range map[string]int{"": http.StatusOK, "http://evil.example": http.StatusForbidden, "null": http.StatusForbidden} {
		request, err := http.NewRequest(http.MethodPost, "http://"+c.endpoints()[0]+postPath, strings.NewReader(`{"postings":[{"name":"j","kind":"none"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "evil.example"
		request.Header.Set("Content-Type", "application/json")
		if origin != "" {
			request.Header.Set("Origin", origin)
		}
		answer, err := clientOf(t, false).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != want || (want == http.StatusForbidden && !bytes.Contains(said, []byte("permission_denied"))) {
			t.Errorf("a call from origin %q is answered with %d %s", origin, answer.StatusCode, said)
		}
	}
}

// A node does not wait without limit for a body that no handler reads.
func TestBodyThatNobodyReads(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	node.Tune(c.nodes[0], func(b *admission.Bounds) { b.Patience = 100 * time.Millisecond })
	conn, err := net.Dial("tcp", c.endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, "POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf of"); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(conn); err != nil {
		t.Errorf("the connection stays open after %q: %v", said, err)
	}
}

// Connections are limited: idle ones are closed for new ones, and active ones continue.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	overHTTP(t, func(t *testing.T, http2 bool) {
		const limit = 20
		c := newCluster(t, 1).startAll()
		node.Tune(c.nodes[0], func(b *admission.Bounds) { b.Callers = limit })
		job := large(t, c)
		polled := make(chan error, 1)
		go func() { // ends with the job
			body := fmt.Sprintf(`{"id":%q,"timeout":"60s"}`, job.ID)
			answer, err := clientOf(t, http2).Post("http://"+c.endpoints()[0]+"/conductord.v1.BoardService/WaitJob", "application/json", strings.NewReader(body))
			if err == nil {
				_, err = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
			}
			polled <- err
		}()
		eventually(t, "a call waits", func() bool { return node.Finishes(c.nodes[0]) == 1 })
		for range 5 * limit {
			conn, err := net.Dial("tcp", c.endpoints()[0])
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
		}
		answer, err := clientOf(t, http2).Get("http://" + c.endpoints()[0] + "/healthz")
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("a new client gets %v, %v", answer, err)
		}
		_ = answer.Body.Close()
		if open := node.Held(c.nodes[0]).Connections; open > limit {
			t.Errorf("%d connections are open, and the limit is %d", open, limit)
		}
		if err := c.client().Cancel(t.Context(), jobs.JobCommand{Job: job.ID}); err != nil {
			t.Fatal(err)
		}
		if err := <-polled; err != nil {
			t.Errorf("the call that waited: %v", err)
		}
	})
}

// Limits of the port that clients can reach.
const (
	pressedPatience   = 3 * time.Second
	strangerBodies    = 8
	meterSpan         = 50 * time.Millisecond
	maxClientSessions = 1_000
	maxStreams        = 1_000
	refusalLines      = 5 // logged in each refusalPeriod
	refusalPeriod     = 10 * time.Second
	maxRefusalText    = 256 // bytes
)
