package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// story contains the events of a demo, and states of the logbook during the demo. Events show the
// times; the logbook shows the results.
type story struct {
	program *cli.Program
	client  *raftboard.Client
	ready   chan struct{} // closed when the watch has started

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every event
	jobs     map[jobs.JobID]*jobStory
	steps    int // of all jobs
	finished int
	stepped  int // steps with a result
	kills    []*killStory
	faults   map[string]int // by name; only chaos counts them
	shown    time.Time
	recorded map[recordKey]logbook.Attempt // results seen in the logbook
}

type jobStory struct {
	postedJob
	state  jobs.State
	owner  string
	owners []string // all claims, in order
	done   map[string]bool
}

// killStory describes the later states of the jobs of a killed node.
type killStory struct {
	node      string
	at        time.Time
	waiting   map[jobs.JobID]bool // not claimed by another node yet
	claimable []time.Duration     // time since the kill for each job
	claimed   []time.Duration
}

// recordKey names one execution whose result is in the logbook.
type recordKey struct {
	flow   logbook.FlowID
	step   string
	number int
}

func newStory(p *cli.Program, client *raftboard.Client) *story {
	return &story{
		program: p, client: client, ready: make(chan struct{}), changed: make(chan struct{}),
		jobs: map[jobs.JobID]*jobStory{}, recorded: map[recordKey]logbook.Attempt{}, faults: map[string]int{},
	}
}

// follow receives events until ctx ends; then it closes the channel. It starts before the jobs
// are posted, and keeps events of jobs that are not yet expected.
func (s *story) follow(ctx context.Context) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var after *jobs.Position
		for event, err := range s.client.Watch(ctx, jobs.Watch{After: after, Flows: true}) {
			if err != nil {
				if ctx.Err() == nil {
					s.program.Note("the watch of events has ended: %v", err)
				}
				return
			}
			s.hear(event, time.Now())
		}
	}()
	return ended
}

func (s *story) job(id jobs.JobID) *jobStory {
	if s.jobs[id] == nil {
		s.jobs[id] = &jobStory{done: map[string]bool{}}
	}
	return s.jobs[id]
}

func (s *story) expect(posted []postedJob, steps int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range posted {
		s.job(one.id).postedJob = one
		s.steps += steps
		if one.want != jobs.OutcomeSuccess {
			s.steps-- // its last step fails
		}
	}
}

func (s *story) hear(event jobs.Event, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.job(event.Job)
	job.state = event.State
	switch event.Kind {
	case jobs.EventClaimed:
		job.owner = event.Owner
		job.owners = append(job.owners, event.Owner)
		s.noteClaim(event.Job, now)
	case jobs.EventDue, jobs.EventCooled:
		for _, kill := range s.kills {
			if kill.waiting[event.Job] {
				kill.claimable = append(kill.claimable, now.Sub(kill.at))
			}
		}
	case jobs.EventCompleted, jobs.EventTrashed:
		s.finished++
	case jobs.EventFlow:
		for _, step := range event.Steps {
			if step.State == string(logbook.AtomSuccess) && !job.done[step.Name] {
				job.done[step.Name] = true
				s.stepped++
			}
		}
	}
	if event.State != jobs.StateClaimed {
		job.owner = ""
	}
	close(s.changed)
	s.changed = make(chan struct{})
	s.showLocked(now)
}

func (s *story) noteClaim(id jobs.JobID, now time.Time) {
	for _, kill := range s.kills {
		if kill.waiting[id] {
			delete(kill.waiting, id)
			kill.claimed = append(kill.claimed, now.Sub(kill.at))
		}
	}
}

// killed records the death of a node, and returns the number of its jobs.
func (s *story) killed(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	kill := &killStory{node: name, at: time.Now(), waiting: map[jobs.JobID]bool{}}
	for _, id := range s.heldBy(name) {
		kill.waiting[id] = true
	}
	s.kills = append(s.kills, kill)
	return len(kill.waiting)
}

// heldBy lists the jobs of a node; the caller holds the lock, as in the conditions of until.
func (s *story) heldBy(name string) []jobs.JobID {
	var held []jobs.JobID
	for id, job := range s.jobs {
		if name != "" && job.owner == name && job.state == jobs.StateClaimed {
			held = append(held, id)
		}
	}
	return held
}

// handedOver reports whether all jobs of the last kill have owners again; for the conditions of
// until.
func (s *story) handedOver(name string) bool {
	for i := len(s.kills) - 1; i >= 0; i-- {
		if s.kills[i].node == name {
			return len(s.kills[i].waiting) == 0
		}
	}
	return true
}

// until waits until a condition is true. It evaluates the condition again after every event.
func (s *story) until(ctx context.Context, condition func(*story) bool) error {
	for {
		s.mu.Lock()
		holds, changed := condition(s), s.changed
		s.mu.Unlock()
		if holds {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// remember reads the record of every flow, for a comparison at the end: a recorded result must
// never change.
func (s *story) remember(ctx context.Context) error {
	s.mu.Lock()
	var flows []logbook.FlowID
	for _, job := range s.jobs {
		flows = append(flows, job.flow)
	}
	s.mu.Unlock()
	stale := s.client.Stale() // an entry that any node has applied was committed
	for _, id := range flows {
		detail, err := stale.FlowDetail(ctx, id)
		if err != nil {
			return fmt.Errorf("cannot read flow %s: %w", id, err)
		}
		s.mu.Lock()
		eachRecord(&detail, func(key recordKey, attempt logbook.Attempt) {
			if _, known := s.recorded[key]; !known {
				s.recorded[key] = attempt
			}
		})
		s.mu.Unlock()
	}
	return nil
}

// eachRecord calls a function with every execution that has ended.
func eachRecord(detail *logbook.FlowDetail, each func(recordKey, logbook.Attempt)) {
	for i := range detail.Atoms {
		for _, attempt := range detail.Atoms[i].Attempts {
			if attempt.Action == logbook.ActionExecute && attempt.Ended() {
				each(recordKey{detail.ID, detail.Atoms[i].Name, attempt.Number}, attempt)
			}
		}
	}
}

// showLocked shows the progress: in place on a terminal, otherwise as an occasional line.
func (s *story) showLocked(now time.Time) {
	const onTerminal, elsewhere = 100 * time.Millisecond, 3 * time.Second
	pause := elsewhere
	if s.program.Terminal {
		pause = onTerminal
	}
	last := s.finished == len(s.jobs)
	if len(s.jobs) == 0 || s.steps == 0 || (now.Sub(s.shown) < pause && !last) {
		return
	}
	s.shown = now
	line := fmt.Sprintf("jobs %s %d/%d  steps %s %d/%d", tree.Bar(s.finished, len(s.jobs)), s.finished, len(s.jobs), tree.Bar(s.stepped, s.steps), s.stepped, s.steps) + s.suffered()
	if !s.program.Terminal {
		s.program.Note("%s", line)
		return
	}
	fmt.Fprintf(s.program.Err, "\r\x1b[K%s", line)
	if last {
		fmt.Fprintln(s.program.Err)
	}
}
