package fsm

import (
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Sizes of the buffer for values. firstMemory is enough for the writes of a busy entry. A buffer over
// keptMemory is released after the batch.
const (
	firstMemory = 64 << 10
	keptMemory  = 2 << 20
)

// memory has the buffers for the values of a batch. The tables copy their values, so the next batch can
// reuse the buffers. New memory for each value was a fifth of the cost of a posting.
type memory struct {
	present       []byte // the current buffer: used bytes, then free capacity
	events        eventBuffer
	before, after []indexRow // index rows in reindex
	posted        jobRecord  // see newJob
	fenced        jobRecord  // see fence
	steps         []jobs.StepEvent
	cause         logbook.Failure // see planUpdate
}

// messages are reused for encoding. Nothing refers to a message after it is encoded.
type messages struct {
	job     v1.JobRow
	event   v1.Event
	posting v1.PostingRow
	flow    v1.FlowRow
	atom    v1.AtomDetail
	attempt v1.Attempt
}

// takeJob returns the message of the job that was stored last. The caller owns it, and the next putJob
// makes a new one.
func (m *messages) takeJob() *v1.Job {
	taken := m.job.Job
	m.job.Job = nil
	return taken
}

// room returns an empty slice with the given capacity.
func (m *memory) room(size int) []byte {
	used := len(m.present)
	if cap(m.present)-used < size {
		// Earlier values keep the old buffer alive.
		m.present, used = make([]byte, 0, max(size, 2*cap(m.present), firstMemory)), 0
	}
	m.present = m.present[:used+size]
	return m.present[used : used : used+size]
}

// reset reuses the buffers for the next batch. Nothing may refer to their old content.
func (m *memory) reset() {
	if cap(m.present) > keptMemory {
		m.present = nil
	}
	m.present = m.present[:0]
	m.events.row = m.events.row[:0]
}

// encode is like the function encode; the bytes live until reset.
func (m *memory) encode(prefix []byte, message proto.Message) []byte {
	size := command.SizeOf(message)
	value, err := command.AppendMessage(append(m.room(len(prefix)+size), prefix...), message, size)
	if err != nil {
		panic(unencodable(message, err))
	}
	return value
}

// indexRow is a row of an index.
type indexRow struct {
	table      table
	key, value []byte
}
