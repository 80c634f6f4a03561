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

// Bounds of a journal.
const (
	// maxWaiting is far more than an engine has outstanding; only one that has
	// run wild reaches it.
	maxWaiting = 4096
	// journalCallTime bounds one call, so that a lost answer is asked for
	// again while the claim is still held.
	journalCallTime = 5 * time.Second
)

// errRunEnded is the answer to updates that wait when their run has ended.
var errRunEnded = errors.New("the run has ended")

// journal writes the updates of one run, in order: one call is in flight at a
// time, and whatever waits when it returns goes into the next one. Batching
// updates of several runs, and bounding calls, is the connection's work. There
// is no timer: a lone update goes out at once. It is an engine.Journal.
type journal struct {
	connection logbook.Connection
	logger     hclog.Logger
	ctx        context.Context // of the calls; ends when the claim is lost, or with close
	stop       context.CancelCauseFunc
	writing    sync.WaitGroup // of write

	mu      sync.Mutex
	waiting []entry       // without a verdict, in the order of their recording
	active  bool          // write runs
	refused error         // why nothing more of this run is written; nil while it is
	idle    chan struct{} // closed when nothing waits any more; nil: flush does not wait for it
}

// entry is an update that is not yet durable.
type entry struct {
	update  logbook.Update
	verdict chan error // holds one
}

// newJournal makes a journal whose claim ends with alive. Close it.
func newJournal(alive context.Context, connection logbook.Connection, logger hclog.Logger) *journal {
	j := &journal{connection: connection, logger: logger}
	j.ctx, j.stop = context.WithCancelCause(alive)
	return j
}

// Record hands over the run's next update; see engine.Journal.
func (j *journal) Record(update logbook.Update) <-chan error {
	verdict := make(chan error, 1)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.refused == nil && len(j.waiting) >= maxWaiting {
		j.refused = &logbook.LimitError{Field: "journal", Limit: maxWaiting, Size: maxWaiting + 1, Unit: "updates"}
	}
	if j.refused != nil {
		verdict <- j.refused
		return verdict
	}
	j.waiting = append(j.waiting, entry{update, verdict})
	if !j.active {
		j.active = true
		j.writing.Go(j.write) // ends when nothing waits, or with ctx
	}
	return verdict
}

// flush waits until every update of the run has its verdict.
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

// close refuses what still waits: after a run nothing of it is sent any more.
func (j *journal) close() {
	j.mu.Lock()
	if j.refused == nil {
		j.refused = errRunEnded
	}
	j.mu.Unlock()
	j.stop(errRunEnded)
	j.writing.Wait()
}

// write makes calls until nothing waits, or ctx ends. Then all that waits is
// answered with its cause.
func (j *journal) write() {
	wait := newBackoff(journalBackoff)
	apart := false // the last call was refused as a whole: send the next update alone
	for {
		updates := j.next(apart)
		if len(updates) == 0 {
			return
		}
		verdicts, err := j.call(updates)
		switch {
		case repeatable(err) && j.ctx.Err() == nil:
			j.logger.Debug("cannot record updates now", "updates", len(updates), "error", err)
		case err != nil && len(updates) > 1:
			apart = true // one update's fault must not become that of the others
			continue
		case err != nil:
			verdicts = []error{err}
		}
		if j.deliver(verdicts) == len(updates) {
			wait.Reset()
			apart = false
			continue
		}
		pause(j.ctx, wait.NextBackOff())
	}
}

// next is the updates of the next call: all that wait, or only the first. None:
// the journal is idle.
func (j *journal) next(apart bool) []logbook.Update {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.refused == nil && j.ctx.Err() != nil {
		j.refused = context.Cause(j.ctx)
	}
	if j.refused != nil {
		for _, e := range j.waiting {
			e.verdict <- j.refused
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
	if apart {
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
	verdicts, err := j.connection.Update(ctx, updates...)
	if err == nil && len(verdicts) != len(updates) {
		return nil, fmt.Errorf("%w: %d verdicts for %d updates", logbook.ErrUncertain, len(verdicts), len(updates))
	}
	return verdicts, err
}

// deliver hands out the verdicts of the updates that wait longest, and returns
// how many. It ends at one that did not happen or is ambiguous, which is sent
// again: the verdicts of later ones mean only that an earlier number was
// missing. A refusal holds for all that follows, because the numbers of updates
// leave no gaps.
func (j *journal) deliver(verdicts []error) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, verdict := range verdicts {
		switch {
		case j.refused != nil && verdict != nil:
			verdict = j.refused
		case repeatable(verdict):
			j.waiting = j.waiting[i:]
			return i
		case verdict != nil:
			j.refused = verdict
		}
		j.waiting[i].verdict <- verdict
	}
	j.waiting = j.waiting[len(verdicts):]
	return len(verdicts)
}
