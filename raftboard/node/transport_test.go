package node_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/raftboard/node"
)

// Whoever is not one of ours gets a reason and nothing else.
func TestHandshakeRefuses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	ours := node.HelloOf(c.nodes[1])
	for _, row := range []struct {
		name   string
		change func(*node.Hello)
		reason string // empty: welcome
	}{
		{"a member", func(*node.Hello) {}, ""},
		{"another cluster", func(h *node.Hello) { h.Cluster = "other" }, `belongs to cluster "other"`},
		{"another generation", func(h *node.Hello) { h.Generation = 2 }, "generation 2"},
		{"a stranger", func(h *node.Hello) { h.Name = "n9" }, "not a member"},
		{"a member without its past", func(h *node.Hello) { h.Instance = uuid.New() }, "lost its disk"},
		{"a namesake", func(h *node.Hello) { h.Name = "n1" }, `another node is named "n1"`},
		{"nobody", func(h *node.Hello) { *h = node.Hello{} }, "cluster"},
	} {
		t.Run(row.name, func(t *testing.T) {
			conn := dialRaft(t, c.options[0].Members[0].Raft)
			from := ours
			row.change(&from)
			name, refusal, err := node.Greet(conn, node.PurposeProbe, from)
			if err != nil || name != "n1" || (refusal == "") != (row.reason == "") || !strings.Contains(refusal, row.reason) {
				t.Errorf("%q says %q, %v; want %q", name, refusal, err, row.reason)
			}
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("the connection goes on")
			}
		})
	}
}

func dialRaft(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// More silent connections than there are slots are dropped, the node goes on
// with those it has, and its end waits for none of them.
func TestHandshakesAreBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	var held []net.Conn
	for range node.MaxHandshaking {
		held = append(held, dialRaft(t, c.options[0].Members[0].Raft))
	}
	eventually(t, "one more is dropped", func() bool {
		conn := dialRaft(t, c.options[0].Members[0].Raft)
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := conn.Read(make([]byte, 1))
		var slow net.Error
		return err != nil && !(errors.As(err, &slow) && slow.Timeout())
	})
	for _, conn := range held[1:] {
		_ = conn.Close()
	}
	eventually(t, "a node of ours is heard again", func() bool {
		_, refusal, err := node.Greet(dialRaft(t, c.options[0].Members[0].Raft), node.PurposeProbe, node.HelloOf(c.nodes[0]))
		return err == nil && refusal == ""
	})
	// A handshake has five seconds. A busy machine may need as many for the end
	// of a node, but not each time.
	took := time.Hour
	for tries := 0; tries < 3 && took > 4*time.Second; tries++ {
		if tries > 0 {
			c.startAll()
		}
		dialRaft(t, c.options[0].Members[0].Raft)
		began := time.Now()
		c.stop(0)
		took = time.Since(began)
	}
	if took > 4*time.Second {
		t.Errorf("the end waited %v for a connection that said nothing", took)
	}
}

// Garbage on the raft port is refused, and the node goes on.
func TestHandshakeSurvivesGarbage(t *testing.T) {
	t.Parallel()
	magic := node.HandshakeMagic + string(node.PurposeRaft)
	for _, row := range []struct{ name, bytes, reason string }{
		{"nothing", "", "no handshake"},
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", "not a conductord node"},
		{"zeros", strings.Repeat("\x00", 100), "not a conductord node"},
		{"half a magic", "CD", "no handshake"},
		{"no length", magic, "bad handshake"},
		{"a huge length", magic + "\xff\xff" + strings.Repeat("x", 70_000), "over the limit"},
		{"one byte over the limit", magic + "\x40\x01" + strings.Repeat("x", 20_000), "over the limit"},
		{"half a hello", magic + "\x00\x10{", "bad handshake"},
		{"no JSON", magic + "\x00\x04oops", "not what a node says"},
		{"null", magic + "\x00\x04null", "belongs to cluster"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if err := node.AnswerHandshake(&script{Reader: bytes.NewReader([]byte(row.bytes))}); err == nil || !strings.Contains(err.Error(), row.reason) {
				t.Errorf("got %v, want %q", err, row.reason)
			}
		})
	}
}

// script is a connection that says something and listens to nothing.
type script struct {
	net.Conn
	*bytes.Reader
}

func (s *script) Read(into []byte) (int, error)    { return s.Reader.Read(into) }
func (s *script) Write(from []byte) (int, error)   { return len(from), nil }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) Close() error                     { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

func FuzzHandshake(f *testing.F) {
	f.Add([]byte(node.HandshakeMagic + "R\x00\x02{}"))
	f.Add([]byte(node.HandshakeMagic + "T\xff\xff"))
	f.Add([]byte(`CDR1R` + "\x00\x53" + `{"cluster":"test","generation":1,"name":"n2","instance":"00000000-0000-0000-0000-00"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		// Nobody is a member here, so that nothing may pass.
		if err := node.AnswerHandshake(&script{Reader: bytes.NewReader(data)}); err == nil {
			t.Errorf("%q passed", data)
		}
		if _, err := node.ReadHello(bytes.NewReader(data)); err == nil && (len(data) < 2 || int(binary.BigEndian.Uint16(data)) > node.MaxHandshake) {
			t.Errorf("%q is a hello", data)
		}
	})
}

// A peer that hangs costs one question under way and one that waits, however
// many rounds go by; and every question is answered.
func TestAskerIsBounded(t *testing.T) {
	here, there := net.Pipe()
	release := make(chan struct{})
	var served sync.WaitGroup
	served.Go(func() {
		node.AnswerTerms(there, func() (uint64, uint64) { <-release; return 7, 42 })
	})
	asker := node.NewAsker(patience, func() (net.Conn, error) { return here, nil })
	const questions = 1_000
	answers := make(chan error, questions)
	for range questions {
		asker.Ask(func(term, commit uint64, err error) {
			if err == nil && (term != 7 || commit != 42) {
				t.Errorf("told of term %d and commit index %d", term, commit)
			}
			answers <- err
		})
	}
	close(release)
	told := 0
	for range questions {
		switch err := <-answers; {
		case err == nil:
			told++
		case !errors.Is(err, node.ErrOvertaken):
			t.Error(err)
		}
	}
	if told == 0 || told > 2 {
		t.Errorf("%d questions reached the peer, want the first and the last", told)
	}
	asker.Close()
	asker.Ask(func(_, _ uint64, err error) {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
	_ = there.Close()
	served.Wait()
}
