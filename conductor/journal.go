package conductor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/logbook"
)

// Limits of a journal.
const (
	// maxWaiting is far more than an engine sends without waiting; only a bug reaches it.
	maxWaiting = 4096
	// journalCallTime limits one call, so that a lost answer is followed by a repeat while the
	// claim is still held.
	journalCallTime = 5 * time.Second
)

// errRunEnded is the answer to updates that wait when their run has ended.
var errRunEnded = errors.New("the run has ended")

// journal writes the updates of one run, in order. It implements engine.Journal. One call is in
// flight at a time; the next call takes all updates that wait when it returns. There is no timer:
// a lone update is sent at once. The connection batches the updates of several runs and limits
// the calls.
type journal struct {
	connection logbook.Connection
	logger     hclog.Logger
	ctx        context.Context // of the calls; ends when the claim is lost, or with close
	stop       context.CancelCauseFunc
	writing    sync.WaitGroup // of write

	mu      sync.Mutex
	waiting []pendingUpdate // without a result, in the order of their recording
	active  bool            // write runs
	refused error           // reason why no more updates of this run are written; nil: they are written
	idle    chan struct{}   // closed when no update waits; nil: flush does not wait for it
}

// pendingUpdate is an update that is not yet durable.
type pendingUpdate struct {
	update logbook.Update
	result chan error // with a buffer of one
}

// newJournal makes a journal whose claim ends with alive. Close it.
func newJournal(alive context.Context, connection logbook.Connection, logger hclog.Logger) *journal {
	j := &journal{connection: connection, logger: logger}
	j.ctx, j.stop = context.WithCancelCause(alive)
	return j
}

// Record takes the run's next update; see engine.Journal.
func (j *journal) Record(update logbook.Update) <-chan error {
	result := make(chan error, 1)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.refused == nil && len(j.waiting) >= maxWaiting {
		j.refused = &logbook.LimitError{Field: "journal", Limit: maxWaiting, Size: maxWaiting + 1, Unit: "updates"}
	}
	if j.refused != nil {
		result <- j.refused
		return result
	}
	j.waiting = append(j.waiting, pendingUpdate{update, result})
	if !j.active {
		j.active = true
		j.writing.Go(j.write) // ends when no update waits, or with ctx
	}
	return result
}

// flush waits until every update of the run has its result.
func (j *journal) flush(ctx context.Context) {
	j.mu.Lock()
	if len(j.waiting) == 0 {
		j.mu.Unlock()
		return
	}
	if j.idle == nil {
		j.idle = make(chan struct{})
	}
	idle := j.idle
	j.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// close refuses the waiting updates: nothing of a run is sent after its end.
func (j *journal) close() {
	j.mu.Lock()
	if j.refused == nil {
		j.refused = errRunEnded
	}
	j.mu.Unlock()
	j.stop(errRunEnded)
	j.writing.Wait()
}

// write makes calls until no update waits, or ctx ends. Then all waiting updates get its cause.
func (j *journal) write() {
	wait := newBackoff(journalBackoff)
	alone := false // the last call was refused as a whole: send the next update alone
	for {
		updates := j.next(alone)
		if len(updates) == 0 {
			return
		}
		results, err := j.call(updates)
		switch {
		case repeatable(err) && j.ctx.Err() == nil:
			j.logger.Debug("cannot record updates", "updates", len(updates), "error", err)
		case err != nil && len(updates) > 1:
			alone = true // a fault of one update must not affect the others
			continue
		case err != nil:
			results = []error{err}
		}
		if j.deliver(results) == len(updates) {
			wait.Reset()
			alone = false
			continue
		}
		sleep(j.ctx, wait.NextBackOff())
	}
}

// next returns the updates of the next call: all waiting ones, or only the first if alone is set.
// None: the journal is idle.
func (j *journal) next(alone bool) []logbook.Update {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.refused == nil && j.ctx.Err() != nil {
		j.refused = context.Cause(j.ctx)
	}
	if j.refused != nil {
		for _, e := range j.waiting {
			e.result <- j.refused
		}
		j.waiting = nil
	}
	if len(j.waiting) == 0 {
		j.waiting, j.active = nil, false
		if j.idle != nil {
			close(j.idle)
			j.idle = nil
		}
		return nil
	}
	count := len(j.waiting)
	if alone {
		count = 1
	}
	updates := make([]logbook.Update, count)
	for i := range updates {
		updates[i] = j.waiting[i].update
	}
	return updates
}

func (j *journal) call(updates []logbook.Update) ([]error, error) {
	ctx, cancel := context.WithTimeout(j.ctx, journalCallTime)
	defer cancel()
	results, err := j.connection.Update(ctx, updates...)
	if err == nil && len(results) != len(updates) {
		return nil, fmt.Errorf("%w: %d results for %d updates", logbook.ErrUncertain, len(results), len(updates))
	}
	return results, err
}

// deliver delivers the results of the oldest updates, and returns their number. It stops at the
// first update that did not happen or is ambiguous; the journal sends that update again. Errors of
// later updates then only report the missing sequence number. A refusal applies to all later
// updates, because sequence numbers have no gaps.
func (j *journal) deliver(results []error) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, result := range results {
		switch {
		case j.refused != nil && result != nil:
			result = j.refused
		case repeatable(result):
			j.waiting = j.waiting[i:]
			return i
		case result != nil:
			j.refused = result
		}
		j.waiting[i].result <- result
	}
	j.waiting = j.waiting[len(results):]
	return len(results)
}
