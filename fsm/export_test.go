package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// FindEnds finds the ids that end with the digits, among a number of ids.
func FindEnds(m *Machine, prefix jobs.IDPrefix, latest int) (found jobs.IDMatches, err error) {
	err = m.read(func(v *view) error {
		v.findEnds(v.cursor(tableJobID), prefix, func(string, string) bool { return true }, &found, latest)
		return nil
	})
	return found, err
}

// DigestBut is Digest without the fields that every entry changes: index, term and time. Two
// machines with equal sums have no visible difference.
func DigestBut(m *Machine) (digest [32]byte, err error) {
	sum := sha256.New()
	err = m.read(func(v *view) error {
		for t := range tableNames {
			v.scan(table(t), nil, func(key, value []byte) bool {
				if table(t) == tableLedger {
					l, err := decodeLedger(value)
					if err != nil {
						panic(corrupt("%w", err))
					}
					l.Index, l.Term, l.Time = 0, 0, 0
					value = l.encode()
				}
				sumUp(sum, []byte(tableNames[t]), key, value)
				return true
			})
		}
		return nil
	})
	return [32]byte(sum.Sum(nil)), err
}

// Rows are all rows of all tables, by table and key.
func Rows(m *Machine) (map[string]string, error) {
	rows := make(map[string]string)
	err := m.read(func(v *view) error {
		for t := range tableNames {
			v.scan(table(t), nil, func(key, value []byte) bool {
				rows[tableNames[t]+"/"+string(key)] = string(value)
				return true
			})
		}
		return nil
	})
	return rows, err
}

// Verify checks the invariants after every entry: counters and indexes match the jobs, job and
// session agree on each claim, and no row refers to a missing row.
func Verify(m *Machine) error {
	m.applying.Lock()
	defer m.applying.Unlock()
	return m.read(func(v *view) error {
		if err := m.remembers(v); err != nil {
			return err
		}
		present, err := v.ledgerOf()
		if err != nil {
			return err
		}
		quotas := &txn{view: view{reader: v.reader, caches: newCaches()}}
		seen := &census{view: v, quotas: quotas.knownQuotas(), rows: make(map[table]uint64), books: make(map[logbook.BookID]uint64), counterCache: make(map[string]*counters), parked: make(map[string]uint64), built: make(map[command.DefinitionID]uint64), waiting: make(map[string]uint64), indexed: make(map[table]uint64)}
		for t := range tableNames {
			var err error
			v.scan(table(t), nil, func(key, value []byte) bool {
				seen.rows[table(t)]++
				err = seen.row(table(t), key, value)
				return err == nil
			})
			if err != nil {
				return err
			}
		}
		return seen.agrees(present)
	})
}

// remembers compares the machine's caches with the stored rows.
func (m *Machine) remembers(v *view) error {
	for name, known := range m.heads {
		stored, found := v.board(name)
		if !found || !reflect.DeepEqual(stored, *known) {
			return fmt.Errorf("board %q is %+v (%t), and is remembered as %+v", name, stored, found, *known)
		}
	}
	if m.quotas.read {
		stored := (&txn{view: view{reader: v.reader, caches: newCaches()}}).knownQuotas()
		if !reflect.DeepEqual(stored.ofPrincipal, m.quotas.ofPrincipal) || !reflect.DeepEqual(stored.ofBoards, m.quotas.ofBoards) {
			return fmt.Errorf("the quotas are %+v, and they are remembered as %+v", stored, m.quotas)
		}
		for board, covering := range m.quotas.onBoard {
			if !reflect.DeepEqual(stored.on(board), covering) {
				return fmt.Errorf("quotas of board %q are remembered as %+v", board, covering)
			}
		}
	}
	for sequence, known := range m.known {
		if stored := v.job(sequence); !reflect.DeepEqual(stored.jobFacts, *known) {
			return fmt.Errorf("job %d is %+v, and is remembered as %+v", sequence, stored.jobFacts, *known)
		}
	}
	for id, known := range m.flows {
		if running := known.running; running != nil {
			stored := decodeAtom(v.get(tableAtom, atomKey(id, running.detail.Name)))
			if stored.before = running.before; !reflect.DeepEqual(stored, running) {
				return fmt.Errorf("an atom of flow %s is %+v, and is remembered as %+v", id, stored, running)
			}
		}
		flow := *known
		flow.running = nil
		if stored := v.flow(id); !reflect.DeepEqual(stored, &flow) {
			return fmt.Errorf("flow %s is %+v, and is remembered as %+v", id, stored, known)
		}
	}
	for session, known := range m.claimants {
		stored := v.claims(session)
		if !slices.Equal(stored.held, known.held) || !slices.Equal(stored.over, known.over) {
			return fmt.Errorf("session %s has the claims %+v, and they are remembered as %+v", session, stored, *known)
		}
	}
	return nil
}

// census contains the counts of Verify.
type census struct {
	*view
	memory       memory
	quotas       *quotas
	rows         map[table]uint64
	jobs         [stateCount]uint64
	held         uint64
	busy         uint64 // unfinished jobs with a flow
	owned        uint64 // flows with an unfinished job
	left         uint64 // flows of earlier iterations
	events       uint64
	told         uint64               // bytes of events
	indexed      map[table]uint64     // index rows, each of which must lead to a job
	waiting      map[string]uint64    // jobs, by the key of the row that counts them
	indexKeys    uint64               // index keys of errors
	scheduled    uint64               // schedules with a next slot
	counterCache map[string]*counters // recounted from the jobs, without rates
	books        map[logbook.BookID]uint64
	parked       map[string]uint64               // by board
	built        map[command.DefinitionID]uint64 // flows
}

func (c *census) countFlow(key, value []byte) error {
	record := decode(value, &v1.FlowRow{}, flowFromProto)
	record.ID = logbook.FlowID{UUID: [idSize]byte(key)}
	if record.job != 0 {
		c.owned++
	}
	if !record.Previous.IsZero() {
		c.left++
		if old := c.flow(record.Previous); old == nil || !old.Continued || old.job != 0 || old.Book != record.Book || max(old.Iteration, 1)+1 != record.Iteration {
			return fmt.Errorf("iteration %d, flow %s, follows %+v", record.Iteration, record.ID, old)
		}
	}
	switch record.State {
	case logbook.FlowPending, logbook.FlowRunning, logbook.FlowSuspended:
	default:
		if !record.Begun.IsZero() {
			return fmt.Errorf("flow %s is %s, and may have begun without a record", record.ID, record.State)
		}
	}
	if record.Begun.Compare(record.Fence) < 0 && !record.Begun.IsZero() {
		return fmt.Errorf("flow %s may have begun under %s without a record, and has an update under %s", record.ID, record.Begun, record.Fence)
	}
	if c.built[record.built]++; record.built.IsZero() {
		delete(c.built, record.built)
	}
	c.wholeFlow(record, Part{MaxBytes: Unbounded}, 0)
	return c.checkInterventions(record)
}

func (c *census) checkScheduleJob(key []byte) error {
	sequence := sequenceAtEnd(key)
	if j := c.job(sequence); j.State.Finished() || !bytes.Equal(c.get(tableJobSchedule, sequenceKey(sequence)), key[:idSize]) {
		return fmt.Errorf("job %s, which is %s, is one of schedule %x", j.ID, j.State, key[:idSize])
	}
	return nil
}

func (c *census) row(t table, key, value []byte) error {
	switch t {
	case tableJob:
		return c.countJob(value)
	case tableSession:
		if s := decode(value, &v1.Session{}, command.SessionFromProto); s.Principal != "" {
			c.usedBy(access.Subject{Principal: s.Principal}).sessions++
		}
	case tableBoard:
		if row := decode(value, &v1.BoardRow{}, func(row *v1.BoardRow) (*v1.BoardRow, error) { return row, nil }); row.MadeBy != "" {
			c.usedBy(access.Subject{Principal: row.MadeBy}).boards++
		}
	case tableClaim:
		return c.countClaim(key, value)
	case tableFlow:
		return c.countFlow(key, value)
	case tableWaiting: // checked with the table of jobs, which comes before
		if waiting := c.storedCount(t, key); waiting != c.waiting[string(key)] {
			return fmt.Errorf("%d jobs wait by row %q, and %d are counted", c.waiting[string(key)], key, waiting)
		}
	case tableGarbage:
		if c.get(tableFlow, key) != nil {
			return fmt.Errorf("flow %x is gone, and there", key)
		}
	case tableDefinition:
		if stored, _ := c.definition(command.DefinitionID(key)); command.DefinitionIDOf(stored) != command.DefinitionID(key) {
			return fmt.Errorf("definition %x is not what its id says", key)
		}
	case tableDefinitionUse: // checked with the table of flows, which comes before
		if uses := c.storedCount(t, key); uses == 0 || uses != c.built[command.DefinitionID(key)] {
			return fmt.Errorf("%d flows were built as definition %x, and %d are counted", c.built[command.DefinitionID(key)], key, uses)
		}
	case tableIntervention, tableAtom, tableAttempt, tableWait, tableCheckpoint:
		left := c.isGarbage(logbook.FlowID{UUID: [idSize]byte(key[:idSize])})
		if c.get(tableFlow, key[:idSize]) == nil && !left {
			return fmt.Errorf("table %s has a row of a flow that is not there: %x", tableNames[t], key)
		}
		switch t {
		case tableAtom:
			return errors.Join(c.checkWait(key, value), c.checkCheckpoints(key, value))
		case tableWait:
			return c.checkWaitRow(key, value)
		}
	case tableReminder, tableSubscription, tableKept, tablePublications, tableSignalKey:
		return c.signalRow(t, key, value)
	case tableEvent:
		return c.countEvents(key, value)
	case tableJobIndex:
		return c.checkFound(key)
	case tableError:
		return c.checkError(key, value)
	case tableCounters: // checked with the tables of jobs and sessions, which come before
		return c.checkCounters(key, value)
	case tableBook:
		decode(value, &v1.Book{}, command.BookFromProto)
	case tableEntity:
		decode(value, &v1.Entity{}, command.EntityFromProto)
	case tableSchedule:
		return c.countSchedule(value)
	case tableScheduleJob:
		return c.checkScheduleJob(key)
	case tablePresence:
		if c.get(tableEntity, key[idSize:]) == nil {
			return fmt.Errorf("a session has an entity that does not exist: %x", key)
		}
	}
	return nil
}

// countEvents counts the events of a row. Some events of the first row may have been dropped.
func (c *census) countEvents(key, row []byte) error {
	present, err := c.ledgerOf()
	if err != nil {
		return err
	}
	kept := c.events
	all := eachEvent(key, row, func(position jobs.Position, event []byte) bool {
		if before(present.Compacted, position) {
			c.events++
			c.told += uint64(len(event))
		}
		decode(event, &v1.Event{}, command.EventFromProto)
		return !before(present.LastEvent, position)
	})
	if all && c.events == kept {
		return fmt.Errorf("all events from %x on have been dropped, and their row has not", key)
	}
	if !all {
		return fmt.Errorf("there are events behind the last one, from %x on", key)
	}
	return nil
}

func (c *census) countSchedule(value []byte) error {
	s := decode(value, &v1.Schedule{}, command.ScheduleFromProto)
	c.template(s.ID)
	due := !s.Next.IsZero() && s.Pause == nil
	switch {
	case len(c.keys(tableScheduleJob, s.ID.UUID[:])) != s.Active,
		len(c.keys(tableSlotWaiting, s.ID.UUID[:])) != s.Waiting,
		len(c.keys(tableSlot, s.ID.UUID[:])) != s.Records:
		return fmt.Errorf("schedule %s counts %d active jobs, %d waiting slots and %d records", s.Name, s.Active, s.Waiting, s.Records)
	case (c.get(tableScheduleDue, scheduleDueKey(s.Next, s.ID)) != nil) != due:
		return fmt.Errorf("schedule %s is among the due ones: %t, and its next slot is %s", s.Name, !due, s.Next)
	case s.Waiting > 0 && s.Active == 0 && s.Pause == nil:
		return fmt.Errorf("schedule %s has %d waiting slots, and nothing to wait for", s.Name, s.Waiting)
	}
	if due {
		c.scheduled++
	}
	return nil
}

func (c *census) countJob(value []byte) error {
	j := decodeJob(value)
	c.jobs[stateNumber(j.State)]++
	c.countOnBoard(j)
	if j.isParked() {
		c.parked[j.Board]++
	}
	if err := c.checkSignals(j); err != nil {
		return err
	}
	whole := c.complete(j)
	if read, stopped := c.finishedJob(j.Sequence); stopped != j.State.NeedsOperator() || j.State.Finished() != (read != nil) || read != nil && !proto.Equal(read, command.JobToProto(&whole)) {
		return fmt.Errorf("job %s is %+v, and is read as %v when it has finished", j.ID, whole, read)
	}
	c.memory.present = c.memory.present[:0] // of the previous job
	rows := j.index(&c.memory, nil)
	for _, row := range rows {
		if !bytes.Equal(c.get(row.table, row.key), row.value) || c.get(row.table, row.key) == nil {
			return fmt.Errorf("job %s is %s, and table %s has no row %q for it", j.ID, j.State, tableNames[row.table], row.key)
		}
		c.indexed[row.table]++
	}
	at := j.ModifiedAt
	switch group := (waitGroup{board: j.Board}); j.State {
	case jobs.StateClaimable:
		group.what, group.at = waitsForClaim, j.ClaimableAt
		c.waiting[string(group.key())]++
	case jobs.StateCooling, jobs.StateDelayed, jobs.StateWaiting:
		group.what, group.at = waitsForTime, j.DueAt
		c.waiting[string(group.key())]++
		at = j.DueAt.Add(-1) // the leader wakes the job after its due time
	}
	if state, due := j.standing(at); state != j.State {
		return fmt.Errorf("job %s is %s until %s, and stands %s until %s", j.ID, j.State, j.DueAt, state, due)
	}
	if id := c.get(tableJobID, j.ID.UUID[:]); id == nil || !bytes.HasPrefix(id, sequenceKey(j.Sequence)) {
		return fmt.Errorf("job %s is not found by its id", j.ID)
	}
	if err := c.checkOrder(j); err != nil {
		return err
	}
	if j.Key != "" && !j.State.Finished() {
		if holder := c.holderOf(j.Board, j.Key); holder == nil || holder.ID != j.ID {
			return fmt.Errorf("job %s does not hold its key %q", j.ID, j.Key)
		}
	}
	if j.Claim != nil && j.Claim.Token != j.Token {
		return fmt.Errorf("job %s has token %s, and its claim %s", j.ID, j.Token, j.Claim.Token)
	}
	if !j.Book.IsZero() {
		c.books[j.Book]++
	}
	if j.Flow.IsZero() || j.State.Finished() {
		return nil
	}
	c.busy++
	if flow := c.existingFlow(j.Flow); flow.job != j.Sequence {
		return fmt.Errorf("job %s has a flow that knows job number %d", j.ID, flow.job)
	}
	return nil
}

// countOnBoard counts a job as the machine must count it.
func (c *census) countOnBoard(j *jobRecord) {
	countersOf := func(what byte, of []byte) *counters {
		key := string(countersKey(j.Board, what, of))
		if c.counterCache[key] == nil {
			c.counterCache[key] = &counters{}
		}
		return c.counterCache[key]
	}
	state := stateNumber(j.State)
	countersOf(countersOfKind, []byte(j.Kind)).jobs[state]++
	board := countersOf(countersOfBoard, nil)
	board.jobs[state]++
	if !j.State.Finished() {
		board.bytes += j.Size
	}
	if j.Claim != nil {
		countersOf(countersOfHolder, j.Claim.Session.UUID[:]).jobs[state]++
	}
	if j.State.Finished() {
		return
	}
	subjects := []access.Subject{{Principal: j.PostedBy}}
	for _, quota := range c.quotas.on(j.Board) {
		subjects = append(subjects, quota.Subject)
	}
	for _, subject := range subjects {
		if subject != (access.Subject{}) {
			used := c.usedBy(subject)
			used.active, used.bytes = used.active+1, used.bytes+j.Size
		}
	}
}

// usedBy returns the recounted counters of a quota's subject.
func (c *census) usedBy(subject access.Subject) *counters {
	key := string(countersKey(quotaCounters(subject)))
	if c.counterCache[key] == nil {
		c.counterCache[key] = &counters{}
	}
	return c.counterCache[key]
}

// checkCounters: the stored counters equal the recount, and no other counters are stored,
// except the rates of a board without jobs.
func (c *census) checkCounters(key, value []byte) error {
	kept := decode(value, &v1.Counters{}, countersFromProto)
	counted := c.counterCache[string(key)]
	if counted == nil {
		counted = &counters{}
	}
	delete(c.counterCache, string(key))
	if kept.jobs != counted.jobs || kept.bytes != counted.bytes || kept.active != counted.active || kept.sessions != counted.sessions || kept.empty() {
		return fmt.Errorf("counters %q are %+v, and the jobs and sessions are %+v", key, *kept, *counted)
	}
	board := string(key[1:][:key[0]])
	if board == "" && kept.bucket != (bucket{}) {
		quota := c.get(tableQuota, quotaKey(access.Subject{Principal: string(key[2:])}))
		if key[1] == countersOfQuota {
			quota = c.get(tableQuota, quotaKey(access.Subject{Boards: string(key[2:])}))
		}
		if quota == nil {
			return fmt.Errorf("counters %q have a rate, and there is no quota", key)
		}
	}
	if board != "" && c.get(tableBoard, []byte(board)) == nil {
		return fmt.Errorf("board %q is counted, and not kept", board)
	}
	return nil
}

// checkInterventions: the record of a flow has the token of the last pending intervention, if
// any.
func (c *census) checkInterventions(record *flowRecord) error {
	rows := c.keys(tableIntervention, record.ID.UUID[:])
	if (len(rows) > 0) != (len(record.Interventions) > 0) {
		return fmt.Errorf("flow %s has %d interventions, and knows %v", record.ID, len(rows), record.Interventions)
	}
	all, _ := c.interventions(record)
	if len(all) == 0 {
		return nil
	}
	for i := range rows {
		if !bytes.Equal(rows[i], interventionKey(record.ID, uint32(i))) {
			return fmt.Errorf("flow %s has its intervention %d under %x", record.ID, i, rows[i])
		}
		if i > 0 && all[i].Token.Compare(all[i-1].Token) < 0 {
			return fmt.Errorf("flow %s has intervention %d under an older token than the one before", record.ID, i)
		}
	}
	detail := record.FlowDetail
	detail.Interventions = all
	known, last := record.Pending(), detail.Pending()
	if len(known) == 0 && len(last) == 0 || len(known) == 1 && len(last) > 0 && known[0].Token == last[len(last)-1].Token {
		return nil
	}
	return fmt.Errorf("flow %s knows %+v to be pending, and that are %+v", record.ID, known, last)
}

// checkFound: every index key leads to a job with the values in the key.
func (c *census) checkFound(key []byte) error {
	sequence := sequenceAtEnd(key)
	j := c.job(sequence)
	for _, row := range j.index(new(memory), nil) {
		if row.table == tableJobIndex && bytes.Equal(row.key, key) {
			return nil
		}
	}
	for _, row := range c.keys(tableErrorIndex, errorIndexKey(byJob, string(sequenceKey(sequence)))) {
		e := c.jobError(row[len(row)-positionSize:])
		if bytes.Equal(key, jobIndexKey(byType, e.Failure.Kind, sequence)) {
			return nil
		}
	}
	return fmt.Errorf("index key %q leads to job %+v", key, j.Job)
}

// checkError: every error belongs to a job, and every index key leads to it.
func (c *census) checkError(key, value []byte) error {
	e := decode(value, &v1.JobError{}, command.JobErrorFromProto)
	j, err := c.jobByID(e.Job)
	if err != nil || !bytes.Equal(key, positionKey(e.Position)) {
		return fmt.Errorf("error %x is %+v: %w", key, e, err)
	}
	if !c.hasError(&j.Job, e.Failure.Kind) {
		return fmt.Errorf("job %s is not found by its error %+v", j.ID, e)
	}
	for _, indexKey := range errorIndexKeys(j.Sequence, &e) {
		c.indexKeys++
		if kept, _ := c.cursor(tableErrorIndex).Seek(append(indexKey, key...)); !bytes.Equal(kept, append(indexKey, key...)) {
			return fmt.Errorf("index key %q does not lead to error %+v", indexKey, e)
		}
	}
	if kept := len(c.keys(tableErrorIndex, errorIndexKey(byJob, string(sequenceKey(j.Sequence))))); kept > jobs.MaxJobErrors {
		return fmt.Errorf("job %s has %d errors", j.ID, kept)
	}
	return nil
}

// checkOrder: no job waits for a stop request that the board can perform itself.
func (c *census) checkOrder(j *jobRecord) error {
	unowned := j.State != jobs.StateClaimed && !j.State.Finished()
	switch {
	case (j.State == jobs.StateHeld) != (unowned && j.Held && !j.isUnder(jobs.RequestSuspend)):
		return fmt.Errorf("job %s is %s, and held: %t", j.ID, j.State, j.Held)
	case (j.State == jobs.StateSuspended) != (unowned && j.isUnder(jobs.RequestSuspend)):
		return fmt.Errorf("job %s is %s under the order %+v", j.ID, j.State, j.StopRequest)
	case j.Outcome == jobs.OutcomeCancelled && !j.isUnder(jobs.RequestCancel):
		return fmt.Errorf("job %s is cancelled without a request", j.ID)
	case unowned && j.isUnder(jobs.RequestCancel):
		flow := c.flow(j.Flow)
		if flow == nil || flow.State == logbook.FlowReverted || !j.StopRequest.Revert && !flow.State.Finished() {
			return fmt.Errorf("job %s is %s, cancelled, and there is nothing to undo", j.ID, j.State)
		}
	}
	return nil
}

func (c *census) countClaim(key, value []byte) error {
	session := jobs.SessionID{}
	copy(session.UUID[:], key)
	if _, found := c.findSession(session); !found {
		return fmt.Errorf("a claim of session %s, which is not open", session)
	}
	if value[idSize] != 0 {
		return nil
	}
	c.held++
	if j := c.job(sequenceAtEnd(key)); j.Claim == nil || j.Claim.Session != session {
		return fmt.Errorf("session %s has a claim of job %s, and the job has no such claim", session, j.ID)
	}
	return nil
}

func (c *census) agrees(l ledger) error {
	if uint64(len(c.parked)) != c.rows[tableParked] {
		return fmt.Errorf("%d boards have parked jobs, and %d have a row of them", len(c.parked), c.rows[tableParked])
	}
	for board, parked := range c.parked {
		if counted := c.storedCount(tableParked, []byte(board)); counted != parked {
			return fmt.Errorf("%d jobs of board %s are parked, and %d are counted", parked, board, counted)
		}
	}
	count := func(state jobs.State) uint64 { return c.jobs[stateNumber(state)] }
	for _, pair := range []struct {
		what      string
		one, both uint64
	}{
		{"job ids", c.rows[tableJobID], c.rows[tableJob]},
		{"claimable", c.rows[tableClaimable] + c.rows[tableLabelled] + c.rows[tableReserved], count(jobs.StateClaimable)},
		{"number of boards", c.storedCount(tableBoardCount, boardCountKey), c.rows[tableBoard]},
		{"times at which jobs wait", c.rows[tableWaiting], uint64(len(c.waiting))},
		{"counterCache that are missing", uint64(len(c.counterCache)), 0},
		{"stuck", c.rows[tableStuck], l.Stuck},
		{"own", c.rows[tableOwn], l.Own},
		{"finished", c.rows[tableFinished] + c.rows[tableStuck] + c.rows[tableOwn], count(jobs.StateCompleted) + count(jobs.StateTrashed)},
		{"held claims", c.held, count(jobs.StateClaimed)},
		{"flows of unfinished jobs", c.owned, c.busy},
		{"entities", c.rows[tableEntity], c.rows[tablePresence]},
		{"sessions", c.rows[tableSession], l.OpenSessions},
		{"ended sessions", c.rows[tableEnded], l.KeptEnds},
		{"order of ended sessions", c.rows[tableEndedOrder], l.KeptEnds},
		{"events", c.events, l.KeptEvents},
		{"bytes of events", c.told, l.EventBytes},
		{"principals", c.rows[tablePrincipal], l.Principals},
		{"records of the audit log", c.rows[tableAudit], l.KeptRecords},
		{"names of schedules", c.rows[tableScheduleName], c.rows[tableSchedule]},
		{"postings of schedules", c.rows[tableTemplate], c.rows[tableSchedule]},
		{"number of schedules", c.storedCount(tableScheduleCount, scheduleCountKey), c.rows[tableSchedule]},
		{"due schedules", c.rows[tableScheduleDue], c.scheduled},
		{"jobs of schedules", c.rows[tableJobSchedule], c.rows[tableScheduleJob]},
		{"index keys of errors", c.rows[tableErrorIndex], c.indexKeys},
		{"books with jobs", c.rows[tableBookJobs], uint64(len(c.books))},
		{"definitions", c.rows[tableDefinition], c.rows[tableDefinitionUse]},
		{"definitions of flows", c.rows[tableDefinition], uint64(len(c.built))},
		{"flows of books", c.rows[tableBookFlow] + c.left, c.rows[tableFlow]},
	} {
		if pair.one != pair.both {
			return fmt.Errorf("%s: %d and %d", pair.what, pair.one, pair.both)
		}
	}
	for _, index := range []table{
		tableClaimable, tableLabelled, tableAnyKind, tableLabelledAnyKind, tableDue, tableKey, tableDeadline, tableFinished, tableStuck, tableOwn, tableReserved,
	} {
		if c.rows[index] != c.indexed[index] {
			return fmt.Errorf("table %s has %d rows, and the jobs say %d", tableNames[index], c.rows[index], c.indexed[index])
		}
	}
	if c.jobs != l.Jobs {
		return fmt.Errorf("jobs by state: counted %v, and the ledger has %v", c.jobs, l.Jobs)
	}
	for book, jobsOfBook := range c.books {
		if kept := c.storedCount(tableBookJobs, book.UUID[:]); kept != jobsOfBook {
			return fmt.Errorf("book %s has %d jobs, and counts %d", book, jobsOfBook, kept)
		}
	}
	return nil
}

// Bounds that tests reach.
const (
	MaxPassed         = maxPassed
	MaxEnded          = maxEnded
	MaxOver           = maxOver
	MaxExamined       = maxExamined
	MaxErrorText      = maxErrorText
	MaxErrorsExamined = maxErrorsExamined
	MaxPending        = maxPendingBytes
	MaxAnswered       = maxAnsweredBytes
	StateCount        = stateCount
)

// BadBlock is a snapshot with a damaged block of jobs.
func BadBlock(stream []byte) ([]byte, error) {
	return resaved(stream, func(path string, _ *snapshotHeader) error {
		file, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			return err
		}
		err = file.Update(func(tx *bolt.Tx) error {
			bucket := tx.Bucket([]byte(tableNames[tableJob]))
			key, value := bucket.Cursor().Last()
			return bucket.Put(key, value[1:])
		})
		return errors.Join(err, file.Close())
	})
}

// resaved is a snapshot whose database was changed before its checksum was computed.
func resaved(stream []byte, edit func(path string, header *snapshotHeader) error) (_ []byte, err error) {
	var header snapshotHeader
	if err := binary.Read(bytes.NewReader(stream), binary.BigEndian, &header); err != nil {
		return nil, err
	}
	directory, err := os.MkdirTemp("", "edited")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	path := filepath.Join(directory, "state.db")
	if err := os.WriteFile(path, stream[binary.Size(header):][:header.Size], 0o600); err != nil {
		return nil, err
	}
	if err := edit(path, &header); err != nil {
		return nil, err
	}
	file, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var out bytes.Buffer
	err = file.View(func(tx *bolt.Tx) error {
		header.Size = uint64(tx.Size())
		if err := binary.Write(&out, binary.BigEndian, header); err != nil {
			return err
		}
		if _, err := tx.WriteTo(&out); err != nil {
			return err
		}
		return binary.Write(&out, binary.BigEndian, header.Size)
	})
	sum := sha256.Sum256(out.Bytes())
	return append(out.Bytes(), sum[:]...), err
}

// RefusalOf is the stored reason for a slot whose job is refused.
func RefusalOf(job jobs.JobID, err error) string { return refusalOf(job, err) }

// EachEvent reads a row of events.
func EachEvent(key, row []byte, each func(jobs.Position, []byte) bool) (all bool, err error) {
	defer caught(&err)
	return eachEvent(key, row, each), nil
}

// Damage replaces the value of a row, which has a name as in Rows.
func Damage(m *Machine, row string, value []byte) error {
	name, key, _ := strings.Cut(row, "/")
	t, err := m.begin(m.database, m.status.Load().ledger, newCaches())
	if err != nil {
		return err
	}
	for tab := range tableNames {
		if tableNames[tab] == name {
			t.put(table(tab), []byte(key), value)
		}
	}
	return t.writer.Commit()
}
