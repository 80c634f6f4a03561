package spec

import (
	"encoding/json"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/duration"
	"github.com/conductord/conductord/logbook"
)

// Wait is the wait of a step for a signal, or for a publication.
type Wait struct {
	Signal  string   `json:"signal,omitempty"`
	Signals []string `json:"signals,omitempty"` // instead of Signal: the first that arrives
	Topic   string   `json:"topic,omitempty"`   // instead of Signal, with Key
	Key     string   `json:"key,omitempty"`     // can contain {argument} and {argument.field}
	Timeout string   `json:"timeout,omitempty"` // a time such as "48h"; empty: flow.MaxWait
	// OnTimeout is "fail" or an object with the result as its value; nil: fail.
	OnTimeout json.RawMessage `json:"on_timeout,omitempty"`
}

// waits reports whether a step waits for a signal, an approval or a time, and runs no handler.
func (s *Step) waits() bool { return s.Wait != nil || s.Sleep != "" || s.Approve != nil }

// waiting reads a step that waits.
func (r *reader) waiting(t *table, s *Step) {
	s.Provides = r.provides(t)
	s.Retry = r.retry(t)
	s.Priority = t.integer("priority", -flow.MaxPriority, flow.MaxPriority)
	r.ignored(t, s)
	if s.Version = t.text("version"); s.Version != "" {
		r.checkSymbol(t, "version", s.Version)
	}
	if t.has("approve") {
		if s.Approve = r.approve(t, s); t.has("wait") || t.has("sleep") {
			t.fault("approve", "the step waits for something else already; make two steps")
		}
		return
	}
	if t.has("sleep") {
		if s.Sleep = t.text("sleep"); t.has("wait") {
			t.fault("sleep", "the step waits for a signal already; use one of wait and sleep")
		}
		if _, isTime := timeOf(s.Sleep); !isTime && !t.failed("sleep") {
			r.checkWaitTime(t, "sleep", s.Sleep, `write a time such as 24h, or a moment such as 2030-01-31T08:00:00Z`)
		}
		return
	}
	s.Wait = r.wait(t, s)
}

func (r *reader) wait(t *table, s *Step) *Wait {
	inner := t.inner("wait")
	if inner == nil {
		return &Wait{}
	}
	w := &Wait{Signals: inner.texts("signals"), Timeout: inner.text("timeout")}
	switch {
	case inner.has("signals") && inner.has("signal"):
		inner.fault("signals", "use one of signal and signals")
	case inner.has("topic") || inner.has("key"):
		r.topic(t, inner, s, w)
	case !inner.has("signals"):
		w.Signal = r.name(inner, "signal")
	case len(w.Signals) == 0 || len(w.Signals) > logbook.MaxWaitSignals:
		inner.fault("signals", "the list has %d names; it must have 1 to %d", len(w.Signals), logbook.MaxWaitSignals)
	}
	for _, name := range w.Signals {
		r.checkSymbol(inner, "signals", name)
	}
	if inner.has("timeout") && !inner.failed("timeout") {
		r.checkWaitTime(inner, "timeout", w.Timeout, "write a time such as 48h")
	}
	w.OnTimeout = r.onTimeout(inner)
	inner.rest()
	return w
}

// topic reads the topic and the key of a wait, and the arguments for the key.
func (r *reader) topic(t, inner *table, s *Step, w *Wait) {
	r.waitArguments(t, s)
	if inner.has("signal") || inner.has("signals") {
		inner.fault("topic", "use one of signal, signals and topic")
	}
	w.Topic, w.Key = r.name(inner, "topic"), inner.text("key")
	if w.Key == "" && !inner.failed("key") {
		inner.fault("key", "missing; write the key of the publication, such as key = \"{order}\"")
	}
	s.checkTemplate(inner, "key", w.Key)
}

// waitArguments reads the arguments of a step that waits for a topic or an approval.
func (r *reader) waitArguments(t *table, s *Step) {
	s.Requires, s.Optional = r.arguments(t, "requires"), r.arguments(t, "optional")
	for argument := range s.Optional {
		if _, both := s.Requires[argument]; both {
			t.fault("optional", "%s is required already", quoted(argument))
		}
	}
}

// onTimeout reads "fail", or a table with a value.
func (r *reader) onTimeout(t *table) json.RawMessage {
	if !t.has("on_timeout") {
		return nil
	}
	if table, isTable := t.values["on_timeout"].(map[string]any); isTable {
		if _, given := table["value"]; !given || len(table) != 1 {
			t.fault("on_timeout", `write "fail", or {value = …} with the result of the step`)
		}
	} else if t.values["on_timeout"] != "fail" {
		t.fault("on_timeout", `write "fail", or {value = …} with the result of the step`)
	}
	return r.json(t, "on_timeout", t.values["on_timeout"])
}

// checkWaitTime checks the duration of a wait.
func (r *reader) checkWaitTime(t *table, key, text, advice string) {
	switch d, err := time.ParseDuration(text); {
	case err != nil:
		t.fault(key, "%.40q is not a time; %s", text, advice)
	case d <= 0 || d > flow.MaxWait:
		t.fault(key, "must be above 0 and at most %s (400 days), not %s", duration.Text(flow.MaxWait), text)
	}
}

// timeOf reads a moment.
func timeOf(text string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}

// wait makes the wait of a step. Parse has checked all that could fail.
func (s *Step) wait() *flow.Wait {
	if s.Approve != nil {
		approval := s.Approve.approval()
		return &flow.Wait{For: approval.Deadline, Approval: approval}
	}
	if s.Wait == nil {
		if at, isTime := timeOf(s.Sleep); isTime {
			return &flow.Wait{Until: at}
		}
		d, _ := time.ParseDuration(s.Sleep)
		return &flow.Wait{For: d}
	}
	w := &flow.Wait{Signals: s.Wait.Signals, Topic: s.Wait.Topic, Key: s.Wait.Key}
	if s.Wait.Signal != "" {
		w.Signals = []string{s.Wait.Signal}
	}
	w.For, _ = time.ParseDuration(s.Wait.Timeout) // empty: no limit of its own
	var otherwise struct {
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(s.Wait.OnTimeout, &otherwise) == nil { // "fail" is no object
		w.OnTimeout = otherwise.Value
	}
	return w
}
