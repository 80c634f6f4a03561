package transport

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

// A question for a peer's Standing is a number that the asker has not used
// before, and the cluster's time or zero. The answer is the same number and the
// Standing, taken after the question arrived.
const (
	numberSize   = 8
	questionSize = 16
	answerSize   = 41
)

// Standing is the state of a node in raft, and its wall clock.
type Standing struct {
	Term    uint64
	Commit  uint64 // index; 0 unless the node serves as the leader
	Applied uint64 // index; 0 until the node has once caught up with a leader
	Wall    int64  // Unix nanoseconds
	Crowded bool   // its disk has too little free space
}

// AnswerQuestions serves one connection until it ends.
func AnswerQuestions(conn net.Conn, hear func(told int64), stand func() Standing) {
	question := make([]byte, questionSize)
	answer := make([]byte, answerSize)
	for {
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		hear(int64(binary.BigEndian.Uint64(question[numberSize:])))
		now := stand()
		copy(answer, question[:numberSize])
		binary.BigEndian.PutUint64(answer[numberSize:], now.Term)
		binary.BigEndian.PutUint64(answer[2*numberSize:], now.Commit)
		binary.BigEndian.PutUint64(answer[3*numberSize:], uint64(now.Wall))
		binary.BigEndian.PutUint64(answer[4*numberSize:], now.Applied)
		answer[5*numberSize] = 0
		if now.Crowded {
			answer[5*numberSize] = 1
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// ErrOvertaken is the answer to a question that a later one has replaced.
var ErrOvertaken = errors.New("a later request has replaced this request")

// Peer is another member, with its Asker.
type Peer struct {
	Member
	Voter bool
	*Asker
}

// Asker asks one peer for its Standing, over one connection that it opens when needed. For any
// delay of the peer, one question is in progress and one waits: a later question replaces the
// waiting one, because its answer is as good. Set the fields before the first question.
type Asker struct {
	Address raft.ServerAddress
	Dial    func() (net.Conn, error)
	Timeout time.Duration // of an answer
	Told    func() int64  // the cluster's time for each question, in Unix nanoseconds, or 0; nil: 0

	mu      sync.Mutex
	waiting func(Standing, error) // receives the answer to the next question; nil: none waits; guarded by mu
	asking  bool                  // a goroutine asks questions; guarded by mu
	closed  bool                  // guarded by mu
	conn    net.Conn              // nil: none; written by the asking goroutine, guarded by mu
	number  uint64                // number of the last question; used only by the asking goroutine
	done    sync.WaitGroup        // the asking goroutine
}

// Ask calls answer once, with the peer's Standing at a moment after this call. The answer must
// not block.
func (a *Asker) Ask(answer func(Standing, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		answer(Standing{}, net.ErrClosed)
		return
	}
	if a.waiting != nil {
		a.waiting(Standing{}, ErrOvertaken)
	}
	a.waiting = answer
	if !a.asking {
		a.asking = true
		a.done.Go(a.run) // ends when no question waits
	}
}

func (a *Asker) run() {
	for {
		a.mu.Lock()
		answer := a.waiting
		a.waiting = nil
		if answer == nil {
			a.asking = false
			a.mu.Unlock()
			return
		}
		kept := a.conn != nil
		a.mu.Unlock()
		stands, err := a.try()
		slow, _ := errors.AsType[net.Error](err)
		if err != nil && kept && !(slow != nil && slow.Timeout()) {
			// The peer may have restarted since the last question.
			stands, err = a.try()
		}
		answer(stands, err)
	}
}

// try asks once. After a failure it does not reuse the connection: a late answer must not be
// mistaken for the answer to another question.
func (a *Asker) try() (Standing, error) {
	conn, err := a.connection()
	if err != nil {
		return Standing{}, err
	}
	stands, err := a.exchange(conn)
	if err != nil {
		a.mu.Lock()
		a.conn = nil
		a.mu.Unlock()
		_ = conn.Close()
	}
	return stands, err
}

func (a *Asker) connection() (net.Conn, error) {
	a.mu.Lock()
	conn, closed := a.conn, a.closed
	a.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	if conn != nil {
		return conn, nil
	}
	conn, err := a.Dial()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	a.conn = conn
	return conn, nil
}

func (a *Asker) exchange(conn net.Conn) (Standing, error) {
	a.number++
	var asked [questionSize]byte
	binary.BigEndian.PutUint64(asked[:], a.number)
	if a.Told != nil {
		binary.BigEndian.PutUint64(asked[numberSize:], uint64(a.Told()))
	}
	if err := conn.SetDeadline(time.Now().Add(a.Timeout)); err != nil {
		return Standing{}, err
	}
	if _, err := conn.Write(asked[:]); err != nil {
		return Standing{}, err
	}
	var answer [answerSize]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return Standing{}, err
	}
	if got := binary.BigEndian.Uint64(answer[:]); got != a.number {
		return Standing{}, fmt.Errorf("the answer is for request %d, not for request %d", got, a.number)
	}
	return Standing{
		Term:    binary.BigEndian.Uint64(answer[numberSize:]),
		Commit:  binary.BigEndian.Uint64(answer[2*numberSize:]),
		Wall:    int64(binary.BigEndian.Uint64(answer[3*numberSize:])),
		Applied: binary.BigEndian.Uint64(answer[4*numberSize:]),
		Crowded: answer[5*numberSize] == 1,
	}, nil
}

// Close ends the question in progress and waits for it. It may be called more than once.
func (a *Asker) Close() {
	a.mu.Lock()
	a.closed = true
	if a.conn != nil {
		_ = a.conn.Close()
	}
	a.mu.Unlock()
	a.done.Wait()
}
