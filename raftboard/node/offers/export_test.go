package offers

import (
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

// Times of the Matcher.
const (
	ElsewhereTime = elsewhereTime
	AsideFirst    = asideFirst
)

// StepMatch is a Matcher whose workers and steps are named by one word.
type StepMatch struct {
	offers   *Matcher
	flow     logbook.FlowID
	sessions map[string]jobs.SessionID // by the name of the worker
	waiting  map[string]*Offer
}

func NewStepMatch() *StepMatch {
	return &StepMatch{offers: New(hclog.NewNullLogger()), flow: logbook.NewFlowID(), sessions: map[string]jobs.SessionID{}, waiting: map[string]*Offer{}}
}

// Pull lets a worker wait for one attempt at a step of a type.
func (m *StepMatch) Pull(name, kind string) { m.pull(name, kind, 1) }

// PullFull lets a worker without a free slot call.
func (m *StepMatch) PullFull(name, kind string) { m.pull(name, kind, 0) }

func (m *StepMatch) pull(name, kind string, free int) {
	if m.sessions[name].IsZero() {
		m.sessions[name] = jobs.NewSessionID()
	}
	m.offers.Pull(&Pull{
		Session: m.sessions[name], Worker: jobs.Entity{Name: name, JobKinds: []string{kind}}, Free: free, Sees: func(string) bool { return true },
		Promised: make(chan struct{}), Answer: make(chan *conductordv1.PullStepsResponse, 1),
	})
}

// Offer offers an attempt at which workers have failed before.
func (m *StepMatch) Offer(step, kind string, failed ...string) {
	m.offer(step, kind, steps.Only{}, failed...)
}

// OfferOnly offers an attempt that only one session may get, or, after its end, a session with the
// name.
func (m *StepMatch) OfferOnly(step, kind, session, name string) {
	m.offer(step, kind, steps.Only{Session: m.sessions[session], Name: name})
}

func (m *StepMatch) offer(step, kind string, only steps.Only, failed ...string) {
	o := &Offer{Answer: make(chan steps.Answer, 1), Work: &conductordv1.StepWork{}}
	o.Offer.Work = steps.Work{ID: steps.ID{Flow: m.flow, Step: step, Action: logbook.ActionExecute, Attempt: 1 + len(failed)}, Type: kind}
	o.Offer.Only = only
	for _, name := range failed {
		o.Failed = append(o.Failed, m.sessions[name])
	}
	m.waiting[step] = o
	if err := m.offers.Offer(o); err != nil {
		panic(err)
	}
}

// Taken looks again for a worker, and returns the worker that gets the step.
func (m *StepMatch) Taken(step string) string {
	o := m.waiting[step]
	m.offers.Place(o)
	select {
	case answer := <-o.Answer:
		for name, session := range m.sessions {
			if session == answer.Worker {
				m.offers.Withdraw(o)
				return name
			}
		}
	default:
	}
	return ""
}

// Records lets the conductor of a step offer it with the worker that it has recorded.
func (m *StepMatch) Records(name, step string) *Offer {
	o := *m.waiting[step]
	o.Offer.Worker, o.done, o.Answer = m.sessions[name], false, make(chan steps.Answer, 1)
	if err := m.offers.Offer(&o); err != nil {
		panic(err)
	}
	return &o
}

// Ends lets a worker end an attempt with a failure, or successfully.
func (m *StepMatch) Ends(name, step string, failure *logbook.Failure) {
	o := m.Records(name, step)
	m.offers.Report(m.sessions[name], &steps.Outcome{ID: o.Offer.Work.ID, Done: true, Failure: failure})
	m.offers.Withdraw(o)
}

// Dies ends the session of a worker, with the step that it has.
func (m *StepMatch) Dies(name, step string) {
	o := m.Records(name, step)
	m.offers.Ended([]jobs.SessionID{m.sessions[name]})
	m.offers.Withdraw(o)
}

// Ended ends the session of a worker that has no step.
func (m *StepMatch) Ended(name string) { m.offers.Ended([]jobs.SessionID{m.sessions[name]}) }

// Widen reports the end of the only session that may have a step, as a new leader does.
func (m *StepMatch) Widen(step string) { m.offers.Widen(m.waiting[step]) }

// Returns gives a worker a new session under its name. The name of its old session gets a mark.
func (m *StepMatch) Returns(name string) {
	m.sessions[name+"'"], m.sessions[name] = m.sessions[name], jobs.NewSessionID()
}

// Aside are the workers that are set aside.
func (m *StepMatch) Aside() string {
	var names []string
	for name, session := range m.sessions {
		live := m.offers.Live(&jobs.Entity{Session: session}, m.offers.workers.known[session].heard, func(logbook.FlowID) bool { return true })
		if !live.Aside.IsZero() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
