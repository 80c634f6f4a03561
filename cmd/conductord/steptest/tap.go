package steptest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/raftboard/wire"
)

// tap is a proxy between the worker and the node. It records the worker's attempts and reports, and
// loses an answer if a rule requests that. The worker's own reports are not enough: a worker that
// makes an attempt twice reports the same as a worker that makes it once.
type tap struct {
	conductordv1connect.WorkerServiceClient // of the node
	server                                  *http.Server

	mu       sync.Mutex
	sessions map[string]*sessionSeen
	attempts map[string]*attemptSeen           // by idText
	loseWork func()                            // see interfere
	report   func(*v1.StepOutcome) (lose bool) // see interfere
	loseSave bool                              // lose the next answer to a checkpoint
}

// sessionSeen is a session that has pulled.
type sessionSeen struct {
	slots uint32          // maximum requested number of slots
	holds map[string]bool // held attempts in its last Pull, by idText
}

// attemptSeen is an attempt that the node has assigned.
type attemptSeen struct {
	id       string // idText
	session  string
	kind     string
	given    time.Time
	done     time.Time // time of the first report of its end
	recorded bool      // the worker knows that its end is recorded
	again    int       // later reports of its end
}

func idText(id *v1.StepAttempt) string {
	return fmt.Sprintf("%s/%s/%s/%d/%d", id.GetFlow(), id.GetStep(), id.GetAction(), id.GetAttempt(), id.GetAsked())
}

// serve forwards the calls on a listener to a node, until the server is closed.
func (t *tap) serve(listener net.Listener, node string) {
	target := &url.URL{Scheme: "http", Host: node}
	t.WorkerServiceClient = conductordv1connect.NewWorkerServiceClient(http.DefaultClient, target.String(), wire.ClientOptions()...)
	t.sessions, t.attempts = map[string]*sessionSeen{}, map[string]*attemptSeen{}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	mux := http.NewServeMux()
	mux.Handle("/", proxy)
	mux.Handle(conductordv1connect.NewWorkerServiceHandler(t, wire.HandlerOptions()...))
	mux.Handle("/"+conductordv1connect.StreamServiceName+"/", http.NotFoundHandler()) // streams would hide calls, and clients work without them
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	t.server = &http.Server{Handler: mux, Protocols: &both, ReadHeaderTimeout: time.Minute}
	go func() { _ = t.server.Serve(listener) }() // ends with Close
}

// Pull records the attempts that a worker holds, and the attempts that the node assigns.
func (t *tap) Pull(ctx context.Context, r *connect.Request[v1.PullStepsRequest]) (*connect.Response[v1.PullStepsResponse], error) {
	session := r.Msg.GetSession()
	t.pulls(session, r.Msg)
	answer, err := t.WorkerServiceClient.Pull(ctx, r)
	if err == nil && ctx.Err() == nil {
		if lose := t.gives(session, answer.Msg.GetWork()); lose != nil {
			lose()
			panic(http.ErrAbortHandler)
		}
	}
	return answer, err
}

func (t *tap) pulls(session string, pull *v1.PullStepsRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[session]
	if s == nil {
		s = &sessionSeen{}
		t.sessions[session] = s
	}
	s.slots, s.holds = max(s.slots, pull.GetSlots()), map[string]bool{}
	for _, held := range pull.GetHolds() {
		s.holds[idText(held.GetId())] = true
	}
}

// gives records the attempts that the node assigns, or returns the function to call before the
// answer is lost.
func (t *tap) gives(session string, all []*v1.StepWork) (lose func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loseWork != nil && len(all) > 0 {
		lose, t.loseWork = t.loseWork, nil
		return lose
	}
	for _, work := range all {
		if id := idText(work.GetId()); t.attempts[id] == nil {
			t.attempts[id] = &attemptSeen{id: id, session: session, kind: work.GetType(), given: time.Now()}
		}
	}
	return nil
}

// Report records the end of an attempt, and that the node has recorded it.
func (t *tap) Report(ctx context.Context, r *connect.Request[v1.ReportStepRequest]) (*connect.Response[v1.ReportStepResponse], error) {
	a, lose := t.reports(r.Msg.GetOutcome())
	answer, err := t.WorkerServiceClient.Report(ctx, r)
	if lose {
		panic(http.ErrAbortHandler)
	}
	if a != nil && err == nil && ctx.Err() == nil && answer.Msg.GetRecorded() {
		t.mu.Lock()
		defer t.mu.Unlock()
		a.recorded = true
	}
	return answer, err
}

// reports returns the attempt that an outcome ends, if it was seen.
func (t *tap) reports(outcome *v1.StepOutcome) (a *attemptSeen, lose bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a = t.attempts[idText(outcome.GetId())]
	if outcome.GetCheckpoint() != nil {
		lose, t.loseSave = t.loseSave, false
	}
	if !outcome.GetDone() || a == nil {
		return nil, lose
	}
	if a.recorded {
		a.again++
	}
	if a.done.IsZero() {
		a.done = time.Now()
	}
	if t.report != nil && t.report(outcome) {
		t.report, lose = nil, true
	}
	return a, lose
}

// loseCheckpoint sets whether the tap loses the next answer to a checkpoint.
func (t *tap) loseCheckpoint(lose bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loseSave = lose
}

// seen returns the attempts of a type, oldest first; empty: of all types.
func (t *tap) seen(kind string) (all []attemptSeen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.attempts {
		if kind == "" || a.kind == kind {
			all = append(all, *a)
		}
	}
	slices.SortFunc(all, func(a, b attemptSeen) int { return a.given.Compare(b.given) })
	return all
}

// ended reports whether the worker has reported the end of an attempt.
func (t *tap) ended(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.attempts[id].done.IsZero()
}

// mostSlots returns the maximum number of slots that the worker has requested.
func (t *tap) mostSlots() (slots int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sessions {
		slots = max(slots, int(s.slots))
	}
	return slots
}

// heldBy reports whether the last Pull of a session names an attempt.
func (t *tap) heldBy(session, id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[session]
	return s != nil && s.holds[id]
}

// interfere sets two faults. When an answer gives work, the tap calls loseWork and loses the answer; nil: no
// answer is lost. report sees and can change the next ends of attempts, until it requests the loss of an
// answer.
func (t *tap) interfere(loseWork func(), report func(*v1.StepOutcome) (lose bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loseWork, t.report = loseWork, report
}
