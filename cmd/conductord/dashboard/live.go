package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"regexp"
	"time"
)

// Bounds and times of live streams.
const (
	// maxLive bounds the streams of a node: each runs its page's calls again and again.
	maxLive = 64
	// lookEvery is how often a page is looked at without an event that wakes its stream, and
	// lookSoonest the shortest time between two looks, however many events there are.
	lookEvery   = 2 * time.Second
	lookSoonest = 500 * time.Millisecond
	// signEvery is how often a stream without changes shows that it lives.
	signEvery = 10 * time.Second
	// lookTime bounds one look.
	lookTime = 10 * time.Second
)

// stream sends the page's <main> whenever it has changed, as server-sent events, until the
// request ends. The id of an event is the hash of its text: a browser that connects again shows
// the last one, and is sent nothing while that holds.
func (d *Dashboard) stream(w http.ResponseWriter, r *http.Request, v *visit, p page) {
	select {
	case d.live <- struct{}{}:
		defer func() { <-d.live }()
	default:
		http.Error(w, fmt.Sprintf("This node has %d live pages open, which is the limit. The page works without; reload it to see changes.", maxLive), http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of a reverse proxy
	s := &stream{page: p, visit: v, w: w, last: r.Header.Get("Last-Event-ID"), woken: make(chan struct{}, 1)}
	ended := make(chan struct{})
	close(ended)
	for first := true; ctx.Err() == nil; first = false {
		content, err := s.look(ctx)
		if err != nil {
			return // the browser is gone, or connects again
		}
		if first && content.Watch != nil {
			ended = make(chan struct{})
			go func() { // ends with ctx; without events the clock wakes the stream
				defer close(ended)
				_ = v.api.events(ctx, content.Watch, s.wake)
			}()
		}
		s.wait(ctx)
	}
	<-ended
}

// stream is a live page. Only wake may be called concurrently.
type stream struct {
	page  page
	visit *visit
	w     http.ResponseWriter
	last  string // the id of what was sent last
	sent  time.Time
	woken chan struct{}
}

func (s *stream) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// look loads the page and sends it if it has changed.
func (s *stream) look(ctx context.Context) (view, error) {
	bounded, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	d := s.visit.board
	content, err := s.page.load(bounded, s.visit)
	if err != nil {
		s.last = "" // the page is sent again when the problem is over, to take the message away
		return content, s.send("problem", "", []byte(err.Error()))
	}
	text, err := d.main(s.visit, s.page, content)
	if err != nil {
		d.options.Logger.Error("cannot show a page", "page", s.page.name, "error", err)
		return content, err
	}
	sum := fnv.New64a()
	_, _ = sum.Write(text)
	switch id := fmt.Sprintf("%x", sum.Sum64()); {
	case id != s.last || s.sent.IsZero():
		s.last = id
		return content, s.send("main", id, text)
	case time.Since(s.sent) > signEvery:
		return content, s.send("same", id, nil)
	}
	return content, nil
}

// carriageReturns end a line of an event too. A text with one would end its line early, and what
// follows could pose as a field of the event.
var carriageReturns = regexp.MustCompile(`\r\n?`)

// send writes an event.
func (s *stream) send(kind, id string, text []byte) error {
	s.sent = time.Now()
	var event bytes.Buffer
	fmt.Fprintf(&event, "event: %s\n", kind)
	if id != "" {
		fmt.Fprintf(&event, "id: %s\n", id)
	}
	for line := range bytes.SplitSeq(carriageReturns.ReplaceAll(text, []byte("\n")), []byte("\n")) {
		fmt.Fprintf(&event, "data: %s\n", line)
	}
	event.WriteString("\n")
	if _, err := s.w.Write(event.Bytes()); err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}

// wait returns when an event may have changed the page, or it is time to look again.
func (s *stream) wait(ctx context.Context) {
	pause := time.NewTimer(lookSoonest)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return
	}
	pause.Reset(lookEvery - lookSoonest)
	select {
	case <-s.woken:
	case <-pause.C:
	case <-ctx.Done():
	}
}
