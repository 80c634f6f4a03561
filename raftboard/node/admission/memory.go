package admission

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/jobs"
)

const (
	// A node is short of memory from three quarters of its budget on: the collector needs
	// room for garbage, and what is under way grows a little yet.
	shortOver, shortOf = 3, 4
	memoryLook         = 250 * time.Millisecond
)

// Memory is what a node knows of its memory. The queues have their shares of the
// budget; this is the bound over all of them, for the sum of what many clients hold in
// streams, lists and watches. While memory is short, the node refuses new work and lists;
// keep-alives, claims and endings go on. Its methods may be called concurrently.
type Memory struct {
	bytes  int64
	short  atomic.Bool
	logger hclog.Logger
}

// NewMemory is for a budget of bytes.
func NewMemory(bytes int64, logger hclog.Logger) *Memory {
	return &Memory{bytes: bytes, logger: logger}
}

// Short reports whether memory is short.
func (m *Memory) Short() bool { return m.short.Load() }

// Watch looks at the memory that is in use until ctx ends.
func (m *Memory) Watch(ctx context.Context) {
	ticker := time.NewTicker(memoryLook)
	defer ticker.Stop()
	for ctx.Err() == nil {
		m.look(liveHeap)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// look notes whether memory is short. live is what the latest collection has found in use;
// while memory is short, few things are made, so the next collection has to be asked for.
func (m *Memory) look(live func() int64) {
	if m.short.Load() {
		runtime.GC()
	}
	used := live()
	if short := used > m.bytes/shortOf*shortOver; m.short.Swap(short) != short {
		m.logger.Warn("memory changed", "short", short, "used", used, "budget", m.bytes)
	}
}

func liveHeap() int64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64())
}

// MayGrow returns an error while memory is short.
func (m *Memory) MayGrow() error {
	if !m.short.Load() {
		return nil
	}
	return fmt.Errorf("%w: memory is short: the node uses most of its %d MiB (see memory)", jobs.ErrOverloaded, m.bytes>>20)
}
