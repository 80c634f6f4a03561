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
	// A node is short of memory above three quarters of its budget. The rest is for garbage, and
	// for calls under way that still grow.
	shortOver, shortOf = 3, 4
	memoryLook         = 250 * time.Millisecond
)

// Memory compares the node's live memory with its budget. Each queue has its own share of the
// budget. Memory limits their sum, and the data that many clients together hold in streams, lists
// and watches. While memory is short, the node refuses new work and lists; keep-alives, claims and
// endings continue. Its methods may be called concurrently.
type Memory struct {
	bytes  int64
	short  atomic.Bool
	logger hclog.Logger
}

// NewMemory makes a Memory with a budget in bytes.
func NewMemory(bytes int64, logger hclog.Logger) *Memory {
	return &Memory{bytes: bytes, logger: logger}
}

// Short reports whether memory is short.
func (m *Memory) Short() bool { return m.short.Load() }

// Watch measures the memory in use until ctx ends.
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

// look records whether memory is short. live returns the live memory of the latest garbage
// collection. While memory is short, the node allocates little and Go rarely collects, so look
// starts a collection.
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
	return fmt.Errorf("%w: the node uses most of its memory, %d MiB (see the setting memory); try again, or call another node", jobs.ErrOverloaded, m.bytes>>20)
}
