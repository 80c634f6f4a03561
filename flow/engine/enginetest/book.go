package enginetest

import (
	"context"
	"sync"

	"github.com/conductord/conductord/logbook"
)

// book is a logbook that records its updates. Its process can "die" before a chosen update:
// from then on, every call fails.
type book struct {
	logbook.Connection
	outside *outside

	mu      sync.Mutex
	left    int // updates that are still written; negative: all
	dead    bool
	updates []logbook.Update
}

// Update writes one update after the other, so that a crash can come between two updates of one
// call.
func (b *book) Update(ctx context.Context, updates ...logbook.Update) ([]error, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	verdicts := make([]error, 0, len(updates))
	for _, update := range updates {
		if b.left == 0 {
			b.dead = true
		}
		if b.dead {
			return nil, errCrash
		}
		b.left--
		verdict, err := b.Connection.Update(ctx, update)
		if err != nil {
			return nil, err
		}
		if verdict[0] == nil {
			b.updates = append(b.updates, update)
			b.outside.follow(&update)
		}
		verdicts = append(verdicts, verdict...)
	}
	return verdicts, nil
}

// FlowDetail reads a flow, unless the process has crashed.
func (b *book) FlowDetail(ctx context.Context, id logbook.FlowID) (logbook.FlowDetail, error) {
	if b.crashed() {
		return logbook.FlowDetail{}, errCrash
	}
	return b.Connection.FlowDetail(ctx, id)
}

func (b *book) crashed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dead
}

// revive is the start of a new process, which does not crash.
func (b *book) revive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead, b.left = false, noCrash
}
