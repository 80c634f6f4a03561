package node_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/raftboard/node"
)

// Strangers at the raft port cannot fill the disk with log lines.
func TestRefusalsAreLoggedAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := hclog.New(&hclog.LoggerOptions{Output: &log})
		warn := node.NewRefusalLog(logger)
		const attempts, periods = 10_000, 3
		stranger := errors.New("node " + strings.Repeat("\n", 4_000))
		for range periods {
			for range attempts {
				warn("10.0.0.9:4711", stranger)
			}
			time.Sleep(node.RefusalPeriod)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "[WARN]")[1:]
		if len(lines) != periods*node.RefusalLines || log.Len() > len(lines)*8*node.MaxRefusalText {
			t.Errorf("%d refusals make %d lines of %d bytes", periods*attempts, len(lines), log.Len())
		}
		if last := lines[(periods-1)*node.RefusalLines]; !strings.Contains(last, "omitted=9995") {
			t.Errorf("the first line of a period says %.200q, and not how many were omitted", last)
		}
	})
}

// So it is at the port itself.
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
	most := node.RefusalLines * (2 + int(time.Since(began)/node.RefusalPeriod))
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
