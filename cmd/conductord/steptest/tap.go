package steptest

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/raftboard/wire"
)

// tap stands between the worker and the node. It notes what the worker is given and what it
// reports, and loses an answer when a rule asks for that. A worker's own word would not do: one
// that makes an attempt twice reports the same as one that makes it once.
type tap struct {
	server *http.Server
	node   *url.URL
	proxy  *httputil.ReverseProxy

	mu       sync.Mutex
	sessions map[string]*sessionSeen
	attempts map[string]*attemptSeen // by idText
	report   func(*v1.ReportStepRequest) (lose bool)
	losePull bool // the next answer that gives work
	lost     int
}

// sessionSeen is a session that has pulled.
type sessionSeen struct {
	slots uint32          // the most that it has asked for
	holds map[string]bool // of its last Pull
}

// attemptSeen is an attempt that the node has given.
type attemptSeen struct {
	id       *v1.StepAttempt
	session  string
	kind     string
	given    time.Time
	done     time.Time // of the first report of its end
	recorded bool      // the worker was told that its end is recorded
	again    int       // reports of its end after that
}

const (
	pullCall   = wire.Prefix + "WorkerService/Pull"
	reportCall = wire.Prefix + "WorkerService/Report"
	streamCall = wire.Prefix + "StreamService/"
)

// openTap listens. It serves when it knows the node.
func openTap() (*tap, net.Listener, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("cannot listen for the worker: %w", err)
	}
	return &tap{sessions: map[string]*sessionSeen{}, attempts: map[string]*attemptSeen{}}, listener, nil
}

func (t *tap) serve(listener net.Listener, node string) {
	t.node = &url.URL{Scheme: "http", Host: node}
	t.proxy = httputil.NewSingleHostReverseProxy(t.node)
	t.proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	t.server = &http.Server{Handler: t, Protocols: &both, ReadHeaderTimeout: time.Minute}
	go func() { _ = t.server.Serve(listener) }() // ends with Close
}

// ServeHTTP passes a call on. A stream hides its calls, so there is none: clients do without.
func (t *tap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, streamCall):
		http.NotFound(w, r)
	case r.URL.Path == pullCall:
		pull, answer := &v1.PullStepsRequest{}, &v1.PullStepsResponse{}
		t.pass(w, r, pull, answer, func() bool { t.pulls(pull); return false }, func(bool) bool { return t.gives(pull.GetSession(), answer) })
	case r.URL.Path == reportCall:
		report, answer := &v1.ReportStepRequest{}, &v1.ReportStepResponse{}
		t.pass(w, r, report, answer, func() bool { return t.reports(report) }, func(lose bool) bool { return lose || t.records(report, answer) })
	default:
		t.proxy.ServeHTTP(w, r)
	}
}

// pass passes a call on that it reads. before may change the message.
// Both may have the answer lost, and after hears of that.
func (t *tap) pass(w http.ResponseWriter, r *http.Request, message, answer proto.Message, before func() bool, after func(lose bool) bool) {
	var codec interface {
		Marshal(message any) ([]byte, error)
		Unmarshal(data []byte, message any) error
	} = wire.JSONCodec{}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/proto") {
		codec = wire.ProtoCodec{}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxMessage+1))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	lose := false
	if codec.Unmarshal(body, message) == nil { // the node refuses what cannot be read
		sent := proto.Clone(message)
		lose = before()
		if !proto.Equal(sent, message) {
			if body, err = codec.Marshal(message); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
	}
	onward := r.Clone(r.Context())
	onward.URL.Scheme, onward.URL.Host, onward.RequestURI = t.node.Scheme, t.node.Host, ""
	onward.Body, onward.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	onward.Header.Del("Accept-Encoding") // the answer is read here
	response, err := http.DefaultTransport.RoundTrip(onward)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, wire.MaxMessage+1))
	if err != nil || r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	if response.StatusCode == http.StatusOK && codec.Unmarshal(said, answer) == nil {
		lose = after(lose)
	}
	if lose {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(said)
}

func idText(id *v1.StepAttempt) string {
	return fmt.Sprintf("%s/%s/%s/%d/%d", id.GetFlow(), id.GetStep(), id.GetAction(), id.GetAttempt(), id.GetAsked())
}

func (t *tap) pulls(pull *v1.PullStepsRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[pull.GetSession()]
	if s == nil {
		s = &sessionSeen{}
		t.sessions[pull.GetSession()] = s
	}
	s.slots, s.holds = max(s.slots, pull.GetSlots()), map[string]bool{}
	for _, held := range pull.GetHolds() {
		s.holds[idText(held.GetId())] = true
	}
}

func (t *tap) gives(session string, answer *v1.PullStepsResponse) (lose bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(answer.GetWork()) > 0 && t.losePull {
		t.losePull = false
		t.lost++
		return true
	}
	for _, work := range answer.GetWork() {
		if id := idText(work.GetId()); t.attempts[id] == nil {
			t.attempts[id] = &attemptSeen{id: work.GetId(), session: session, kind: work.GetType(), given: time.Now()}
		}
	}
	return false
}

func (t *tap) reports(report *v1.ReportStepRequest) (lose bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.attempts[idText(report.GetOutcome().GetId())]
	if !report.GetOutcome().GetDone() || a == nil {
		return false
	}
	if a.recorded {
		a.again++
	}
	if a.done.IsZero() {
		a.done = time.Now()
	}
	if t.report == nil || !t.report(report) {
		return false
	}
	t.report = nil
	t.lost++
	return true
}

func (t *tap) records(report *v1.ReportStepRequest, answer *v1.ReportStepResponse) (lose bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.attempts[idText(report.GetOutcome().GetId())]; a != nil && answer.GetRecorded() && report.GetOutcome().GetDone() {
		a.recorded = true
	}
	return false
}

// seen returns the attempts of a type, oldest first; empty: of all types.
func (t *tap) seen(kind string) []attemptSeen {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []attemptSeen
	for _, a := range t.attempts {
		if kind == "" || a.kind == kind {
			all = append(all, *a)
		}
	}
	slices.SortFunc(all, func(a, b attemptSeen) int { return a.given.Compare(b.given) })
	return all
}

// mostAsked is how many slots the worker has asked for at most.
func (t *tap) mostAsked() (slots int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sessions {
		slots = max(slots, int(s.slots))
	}
	return slots
}

// heldBy reports whether the last Pull of a session names an attempt.
func (t *tap) heldBy(session string, id *v1.StepAttempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[session]
	return s != nil && s.holds[idText(id)]
}

// onReport has f see the next reports of ends, until it has the answer to one lost. nil: nobody.
func (t *tap) onReport(f func(*v1.ReportStepRequest) (lose bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report = f
}
