package conductor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faulty is a real logbook behind a faulty connection. before is called before each call and can
// refuse it; after changes the answer of a completed call.
type faulty struct {
	logbook.Connection
	before func(call int, updates []logbook.Update) error
	after  func(call int, verdicts []error) ([]error, error)

	mu    sync.Mutex
	calls [][]logbook.Update
}

func (f *faulty) Update(ctx context.Context, updates ...logbook.Update) ([]error, error) {
	f.mu.Lock()
	f.calls = append(f.calls, updates)
	call := len(f.calls)
	f.mu.Unlock()
	if f.before != nil {
		if err := f.before(call, updates); err != nil {
			return nil, err
		}
	}
	verdicts, err := f.Connection.Update(ctx, updates...)
	if err == nil && f.after != nil {
		return f.after(call, verdicts)
	}
	return verdicts, err
}

func (f *faulty) seen() [][]logbook.Update {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// save makes flows in a new book of the logbook.
func save(t *testing.T, connection logbook.Connection, flows int) []logbook.FlowID {
	t.Helper()
	book := logbook.Book{ID: logbook.NewBookID(), Name: "book"}
	ids := make([]logbook.FlowID, flows)
	for i := range ids {
		ids[i] = logbook.NewFlowID()
		book.Flows = append(book.Flows, logbook.FlowDetail{ID: ids[i], Book: book.ID, Name: fmt.Sprint("flow ", i), Factory: logbook.Factory{Name: "test"}})
	}
	if err := connection.SaveBook(t.Context(), book); err != nil {
		t.Fatal(err)
	}
	return ids
}

// update is update n of a flow: it adds one atom.
func update(id logbook.FlowID, n int) logbook.Update {
	return logbook.Update{Flow: id, Sequence: uint64(n), Atoms: []logbook.AtomChange{{Name: fmt.Sprint("step ", n), Kind: logbook.KindTask}}}
}

// open opens a journal for a run until the test ends.
func open(t *testing.T, connection logbook.Connection) conductor.Journal {
	journal := conductor.NewJournal(context.Background(), connection)
	t.Cleanup(journal.Close)
	return journal
}

func verdict(t *testing.T, answer <-chan error) error {
	t.Helper()
	select {
	case err := <-answer:
		return err
	case <-time.After(patience):
		t.Fatal("an update got no verdict")
		return nil
	}
}

// sequence is the number of a flow's last update, which also proves the order.
func sequence(t *testing.T, connection logbook.Connection, id logbook.FlowID) int {
	t.Helper()
	detail, err := connection.FlowDetail(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for i, atom := range detail.Atoms {
		if want := fmt.Sprint("step ", i+1); atom.Name != want {
			t.Errorf("atom %d is %q, want %q", i, atom.Name, want)
		}
	}
	return int(detail.Sequence)
}

// Updates that wait while a call is in flight go into one call. No run waits for the call of
// another run.
func TestJournalHasOneCallInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, release := make(chan struct{}), make(chan struct{})
		connection := &faulty{Connection: memory.New(logbook.Limits{})}
		connection.before = func(call int, _ []logbook.Update) error {
			if call == 1 {
				close(held)
				<-release
			}
			return nil
		}
		const each = 300
		ids := save(t, connection, 2)
		journal := open(t, connection)
		answers := []<-chan error{journal.Record(update(ids[0], 1))}
		<-held
		for n := 1; n < each; n++ {
			answers = append(answers, journal.Record(update(ids[0], n+1)))
		}
		if err := verdict(t, open(t, connection).Record(update(ids[1], 1))); err != nil {
			t.Errorf("another run: %v", err)
		}
		close(release)
		for _, answer := range answers {
			if err := verdict(t, answer); err != nil {
				t.Fatal(err)
			}
		}
		if got := sequence(t, connection, ids[0]); got != each {
			t.Errorf("flow has %d updates, want %d", got, each)
		}
		if calls := len(connection.seen()); calls != 3 {
			t.Errorf("%d calls, want 3: the first call, the other run's call, and one call for all waiting updates", calls)
		}
	})
}

func TestJournalRepeatsThroughFaults(t *testing.T) {
	rows := []struct {
		name   string
		before func(call int, updates []logbook.Update) error
		after  func(call int, verdicts []error) ([]error, error)
	}{
		{name: "unavailable", before: func(call int, _ []logbook.Update) error {
			return map[int]error{1: logbook.ErrUnavailable, 3: logbook.ErrUnavailable}[call]
		}},
		{name: "uncertain, did not happen", before: func(call int, _ []logbook.Update) error {
			return map[int]error{1: logbook.ErrUncertain, 2: logbook.ErrUncertain}[call]
		}},
		{name: "uncertain, happened", after: func(call int, verdicts []error) ([]error, error) {
			if call <= 2 {
				return nil, logbook.ErrUncertain
			}
			return verdicts, nil
		}},
		{name: "the call's time was up", after: func(call int, verdicts []error) ([]error, error) {
			if call == 1 {
				return nil, context.DeadlineExceeded
			}
			return verdicts, nil
		}},
		{name: "one verdict is uncertain", after: func(call int, verdicts []error) ([]error, error) {
			if call <= 2 {
				verdicts[0] = logbook.ErrUncertain
			}
			return verdicts, nil
		}},
		{name: "too few verdicts", after: func(call int, verdicts []error) ([]error, error) {
			if call == 1 {
				return verdicts[1:], nil
			}
			return verdicts, nil
		}},
		{name: "refused as a whole, and then apart", before: func(_ int, updates []logbook.Update) error {
			if len(updates) > 1 {
				return &logbook.LimitError{Field: "call"}
			}
			return nil
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connection := &faulty{Connection: memory.New(logbook.Limits{}), before: row.before, after: row.after}
				ids := save(t, connection, 3)
				var answers []<-chan error
				for _, id := range ids {
					journal := open(t, connection)
					for n := range 5 {
						answers = append(answers, journal.Record(update(id, n+1)))
					}
				}
				for _, answer := range answers {
					if err := verdict(t, answer); err != nil {
						t.Error(err)
					}
				}
				for _, id := range ids {
					if got := sequence(t, connection, id); got != 5 {
						t.Errorf("flow has %d updates, want 5", got)
					}
				}
			})
		})
	}
}

// After an update that did not happen, the next one is refused as out of order. Both must be sent
// again.
func TestJournalRepeatsWhatFollowsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connection := &faulty{Connection: memory.New(logbook.Limits{})}
		id := save(t, connection, 1)[0]
		held, release := make(chan struct{}), make(chan struct{})
		connection.before = func(call int, updates []logbook.Update) error {
			switch call {
			case 1:
				close(held)
				<-release
			case 2:
				updates[0].Sequence = 99 // this update is lost
			}
			return nil
		}
		connection.after = func(call int, verdicts []error) ([]error, error) {
			if call == 2 {
				if !errors.Is(verdicts[1], logbook.ErrConflict) {
					t.Errorf("the update after the gap: %v", verdicts[1])
				}
				verdicts[0] = logbook.ErrUnavailable
			}
			return verdicts, nil
		}
		journal := open(t, connection)
		answers := []<-chan error{journal.Record(update(id, 1))}
		<-held
		answers = append(answers, journal.Record(update(id, 2)), journal.Record(update(id, 3)))
		close(release)
		for _, answer := range answers {
			if err := verdict(t, answer); err != nil {
				t.Error(err)
			}
		}
		if got := sequence(t, connection, id); got != 3 {
			t.Errorf("flow has %d updates, want 3", got)
		}
	})
}

func TestJournalRefusesOneRunOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connection := &faulty{Connection: memory.New(logbook.Limits{})}
		ids := save(t, connection, 2)
		stale, sane := open(t, connection), open(t, connection)
		fenced := update(ids[0], 1)
		fenced.Token = logbook.Token{Generation: 1, Index: 5} // package memory knows no claims
		if err := verdict(t, stale.Record(fenced)); !errors.Is(err, logbook.ErrFenced) {
			t.Errorf("a stale token: %v", err)
		}
		sent := len(connection.seen())
		if err := verdict(t, stale.Record(update(ids[0], 1))); !errors.Is(err, logbook.ErrFenced) {
			t.Errorf("an update after the fence: %v", err)
		}
		if len(connection.seen()) != sent {
			t.Error("an update was sent for a run that is over")
		}
		if err := verdict(t, sane.Record(update(ids[1], 1))); err != nil {
			t.Errorf("another run: %v", err)
		}
	})
}

func TestJournalEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("the claim is gone")
		connection := &faulty{Connection: memory.New(logbook.Limits{})}
		connection.before = func(int, []logbook.Update) error { return logbook.ErrUnavailable }
		ids := save(t, connection, 2)
		alive, lose := context.WithCancelCause(context.Background())
		lost, closed := conductor.NewJournal(alive, connection), open(t, connection)
		defer lost.Close()
		answers := []<-chan error{lost.Record(update(ids[0], 1)), closed.Record(update(ids[1], 1))}
		lose(gone)
		if err := verdict(t, answers[0]); !errors.Is(err, gone) {
			t.Errorf("after the claim was lost: %v", err)
		}
		lost.Flush(t.Context()) // nothing is pending: it returns
		closed.Close()
		if err := verdict(t, answers[1]); err == nil {
			t.Error("an update of a closed run was accepted")
		}
	})
}
