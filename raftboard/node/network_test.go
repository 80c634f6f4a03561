package node_test

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
	"github.com/conductord/conductord/raftboard/wire"
)

// network connects the raft ports of a cluster. It learns from the handshake which node dials
// which, so that it can separate any two.
type network struct {
	mu    sync.Mutex
	cut   map[string]bool // isolated nodes
	conns map[net.Conn][2]string
	all   sync.WaitGroup
}

// newNetwork puts a network into a cluster before its start.
func newNetwork(c *cluster) *network {
	c.t.Helper()
	w := &network{cut: map[string]bool{}, conns: map[net.Conn][2]string{}}
	for i := range c.options {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			c.t.Fatal(err)
		}
		member := &c.options[0].Members[i] // all options share the members
		c.options[i].RaftListen, member.Raft = member.Raft, listener.Addr().String()
		to, name := c.options[i].RaftListen, member.Name
		w.all.Go(func() { // ends with the listener
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				w.all.Go(func() { w.carry(conn, to, name) })
			}
		})
		c.t.Cleanup(func() { _ = listener.Close() })
	}
	c.t.Cleanup(func() {
		w.isolate("n1", "n2", "n3")
		for i := range c.options {
			c.stop(i)
		}
	})
	return w
}

// carry forwards one connection until it is cut or ends.
func (w *network) carry(from net.Conn, address, to string) {
	defer func() { _ = from.Close() }()
	head := make([]byte, len(transport.HandshakeMagic)+3)
	if _, err := io.ReadFull(from, head); err != nil {
		return
	}
	body := make([]byte, binary.BigEndian.Uint16(head[len(head)-2:]))
	var hello transport.Hello
	if _, err := io.ReadFull(from, body); err != nil || json.Unmarshal(body, &hello) != nil {
		return
	}
	there, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = there.Close() }()
	ends := [2]string{hello.Name, to}
	if !w.keep(from, ends) || !w.keep(there, ends) {
		return
	}
	if _, err := there.Write(append(head, body...)); err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, there)
		_ = from.Close()
	})
	_, _ = io.Copy(there, from)
	_ = there.Close()
	back.Wait()
}

func (w *network) keep(conn net.Conn, ends [2]string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[conn] = ends
	return !w.cut[ends[0]] && !w.cut[ends[1]]
}

// isolate separates nodes from all others, and ends their connections.
func (w *network) isolate(names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		w.cut[name] = true
	}
	for conn, ends := range w.conns {
		if w.cut[ends[0]] || w.cut[ends[1]] {
			_ = conn.Close()
			delete(w.conns, conn)
		}
	}
}

func (w *network) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cut)
}

// calls are the generated clients of one node. They call no other node.
type calls struct {
	board    conductordv1connect.BoardServiceClient
	sessions conductordv1connect.SessionServiceClient
}

func (c *cluster) calls(i int) calls {
	transport := &http.Transport{}
	c.t.Cleanup(transport.CloseIdleConnections)
	client, base := &http.Client{Transport: transport}, "http://"+c.options[0].Members[i].API
	return calls{
		conductordv1connect.NewBoardServiceClient(client, base, wire.ClientOptions()...),
		conductordv1connect.NewSessionServiceClient(client, base, wire.ClientOptions()...),
	}
}

// others are the running nodes except one.
func (c *cluster) others(than int) []int {
	var others []int
	for i, running := range c.nodes {
		if i != than && running != nil {
			others = append(others, i)
		}
	}
	return others
}

// leaderAmong is the leading node of the given nodes.
func (c *cluster) leaderAmong(t *testing.T, which []int) int {
	t.Helper()
	leader := -1
	eventually(t, "one of the others leads", func() bool {
		for _, i := range which {
			if c.nodes[i].Leading() {
				leader = i
			}
		}
		return leader >= 0
	})
	return leader
}
