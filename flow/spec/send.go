package spec

import (
	"encoding/json"
	"fmt"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// Send is a signal that a step sends to a job when it succeeds. The texts can contain {argument} and {argument.field}.
type Send struct {
	Job   string          `json:"job,omitempty"` // id
	Board string          `json:"board,omitempty"`
	Key   string          `json:"key,omitempty"` // instead of Job
	Name  string          `json:"name"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// sends reads the signals that a step sends.
func (r *reader) sends(t *table, s *Step) (sends []Send) {
	if !t.has("send") {
		return nil
	}
	tables := t.tables("send")
	if len(tables) > logbook.MaxSends {
		t.fault("send", "%d signals, and a step sends at most %d", len(tables), logbook.MaxSends)
	}
	for i, values := range tables {
		inner := newTable(r.faults, fmt.Sprintf("%s[%d]", t.pathOf("send"), i), fmt.Sprintf("%s, send %d", t.where, i+1), values)
		send := Send{Job: inner.text("job"), Board: inner.text("board"), Key: inner.text("key"), Name: r.name(inner, "name")}
		switch {
		case inner.has("job") && inner.has("key"):
			inner.fault("key", "use one of job and key")
		case !inner.has("job") && !inner.has("key"):
			inner.fault("job", "missing; write the id of a job, or key = …")
		case inner.has("job") && inner.has("board"):
			inner.fault("board", "only a key needs a board")
		}
		for key, text := range map[string]string{"job": send.Job, "board": send.Board, "key": send.Key, "name": send.Name} {
			s.checkTemplate(inner, key, text)
		}
		if inner.has("data") {
			send.Data = r.json(inner, "data", inner.values["data"])
			s.checkData(inner, inner.values["data"])
		}
		inner.rest()
		sends = append(sends, send)
	}
	return sends
}

// checkData checks the references in the texts of a signal's data.
func (s *Step) checkData(t *table, data any) {
	switch data := data.(type) {
	case string:
		s.checkTemplate(t, "data", data)
	case []any:
		for _, inner := range data {
			s.checkData(t, inner)
		}
	case map[string]any:
		for _, inner := range data {
			s.checkData(t, inner)
		}
	}
}

func (s *Step) sendOption() flow.StepOption {
	sends := make([]flow.Send, len(s.Send))
	for i, send := range s.Send {
		sends[i] = flow.Send(send)
	}
	return flow.Sends(sends...)
}
