package conductor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// Bounds of the journal.
const (
	// maxCallUpdates and maxCallBytes keep one call to the logbook well below
	// a cluster's limit for one message, and short enough not to hold up the
	// flows that wait for the next.
	maxCallUpdates = 128
	maxCallBytes   = 512 << 10
	// maxWaiting is what jobs.MaxClaims engines may have outstanding; it is passed
	// only if one of them has run wild.
	maxWaiting = 64 << 10
	// journalCallTime bounds one call, so that a lost answer is asked for
	// again while the claims are still held.
	journalCallTime = 5 * time.Second
)

// errRunEnded is the answer to updates that wait when their run has ended.
var errRunEnded = errors.New("the run has ended")

// journal writes the updates of all running flows, in as few calls as
// possible: whatever is waiting when a call returns goes into the next one.
// One call is in flight at a time, which keeps the updates of each flow in
// order. There is no timer: a lone update goes out at once.
type journal struct {
	connection logbook.Connection
	logger     hclog.Logger
	wake       chan struct{} // holds one: something waits

	mu      sync.Mutex
	waiting []*entry // in the order of their recording
}

// entry is an update that is not yet durable.
type entry struct {
	line    *line
	update  logbook.Update
	bytes   int
	verdict chan error // holds one
}

// line is the journal as one run sees it; it is an engine.Journal.
type line struct {
	journal *journal
	alive   context.Context // ends when the claim is lost

	// Guarded by journal.mu.
	refused error         // why nothing more of this run is written; nil while it is
	pending int           // entries without a verdict
	idle    chan struct{} // closed when pending reaches 0; nil: nobody waits for it
}

func newJournal(connection logbook.Connection, logger hclog.Logger) *journal {
	return &journal{connection: connection, logger: logger, wake: make(chan struct{}, 1)}
}

// open gives a run its line.
func (j *journal) open(alive context.Context) *line {
	return &line{journal: j, alive: alive}
}

// Record hands over the run's next update; see engine.Journal.
func (l *line) Record(update logbook.Update) <-chan error {
	e := &entry{line: l, update: update, bytes: engine.UpdateSize(&update), verdict: make(chan error, 1)}
	j := l.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	l.pending++
	if l.refused == nil && len(j.waiting) >= maxWaiting {
		l.refused = &logbook.LimitError{Field: "journal", Limit: maxWaiting, Size: maxWaiting + 1, Unit: "updates"}
	}
	if l.refused != nil {
		e.answerLocked(l.refused)
		return e.verdict
	}
	j.waiting = append(j.waiting, e)
	j.stir()
	return e.verdict
}

// flush waits until every update of the run has its verdict.
func (l *line) flush(ctx context.Context) {
	l.journal.mu.Lock()
	if l.pending == 0 {
		l.journal.mu.Unlock()
		return
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.journal.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// close drops what still waits: after a run nothing of it is sent any more.
func (l *line) close() {
	l.journal.mu.Lock()
	defer l.journal.mu.Unlock()
	if l.refused == nil {
		l.refused = errRunEnded
	}
	l.journal.stir()
}

// answerLocked gives the entry its verdict. A refusal holds for all that
// follows in the same run, because the numbers of updates leave no gaps.
func (e *entry) answerLocked(verdict error) {
	l := e.line
	if verdict != nil && l.refused == nil {
		l.refused = verdict
	}
	e.verdict <- verdict
	l.pending--
	if l.pending == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

func (j *journal) stir() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx ends, and then answers all that waits with its cause.
func (j *journal) run(ctx context.Context) {
	wait := newBackoff(journalBackoff)
	for ctx.Err() == nil {
		batch := j.take()
		if len(batch) == 0 {
			select {
			case <-j.wake:
			case <-ctx.Done():
			}
			continue
		}
		again := j.send(ctx, batch)
		if len(again) == 0 {
			wait.Reset()
			continue
		}
		j.putBack(again)
		pause(ctx, wait.NextBackOff())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.waiting {
		e.answerLocked(context.Cause(ctx))
	}
	j.waiting = nil
}

// take removes the next call's entries from those that wait, and answers
// those whose run is over.
func (j *journal) take() []*entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var batch, rest []*entry
	bytes := 0
	for i, e := range j.waiting {
		if err := e.line.overLocked(); err != nil {
			e.answerLocked(err)
			continue
		}
		if len(batch) == maxCallUpdates || (len(batch) > 0 && bytes+e.bytes > maxCallBytes) {
			// Stopping here, rather than looking for a smaller one further
			// on, is what keeps each flow's order.
			rest = j.waiting[i:]
			break
		}
		batch = append(batch, e)
		bytes += e.bytes
	}
	j.waiting = rest
	return batch
}

func (l *line) overLocked() error {
	if l.refused == nil && l.alive.Err() != nil {
		return context.Cause(l.alive)
	}
	return l.refused
}

func (j *journal) putBack(entries []*entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting = append(entries, j.waiting...)
}

// send makes one call and returns the entries that must be sent again.
func (j *journal) send(ctx context.Context, batch []*entry) []*entry {
	updates := make([]logbook.Update, len(batch))
	for i, e := range batch {
		updates[i] = e.update
	}
	callCtx, cancel := context.WithTimeout(ctx, journalCallTime)
	verdicts, err := j.connection.Update(callCtx, updates...)
	cancel()
	if err == nil && len(verdicts) != len(batch) {
		err = fmt.Errorf("%w: %d verdicts for %d updates", logbook.ErrUncertain, len(verdicts), len(batch))
	}
	switch {
	case err == nil:
		return j.deliver(batch, verdicts)
	case repeatable(err) || ctx.Err() != nil:
		j.logger.Debug("cannot record updates now", "updates", len(batch), "error", err)
		return batch
	case len(batch) > 1:
		return j.sendApart(ctx, batch)
	}
	return j.deliver(batch, []error{err})
}

// sendApart follows a call that was refused as a whole: one update's fault
// must not become that of the others.
func (j *journal) sendApart(ctx context.Context, batch []*entry) []*entry {
	for i := range batch {
		if again := j.send(ctx, batch[i:i+1]); len(again) > 0 {
			return batch[i:]
		}
	}
	return nil
}

// deliver hands out verdicts. Where one says that nothing, or nothing
// certain, happened, the later ones of the same flow mean only that an
// earlier number was missing: they are sent again together.
func (j *journal) deliver(batch []*entry, verdicts []error) (again []*entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	open := map[*line]bool{}
	for i, e := range batch {
		switch {
		case e.line.refused != nil && verdicts[i] != nil:
			e.answerLocked(e.line.refused)
		case open[e.line] || repeatable(verdicts[i]):
			open[e.line] = true
			again = append(again, e)
		default:
			e.answerLocked(verdicts[i])
		}
	}
	return again
}
