package local

import (
	"encoding/json"
	"io"
	"net"
	"sync"
)

// gates are proxies for the nodes' raft ports, so that a test can cut a node off from the
// others without privileges.
type gates struct {
	mu    sync.Mutex
	shut  map[string]bool        // nodes that are cut off
	joins map[net.Conn][2]string // connections, with the two nodes of each
}

// serve forwards connections to a node. It ends with the listener; a connection ends when one
// of its two sides ends.
func (g *gates) serve(listener net.Listener, node, inner string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go g.pass(conn, node, inner)
	}
}

func (g *gates) pass(conn net.Conn, node, inner string) {
	defer func() { _ = conn.Close() }()
	hello := make([]byte, 32<<10) // larger than any handshake
	n, err := conn.Read(hello)
	const head = 7 // of the handshake of raftboard/node: JSON with the dialer's name follows
	var from struct{ Name string }
	if err != nil || n < head || json.Unmarshal(hello[head:n], &from) != nil {
		return
	}
	to, err := net.Dial("tcp", inner)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	g.mu.Lock()
	shut := g.shut[from.Name] || g.shut[node]
	g.joins[conn] = [2]string{from.Name, node}
	g.mu.Unlock()
	if _, err = to.Write(hello[:n]); err == nil && !shut {
		go func() { _, _ = io.Copy(to, conn); _ = to.Close() }()
		_, _ = io.Copy(conn, to)
	}
	g.mu.Lock()
	delete(g.joins, conn)
	g.mu.Unlock()
}

// CutOff isolates a node from the others, or reconnects it. Clients can still reach the node.
// CutOff needs Options.Gates.
func (c *Cluster) CutOff(node string, off bool) {
	c.gates.mu.Lock()
	defer c.gates.mu.Unlock()
	c.gates.shut[node] = off
	for conn, joins := range c.gates.joins {
		if off && (joins[0] == node || joins[1] == node) {
			_ = conn.Close()
		}
	}
}
