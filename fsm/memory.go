package fsm

import (
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Bounds of the memory for values. It begins with room for what a busy entry
// writes, and what a batch of large values needed is not kept beyond it.
const (
	firstMemory = 64 << 10
	keptMemory  = 2 << 20
)

// memory is where the values of a batch are put, one behind the other. The
// tables copy what they are given, so that one batch can use the memory of the
// one before it: making it anew for each value, and
// collecting it, was a fifth of what applying a posting costs.
type memory struct {
	present       []byte // what is in use, with room at its end
	events        eventBuffer
	before, after []indexRow // of a job that is put
	posted        jobRecord  // see newJob
	fenced        jobRecord  // see fence
	steps         []jobs.StepEvent
	cause         logbook.Failure // see planUpdate
}

// messages are those that are filled and encoded again and again. Nothing refers
// to them between.
type messages struct {
	job     v1.JobRow
	event   v1.Event
	posting v1.PostingRow
	flow    v1.FlowRow
	atom    v1.AtomDetail
	attempt v1.Attempt
}

// takeJob gives the job that was put last, as it is answered. It is the caller's
// from now on.
func (m *messages) takeJob() *v1.Job {
	taken := m.job.Job
	m.job.Job = nil
	return taken
}

// room gives a slice without length and with that capacity.
func (m *memory) room(size int) []byte {
	used := len(m.present)
	if cap(m.present)-used < size {
		// The values before stay where they are until nobody refers to them.
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
