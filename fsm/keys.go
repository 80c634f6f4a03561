package fsm

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/fsm/tables"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// schemaVersion is that of the tables and their keys and values. A snapshot of
// another version is refused.
const schemaVersion = 14

// table is one of the tables below.
type table = tables.Table

// The tables. Numbers in keys are big-endian, so that the order of keys is theirs.
// A job is known to the indexes by its sequence, which is short and puts jobs
// that were posted together side by side.
const (
	tableLedger        table = iota // the one ledger
	tableJob                        // sequence → the small, changing part of a job
	tableJobID                      // job id → sequence, digest of its posting
	tablePosting                    // sequence → details and store of the job; absent if it has neither
	tableEvidence                   // sequence → the failure with which a job was last let go; absent if none
	tableClaimable                  // queue, inverted priority, sequence → nothing: the order of claims
	tableDue                        // due time, sequence → nothing: delayed and cooling jobs, and the ends of reservations
	tableFinished                   // number of the finish → sequence, time: finished jobs, in order
	tableSession                    // session id → session
	tableClaim                      // session id, token, sequence → nonce, and whether the claim is over
	tableEnded                      // session id → number of its end
	tableEndedOrder                 // number of the end → session id
	tableEntity                     // kind, name, session id → entity
	tablePresence                   // session id, key of the entity → nothing
	tableBook                       // book id → book without flows
	tableBookJobs                   // book id → how many jobs refer to it
	tableBookFlow                   // book id, place in the book → flow id
	tableFlow                       // flow id → the small, changing part of a flow
	tableFlowBody                   // flow id → arguments, store, meta, targets, policy and cause; absent if it has none
	tableAtom                       // flow id, atom name → atom with its latest attempt
	tableAttempt                    // flow id, number of the atom, action, number → an earlier attempt
	tableDefinition                 // definition id → what flows were built as
	tableDefinitionUse              // definition id → how many flows were built so; absent if none were
	tableIntervention               // flow id, number → what a person has done to the flow
	tableKey                        // board, key → sequence: unfinished jobs that have a key
	tableDeadline                   // deadline, sequence → nothing: unfinished jobs whose deadline has not been dealt with
	tableLabelled                   // queue, labels, inverted priority, sequence → nothing: as claimable, of jobs that want labels

	tableError      // position → an attempt at a job that did not succeed
	tableJobIndex   // index key, sequence → nothing: jobs by key, tag and type of error, and the trashed ones; see jobFacts.index
	tableErrorIndex // index key, position → nothing: errors by job, board, key, kind and type; see errorIndexKeys

	// Of schedules.

	tableSchedule      // schedule id → schedule without its posting
	tableTemplate      // schedule id → its posting
	tableScheduleName  // board, name → schedule id
	tableScheduleCount // one row: how many schedules there are
	tableScheduleDue   // next slot, schedule id → nothing: schedules that are not paused
	tableSlot          // schedule id, number → record of a slot
	tableSlotWaiting   // schedule id, number → nothing: slots that wait for others to finish
	tableScheduleJob   // schedule id, sequence → nothing: its unfinished jobs
	tableJobSchedule   // sequence → schedule id: the same the other way round

	tableLine // board, inverted priority, sequence → nothing: as claimable, for who takes any kind

	// Of boards.

	tableBoard      // name → board without its counts
	tableBoardCount // one row: how many boards there are
	tableCounters   // board, and what of it is counted → counters; absent where there is nothing
	tableWaiting    // board, what jobs wait for, since or until when → how many do

	tableStuck // number of the finish → sequence, time: as finished, of jobs that wait for a person

	tableGarbage // flow id → nothing: flows that are gone, of whose steps some are left

	tableDrain // name of conductors → who has drained them, why and how

	tableChange // sequence → ids and digests of the last changes that had an id, oldest first

	tableOwn // until when it is kept, sequence → sequence, time: as finished, of jobs with a retention of their own

	tableLabelledLine // board, labels, inverted priority, sequence → nothing: as labelled, for who takes any kind

	tableParked // board → how many of its jobs are parked; absent if none are

	tablePrincipal // name → principal
	tableAudit     // index, number in the entry → record of the audit log
	tableQuota     // 'b' and boards, or 'p' and a principal → quota without what is used

	tableReserved // name of a conductor, sequence → nothing: claimable jobs that only those of the name can claim

	tableEvent // position of the first → events of one entry, one after the other; see eventBuffer
)

var tableNames = [...]string{
	tableLedger: "ledger", tableJob: "job", tableJobID: "job_id", tablePosting: "posting",
	tableEvidence: "evidence", tableClaimable: "claimable", tableDue: "due", tableFinished: "finished",
	tableSession: "session", tableClaim: "claim", tableEnded: "ended", tableEndedOrder: "ended_order",
	tableEntity: "entity", tablePresence: "presence", tableBook: "book", tableBookJobs: "book_jobs",
	tableBookFlow: "book_flow", tableFlow: "flow", tableFlowBody: "flow_body", tableAtom: "atom",
	tableAttempt: "attempt", tableDefinition: "definition", tableDefinitionUse: "definition_use", tableIntervention: "intervention",
	tableKey: "key", tableDeadline: "deadline", tableLabelled: "labelled",
	tableError: "error", tableErrorIndex: "error_index", tableJobIndex: "job_index",
	tableSchedule: "schedule", tableTemplate: "template", tableScheduleName: "schedule_name", tableScheduleCount: "schedule_count",
	tableScheduleDue: "schedule_due", tableSlot: "slot", tableSlotWaiting: "slot_waiting",
	tableScheduleJob: "schedule_job", tableJobSchedule: "job_schedule", tableLine: "line",
	tableBoard: "board", tableBoardCount: "board_count", tableCounters: "counters", tableWaiting: "waiting",
	tableStuck: "stuck", tableGarbage: "garbage",
	tableDrain: "drain", tableChange: "change", tableOwn: "own",
	tableParked:       "parked",
	tableReserved:     "reserved",
	tableEvent:        "event",
	tableLabelledLine: "labelled_line",
	tablePrincipal:    "principal",
	tableAudit:        "audit",
	tableQuota:        "quota",
}

const (
	idSize       = len(uuid.UUID{})
	sequenceSize = 8
	prioritySize = 4
	dueTimeSize  = 12
	positionSize = 12
)

// usualKey is room for most keys that hold a name. Where a key has constant room and its
// function is inlined, it stays on the stack of a caller that reads or writes a row.
const usualKey = 64

func sequenceKey(sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, sequenceSize), sequence)
}

// sequenceAtEnd reads the sequence with which the keys of most indexes end.
func sequenceAtEnd(key []byte) uint64 {
	if len(key) < sequenceSize {
		panic(corrupt("a key of %d bytes holds no sequence", len(key)))
	}
	return binary.BigEndian.Uint64(key[len(key)-sequenceSize:])
}

// appendName makes names in keys prefix-free. Names have at most 255 bytes;
// post refuses others before they become part of a key.
func appendName(key []byte, name string) []byte {
	return append(append(key, byte(len(name))), name...)
}

// maxKeyName is the longest name that a key can hold.
const maxKeyName = math.MaxUint8

func boardKey(board string) []byte { return appendName(make([]byte, 0, usualKey), board) }

// keyKey leads to the unfinished job that has a key.
func keyKey(board, key string) []byte { return append(boardKey(board), key...) }

// timeKey sorts any time.
func timeKey(at time.Time) []byte { return appendTime(make([]byte, 0, dueTimeSize), at) }

func appendTime(key []byte, at time.Time) []byte {
	key = binary.BigEndian.AppendUint64(key, uint64(at.Unix())^1<<63)
	return binary.BigEndian.AppendUint32(key, uint32(at.Nanosecond()))
}

func timeOfKey(key []byte) time.Time {
	if len(key) < dueTimeSize {
		panic(corrupt("a key of %d bytes holds no time", len(key)))
	}
	seconds := int64(binary.BigEndian.Uint64(key) ^ 1<<63)
	return time.Unix(seconds, int64(binary.BigEndian.Uint32(key[8:]))).UTC()
}

func dueKey(due time.Time, sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(appendTime(make([]byte, 0, dueTimeSize+sequenceSize), due), sequence)
}

// claimKey puts a session's claims in the order in which they were made.
func claimKey(session jobs.SessionID, token jobs.Token, sequence uint64) []byte {
	key := append(make([]byte, 0, idSize+8+8+sequenceSize), session.UUID[:]...)
	key = binary.BigEndian.AppendUint64(key, token.Generation)
	key = binary.BigEndian.AppendUint64(key, token.Index)
	return binary.BigEndian.AppendUint64(key, sequence)
}

func entityKey(kind, name string, session jobs.SessionID) []byte {
	return append(appendName(appendName(nil, kind), name), session.UUID[:]...)
}

// entityOfKey reads kind and name of an entity from its key.
func entityOfKey(key []byte) (kind, name string) {
	kind, rest := nameOfKey(key)
	name, _ = nameOfKey(rest)
	return kind, name
}

// nameOfKey is appendName backwards.
func nameOfKey(key []byte) (name string, rest []byte) {
	if len(key) == 0 || len(key) <= int(key[0]) {
		return "", nil
	}
	end := 1 + int(key[0])
	return string(key[1:end]), key[end:]
}

func presenceKey(session jobs.SessionID, entity []byte) []byte {
	return append(append([]byte(nil), session.UUID[:]...), entity...)
}

func bookFlowKey(book logbook.BookID, place uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, idSize+4), book.UUID[:]...), place)
}

func atomKey(flow logbook.FlowID, name string) []byte {
	return append(append(make([]byte, 0, usualKey), flow.UUID[:]...), name...)
}

// attemptPrefix is where the earlier attempts of an atom begin.
func attemptPrefix(flow logbook.FlowID, atom uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, usualKey), flow.UUID[:]...), atom)
}

func attemptKey(flow logbook.FlowID, atom uint32, action logbook.Action, number int) []byte {
	key := appendName(attemptPrefix(flow, atom), string(action))
	return binary.BigEndian.AppendUint64(key, uint64(number))
}

// interventionKey puts the interventions in a flow in their order.
func interventionKey(flow logbook.FlowID, number uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, idSize+4), flow.UUID[:]...), number)
}

func positionKey(position jobs.Position) []byte {
	key := binary.BigEndian.AppendUint64(make([]byte, 0, positionSize), position.Index)
	return binary.BigEndian.AppendUint32(key, position.Item)
}

func positionOfKey(key []byte) jobs.Position {
	if len(key) != positionSize {
		panic(corrupt("a key of %d bytes is no position", len(key)))
	}
	return jobs.Position{Index: binary.BigEndian.Uint64(key), Item: binary.BigEndian.Uint32(key[8:])}
}

func scheduleNameKey(board, name string) []byte { return append(boardKey(board), name...) }

func scheduleDueKey(due time.Time, id schedules.ID) []byte {
	return append(timeKey(due), id.UUID[:]...)
}

// scheduleKey is for what a schedule has many of: records and jobs.
func scheduleKey(id schedules.ID, number uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte(nil), id.UUID[:]...), number)
}
