package node

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Questions for a node's current term travel on connections of their own to
// the raft port: eight bytes of a number that the asker has not used before,
// answered by the same number and the term. The answer is given after the
// question was heard, which is all that a read needs to know (see reads.go).
const (
	questionSize = 8
	answerSize   = 16
)

// answerTerms serves one connection until it ends.
func answerTerms(conn net.Conn, term func() uint64) {
	question := make([]byte, questionSize)
	answer := make([]byte, answerSize)
	for {
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		copy(answer, question)
		binary.BigEndian.PutUint64(answer[questionSize:], term())
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// termAsker asks one peer, over one connection that it makes when needed.
type termAsker struct {
	address raft.ServerAddress
	dial    func(raft.ServerAddress, purpose, time.Duration) (net.Conn, error)
	timeout time.Duration

	mu     sync.Mutex // one question at a time
	conn   net.Conn   // nil: none; under mu
	number uint64     // of the last question; under mu
}

// ask returns the peer's term at a moment after the call began.
func (t *termAsker) ask() (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := t.conn == nil
	term, err := t.askLocked()
	if err != nil && !fresh {
		// The peer may have restarted since the last question.
		term, err = t.askLocked()
	}
	return term, err
}

func (t *termAsker) askLocked() (uint64, error) {
	if t.conn == nil {
		conn, err := t.dial(t.address, purposeTerms, t.timeout)
		if err != nil {
			return 0, err
		}
		t.conn = conn
	}
	term, err := t.exchange()
	if err != nil {
		t.dropLocked()
	}
	return term, err
}

func (t *termAsker) exchange() (uint64, error) {
	t.number++
	var question [questionSize]byte
	binary.BigEndian.PutUint64(question[:], t.number)
	if err := t.conn.SetDeadline(time.Now().Add(t.timeout)); err != nil {
		return 0, err
	}
	if _, err := t.conn.Write(question[:]); err != nil {
		return 0, err
	}
	var answer [answerSize]byte
	if _, err := io.ReadFull(t.conn, answer[:]); err != nil {
		return 0, err
	}
	if got := binary.BigEndian.Uint64(answer[:questionSize]); got != t.number {
		return 0, fmt.Errorf("the answer is to question %d, and not to %d", got, t.number)
	}
	return binary.BigEndian.Uint64(answer[questionSize:]), nil
}

func (t *termAsker) dropLocked() {
	if t.conn != nil {
		_ = t.conn.Close()
		t.conn = nil
	}
}

func (t *termAsker) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropLocked()
}
