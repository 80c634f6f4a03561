package logbook

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// MaxWait limits a wait: longer ones outlive the programs that know their meaning.
	MaxWait = 400 * 24 * time.Hour
	// MaxWaitSignals limits the names of one wait.
	MaxWaitSignals = 16
)

// Wait is the wait of a step for a signal, a publication, an approval or a time. It belongs to the open execution of
// the step. The step is pending, and does not run. The cluster gives the oldest unread signal with one of the names to
// the oldest wait for that name, in the log entry in which the later of the two arrives.
type Wait struct {
	Signals []string  `json:"signals,omitempty"` // names; none: the step sleeps, or waits for the Topic or the Approval
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
	// Number is the log index at which the wait started, set by the cluster.
	Number uint64 `json:"number,omitempty"`
	// Signal is the taken signal; nil: none yet. An ended attempt has it without data.
	Signal *Signal `json:"signal,omitempty"`
	// Approval is the approval for which the step waits; nil: none. Its end is a signal from the cluster.
	Approval *Approval `json:"approval,omitempty"`
	// Topic and Key name the publication for which the step waits; empty: none. The cluster gives a publication to
	// the wait as a signal with the name Topic.
	Topic string `json:"topic,omitempty"`
	Key   string `json:"key,omitempty"`
}

// Open reports whether the wait can take a signal, a publication, or the end of its approval.
func (w *Wait) Open() bool {
	return w != nil && w.Signal == nil && !w.Sleeps()
}

// Sleeps reports whether the step waits only for a time, and not for a signal, topic or approval.
func (w *Wait) Sleeps() bool { return len(w.Signals) == 0 && w.Topic == "" && w.Approval == nil }

// For describes an open wait, without its end: "signal paid", "topic payments, key 17", or "approval by 2 of dba".
func (w *Wait) For() string {
	if w.Approval != nil {
		return "approval by " + NeedText(w.Approval.Missing())
	}
	if w.Topic != "" {
		return "topic " + w.Topic + ", key " + w.Key
	}
	return "signal " + strings.Join(w.Signals, " or ")
}

// Remedy describes how an operator ends an open wait.
func (w *Wait) Remedy() string {
	if w.Approval != nil {
		return "decide with `conductord approval approve`, or end it with `conductord approval override`"
	}
	if w.Topic != "" {
		return "publish with `conductord signal publish`"
	}
	return "send it with `conductord job signal`"
}

// Text describes an open wait, or a sleep, for display.
func (w *Wait) Text() string {
	until := " until " + w.Until.UTC().Format(time.RFC3339)
	if !w.Open() {
		return "sleeps" + until
	}
	return "waits for " + w.For() + until
}

// Takes reports whether the wait can take a signal of a name.
func (w *Wait) Takes(name string) bool { return w.Open() && slices.Contains(w.Signals, name) }

// TakesFrom reports whether the wait can take a publication of a topic and a key.
func (w *Wait) TakesFrom(topic, key string) bool {
	return w.Open() && w.Topic == topic && w.Key == key && topic != ""
}

// OpenWait returns the wait of a step that waits for a signal, or for a time; nil if it does not wait.
func (a *AtomDetail) OpenWait() *Wait {
	if n := len(a.Attempts); n > 0 && a.State == AtomPending && a.Attempts[n-1].Action == ActionExecute && !a.Attempts[n-1].Ended() {
		return a.Attempts[n-1].Wait
	}
	return nil
}

// Take ends the open wait of a step with a signal. The step is then due at once.
func (a *AtomDetail) Take(signal *Signal) {
	latest := &a.Attempts[len(a.Attempts)-1]
	ended := *latest.Wait
	ended.Signal = signal
	latest.Wait, a.RetryAt = &ended, time.Time{}
}

func (l Limits) checkWait(w *Wait) error {
	switch {
	case w == nil:
		return nil
	case len(w.Signals) > MaxWaitSignals:
		return &LimitError{Field: "wait signals", Limit: MaxWaitSignals, Size: int64(len(w.Signals)), Unit: "names"}
	case w.Until.Sub(w.Since) > MaxWait:
		return &InvalidError{Field: "wait until", Reason: fmt.Sprintf("%s after its start, and the limit is %s", w.Until.Sub(w.Since), MaxWait)}
	}
	for _, name := range w.Signals {
		if err := l.CheckName("wait signal", name); err != nil {
			return err
		}
	}
	if w.Topic != "" || w.Key != "" {
		if err := l.checkWaitTopic(w); err != nil {
			return err
		}
	}
	if w.Approval != nil {
		if len(w.Signals) > 0 {
			return &InvalidError{Field: "wait approval", Reason: "set together with signals"}
		}
		if err := l.CheckApproval(w.Approval); err != nil {
			return err
		}
	}
	if w.Signal == nil {
		return nil
	}
	return l.CheckSignal(w.Signal)
}

func (l Limits) checkWaitTopic(w *Wait) error {
	if err := l.CheckName("wait topic", w.Topic); err != nil {
		return err
	}
	if len(w.Signals) > 0 || w.Approval != nil {
		return &InvalidError{Field: "wait topic", Reason: "set together with signals or an approval"}
	}
	return l.CheckName("wait key", w.Key)
}
