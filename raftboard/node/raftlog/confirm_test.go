package raftlog_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/raftlog"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// A leader that loses and regains the leadership while a round starts does not answer at the index
// of its earlier term.
func TestReadRoundAcrossTwoTerms(t *testing.T) {
	term := uint64(5)
	commit := func() uint64 {
		term = 7  // loses and regains the leadership here
		return 10 // the leader of term 6 has acknowledged entry 11
	}
	peer := &transport.Asker{Timeout: time.Minute, Dial: func() (net.Conn, error) {
		here, there := net.Pipe()
		go transport.AnswerQuestions(there, func(int64) {}, func() transport.Standing { return transport.Standing{Term: 7} }) // ends with the connection
		return here, nil
	}}
	defer peer.Close()
	voters := func() ([]*transport.Asker, int) { return []*transport.Asker{peer, peer}, 2 }
	if index, err := raftlog.ConfirmAmong(func() uint64 { return term }, commit, voters); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("the read is answered at index %d of term 5, by a leader of term 7: %v", index, err)
	}
}
