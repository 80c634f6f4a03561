package listen

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// StepTime is the time that one step has taken.
type StepTime struct {
	Step string
	// Attempts are the ended executions and reverts, Failures the failed ones among them.
	Attempts, Failures int
	// Executing and Reverting are the total times of those attempts.
	Executing, Reverting time.Duration
	// Started is the start of the first attempt, Ended the end of the last one; zero if there is
	// none.
	Started, Ended time.Time
}

// Durations measures how long steps take. Its zero value is ready; its
// methods may be called at any time.
type Durations struct {
	mu    sync.Mutex
	steps []StepTime
	index map[string]int
	flow  StepTime
}

// Hear measures an event.
func (d *Durations) Hear(event engine.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if event.Step == "" {
		d.hearFlow(event)
		return
	}
	attempt := event.Attempt
	if attempt == nil {
		return
	}
	at, ok := d.index[event.Step]
	if !ok {
		if len(d.steps) == logbook.MaxLimits.Steps {
			return // no flow has as many: several runs share this one
		}
		if d.index == nil {
			d.index = make(map[string]int)
		}
		at = len(d.steps)
		d.index[event.Step] = at
		d.steps = append(d.steps, StepTime{Step: event.Step, Started: attempt.StartedAt})
	}
	d.steps[at].add(attempt)
}

func (d *Durations) hearFlow(event engine.Event) {
	if d.flow.Started.IsZero() {
		d.flow.Started = event.Time
	}
	d.flow.Ended = time.Time{}
	if event.Flow.Finished() || event.Flow == logbook.FlowSuspended {
		d.flow.Ended = event.Time
	}
}

func (s *StepTime) add(attempt *logbook.Attempt) {
	if !attempt.Ended() {
		return
	}
	s.Attempts++
	if attempt.Failure != nil {
		s.Failures++
	}
	took := attempt.EndedAt.Sub(attempt.StartedAt)
	if attempt.Action == logbook.ActionRevert {
		s.Reverting += took
	} else {
		s.Executing += took
	}
	s.Ended = attempt.EndedAt
}

// Miss does nothing: a missing time stays missing.
func (d *Durations) Miss(int) {}

// Steps are the steps in the order of their starts.
func (d *Durations) Steps() []StepTime {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.steps)
}

// Flow returns the start and the end of the flow in the observed runs; zero if it has not started
// or ended.
func (d *Durations) Flow() (started, ended time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flow.Started, d.flow.Ended
}

// Capture keeps the latest events. Make one with NewCapture; its methods may
// be called at any time.
type Capture struct {
	mu     sync.Mutex
	size   int
	events []engine.Event // a ring once it is full
	oldest int
	missed int
}

// NewCapture makes a Capture for size events, or DefaultCapacity if size is not positive.
func NewCapture(size int) *Capture {
	if size <= 0 {
		size = DefaultCapacity
	}
	return &Capture{size: size}
}

// Hear keeps an event. When the Capture is full, it replaces the oldest one.
func (c *Capture) Hear(event engine.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.events) < c.size {
		c.events = append(c.events, event)
		return
	}
	c.events[c.oldest] = event
	c.oldest = (c.oldest + 1) % c.size
	c.missed++
}

// Miss counts events that are not kept.
func (c *Capture) Miss(count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missed += count
}

// Events are the events that were kept, oldest first.
func (c *Capture) Events() []engine.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Concat(c.events[c.oldest:], c.events[:c.oldest])
}

// Missed is the number of events that were not kept: dropped ones and replaced ones.
func (c *Capture) Missed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missed
}

// Print writes a line for each event: the time, the subject of the change, and the change. After
// an error of the writer it writes nothing more.
func Print(w io.Writer) Listener { return &printer{out: w} }

type printer struct {
	out    io.Writer
	broken bool
}

func (p *printer) line(format string, arguments ...any) {
	if p.broken {
		return
	}
	_, err := fmt.Fprintf(p.out, format+"\n", arguments...)
	p.broken = err != nil
}

// Miss writes the number of missing events.
func (p *printer) Miss(count int) { p.line("(%d events are missing here)", count) }

// Hear writes an event.
func (p *printer) Hear(event engine.Event) {
	const clock = "15:04:05.000"
	at := event.Time.Format(clock)
	if event.Step == "" {
		p.line("%s flow %s", at, event.Flow)
		return
	}
	if event.Difference != nil {
		p.line("%s since its start: %s", at, event.Difference)
		return
	}
	text := at + " " + event.Step
	if event.State != "" {
		text += " " + string(event.State)
	}
	if attempt := event.Attempt; attempt != nil {
		text += fmt.Sprintf(" (%s %d", attempt.Action, attempt.Number)
		if attempt.Ended() {
			text += fmt.Sprintf(", %s", attempt.EndedAt.Sub(attempt.StartedAt))
		}
		text += ")"
		if attempt.Failure != nil {
			text += ": " + fmt.Sprintf("%q", attempt.Failure.Message)
		}
	}
	if progress := event.Progress; progress != nil {
		text += fmt.Sprintf(" %d", progress.Done)
		if progress.Total > 0 {
			text += fmt.Sprintf("/%d", progress.Total)
		}
	}
	if !event.RetryAt.IsZero() {
		text += ", again at " + event.RetryAt.Format(clock)
	}
	p.line("%s", text)
}
