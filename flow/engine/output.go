package engine

import (
	"bytes"
	"strings"
	"sync"

	"github.com/conductord/conductord/flow"
)

// maxOutputLine limits a line of a step's output in bytes, as in container runtimes. The rest of
// a longer line is dropped, because a secret could be cut in two.
const maxOutputLine = 16 << 10

// output receives the output of one attempt, and passes it on by lines without secrets. It holds
// back the end of a line while a secret of several lines may continue after it.
type output struct {
	hidden *hidden
	line   func(text string)

	mu      sync.Mutex
	pending []byte // at most maxOutputLine; under mu
	closed  bool   // under mu
}

// newOutput opens the output of a call; nil: it is dropped.
func newOutput(o *Options, call *flow.Call, h *hidden) *output {
	if o.Output == nil {
		return nil
	}
	return &output{hidden: h, line: func(text string) { o.Output(call, text) }}
}

// Write implements io.Writer. It never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for rest := p; len(rest) > 0 && !o.closed; {
		line, ended := rest, false
		if i := bytes.IndexAny(rest, "\r\n"); i >= 0 {
			line, ended = rest[:i+1], true
		}
		rest = rest[len(line):]
		kept := line[:min(len(line), maxOutputLine-len(o.pending))]
		o.pending = append(o.pending, kept...)
		if ended && (len(kept) < len(line) || !o.hidden.goesOn(o.pending)) {
			o.flushLocked()
		}
	}
	return len(p), nil
}

// close passes on the remaining output. Later writes are dropped: a goroutine that outlives its
// task can still write.
func (o *output) close() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushLocked()
	o.closed = true
}

func (o *output) flushLocked() {
	text := string(o.pending)
	if o.pending = o.pending[:0]; o.hidden != nil {
		text = o.hidden.text(text, false)
	}
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.ToValidUTF8(line, "\uFFFD")
		o.line(strings.ToValidUTF8(line[:min(len(line), maxOutputLine)], "")) // marks and replacements can be longer than the original text
	}
}

// goesOn reports whether a secret of several lines that starts in a text may continue after the
// text.
func (h *hidden) goesOn(text []byte) bool {
	if h == nil {
		return false
	}
	for at := max(0, len(text)-minPart+1); at < len(text)-1; at++ {
		if h.begun[string(text[at:])] {
			return true
		}
	}
	return false
}
