// Package steplog keeps the recent output of steps, in the memory of the process that runs the
// steps. The output is lost when the process ends.
//
// A Buffer has the lines of all jobs that run in the process, and of jobs that ran recently. Its
// size is bounded. Above MaxAttempt, it drops the oldest lines of an attempt. Above MaxBuffer, it
// drops the lines of ended jobs first, and then lines of the largest attempts. Line.Offset shows
// how much was dropped.
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
	// MaxAttempt bounds the lines of one attempt, in bytes. It is enough for some thousand
	// lines.
	MaxAttempt = 256 << 10
	// MaxBuffer bounds all lines, in bytes. It is enough for 64 full attempts, which is the
	// default number of parallel steps of a conductor.
	MaxBuffer = 64 * MaxAttempt
	maxPage   = 256 << 10 // bytes of the lines of one page, which has at least one line
	lineCost  = 160       // bytes of a line in addition to its text
	// MaxPages is the number of pages that is enough for one job in a full buffer.
	MaxPages = 2 * MaxBuffer / maxPage
)

// Line is one line of output of an attempt at a step.
type Line struct {
	Number  uint64 // order among all lines of the buffer
	Step    string
	Action  logbook.Action
	Attempt int
	Time    time.Time
	Text    string
	// Offset is the number of bytes that the attempt wrote before this line. If the previous
	// line ends earlier, the bytes between were dropped.
	Offset int64
}

// Query selects lines of a job.
type Query struct {
	Job   jobs.JobID
	Step  string        // empty: all steps
	After string        // Page.Next of the previous page; empty: start at the first kept line
	Wait  time.Duration // maximum wait for a line while the job runs
}

// Page is the answer to a Query.
type Page struct {
	Lines   []Line
	Next    string
	Running bool   // the conductor of Node runs the job: more lines can follow
	Node    string // the node whose conductor has the job, or had it last; empty: none
}

// Buffer keeps lines. Its methods may be called concurrently, and do not wait.
type Buffer struct {
	node, id string // the id invalidates cursors of an earlier process

	mu    sync.Mutex // guards the fields below
	logs  map[jobs.JobID]*jobLog
	ended []jobs.JobID // jobs in logs that no longer run, in the order of their ends
	size  int          // bytes of all lines
	last  uint64       // number of the latest line
}

// jobLog has the lines of one job. Buffer.mu guards it.
type jobLog struct {
	runs     int // number of current runs
	attempts []*attemptLog
	changed  chan struct{} // closed at the next change; nil: no reader waits
}

type attemptLog struct {
	step    string
	action  logbook.Action
	attempt int
	lines   []Line // oldest first
	size    int
	written int64
}

// New makes an empty Buffer for the node with this name.
func New(node string) *Buffer {
	return &Buffer{node: node, id: uuid.NewString(), logs: make(map[jobs.JobID]*jobLog)}
}

// Begin marks a job as running, until end is called. Append keeps lines of running jobs only.
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

// Append keeps a line of a running job, and sets its Number and Offset. bytes is the size of its
// text before encryption.
func (b *Buffer) Append(job jobs.JobID, line Line, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	log := b.logs[job]
	if log == nil || log.runs == 0 {
		return // the run has abandoned the step
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
	a.lines[0] = Line{} // frees the text; the array is still used
	a.lines = a.lines[1:]
	a.size -= size
	b.size -= size
}

// trimLocked drops the lines of the job that ended first. If no job has ended, it drops one line of
// the largest attempt.
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

// Read returns the selected lines without waiting; it ignores q.Wait. The channel is closed when more
// lines can exist, and is nil if the job does not run here. ErrInvalid if q.After is not a Page.Next.
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

// read returns the lines of a page. It merges the sorted lines of the attempts, which is fast:
// writers wait for the lock meanwhile.
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

// heads is a heap of line lists, sorted by the number of their first line.
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

// cursorParts is the number of parts of a Page.Next: line number, id of the buffer, node.
const cursorParts = 3

func (b *Buffer) position(cursor string) (uint64, error) {
	if cursor == "" {
		return 0, nil
	}
	parts := strings.SplitN(cursor, ".", cursorParts)
	after, err := strconv.ParseUint(parts[0], 10, 63)
	switch {
	case err != nil || len(parts) < cursorParts:
		return 0, &logbook.InvalidError{Field: "after", Reason: fmt.Sprintf("%.128q is not the cursor of an earlier page", cursor)}
	case parts[1] != b.id:
		return 0, nil // cursor of another node, or from before a restart
	}
	return after, nil
}

// BufferOf returns the part of a Page.Next that identifies its buffer: id and node. It is empty for
// an empty Page.Next.
func BufferOf(next string) string {
	_, buffer, _ := strings.Cut(next, ".")
	return buffer
}
