package attack

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// reopenPause is the pause before a closed silent connection is reopened.
const reopenPause = 2 * time.Millisecond

// Silence holds silent connections to each raft port, and reopens them when a node closes them,
// until the returned function is called.
func (c *Cluster) Silence(perPort int) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var held sync.WaitGroup
	for n := range c.Nodes {
		for range perPort {
			held.Go(func() { // ends with ctx
				for ctx.Err() == nil {
					if conn, err := new(net.Dialer).DialContext(ctx, "tcp", raftPort(c, n)); err == nil {
						stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
						_, _ = io.Copy(io.Discard, conn)
						stop()
						_ = conn.Close()
					}
					time.Sleep(reopenPause)
				}
			})
		}
	}
	return func() { cancel(); held.Wait() }
}
