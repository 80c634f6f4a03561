package listen

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

const (
	// masked replaces a hidden value.
	masked = "***"
	// maxLoggedResult limits the bytes of a result that are logged: enough to recognise the
	// result.
	maxLoggedResult = 1 << 10
)

// Levels are the log levels of LogAt.
type Levels struct {
	Events hclog.Level
	// Failures is the level of failed attempts. hclog.NoLevel: hclog.Warn, or Events if that is
	// higher.
	Failures hclog.Level
}

// Log logs every event at a level, and failures at Warn if that is higher: see
// LogAt.
func Log(logger hclog.Logger, level hclog.Level, mask ...string) Listener {
	return LogAt(logger, Levels{Events: level}, mask...)
}

// LogAt logs every event at the level of its kind. It shows *** for the values of fields whose
// name is in mask, in any case. It finds them at any depth of a result, also within strings that
// are JSON themselves. It also masks the whole result of a step with such a name. It does not
// mask the message of a failure: only the author of the step knows its content.
func LogAt(logger hclog.Logger, levels Levels, mask ...string) Listener {
	if levels.Failures == hclog.NoLevel {
		levels.Failures = max(levels.Events, hclog.Warn)
	}
	l := &logListener{logger: logger, levels: levels, mask: make(map[string]bool, len(mask))}
	for _, name := range mask {
		l.mask[strings.ToLower(name)] = true
	}
	return l
}

type logListener struct {
	logger hclog.Logger
	levels Levels
	mask   map[string]bool // lower case
}

// Miss logs the number of missing events.
func (l *logListener) Miss(count int) {
	l.logger.Warn("events were dropped", "count", count)
}

// Hear logs an event.
func (l *logListener) Hear(event engine.Event) {
	if event.Step == "" {
		l.logger.Log(l.levels.Events, "flow changed", "state", string(event.Flow))
		return
	}
	if event.Difference != nil {
		l.logger.Log(l.levels.Events, "step of the flow has changed since the start of the flow", "step", event.Step, "change", event.Difference.String())
		return
	}
	level := l.levels.Events
	pairs := []any{"step", event.Step}
	if event.State != "" {
		pairs = append(pairs, "state", string(event.State))
	}
	if attempt := event.Attempt; attempt != nil {
		pairs = append(pairs, "action", string(attempt.Action), "attempt", attempt.Number)
		if attempt.Ended() {
			pairs = append(pairs, "took", attempt.EndedAt.Sub(attempt.StartedAt).String())
		}
		if attempt.Failure != nil {
			level = l.levels.Failures
			pairs = append(pairs, "kind", attempt.Failure.Kind, "error", attempt.Failure.Message)
		} else if len(attempt.Result) > 0 {
			pairs = append(pairs, "result", l.show(event.Step, attempt.Result))
		}
	}
	if progress := event.Progress; progress != nil {
		pairs = append(pairs, "done", progress.Done, "total", progress.Total)
		if len(progress.Details) > 0 {
			pairs = append(pairs, "details", l.show(event.Step, progress.Details))
		}
	}
	if !event.RetryAt.IsZero() {
		pairs = append(pairs, "retry_at", event.RetryAt.Format(time.RFC3339Nano))
	}
	l.logger.Log(level, "step changed", pairs...)
}

func (l *logListener) show(step string, result json.RawMessage) string {
	if l.mask[strings.ToLower(step)] {
		return masked
	}
	text := string(result)
	if len(l.mask) > 0 {
		hidden, err := l.hide(result, 0)
		if err != nil {
			return masked // what cannot be read cannot be shown either
		}
		text = string(hidden)
	}
	if len(text) > maxLoggedResult {
		cut := maxLoggedResult
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return text
}

// hide masks a JSON value. depth counts enclosing strings that are JSON themselves. The
// logbook's limits bound the nesting within one such string.
func (l *logListener) hide(text []byte, depth int) ([]byte, error) {
	value, err := logbook.DecodeJSON(text)
	if err != nil {
		return nil, err
	}
	return logbook.EncodeJSON(l.hideIn(value, depth))
}

func (l *logListener) hideIn(value any, depth int) any {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			if l.mask[strings.ToLower(name)] {
				value[name] = masked
			} else {
				value[name] = l.hideIn(inner, depth)
			}
		}
	case []any:
		for i := range value {
			value[i] = l.hideIn(value[i], depth)
		}
	case string:
		return l.hideText(value, depth)
	}
	return value
}

func (l *logListener) hideText(text string, depth int) string {
	trimmed := strings.TrimSpace(text)
	if !strings.HasPrefix(trimmed, "{") && !strings.HasPrefix(trimmed, "[") || !json.Valid([]byte(trimmed)) {
		return text
	}
	if depth >= logbook.MaxJSONDepth {
		return masked
	}
	hidden, err := l.hide([]byte(trimmed), depth+1)
	if err != nil {
		return masked
	}
	return string(hidden)
}
