package handler

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/conductord/conductord/logbook"
)

// stdout keeps a handler's answer, up to a limit. Beyond the limit nothing is kept, and full is
// closed so that the writer gets killed. Until then the output is read and dropped, because a
// blocked writer looks like a busy one.
type stdout struct {
	limit int
	full  chan struct{}

	mu    sync.Mutex
	kept  []byte
	spilt bool
}

func newStdout(limit int) *stdout { return &stdout{limit: limit, full: make(chan struct{})} }

func (o *stdout) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spilt {
		return len(p), nil
	}
	if len(o.kept)+len(p) > o.limit {
		o.spilt = true
		close(o.full)
		return len(p), nil
	}
	o.kept = append(o.kept, p...)
	return len(p), nil
}

// stderr keeps the last bytes that are written to it, in a ring: a handler that writes for hours
// costs no more than a handler that writes once.
type stderr struct {
	mu    sync.Mutex
	ring  []byte // grows up to logbook.MaxStderr, then wraps around
	start int    // index of the oldest byte, after the first wrap
	lost  bool   // bytes have been overwritten
}

func (o *stderr) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	written := len(p)
	if len(p) > logbook.MaxStderr {
		p, o.lost = p[len(p)-logbook.MaxStderr:], true
	}
	if room := logbook.MaxStderr - len(o.ring); room > 0 {
		room = min(room, len(p))
		o.ring = append(o.ring, p[:room]...)
		p = p[room:]
	}
	for len(p) > 0 {
		n := copy(o.ring[o.start:], p)
		p, o.start, o.lost = p[n:], (o.start+n)%len(o.ring), true
	}
	return written, nil
}

// text returns the end of the output as UTF-8, and whether its start is missing. Replacing
// broken bytes makes the text longer, so it is cut once more: the limit applies to the stored
// text.
func (o *stderr) text() (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	whole := string(o.ring[o.start:]) + string(o.ring[:o.start])
	truncated := o.lost
	if truncated {
		whole = cutToRune(whole)
	}
	whole = strings.ToValidUTF8(whole, string(utf8.RuneError))
	if len(whole) > logbook.MaxStderr {
		whole, truncated = cutToRune(whole[len(whole)-logbook.MaxStderr:]), true
	}
	return whole, truncated
}

// cutToRune drops the rest of a character whose first bytes were cut off.
func cutToRune(text string) string {
	for i := 0; i < utf8.UTFMax && i < len(text); i++ {
		if utf8.RuneStart(text[i]) {
			return text[i:]
		}
	}
	return text
}

// lastLine is the last line with any text, short enough for a message.
func lastLine(text string) string {
	const enough = 200
	text = strings.TrimSpace(text)
	text = text[strings.LastIndexByte(text, '\n')+1:]
	if len(text) > enough {
		text = strings.ToValidUTF8(text[:enough], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
