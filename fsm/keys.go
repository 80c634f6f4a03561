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

// schemaVersion is the version of the tables, their keys and values. A snapshot of
// another version is refused.
const schemaVersion = 25

// table is one of the tables below.
type table = tables.Table

// tableNames are the names of the tables, by number.
var tableNames []string

// named returns the next table. The table's line below is the only place with its name and number.
func named(name string) table {
	tableNames = append(tableNames, name)
	return table(len(tableNames) - 1)
}

// The tables by noun: key → value. Numbers in keys are big-endian, so keys sort like the numbers. Indexes refer to a job
// by its sequence, because it is short and jobs that were posted together are neighbours.
var (
	tableLedger = named("ledger") // the one ledger

	// Jobs.

	tableJob              = named("job")               // sequence → the small, changing part of a job
	tableJobID            = named("job_id")            // job id → sequence, digest of its posting
	tablePosting          = named("posting")           // sequence → details and store of the job; absent if it has neither
	tableEvidence         = named("evidence")          // sequence → the failure in the job's last ending; absent if none
	tableChange           = named("change")            // sequence → ids and digests of the last changes that had an id, oldest first
	tableJobSchedule      = named("job_schedule")      // sequence → the schedule of the job; absent if none
	tableSignal           = named("signal")            // sequence, number → signal that no wait has taken
	tableSignalID         = named("signal_id")         // sequence, id → whether a wait took the signal on arrival; for a signal by key, the key's board
	tableSignalKey        = named("signal_key")        // board, key, signal id → sequence: the job that received a signal by key
	tableKept             = named("kept")              // board, topic, key, number → publication for which nothing has waited
	tableKeptUntil        = named("kept_until")        // end, key of tableKept → nothing
	tablePublicationID    = named("publication_id")    // board, topic, key, id → answer and number of waits
	tablePublicationOrder = named("publication_order") // board, number → key of tablePublicationID: the latest publications
	tablePublications     = named("publications")      // board → counts of its publications
	tableKey              = named("key")               // board, key → sequence: unfinished jobs that have a key
	tableJobIndex         = named("job_index")         // index key, sequence → nothing: jobs by key, tag and type of error, and the trashed ones; see jobFacts.index

	// The claim order: claimable jobs by board and kind, and by board alone for conductors of any
	// kind. Jobs that require labels have their own tables.

	tableClaimable       = named("claimable")         // board, kind, inverted priority, sequence → nothing
	tableLabelled        = named("labelled")          // board, kind, labels, inverted priority, sequence → nothing
	tableAnyKind         = named("any_kind")          // board, inverted priority, sequence → nothing
	tableLabelledAnyKind = named("labelled_any_kind") // board, labels, inverted priority, sequence → nothing
	tableReserved        = named("reserved")          // name of a conductor, sequence → nothing: jobs that only conductors of the name can claim

	// Jobs by time.

	tableDue      = named("due")      // due time, sequence → nothing: delayed, cooling and waiting jobs, and the ends of reservations
	tableDeadline = named("deadline") // deadline, sequence → nothing: unfinished jobs whose deadline has not been dealt with
	tableWaiting  = named("waiting")  // board, awaited event, time → number of such jobs

	// Finished jobs: each is in one of three tables.

	tableFinished = named("finished") // number of the finish → sequence, time
	tableStuck    = named("stuck")    // number of the finish → sequence, time: jobs that need an operator
	tableOwn      = named("own")      // end of the retention, sequence → sequence, time: jobs with their own retention

	// Failed attempts at jobs.

	tableError      = named("error")       // position → a failed attempt at a job
	tableErrorIndex = named("error_index") // index key, position → nothing: errors by job, board, key, kind and type; see errorIndexKeys

	// Sessions, their claims and entities, and conductors.

	tableSession    = named("session")     // session id → session
	tableClaim      = named("claim")       // session id, token, sequence → nonce, and whether the claim has ended
	tableEnded      = named("ended")       // session id → number of its end
	tableEndedOrder = named("ended_order") // number of the end → session id
	tableEntity     = named("entity")      // kind, name, session id → entity
	tablePresence   = named("presence")    // session id, key of the entity → nothing
	tableDrain      = named("drain")       // name of conductors → the drain: by, reason, mode

	// Books and flows.

	tableBook          = named("book")           // book id → book without flows
	tableBookJobs      = named("book_jobs")      // book id → number of jobs that refer to it
	tableBookFlow      = named("book_flow")      // book id, place in the book → flow id
	tableFlow          = named("flow")           // flow id → the small, changing part of a flow
	tableFlowBody      = named("flow_body")      // flow id → arguments, store, meta, targets, policy and cause; absent if it has none
	tableAtom          = named("atom")           // flow id, atom name → atom with its latest attempt
	tableAttempt       = named("attempt")        // flow id, number of the atom, action, number → an earlier attempt
	tableWait          = named("wait")           // flow id, log index of the start, number of the atom → open wait for a signal or an approval
	tableApproval      = named("approval")       // log index of the start, flow ID, number of the atom → open approval
	tableReminder      = named("reminder")       // time, key of an open approval → nothing: its next reminder
	tableSubscription  = named("subscription")   // board, topic, key, log index of the start, flow ID, number of the atom → step: open wait for a publication
	tableCheckpoint    = named("checkpoint")     // flow id, number of the atom, name → checkpoint of a step
	tableIntervention  = named("intervention")   // flow id, number → intervention
	tableGarbage       = named("garbage")        // flow id → nothing: deleted flows that still have rows of steps
	tableDefinition    = named("definition")     // definition id → the definition
	tableDefinitionUse = named("definition_use") // definition id → number of flows that were built from it; absent if none

	// Schedules.

	tableSchedule      = named("schedule")       // schedule id → schedule without its posting
	tableTemplate      = named("template")       // schedule id → its posting
	tableScheduleName  = named("schedule_name")  // board, name → schedule id
	tableScheduleCount = named("schedule_count") // one row → number of schedules
	tableScheduleDue   = named("schedule_due")   // next slot, schedule id → nothing: schedules that are not paused
	tableScheduleJob   = named("schedule_job")   // schedule id, sequence → nothing: its unfinished jobs
	tableSlot          = named("slot")           // schedule id, number → record of a slot
	tableSlotWaiting   = named("slot_waiting")   // schedule id, number → nothing: slots that wait for others to finish

	// Boards.

	tableBoard      = named("board")       // name → board without its counts
	tableBoardCount = named("board_count") // one row → number of boards
	tableCounters   = named("counters")    // board, and the counted part of it → counters; absent if all are zero
	tableParked     = named("parked")      // board → number of its parked jobs; absent if none

	// Principals, quotas, and the records of what happened.

	tablePrincipal = named("principal") // name → principal
	tableQuota     = named("quota")     // 'b' and boards, or 'p' and a principal → quota without its use
	tableAudit     = named("audit")     // index, number in the entry → record of the audit log
	tableEvent     = named("event")     // position of the first → events of one entry, one after the other; see eventBuffer
)

const (
	idSize       = len(uuid.UUID{})
	sequenceSize = 8
	prioritySize = 4
	dueTimeSize  = 12
	positionSize = 12
)

// usualKey is the capacity for most keys with a name. With a constant capacity and an inlined function, a key stays on
// the stack of its caller.
const usualKey = 64

// maxKeyName is the length of the longest name in a key.
const maxKeyName = math.MaxUint8

func sequenceKey(sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, sequenceSize), sequence)
}

// sequenceAtEnd reads the sequence at the end of an index key.
func sequenceAtEnd(key []byte) uint64 {
	if len(key) < sequenceSize {
		panic(corrupt("a key of %d bytes holds no sequence", len(key)))
	}
	return binary.BigEndian.Uint64(key[len(key)-sequenceSize:])
}

// appendName appends a name with its length, so that no name in a key is a prefix of another. Names have at most
// maxKeyName bytes; commands refuse longer ones before.
func appendName(key []byte, name string) []byte {
	return append(append(key, byte(len(name))), name...)
}

// nameOfKey reads the name that appendName wrote.
func nameOfKey(key []byte) (name string, rest []byte) {
	if len(key) == 0 || len(key) <= int(key[0]) {
		return "", nil
	}
	end := 1 + int(key[0])
	return string(key[1:end]), key[end:]
}

// timeKey returns the key form of a time. Keys sort like times.
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

func boardKey(board string) []byte { return appendName(make([]byte, 0, usualKey), board) }

// keyKey returns the key of the row for the unfinished job with a key.
func keyKey(board, key string) []byte { return append(boardKey(board), key...) }

func dueKey(due time.Time, sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(appendTime(make([]byte, 0, dueTimeSize+sequenceSize), due), sequence)
}

// claimKey returns the key of a claim. A session's claims sort by the time at which they were made.
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

func presenceKey(session jobs.SessionID, entity []byte) []byte {
	return append(append([]byte(nil), session.UUID[:]...), entity...)
}

func bookFlowKey(book logbook.BookID, place uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, idSize+4), book.UUID[:]...), place)
}

func atomKey(flow logbook.FlowID, name string) []byte {
	return append(append(make([]byte, 0, usualKey), flow.UUID[:]...), name...)
}

// attemptPrefix returns the prefix of the keys of an atom's earlier attempts.
func attemptPrefix(flow logbook.FlowID, atom uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, usualKey), flow.UUID[:]...), atom)
}

func attemptKey(flow logbook.FlowID, atom uint32, action logbook.Action, number int) []byte {
	key := appendName(attemptPrefix(flow, atom), string(action))
	return binary.BigEndian.AppendUint64(key, uint64(number))
}

// interventionKey returns the key of an intervention. The interventions in a flow sort by number.
func interventionKey(flow logbook.FlowID, number uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, idSize+4), flow.UUID[:]...), number)
}

func scheduleNameKey(board, name string) []byte { return append(boardKey(board), name...) }

func scheduleDueKey(due time.Time, id schedules.ID) []byte {
	return append(timeKey(due), id.UUID[:]...)
}

// scheduleKey returns the key of a schedule's record or job.
func scheduleKey(id schedules.ID, number uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte(nil), id.UUID[:]...), number)
}
