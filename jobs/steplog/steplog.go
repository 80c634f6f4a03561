// Package steplog keeps what running steps write, in the memory of the process that runs
// them, for people who read it meanwhile. Nothing of it survives the process.
//
// A Buffer has the lines of all jobs that run in the process, and is bounded whatever the steps
// write: above MaxAttempt, the oldest lines of an attempt are dropped; above MaxBuffer, first
// those of jobs that run no more, then those of the largest attempts. Line.Offset shows a
// reader how much was dropped.
package steplog

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const (
	// MaxAttempt bounds the lines of one attempt, in bytes: some thousand lines, more than a
	// person reads afterwards.
	MaxAttempt = 256 << 10
	// MaxBuffer bounds all lines: as much as 64 attempts may have, which are the steps that a
	// conductor runs at once by default.
	MaxBuffer = 64 * MaxAttempt
	maxPage   = 256 << 10 // bytes of the lines of one answer, which has one at least
	lineCost  = 160       // what a line takes besides its text
	// MaxPages is enough for all lines that a full buffer has of one job.
	MaxPages = 2 * MaxBuffer / maxPage
)

// Line is one line that an attempt at a step has written.
type Line struct {
	Number  uint64 // its place among all lines of a buffer
	Step    string
	Action  logbook.Action
	Attempt int
	Time    time.Time
	Text    string
	// Offset is how many bytes the attempt has written before. If the line before ends
	// earlier, what is between them was dropped.
	Offset int64
}

// Query selects lines of a job.
type Query struct {
	Job   jobs.JobID
	Step  string        // empty: of all steps
	After string        // the Next of the page before; empty: from the first line that is kept
	Wait  time.Duration // for a line, while the job runs
}

// Page is the answer to a Query.
type Page struct {
	Lines   []Line
	Next    string
	Running bool   // the job runs there, so more may follow
	Node    string // whose conductor has the job, or had it; empty: none
}

// Buffer keeps lines. Its methods may be called concurrently, and do not block.
type Buffer struct {
	node, id string // the id voids the cursors of an earlier process

	mu    sync.Mutex
	logs  map[jobs.JobID]*jobLog
	ended []jobs.JobID // that run no more, and are in logs; oldest first
	size  int          // of all lines
	last  uint64       // number of the last line
}

// jobLog is what is kept of one job. Under Buffer.mu.
type jobLog struct {
	runs     int // that go on
	attempts []*attemptLog
	changed  chan struct{} // closed at the next change; nil: nobody waits
}

type attemptLog struct {
	step    string
	action  logbook.Action
	attempt int
	lines   []Line // oldest first
	size    int
	written int64
}

// New makes the Buffer of a node.
func New(node string) *Buffer {
	return &Buffer{node: node, id: uuid.NewString(), logs: make(map[jobs.JobID]*jobLog)}
}

// Begin lets lines of a job be kept, until end is called.
func (b *Buffer) Begin(job jobs.JobID) (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	log := b.logs[job]
	switch {
	case log == nil:
		log = new(jobLog)
		b.logs[job] = log
	case log.runs == 0:
		b.ended = slices.DeleteFunc(b.ended, func(ended jobs.JobID) bool { return ended == job })
	}
	log.runs++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		log.runs--
		log.notify()
		switch {
		case log.runs > 0:
		case len(log.attempts) == 0:
			delete(b.logs, job)
		default:
			b.ended = append(b.ended, job)
		}
	}
}

// Append keeps a line of a job that runs. Bytes is the size of its text before it was encrypted.
func (b *Buffer) Append(job jobs.JobID, line Line, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	log := b.logs[job]
	if log == nil || log.runs == 0 {
		return // of a step that a run has left behind
	}
	a := log.attempt(&line)
	b.last++
	line.Number, line.Offset = b.last, a.written
	a.written += int64(bytes) + 1
	a.lines = append(a.lines, line)
	a.size += len(line.Text) + lineCost
	b.size += len(line.Text) + lineCost
	for a.size > MaxAttempt {
		b.dropLocked(a)
	}
	for b.size > MaxBuffer {
		b.trimLocked()
	}
	log.notify()
}

func (l *jobLog) notify() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

func (l *jobLog) attempt(line *Line) *attemptLog {
	for _, a := range slices.Backward(l.attempts) {
		if a.step == line.Step && a.action == line.Action && a.attempt == line.Attempt {
			return a
		}
	}
	l.attempts = slices.DeleteFunc(l.attempts, func(a *attemptLog) bool { return a.step == line.Step && len(a.lines) == 0 })
	a := &attemptLog{step: line.Step, action: line.Action, attempt: line.Attempt}
	l.attempts = append(l.attempts, a)
	return a
}

func (b *Buffer) dropLocked(a *attemptLog) {
	size := len(a.lines[0].Text) + lineCost
	a.lines[0] = Line{} // the array behind it lives on
	a.lines = a.lines[1:]
	a.size -= size
	b.size -= size
}

// trimLocked drops the job that ended first, or a line of the largest attempt.
func (b *Buffer) trimLocked() {
	if len(b.ended) > 0 {
		for _, a := range b.logs[b.ended[0]].attempts {
			b.size -= a.size
		}
		delete(b.logs, b.ended[0])
		b.ended = b.ended[1:]
		return
	}
	var largest *attemptLog
	for _, log := range b.logs {
		for _, a := range log.attempts {
			if largest == nil || a.size > largest.size {
				largest = a
			}
		}
	}
	b.dropLocked(largest)
}

// Read returns the lines that a query selects, without waiting, and a channel that is closed
// when there may be more; nil if the job does not run here. ErrInvalid if After is no Next.
func (b *Buffer) Read(q Query) (page Page, changed <-chan struct{}, err error) {
	after, err := b.position(q.After)
	if err != nil {
		return Page{}, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	page.Node = b.node
	if log := b.logs[q.Job]; log != nil {
		page.Lines = log.read(q.Step, after)
		if page.Running = log.runs > 0; page.Running {
			if log.changed == nil {
				log.changed = make(chan struct{})
			}
			changed = log.changed
		}
	}
	if n := len(page.Lines); n > 0 {
		after = page.Lines[n-1].Number
	}
	page.Next = strconv.FormatUint(after, 10) + "." + b.id + "." + b.node
	return page, changed, nil
}

// read returns the lines of a page. It merges the attempts, because those that write wait for it.
func (l *jobLog) read(step string, after uint64) (lines []Line) {
	var rests heads
	for _, a := range l.attempts {
		if step == "" || step == a.step {
			first, _ := slices.BinarySearchFunc(a.lines, after+1, func(line Line, number uint64) int { return cmp.Compare(line.Number, number) })
			if first < len(a.lines) {
				rests = append(rests, a.lines[first:])
			}
		}
	}
	heap.Init(&rests)
	for size := 0; len(rests) > 0; {
		line := rests[0][0]
		if size += len(line.Text) + lineCost; size > maxPage && len(lines) > 0 {
			break
		}
		lines = append(lines, line)
		if rests[0] = rests[0][1:]; len(rests[0]) > 0 {
			heap.Fix(&rests, 0)
		} else {
			heap.Pop(&rests)
		}
	}
	return lines
}

// heads is a heap of lines by the number of the first.
type heads [][]Line

func (h heads) Len() int           { return len(h) }
func (h heads) Less(i, j int) bool { return h[i][0].Number < h[j][0].Number }
func (h heads) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(rest any)     { *h = append(*h, rest.([]Line)) }

func (h *heads) Pop() any {
	last := len(*h) - 1
	rest := (*h)[last]
	*h = (*h)[:last]
	return rest
}

// cursorParts are the parts of a Next: number, id of the buffer, node.
const cursorParts = 3

func (b *Buffer) position(cursor string) (uint64, error) {
	if cursor == "" {
		return 0, nil
	}
	parts := strings.SplitN(cursor, ".", cursorParts)
	after, err := strconv.ParseUint(parts[0], 10, 63)
	switch {
	case err != nil || len(parts) < cursorParts:
		return 0, &logbook.InvalidError{Field: "after", Reason: fmt.Sprintf("%.128q is not the next of a page", cursor)}
	case parts[1] != b.id:
		return 0, nil // of another node, or of one that was started again
	}
	return after, nil
}

// BufferOf names the buffer from which a Next is, by its id and node; empty: none.
func BufferOf(next string) string {
	_, buffer, _ := strings.Cut(next, ".")
	return buffer
}
