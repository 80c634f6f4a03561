package cluster_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/conductord/conductord/test/cluster"
)

// badClients are the bytes that each kind sends on a connection, which it then leaves open. Tests
// with real processes cover clients that cost memory and processor time.
var badClients = map[string]func() []byte{
	"silent":          func() []byte { return nil },
	"noise":           noise,
	"half a greeting": func() []byte { return append([]byte("CDR1R\x00\xff"), noise()[:20]...) },
	"half a request": func() []byte {
		return fmt.Appendf(nil, "POST /conductord.v1.BoardService/Post HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n%s", noise())
	},
}

func noise() []byte {
	said := make([]byte, 2<<10)
	for i := range said {
		said[i] = byte(rand.Uint32())
	}
	return said
}

func (c *nodes) BadClientKinds() []string {
	return []string{"silent", "noise", "half a greeting", "half a request"}
}

// BadClient calls both ports of a node over several connections in parallel, and reopens those that
// the node has closed.
func (c *nodes) BadClient(ctx context.Context, i int, kind string) {
	var all sync.WaitGroup
	const atOnce = 5
	for n := range 2 * atOnce {
		where := c.members[i].API
		if n < atOnce {
			where = c.members[i].Raft
		}
		all.Go(func() {
			for ctx.Err() == nil {
				c.talk(ctx, i, where, badClients[kind]())
			}
		})
	}
	all.Wait()
}

func (c *nodes) talk(ctx context.Context, i int, where string, said []byte) {
	if conn, err := c.network.dial(ctx, cluster.Outside, i, where); err == nil {
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		_, _ = conn.Write(said)
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}
