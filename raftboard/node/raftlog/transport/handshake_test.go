package transport_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// Invalid bytes on the raft port are refused, and the node continues.
func TestHandshakeSurvivesGarbage(t *testing.T) {
	t.Parallel()
	magic := transport.HandshakeMagic + string(transport.PurposeRaft)
	for _, row := range []struct{ name, bytes, reason string }{
		{"nothing", "", "no handshake"},
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", "not a conductord node"},
		{"zeros", strings.Repeat("\x00", 100), "not a conductord node"},
		{"half a magic", "CD", "no handshake"},
		{"no length", magic, "bad handshake"},
		{"a huge length", magic + "\xff\xff" + strings.Repeat("x", 70_000), "the limit is 16384"},
		{"one byte over the limit", magic + "\x40\x01" + strings.Repeat("x", 20_000), "the limit is 16384"},
		{"half a hello", magic + "\x00\x10{", "bad handshake"},
		{"no JSON", magic + "\x00\x04oops", "not from a conductord node"},
		{"null", magic + "\x00\x04null", "belongs to cluster"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if err := transport.AnswerHandshake(&script{Reader: bytes.NewReader([]byte(row.bytes))}); err == nil || !strings.Contains(err.Error(), row.reason) {
				t.Errorf("got %v, want %q", err, row.reason)
			}
		})
	}
}

// script is a connection that sends fixed bytes and ignores the answer.
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
	f.Add([]byte(transport.HandshakeMagic + "R\x00\x02{}"))
	f.Add([]byte(transport.HandshakeMagic + "T\xff\xff"))
	f.Add([]byte(`CDR1R` + "\x00\x53" + `{"cluster":"test","generation":1,"name":"n2","instance":"00000000-0000-0000-0000-00"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		// There are no members here, so every caller must be refused.
		if err := transport.AnswerHandshake(&script{Reader: bytes.NewReader(data)}); err == nil {
			t.Errorf("%q passed", data)
		}
		if _, err := transport.ReadHello(bytes.NewReader(data)); err == nil && (len(data) < 2 || int(binary.BigEndian.Uint16(data)) > transport.MaxHandshake) {
			t.Errorf("%q is a hello", data)
		}
	})
}

// A peer that hangs costs one question in flight and one that waits, for any number of rounds.
// Every question is answered.
func TestAskerIsBounded(t *testing.T) {
	here, there := net.Pipe()
	release := make(chan struct{})
	var served sync.WaitGroup
	served.Go(func() {
		transport.AnswerQuestions(there, func(int64) {}, func() transport.Standing { <-release; return transport.Standing{Term: 7, Commit: 42} })
	})
	asker := &transport.Asker{Timeout: patience, Dial: func() (net.Conn, error) { return here, nil }}
	const questions = 1_000
	answers := make(chan error, questions)
	for range questions {
		asker.Ask(func(stands transport.Standing, err error) {
			if err == nil && (stands.Term != 7 || stands.Commit != 42) {
				t.Errorf("told of term %d and commit index %d", stands.Term, stands.Commit)
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
		case !errors.Is(err, transport.ErrOvertaken):
			t.Error(err)
		}
	}
	if told == 0 || told > 2 {
		t.Errorf("%d questions reached the peer, want the first and the last", told)
	}
	asker.Close()
	asker.Ask(func(_ transport.Standing, err error) {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
	_ = there.Close()
	served.Wait()
}

// A node that stops because of the other node's member list answers first, so that the other node
// also learns the reason.
func TestDisagreementIsAnsweredFirst(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	answered := make(chan struct{})
	var served sync.WaitGroup
	served.Go(func() {
		refusal := transport.AnswerHandshakeOf(there, transport.Roster{"n1": "n1.1@a:1,a:2"}, func() {
			select {
			case <-answered:
			case <-time.After(10 * time.Second): // if the test fails
				t.Error("a node stops before it has answered")
			}
		})
		if refusal == nil || !strings.Contains(refusal.Error(), "list different members") {
			t.Errorf("the other node was refused with %v", refusal)
		}
	})
	if err := here.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	reply, err := transport.Greet(here, transport.PurposeStanding, transport.Hello{Cluster: "test", Generation: 1, Name: "n2", Members: transport.Roster{"n2": "n2.1@b:1,b:2"}})
	if err != nil || !strings.Contains(reply.Refusal, "list different members") {
		t.Errorf("answered was %q, %v", reply.Refusal, err)
	}
	close(answered)
	served.Wait()
}
