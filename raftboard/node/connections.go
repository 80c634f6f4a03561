package node

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// maxConnections bounds the connections to the HTTP port. Each costs some tens
// of kilobytes; beyond it, an idle one makes room for a new one.
const maxConnections = 4_096

// connections are the connections to the HTTP port.
type connections struct {
	logger hclog.Logger
	log    refusalLog

	mu    sync.Mutex // over all below
	limit int
	idle  map[net.Conn]time.Time // since when; zero: a call is under way
}

// changed is called by net/http for each change of a connection's state. Beyond
// the limit it closes the connection that has been idle longest, or the new one
// if no other is idle.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		c.idle[conn] = time.Now()
	case http.StateActive:
		c.idle[conn] = time.Time{}
	default:
		delete(c.idle, conn)
	}
	if state != http.StateNew || len(c.idle) <= c.limit {
		return
	}
	oldest := conn
	for other, since := range c.idle {
		if !since.IsZero() && since.Before(c.idle[oldest]) {
			oldest = other
		}
	}
	_ = oldest.Close()
	delete(c.idle, oldest)
	c.log.warn(c.logger, "closed an idle connection to the HTTP port", oldest.RemoteAddr(), fmt.Errorf("%d connections are open, and the limit is %d", c.limit+1, c.limit))
}
