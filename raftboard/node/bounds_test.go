package node_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/admission"
)

// A connection that exceeds its rate is slowed, and none of its calls fails. Others are not slowed.
func TestRequestsOfAConnectionArePaced(t *testing.T) {
	t.Parallel()
	overHTTP(t, func(t *testing.T, http2 bool) {
		const rate, extra = 100, 50
		c := newCluster(t, 1).startAll()
		node.Tune(c.nodes[0], func(b *admission.Bounds) { b.Rate = rate })
		ask := func(client *http.Client) {
			answer, err := client.Get("http://" + c.endpoints()[0] + "/healthz")
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
				t.Errorf("%s, %v", answer.Status, err)
			}
			_ = answer.Body.Close()
		}
		flooding := clientOf(t, http2)
		flooding.Transport.(*http.Transport).MaxConnsPerHost = 1
		began := time.Now()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				for range (rate + extra) / 10 {
					ask(flooding)
				}
			})
		}
		callers.Wait()
		if took, least := time.Since(began), extra*time.Second/rate; took < least {
			t.Errorf("%d requests took %s, and at %d a second they take %s", rate+extra, took, rate, least)
		}
		began = time.Now()
		ask(clientOf(t, http2))
		if took := time.Since(began); took > time.Second {
			t.Errorf("another connection waits for %s", took)
		}
	})
}

// Both protocols refuse headers that are too large, and accept headers of ordinary size.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	overHTTP(t, func(t *testing.T, http2 bool) {
		c := newCluster(t, 1).startAll()
		client := clientOf(t, http2)
		for size, want := range map[int]int{8 << 10: http.StatusOK, 64 << 10: http.StatusRequestHeaderFieldsTooLarge} {
			request, err := http.NewRequest(http.MethodGet, "http://"+c.endpoints()[0]+"/healthz", nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("X-Large", strings.Repeat("x", size))
			answer, err := client.Do(request)
			if err != nil {
				if want == http.StatusOK {
					t.Error(err)
				}
				continue // the connection may end before the answer is read
			}
			if answer.StatusCode != want {
				t.Errorf("a header of %d bytes: %s", size, answer.Status)
			}
			_ = answer.Body.Close()
		}
	})
}

// A node announces the maximum number of parallel calls to HTTP/2 clients.
func TestCallsOfAConnectionAreBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	conn, err := net.Dial("tcp", c.endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 9)
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatal(err)
	}
	settings := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(conn, settings); err != nil || head[3] != 4 {
		t.Fatalf("the first frame is of type %d, %v", head[3], err)
	}
	const maxConcurrentStreams = 3
	for ; len(settings) >= 6; settings = settings[6:] {
		if value := binary.BigEndian.Uint32(settings[2:]); binary.BigEndian.Uint16(settings) == maxConcurrentStreams {
			if value != maxStreams {
				t.Errorf("%d calls at once", value)
			}
			return
		}
	}
	t.Error("the answer has no bound")
}

// An unfinished TLS handshake at the API port is ended.
func TestHalfOpenHandshakesAtTheAPIEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, withTLS(newAuthority(t))).startAll()
	conn, err := net.Dial("tcp", c.options[0].Members[0].API)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte{0x16, 0x03, 0x01}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("it continues after %s: %v", time.Since(began), err)
	}
}

// The number of metrics is constant for all calls of clients with or without permissions. A refusal
// stores no text of the caller.
func TestClientsAddNoMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	c := newTenants(t, 1, func(o *node.Options) { o.Metrics = registry })
	count := func() (series int) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			series += len(family.Metric)
		}
		return series
	}
	token, _ := c.token("ann", time.Time{})
	send := func(n int) {
		for _, shown := range []string{"", token, "cdt_\x80" + fmt.Sprint(n)} {
			for _, path := range []string{"BoardService/GetJob", "BoardService/None%d", "%%ff%%1b[31m/%d", strings.Repeat("x", 8<<10) + "%d"} {
				if strings.Contains(path, "%") {
					path = fmt.Sprintf(path, n)
				}
				c.call(0, shown, path, fmt.Sprintf(`{"id": "%d"}`, n), fmt.Sprintf("X-Made-%d", n), "up", "User-Agent", fmt.Sprint(n))
			}
		}
	}
	send(-1)
	before := count()
	for n := range 100 {
		send(n)
	}
	if after := count(); after != before {
		t.Errorf("%d metrics have become %d", before, after)
	}
	_, text := c.call(0, "", "AccessService/ListRefusals", `{}`)
	refusals, err := c.operator.Refusals(t.Context())
	if err != nil {
		t.Fatalf("%v, %s", err, text)
	}
	verbs := map[string]bool{}
	for _, refusal := range refusals {
		verbs[refusal.Verb] = true
		if len(refusal.Error) > 2*maxRefusalText || !clean(refusal.Verb+refusal.Error) {
			t.Errorf("%+v", refusal)
		}
	}
	if len(verbs) > 3 || !verbs["BoardService/GetJob"] || !verbs["other"] {
		t.Errorf("refusals of %v", verbs)
	}
}

// clean reports whether a terminal only shows a text.
func clean(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
