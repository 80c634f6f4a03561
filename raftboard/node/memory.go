package node

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

// The budget of memory, and what has a share of it.
const (
	defaultMemory = 512 << 20
	exchangeShare = 16 // one part in so many: the bodies that calls hold, and unread answers
	proposalShare = 8  // one part in so many: proposals that wait
	// A node is short of memory from three quarters of its budget on: the collector needs
	// room for garbage, and what is under way grows a little yet.
	shortOver, shortOf = 3, 4
	memoryLook         = 250 * time.Millisecond
)

// memoryBudget is what a node knows of its memory. The queues have their shares of the
// budget; this is the bound over all of them, for the sum of what many clients hold in
// streams, lists and watches. While memory is short, the node refuses new work and lists;
// keep-alives, claims and endings go on. Its methods may be called concurrently.
type memoryBudget struct {
	bytes  int64
	short  atomic.Bool
	logger hclog.Logger
}

// watch looks at the memory that is in use until ctx ends.
func (m *memoryBudget) watch(ctx context.Context) {
	for range every(ctx, memoryLook) {
		m.look(liveHeap)
	}
}

// look notes whether memory is short. live is what the latest collection has found in use;
// while memory is short, few things are made, so the next collection has to be asked for.
func (m *memoryBudget) look(live func() int64) {
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

// mayGrow returns an error while memory is short.
func (m *memoryBudget) mayGrow() error {
	if !m.short.Load() {
		return nil
	}
	return fmt.Errorf("%w: memory is short: the node uses most of its %d MiB (see memory)", jobs.ErrOverloaded, m.bytes>>20)
}
