package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// oneStream is a stream layer in memory, whose connections lead to itself.
type oneStream struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (s *oneStream) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	one, other := net.Pipe()
	s.accepted <- other
	return one, nil
}

func (s *oneStream) Accept() (net.Conn, error) {
	select {
	case conn := <-s.accepted:
		return conn, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *oneStream) Close() error   { close(s.closed); return nil }
func (s *oneStream) Addr() net.Addr { return &net.TCPAddr{} }

// TestPipelineThatNobodyReadsEnds checks that replication continues after a peer has refused
// an entry. raft then reads no more answers, but may still send. With raft's own pipeline the
// third call never returned, so the peer got no entries until another node led.
func TestPipelineThatNobodyReadsEnds(t *testing.T) {
	for _, row := range []struct {
		name    string
		closing bool
		within  time.Duration
	}{
		{"leading", false, time.Minute},
		{"closed", true, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stream := &oneStream{make(chan net.Conn, 9), make(chan struct{})}
				inner := raft.NewNetworkTransport(stream, 1, 10*time.Second, io.Discard)
				life, end := context.WithCancel(t.Context())
				defer end()
				pipeline, err := transport.NewPipeline(inner, life)
				if err != nil {
					t.Fatal(err)
				}
				over := make(chan struct{})
				go func() { // the peer
					for {
						select {
						case rpc := <-inner.Consumer():
							rpc.Respond(&raft.AppendEntriesResponse{}, nil)
						case <-over:
							return
						}
					}
				}()
				began, ended := time.Now(), make(chan error, 1)
				go func() {
					for {
						request := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("n1")}, Term: 1, PrevLogEntry: 1}
						if _, err := pipeline.AppendEntries(request, new(raft.AppendEntriesResponse)); err != nil {
							ended <- err
							return
						}
					}
				}()
				synctest.Wait()
				if row.closing {
					end()
				}
				select {
				case err := <-ended:
					if took := time.Since(began); !errors.Is(err, raft.ErrPipelineShutdown) || took > row.within {
						t.Errorf("after %v: %v", took, err)
					}
				case <-time.After(time.Hour):
					t.Error("it never ends")
				}
				_ = pipeline.Close()
				_ = inner.Close()
				close(over)
			})
		})
	}
}
