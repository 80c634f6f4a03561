package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/fsm/tables"
	"github.com/conductord/conductord/jobs"
)

// Entry is one committed entry of the log.
type Entry struct {
	Index, Term uint64
	// Data is what command.EncodeEntry made. Empty for an entry that holds no
	// commands, such as a change of members: then only the index moves.
	Data []byte
	// Unanswered: nobody reads the results, so they are not made. The state does
	// not depend on it.
	Unanswered bool
}

// Changes are what a commit changed, for those who wait for something.
type Changes struct {
	Index     uint64           // applied now
	Opened    []jobs.Session   // sessions that were opened, in order
	Ended     []jobs.SessionID // sessions that were closed or have expired, in order
	Timed     []ClaimTimer     // claims with a time of their own that were made, extended or ended, in order
	Claimable []Lane           // where jobs became claimable, each once
	Finished  []jobs.JobID     // jobs that were completed or trashed, in order
	Retried   int              // how many attempts have failed that others follow, by the policies of their jobs
	Undrained bool             // conductors may claim again that could not before
	NextDue   time.Time        // as Machine.NextDue answers now
	NextSlot  time.Time        // as Machine.NextSlot answers now
	Events    bool             // there are new events
	Restored  bool             // everything may have changed
}

// ClaimTimer is a claim with a time of its own.
type ClaimTimer struct {
	Job        jobs.JobID
	Token      jobs.Token
	Expiry     time.Duration // 0: the claim is over
	Extensions int
}

// Lane is where jobs wait that the same conductors can take.
type Lane struct {
	Board, Kind string
	Labels      string // those that the jobs want, as labelText makes it of them
}

// txn is the write transaction of a batch.
type txn struct {
	view
	ledger
	writer     *tables.Writer // of the view's reader
	eventsKept uint64

	memory   *memory   // for values
	messages *messages // to encode
	digest   []byte    // memory for the next digest

	now      time.Time // of the present entry
	answered bool      // somebody reads the results of the present entry
	item     uint32    // number of the last event of the present entry
	spent    spent     // in the present entry

	changes   Changes
	lanes     map[Lane]bool // those in changes.Claimable
	tallies   *tallies
	claimants claimants
	vacated   []jobs.ScheduleID // whose last unfinished job the present command has finished

	// writes counts what was written, and fault is the first that could not
	// be: writers go on, and whoever runs the command looks afterwards.
	writes int
	begun  int // writes before the present entry
	fault  error
}

// Apply applies entries in order, in one transaction; entries that have been
// applied already are skipped. results[i][j] answers command j of entry i; those
// of an entry that was skipped, or is unanswered, are nil.
//
// An error means that the machine cannot go on: the disk or the data is bad,
// or an entry holds something that this program does not know. Nothing of the
// batch was applied, and nothing will be any more; the process must stop.
func (m *Machine) Apply(entries []Entry) ([][]*v1.Result, error) {
	m.applying.Lock()
	defer m.applying.Unlock()
	if m.broken != nil {
		return nil, m.broken
	}
	if m.closed() {
		return nil, ErrClosed
	}
	results, changes, err := m.applyBatch(entries)
	if err != nil {
		m.broken = fmt.Errorf("cannot apply the log after entry %d: %w", m.AppliedIndex(), err)
		return nil, m.broken
	}
	m.announce()
	if changes != nil {
		m.options.Changed(*changes)
	}
	return results, nil
}

// begin begins a transaction on a database.
func (m *Machine) begin(on *tables.DB, from ledger) (*txn, error) {
	writer, err := on.Begin()
	if err != nil {
		return nil, fmt.Errorf("cannot begin a transaction: %w", err)
	}
	return &txn{
		view: view{reader: &writer.Reader, heads: make(heads)}, writer: writer, ledger: from,
		eventsKept: uint64(m.options.EventsKept), lanes: make(map[Lane]bool), memory: &m.memory, messages: &m.messages,
		tallies: newTallies(), claimants: make(claimants),
	}, nil
}

// applyBatch runs the transaction. The changes are nil if there are none.
func (m *Machine) applyBatch(entries []Entry) ([][]*v1.Result, *Changes, error) {
	t, err := m.begin(m.database, m.status.Load().ledger)
	if err != nil {
		return nil, nil, err
	}
	defer t.writer.Rollback() //nolint:errcheck // after the commit it does nothing, before it there is nothing to lose
	defer m.memory.again()
	t.tallies, t.heads, t.claimants = m.tallies, m.heads, m.claimants // if the batch fails nobody looks at them any more
	results := make([][]*v1.Result, len(entries))
	for i := range entries {
		if results[i], err = t.entry(&entries[i]); err != nil {
			return nil, nil, fmt.Errorf("entry %d: %w", entries[i].Index, err)
		}
	}
	after, err := t.commit()
	if err != nil {
		return nil, nil, err
	}
	m.status.Store(after)
	if t.writes == 0 {
		return results, nil, nil
	}
	t.changes.Index, t.changes.NextDue, t.changes.NextSlot = after.Index, after.nextDue, after.nextSlot
	return results, &t.changes, nil
}

// entry applies one entry.
func (t *txn) entry(e *Entry) ([]*v1.Result, error) {
	if e.Index <= t.Index {
		return nil, nil
	}
	t.Index, t.Term, t.item, t.begun, t.spent = e.Index, e.Term, 0, t.writes, spent{}
	if len(e.Data) == 0 {
		return nil, nil
	}
	decoded, err := command.DecodeEntry(e.Data)
	if err != nil {
		return nil, err
	}
	t.Time = max(t.Time, decoded.GetTimeUnixNano())
	t.now, t.answered = t.time(), !e.Unanswered
	var results []*v1.Result
	if t.answered {
		results = make([]*v1.Result, 0, len(decoded.GetCommands()))
	}
	for i, c := range decoded.GetCommands() {
		result, err := t.command(c)
		if err != nil {
			return nil, fmt.Errorf("command %d, %s: %w", i+1, command.Name(c), err)
		}
		if t.answered {
			results = append(results, result)
		}
	}
	t.putTold()
	return results, nil
}

// command applies one command. A refusal is a result; the error is a fault.
func (t *txn) command(c *v1.Command) (*v1.Result, error) {
	before := t.writes
	result, err := t.dispatch(c)
	if err == nil {
		err = t.postWaiting() // an error of it is a fault
	}
	if t.fault != nil {
		return nil, t.fault
	}
	switch {
	case err == nil && result == nil && t.answered:
		return &v1.Result{}, nil
	case err == nil:
		return result, nil
	case isFault(err) || errors.Is(err, command.ErrUnknownCommand):
		return nil, err
	case t.writes != before:
		// Every command decides first and writes afterwards. One that does
		// not would leave half of itself behind.
		return nil, corrupt("internal error: refused after %d writes: %w", t.writes-before, err)
	case !t.answered:
		return nil, nil
	}
	return &v1.Result{Error: command.ErrorToProto(err)}, nil
}

// dispatch is the table of commands; those about boards and schedules have
// tables of their own behind it.
func (t *txn) dispatch(c *v1.Command) (*v1.Result, error) {
	switch kind := c.Kind.(type) {
	case *v1.Command_Post:
		return t.post(kind.Post)
	case *v1.Command_Claim:
		return t.claim(kind.Claim)
	case *v1.Command_ClaimNext:
		return t.claimNext(kind.ClaimNext)
	case *v1.Command_Consume:
		return nil, t.consume(kind.Consume)
	case *v1.Command_Abandon:
		return nil, t.abandon(kind.Abandon)
	case *v1.Command_Trash:
		return nil, t.trash(kind.Trash)
	case *v1.Command_OpenSession:
		return t.openSession(kind.OpenSession)
	case *v1.Command_CloseSession:
		return nil, t.closeSession(kind.CloseSession)
	case *v1.Command_Register:
		return nil, t.register(kind.Register)
	case *v1.Command_SaveBook:
		return nil, t.saveBook(kind.SaveBook)
	case *v1.Command_UpdateFlow:
		return nil, t.updateFlow(kind.UpdateFlow)
	case *v1.Command_DestroyBook:
		return nil, t.destroyBook(kind.DestroyBook)
	case *v1.Command_Suspend:
		return nil, t.suspend(kind.Suspend)
	case *v1.Command_Resume:
		return nil, t.resume(kind.Resume)
	case *v1.Command_Cancel:
		return nil, t.cancel(kind.Cancel)
	case *v1.Command_Change:
		return nil, t.change(kind.Change)
	case *v1.Command_Intervene:
		return t.intervene(kind.Intervene)
	case *v1.Command_Restore:
		return nil, t.restore(kind.Restore)
	case *v1.Command_Purge:
		return nil, t.purge(kind.Purge)
	case *v1.Command_ExtendClaim:
		return nil, t.extendClaim(kind.ExtendClaim)
	case *v1.Command_BeginLeadership:
		return nil, t.beginLeadership()
	case *v1.Command_ExpireSession:
		return nil, t.expireSession(kind.ExpireSession)
	case *v1.Command_ExpireClaim:
		return nil, t.expireClaim(kind.ExpireClaim)
	case *v1.Command_WakeDue:
		return t.wakeDue(kind.WakeDue)
	case *v1.Command_Sweep:
		return t.sweep(kind.Sweep)
	}
	return t.dispatchBoard(c)
}

func (t *txn) dispatchBoard(c *v1.Command) (*v1.Result, error) {
	switch kind := c.Kind.(type) {
	case *v1.Command_CreateBoard:
		return nil, t.createBoard(kind.CreateBoard)
	case *v1.Command_LimitBoard:
		return nil, t.limitBoard(kind.LimitBoard)
	case *v1.Command_AgeBoard:
		return nil, t.ageBoard(kind.AgeBoard)
	case *v1.Command_PauseBoard:
		return nil, t.pauseBoard(kind.PauseBoard)
	case *v1.Command_ResumeBoard:
		return nil, t.resumeBoard(kind.ResumeBoard)
	case *v1.Command_DeleteBoard:
		return nil, t.deleteBoard(kind.DeleteBoard)
	case *v1.Command_DrainConductor:
		return nil, t.drainConductor(kind.DrainConductor)
	case *v1.Command_UndrainConductor:
		return nil, t.undrainConductor(kind.UndrainConductor)
	}
	return t.dispatchSchedule(c)
}

func (t *txn) dispatchSchedule(c *v1.Command) (*v1.Result, error) {
	switch kind := c.Kind.(type) {
	case *v1.Command_DeleteSchedule:
		return nil, t.deleteSchedule(kind.DeleteSchedule)
	case *v1.Command_PauseSchedule:
		return nil, t.pauseSchedule(kind.PauseSchedule)
	case *v1.Command_SaveSchedule:
		return t.saveSchedule(kind.SaveSchedule)
	case *v1.Command_ResumeSchedule:
		return nil, t.resumeSchedule(kind.ResumeSchedule)
	case *v1.Command_FireSchedule:
		return nil, t.fireSchedule(kind.FireSchedule)
	case *v1.Command_RunSchedule:
		return t.runSchedule(kind.RunSchedule)
	case *v1.Command_BackfillSchedule:
		return t.backfillSchedule(kind.BackfillSchedule)
	}
	return nil, fmt.Errorf("%w: %T", command.ErrUnknownCommand, c.GetKind())
}

// commit writes the ledger and ends the transaction.
func (t *txn) commit() (*status, error) {
	if t.changes.Events {
		if err := t.trimEvents(); err != nil {
			return nil, err
		}
	}
	t.saveTallies()
	after := &status{ledger: t.ledger}
	if err := t.writer.Put(tableLedger, ledgerKey, t.ledger.encode()); err != nil {
		return nil, fmt.Errorf("cannot write the ledger: %w", err)
	}
	var err error
	if after.nextDue, err = t.nextDue(); err != nil {
		return nil, err
	}
	if after.nextSlot, err = t.nextSlot(); err != nil {
		return nil, err
	}
	if t.fault != nil {
		return nil, t.fault
	}
	if err := t.writer.Commit(); err != nil {
		return nil, fmt.Errorf("cannot commit: %w", err)
	}
	return after, nil
}

func (v *view) nextDue() (time.Time, error) {
	due, _ := v.cursor(tableDue).First()
	deadline, _ := v.cursor(tableDeadline).First()
	if due == nil || (deadline != nil && bytes.Compare(deadline, due) < 0) {
		due = deadline // both keys begin with the time
	}
	if due == nil {
		return time.Time{}, nil
	}
	return timeOfKey(due)
}

// ledgerOf reads the ledger of a database.
func (v *view) ledgerOf() (ledger, error) { return decodeLedger(v.get(tableLedger, ledgerKey)) }

// put writes a value. An error is kept, and ends the batch.
func (t *txn) put(tab table, key, value []byte) {
	t.writes++
	if err := t.writer.Put(tab, key, value); err != nil && t.fault == nil {
		t.fault = fmt.Errorf("cannot write to table %s: %w", tableNames[tab], err)
	}
}

// putMessage writes a message behind a prefix of fixed length.
func (t *txn) putMessage(tab table, key, prefix []byte, message proto.Message) {
	value, err := t.memory.encode(prefix, message)
	if err != nil && t.fault == nil {
		t.fault = err
	}
	t.put(tab, key, value)
}

// delete removes a key, if it is there.
func (t *txn) delete(tab table, key []byte) {
	t.writes++
	t.writer.Delete(tab, key)
}

// deletePrefix removes every key that has the prefix.
func (t *txn) deletePrefix(tab table, prefix []byte) {
	for _, key := range t.keys(tab, prefix) {
		t.delete(tab, key)
	}
}

// token is that of the claims that the present entry grants.
func (t *txn) token() jobs.Token { return jobs.Token{Generation: t.Generation, Index: t.Index} }

func (t *txn) becameClaimable(lane Lane) {
	if !t.lanes[lane] {
		t.lanes[lane] = true
		t.changes.Claimable = append(t.changes.Claimable, lane)
	}
}
