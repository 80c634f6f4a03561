package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"regexp"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
)

// Bounds and times of live streams.
const (
	// maxLive limits the streams of a node, because each repeats the calls of its page.
	maxLive = 64
	// maxOwnLive bounds the streams of one user, or of one address if callers are not
	// authenticated.
	maxOwnLive = 16
	// lookEvery is the time between two looks at a page without an event. lookSoonest is the
	// shortest time between two looks, whatever the number of events. After a page was opened,
	// or after a quiet time, the first promptLooks looks come lookPrompt apart: an action has
	// probably opened or woken the page, and its effects come soon.
	lookEvery   = 2 * time.Second
	lookSoonest = 500 * time.Millisecond
	lookPrompt  = 50 * time.Millisecond
	promptLooks = 6
	// lookShare bounds the cost of a page with expensive looks: one part in lookShare of a
	// processor while no event wakes it, and at most four times that with events.
	lookShare = 100
	// signEvery is the interval of keep-alive messages on a stream without changes.
	signEvery = 10 * time.Second
	// lookTime limits one look.
	lookTime = 10 * time.Second
	// authenticateEvery is the maximum time for which a stream can outlive its credential.
	authenticateEvery = 3 * time.Second
	// watchPause is the pause before a stream watches events again.
	watchPause = 2 * time.Second
)

// stream sends the page's <main> whenever it has changed, as server-sent events, until the
// request ends. The id of an event is the hash of its text. A browser that reconnects shows the
// last text already, and gets nothing until the text changes.
func (d *Dashboard) stream(w http.ResponseWriter, r *http.Request, v *visit, p page) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s := &stream{
		page: p, visit: v, w: w, last: r.Header.Get("Last-Event-ID"), woken: make(chan struct{}, 1),
		request: r, person: v.person(), known: time.Now(), cancel: cancel,
	}
	if refusal := d.begin(s); refusal != "" {
		http.Error(w, refusal+" The page works without live updates; reload the page to see changes.", http.StatusServiceUnavailable)
		return
	}
	defer d.end(s)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of a reverse proxy
	ended := make(chan struct{})
	close(ended)
	for first := true; ctx.Err() == nil; first = false {
		content, err := s.look(ctx)
		if err != nil {
			return // the browser has left, or connects again
		}
		if first && content.Watch != nil {
			ended = make(chan struct{})
			go func() { // ends with ctx; without events a timer wakes the stream
				defer close(ended)
				s.watch(ctx, newAPI(&d.options, r), content.Watch)
			}()
		}
		s.wait(ctx)
	}
	<-ended
}

// begin counts a stream. It returns the reason for a refusal; empty: the stream is accepted.
func (d *Dashboard) begin(s *stream) (refusal string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	own := 0
	for other := range d.streams {
		if other.person == s.person {
			own++
		}
	}
	switch {
	case own >= maxOwnLive:
		return fmt.Sprintf("You have %d live pages open on this node, the limit per user: close some pages.", own)
	case len(d.streams) >= maxLive:
		return fmt.Sprintf("This node has %d live pages open, the limit: close some pages, or use another node.", maxLive)
	}
	d.streams[s] = struct{}{}
	return ""
}

func (d *Dashboard) end(s *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.streams, s)
}

// endAll ends the streams of a token, because its user has signed out.
func (d *Dashboard) endAll(token string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.streams {
		if token != "" && d.options.TokenOf(s.request) == token {
			s.cancel()
		}
	}
}

// stream is a live page. Only wake may be called concurrently.
type stream struct {
	page  page
	visit *visit
	w     http.ResponseWriter
	last  string // the id of the last sent text
	sent  time.Time
	woken chan struct{}
	known time.Time     // time of the user's last authentication
	took  time.Duration // duration of the last look
	quick int           // looks since the page was opened or quiet, up to promptLooks

	// Constant:
	request *http.Request
	person  string
	cancel  func()
}

// watch wakes the stream at events. A watch that ends is restarted: its node may have lagged, or a
// limit was reached.
func (s *stream) watch(ctx context.Context, calls *api, wanted *v1.WatchRequest) {
	for ctx.Err() == nil {
		_ = calls.events(ctx, wanted, s.wake)
		select {
		case <-time.After(watchPause):
		case <-ctx.Done():
		}
	}
}

// authenticate reads the user's principal and grants again. An error ends the stream.
func (s *stream) authenticate() error {
	if time.Since(s.known) < authenticateEvery {
		return nil
	}
	fresh, err := s.visit.dashboard.visit(s.request)
	switch {
	case err == nil:
		fresh.api.index, fresh.shrunk = s.visit.api.index, s.visit.shrunk
		s.visit, s.known = fresh, time.Now()
	case errors.Is(err, errSignIn), statusOf(err) == http.StatusUnauthorized:
		return errors.Join(err, s.send("ended", "", nil)) // the script reloads the page, which requests a sign-in
	}
	return nil // or the node is not ready, which the look reports
}

func (s *stream) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// look loads the page and sends it if it has changed.
func (s *stream) look(ctx context.Context) (view, error) {
	if err := s.authenticate(); err != nil {
		return view{}, err
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	d := s.visit.dashboard
	text, content, fault, err := d.fitted(bounded, s.visit, s.page, "main")
	if err != nil {
		s.last = "" // when the problem is over, the page is sent again to remove the message
		return content, s.send("problem", "", []byte(err.Error()))
	}
	s.took = time.Since(began)
	if fault != nil {
		d.options.Logger.Error("cannot show a page", "page", s.page.name, "error", fault)
		return content, fault
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

// carriageReturns matches carriage returns, which also end a line of an event. The text after a
// carriage return could pose as another field of the event.
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

// wait returns when an event may have changed the page, or when the next look is due.
func (s *stream) wait(ctx context.Context) {
	soonest := max(lookSoonest, lookShare*s.took/4)
	if s.quick < promptLooks {
		s.quick, soonest = s.quick+1, max(lookPrompt, s.took)
	}
	pause := time.NewTimer(soonest)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return
	}
	pause.Reset(max(lookEvery-lookSoonest, lookShare*s.took))
	select {
	case <-s.woken:
	case <-pause.C:
		s.quick = 0
	case <-ctx.Done():
	}
}
