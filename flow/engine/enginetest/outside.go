package enginetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/fields"
	"github.com/conductord/conductord/logbook/memory"
)

// message is a signal, or a decision of the approval of a step.
type message struct {
	after    time.Duration // the start of the wait
	signal   *logbook.Signal
	topic    string // of a publication; its signal has the same name
	key      string
	step     string
	decision *logbook.Decision
	err      error // the message cannot be made

	planned, due bool
}

// Signal sends a signal when a step waits for it. Several signals of one name go to the waits in
// order. The data are encoded as JSON.
func Signal(name string, data any) Option {
	encoded, err := json.Marshal(data)
	return send(message{signal: &logbook.Signal{Name: name, Data: encoded}, err: err})
}

// Publish publishes to a topic and a key when a step waits for them. Several publications go to the waits in order. The
// data are encoded as JSON.
func Publish(topic, key string, data any) Option {
	encoded, err := json.Marshal(data)
	return send(message{signal: &logbook.Signal{Name: topic, Data: encoded}, topic: topic, key: key, err: err})
}

// RejectSignal sends a rejection instead of a signal, so that the wait fails.
func RejectSignal(name, reason string) Option {
	return send(message{signal: &logbook.Signal{Name: name, Reject: reason}})
}

// Decide decides the approval of a step, or withdraws the person's approval. Without a Kind, the
// person approves. Roles are the roles of the person; none: all needed roles, as without access
// control. The rules are those of a cluster. A run has no poster, so every person can decide.
//
// A decision after the end of the approval goes to the next approval of the step, for example in
// the next round of a retry.
func Decide(step string, decision logbook.Decision) Option {
	if decision.Kind == "" {
		decision.Kind = logbook.Approve
	}
	return send(message{step: step, decision: &decision})
}

// After delays a Signal, RejectSignal or Decide by a time from the start of the wait. If the wait
// ends earlier, the next wait takes the message.
func After(d time.Duration, message Option) Option {
	return func(s *settings) {
		first := len(s.messages)
		message(s)
		for i := first; i < len(s.messages); i++ {
			s.messages[i].after += d
		}
	}
}

func send(m message) Option { return func(s *settings) { s.messages = append(s.messages, m) } }

// outside sends the messages of one run to its record, as a cluster does, and notifies the engine. It outlives a
// crash of the run's process.
type outside struct {
	flow   logbook.FlowID
	record *memory.Connection
	taken  chan engine.TakenSignal // has room for all messages

	mu      sync.Mutex
	unsent  []*message      // in the order of the options
	seen    map[string]bool // waits: step and attempt
	open    []openWait      // in the order of their starts; some have ended
	signals []string        // for which steps waited, for errors
	topics  []string        // including their keys
	steps   []string        // that waited for an approval
	refused []error
	timers  []*time.Timer
}

type openWait struct {
	step string
	wait *logbook.Wait
}

// takes reports whether a wait is one for a message.
func (w *openWait) takes(m *message) bool {
	if m.topic != "" {
		return w.wait.TakesFrom(m.topic, m.key)
	}
	if m.signal != nil {
		return w.wait.Takes(m.signal.Name)
	}
	return w.wait.Approval != nil && w.step == m.step
}

// newOutside sends messages to a run. began is the start of the first run of the test. All runs get messages with
// the same times, because results contain the times.
func newOutside(flow logbook.FlowID, record *memory.Connection, messages []message, began time.Time) *outside {
	o := &outside{flow: flow, record: record, taken: make(chan engine.TakenSignal, len(messages)), seen: make(map[string]bool)}
	for i, m := range messages {
		id := "message-" + strconv.Itoa(i+1)
		if m.signal != nil {
			signal := *m.signal
			signal.ID, signal.At, m.signal = id, began.Add(m.after), &signal
		} else {
			decision := *m.decision
			decision.ID, decision.At, m.decision = id, began.Add(m.after), &decision
		}
		o.unsent = append(o.unsent, &m)
	}
	return o
}

// close stops the messages that are due later.
func (o *outside) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, timer := range o.timers {
		timer.Stop()
	}
}

// follow sends the messages for the waits that an update has started.
func (o *outside) follow(update *logbook.Update) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range update.Atoms {
		change := &update.Atoms[i]
		for _, attempt := range change.Attempts {
			key := fmt.Sprintf("%s %d", change.Name, attempt.Number)
			if attempt.Action != logbook.ActionExecute || attempt.Ended() || !attempt.Wait.Open() || o.seen[key] {
				continue
			}
			o.seen[key] = true
			if attempt.Wait.Approval != nil {
				o.steps = append(o.steps, change.Name)
			}
			o.signals = append(o.signals, attempt.Wait.Signals...)
			if attempt.Wait.Topic != "" {
				o.topics = append(o.topics, place(attempt.Wait.Topic, attempt.Wait.Key))
			}
			o.meetLocked(openWait{change.Name, attempt.Wait})
		}
	}
}

// meetLocked plans the messages for a new wait: the next signal, or all decisions. The wait takes messages that are
// due at once.
func (o *outside) meetLocked(w openWait) {
	o.open = append(o.open, w)
	for _, m := range slices.Clone(o.unsent) {
		if !w.takes(m) {
			continue
		}
		isNew := !m.planned
		m.planned = true
		switch {
		case m.due, isNew && m.after <= 0:
			m.due = true
			o.sendLocked(m)
		case isNew:
			o.timers = append(o.timers, time.AfterFunc(m.after, func() { o.send(m) }))
		default:
			continue // it comes later, planned for an earlier wait
		}
		if m.signal != nil {
			return
		}
	}
}

// send makes a message due.
func (o *outside) send(m *message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m.due = true
	o.sendLocked(m)
}

// sendLocked writes a message to the record of the first step that waits for it, and notifies the engine. Without such
// a step, the message is kept for the next wait.
func (o *outside) sendLocked(m *message) {
	for _, w := range o.open {
		if !w.takes(m) {
			continue
		}
		var taken *logbook.Signal
		err := o.record.ChangeWait(o.flow, w.step, func(atom *logbook.AtomDetail) error {
			err := m.reach(atom)
			taken = atom.OpenWait().Signal
			return err
		})
		if errors.Is(err, logbook.ErrNotFound) {
			continue
		}
		o.unsent = slices.DeleteFunc(o.unsent, func(other *message) bool { return other == m })
		if err != nil {
			o.refused = append(o.refused, fmt.Errorf("%s was refused: %w", m, err))
		}
		if taken != nil {
			o.taken <- engine.TakenSignal{Step: w.step, Signal: *taken}
		}
		return
	}
}

// reach changes a step that waits for the message.
func (m *message) reach(atom *logbook.AtomDetail) error {
	if m.err != nil {
		return m.err
	}
	if m.signal != nil {
		if err := logbook.MaxLimits.CheckSignal(m.signal); err != nil {
			return err
		}
		atom.Take(m.signal)
		return nil
	}
	return m.decide(atom)
}

// decide adds a decision to the approval for which a step waits, under the rules of a cluster.
func (m *message) decide(atom *logbook.AtomDetail) (err error) {
	approval, decision := atom.OpenWait().Approval, *m.decision
	if err = logbook.MaxLimits.CheckDecision(&decision); err != nil {
		return err
	}
	if err = approval.Admits(&decision); err != nil {
		return err
	}
	switch {
	case decision.By == "":
		return &logbook.InvalidError{Field: "decision by", Reason: "empty; name the person that decides"}
	case decision.Override, decision.Kind == logbook.Withdraw:
		decision.Roles = nil
	case len(decision.Roles) == 0:
		decision.Roles = approval.Needed()
	default:
		if decision.Roles, err = approval.NeededOf(decision.By, decision.Roles); err != nil {
			return err
		}
	}
	if decision.Kind == logbook.Approve && (!decision.Override || len(decision.Answers) > 0) {
		if err := fields.Check(approval.Fields, decision.Answers); err != nil {
			return err
		}
	}
	atom.Decide(&decision)
	return nil
}

// String names the message in errors.
func (m *message) String() string {
	if m.topic != "" {
		return "the publication to " + place(m.topic, m.key)
	}
	if m.signal != nil {
		return fmt.Sprintf("signal %q", m.signal.Name)
	}
	return fmt.Sprintf("the decision %s by %s of step %q", m.decision.Kind, m.decision.By, m.step)
}

// place names a topic and a key.
func place(topic, key string) string { return fmt.Sprintf("topic %s, key %s", topic, key) }

// faults returns an error for each refused message and each message that no step took.
func (o *outside) faults() []error {
	o.mu.Lock()
	defer o.mu.Unlock()
	faults := slices.Clone(o.refused)
	for _, m := range o.unsent {
		if m.topic != "" {
			faults = append(faults, fmt.Errorf("%s was not taken: %s", m, waited("no step waited for it", "topics", o.topics, place(m.topic, m.key))))
		} else if m.signal != nil {
			faults = append(faults, fmt.Errorf("%s was not taken: %s", m, waited("no step waited for it", "signals", o.signals, m.signal.Name)))
		} else {
			faults = append(faults, fmt.Errorf("%s was not made: %s", m, waited("the step asked for no approval", "approvals", o.steps, m.step)))
		}
	}
	return faults
}

// waited explains a message that no wait took, with the names of the waits that there were.
func waited(none, kind string, names []string, name string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	switch {
	case slices.Contains(names, name):
		return "every wait for it took another one, or ended before; check the number of messages and waits, and the times in After"
	case len(names) == 0:
		return none + "; the run had no " + kind
	}
	return fmt.Sprintf("%s; the %s of the run were %s", none, kind, strings.Join(names, ", "))
}
