package node_test

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/raftboard/node"
)

// Unknown callers at the raft port cannot fill the disk with log lines.
func TestStrangersAtTheRaftPortDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	c := newCluster(t, 1, func(o *node.Options) {
		o.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: log})
	}).startAll()
	began := time.Now()
	for range 200 {
		conn := dialRaft(t, c.options[0].Members[0].Raft)
		if _, err := conn.Write([]byte("GET / HTTP/1.1")); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn) // until it is closed
		_ = conn.Close()
	}
	most := refusalLines * (2 + int(time.Since(began)/refusalPeriod))
	if lines := strings.Count(log.String(), "refused a connection"); lines == 0 || lines > most {
		t.Errorf("200 refused connections make %d lines, more than %d", lines, most)
	}
}

// lockedBuffer is a log that a test reads while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(data)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}
