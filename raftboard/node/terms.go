package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Questions for a node's current term travel on connections of their own to
// the raft port: a number that the asker has not used before, and the cluster's
// time or zero. They are answered by the same number, the term, the commit index
// and the wall clock. The answer is given after the question was heard, which is
// all that a read needs to know (see reads.go). The commit index is for a node
// that catches up (see catchup.go), the times for the cluster's clock (see
// clockrounds.go), and one byte says whether the disk is short of space (see
// disk.go).
const (
	numberSize   = 8
	questionSize = 16
	answerSize   = 33
)

// standing is where a node stands: its term, what it knows to be committed, and
// what its clock shows.
type standing struct {
	term, commit uint64
	wall         int64 // Unix nanoseconds
	crowded      bool  // its disk is short of space
}

// answerTerms serves one connection until it ends.
func answerTerms(conn net.Conn, hear func(told int64), stand func() standing) {
	question := make([]byte, questionSize)
	answer := make([]byte, answerSize)
	for {
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		hear(int64(binary.BigEndian.Uint64(question[numberSize:])))
		now := stand()
		copy(answer, question[:numberSize])
		binary.BigEndian.PutUint64(answer[numberSize:], now.term)
		binary.BigEndian.PutUint64(answer[2*numberSize:], now.commit)
		binary.BigEndian.PutUint64(answer[3*numberSize:], uint64(now.wall))
		answer[4*numberSize] = 0
		if now.crowded {
			answer[4*numberSize] = 1
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// errOvertaken: a later question has taken the place of this one.
var errOvertaken = errors.New("a later question has taken the place of this one")

// termAsker asks one peer, over one connection that it makes when needed. One
// question is under way and one waits, however long the peer takes: a later
// question takes the place of the one that waits, for whoever asks again no
// longer needs the older answer.
type termAsker struct {
	address raft.ServerAddress
	dial    func(raft.ServerAddress, purpose, time.Duration) (net.Conn, error)
	timeout time.Duration
	told    func() int64 // the cluster's time that goes with a question, in Unix nanoseconds, or 0; nil: 0

	mu      sync.Mutex
	waiting *question      // nil: none; under mu
	asking  bool           // a goroutine carries out questions; under mu
	closed  bool           // under mu
	conn    net.Conn       // nil: none; written by the asking goroutine, under mu
	number  uint64         // of the last question; of the asking goroutine
	done    sync.WaitGroup // the asking goroutine
}

// question is answered exactly once. The answer must not block.
type question struct{ answer func(standing, error) }

// ask has the peer's standing told, at a moment after the call began.
func (t *termAsker) ask(answer func(standing, error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		answer(standing{}, net.ErrClosed)
		return
	}
	if t.waiting != nil {
		t.waiting.answer(standing{}, errOvertaken)
	}
	t.waiting = &question{answer}
	if !t.asking {
		t.asking = true
		t.done.Go(t.run) // ends when no question waits
	}
}

func (t *termAsker) run() {
	for {
		t.mu.Lock()
		current := t.waiting
		t.waiting = nil
		if current == nil {
			t.asking = false
			t.mu.Unlock()
			return
		}
		kept := t.conn != nil
		t.mu.Unlock()
		stands, err := t.try()
		var slow net.Error
		if err != nil && kept && !(errors.As(err, &slow) && slow.Timeout()) {
			// The peer may have restarted since the last question.
			stands, err = t.try()
		}
		current.answer(stands, err)
	}
}

// try asks once. A connection that has failed is not used again: an answer
// that comes late must not be taken for that of another question.
func (t *termAsker) try() (standing, error) {
	conn, err := t.connection()
	if err != nil {
		return standing{}, err
	}
	stands, err := t.exchange(conn)
	if err != nil {
		t.mu.Lock()
		t.conn = nil
		t.mu.Unlock()
		_ = conn.Close()
	}
	return stands, err
}

func (t *termAsker) connection() (net.Conn, error) {
	t.mu.Lock()
	conn, closed := t.conn, t.closed
	t.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	if conn != nil {
		return conn, nil
	}
	conn, err := t.dial(t.address, purposeTerms, t.timeout)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	t.conn = conn
	return conn, nil
}

func (t *termAsker) exchange(conn net.Conn) (standing, error) {
	t.number++
	var asked [questionSize]byte
	binary.BigEndian.PutUint64(asked[:], t.number)
	if t.told != nil {
		binary.BigEndian.PutUint64(asked[numberSize:], uint64(t.told()))
	}
	if err := conn.SetDeadline(time.Now().Add(t.timeout)); err != nil {
		return standing{}, err
	}
	if _, err := conn.Write(asked[:]); err != nil {
		return standing{}, err
	}
	var answer [answerSize]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return standing{}, err
	}
	if got := binary.BigEndian.Uint64(answer[:]); got != t.number {
		return standing{}, fmt.Errorf("the answer is to question %d, and not to %d", got, t.number)
	}
	return standing{
		term:    binary.BigEndian.Uint64(answer[numberSize:]),
		commit:  binary.BigEndian.Uint64(answer[2*numberSize:]),
		wall:    int64(binary.BigEndian.Uint64(answer[3*numberSize:])),
		crowded: answer[4*numberSize] == 1,
	}, nil
}

// close ends the question under way and waits for it. It may be called more
// than once.
func (t *termAsker) close() {
	t.mu.Lock()
	t.closed = true
	if t.conn != nil {
		_ = t.conn.Close()
	}
	t.mu.Unlock()
	t.done.Wait()
}

// termAskers ask one peer each.
type termAskers []*termAsker

func (t termAskers) close() {
	for _, peer := range t {
		peer.close()
	}
}
