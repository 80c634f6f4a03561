// Package offers matches attempts at steps with the workers that run them.
//
// The nouns: an Offer is an attempt that a conductor offers to workers. A Pull is a worker that
// waits for attempts. A report is an outcome that waits until it is recorded. The Matcher holds
// them while their calls wait. A worker whose steps all fail is set aside, and tried again later.
//
// Nothing here is stored: after a change of leader, all sides repeat their calls. After a failure,
// a new attempt goes to another worker, if another worker takes it in time.
//
// The package assumes that sessions report ended workers, and that entries report recorded
// outcomes.
package offers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

const (
	// PromiseTime limits how long a worker's call waits for a promised attempt, and how long the
	// attempt occupies a slot: a conductor records it within milliseconds, or has died.
	PromiseTime = 2 * time.Second
)

// Matcher matches the conductors that offer attempts with the workers that wait for them. An
// offer exists while its call waits, so nothing is stored and nothing is restored: after a change
// of leader, both sides repeat their calls at the new one.
//
//	Offer ──> waits ── a Pull fits ──> promised: the call answers, and the conductor records the worker
//	Offer with the worker ──> held ── a Pull that does not name it ──> given to the worker
//	                               ── a Report ──> the call answers with the outcome
//	                               ── the worker's session ends ──> the call answers that it is lost
type Matcher struct {
	mu       sync.Mutex
	offers   map[steps.ID]*Offer
	pulls    map[jobs.SessionID]*Pull
	promises map[steps.ID]stepPromise
	workers  stepWorkers
	pulled   uint64 // number of calls so far
	reports  map[logbook.FlowID]map[*stepReport]struct{}
}

// Offer is a waiting call of Offer.
type Offer struct {
	Offer  steps.Offer
	Work   *conductordv1.StepWork
	Size   int
	Board  string
	Failed []jobs.SessionID  // workers whose earlier attempts of this round have failed
	Answer chan steps.Answer // holds one

	// Guarded by Matcher.mu.

	arrived time.Time
	widened bool // its only worker's session has ended: another session with the name may have it
	kept    bool // withheld from a matching free worker
	done    bool // it has its answer
}

// Pull is a waiting call of Pull.
type Pull struct {
	number  uint64 // order of arrival
	Session jobs.SessionID
	Worker  jobs.Entity
	// Principal opened the session; with the name of the worker, it identifies the process.
	Principal string
	Refill    bool                    // see steps.Pull.Refill
	Sees      func(board string) bool // its principal may work on the board
	Holds     map[steps.ID]bool       // true: stopping
	Promised  chan struct{}           // closed when an attempt is promised to it
	Answer    chan *conductordv1.PullStepsResponse

	// Guarded by Matcher.mu.

	Free      int // slots
	isPromise bool
	done      bool
}

// stepPromise is an attempt that a worker gets when its conductor has recorded the worker. Until
// the conductor offers the attempt again, the promise uses a slot of the worker. A new leader has
// no promises.
type stepPromise struct {
	session jobs.SessionID
	made    time.Time
}

// stepReport is a waiting call of Report. news has a buffer of one: an offer of the flow has
// arrived, or an attempt of the flow was recorded.
type stepReport struct{ News chan struct{} }

// New makes a Matcher without offers and workers.
func New(logger hclog.Logger) *Matcher {
	return &Matcher{
		offers: map[steps.ID]*Offer{}, pulls: map[jobs.SessionID]*Pull{}, promises: map[steps.ID]stepPromise{},
		workers: newStepWorkers(logger), reports: map[logbook.FlowID]map[*stepReport]struct{}{},
	}
}

// Offer adds an offer. It replaces an earlier call for the same attempt, whose caller has left or
// is an earlier owner of the flow.
func (s *Matcher) Offer(o *Offer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.arrived = time.Now()
	if earlier := s.offers[o.Offer.Work.ID]; earlier != nil {
		o.arrived = earlier.arrived
		earlier.reply(steps.Answer{})
	} else if len(s.offers) >= steps.MaxOffers {
		return fmt.Errorf("%w: %d steps wait for workers, which is the limit; try again", jobs.ErrOverloaded, steps.MaxOffers)
	}
	s.offers[o.Offer.Work.ID] = o
	delete(s.promises, o.Offer.Work.ID)
	s.wakeReportsLocked(o.Offer.Work.Flow)
	if o.Offer.Worker != (jobs.SessionID{}) {
		if p := s.pulls[o.Offer.Worker]; p != nil {
			s.giveLocked(p, o)
		}
		return nil
	}
	s.placeLocked(o)
	return nil
}

// Place looks for a worker again, because a reason to withhold the attempt from a worker may have
// ended.
func (s *Matcher) Place(o *Offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.kept && !o.done {
		s.placeLocked(o)
	}
}

// placeLocked promises an attempt to the worker that has waited longest.
func (s *Matcher) placeLocked(o *Offer) {
	var first *Pull
	o.kept = false
	for _, p := range s.pulls {
		if p.Free > 0 && !p.done && o.suits(p) && s.workers.admits(o, p) && (first == nil || p.number < first.number) {
			first = p
		}
	}
	if first != nil {
		s.promise(first, o)
	}
}

// Widen records the end of the only session that could have an attempt.
func (s *Matcher) Widen(o *Offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.widenLocked(o)
}

func (s *Matcher) widenLocked(o *Offer) {
	if o.widened = true; !o.done && o.Offer.Worker == (jobs.SessionID{}) {
		s.placeLocked(o)
	}
}

// Lose reports to the conductor that its worker may no longer have the attempt.
func (s *Matcher) Lose(o *Offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.reply(steps.Answer{Lost: true})
}

// Withdraw removes an offer at the end of its call.
func (s *Matcher) Withdraw(o *Offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.done = true
	if s.offers[o.Offer.Work.ID] == o {
		delete(s.offers, o.Offer.Work.ID)
	}
}

// Pull adds a waiting worker. It replaces an earlier call of the session.
func (s *Matcher) Pull(p *Pull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if earlier := s.pulls[p.Session]; earlier != nil {
		earlier.reply(&conductordv1.PullStepsResponse{})
	}
	s.pulled++
	p.number = s.pulled
	s.pulls[p.Session] = p
	s.workers.hear(p)
	var own []*Offer
	for id, o := range s.offers {
		if o.Offer.Worker != p.Session {
			continue
		}
		own = append(own, o)
		if _, held := p.Holds[id]; !held {
			p.Free--
		}
	}
	if promised := s.promisedLocked(p.Session); promised > 0 {
		p.Free -= promised
		p.notePromise() // a promise may lapse: the next call then has the slot
	}
	s.promiseLocked(p)
	s.giveLocked(p, own...)
}

// promisedLocked counts the attempts that were promised to a worker and that are not recorded yet.
// It forgets promises that have lapsed.
func (s *Matcher) promisedLocked(session jobs.SessionID) (promised int) {
	for id, promise := range s.promises {
		if time.Since(promise.made) >= PromiseTime {
			delete(s.promises, id)
		} else if promise.session == session {
			promised++
		}
	}
	return promised
}

// promiseLocked promises a worker the waiting attempts that match it, the oldest first.
func (s *Matcher) promiseLocked(p *Pull) {
	if p.Free <= 0 {
		return
	}
	var waiting []*Offer
	for _, o := range s.offers {
		if !o.done && o.Offer.Worker == (jobs.SessionID{}) && o.suits(p) {
			waiting = append(waiting, o)
		}
	}
	slices.SortFunc(waiting, func(a, b *Offer) int {
		return cmp.Or(a.Offer.Since.Compare(b.Offer.Since), cmp.Compare(a.Offer.Work.Step, b.Offer.Work.Step))
	})
	for _, o := range waiting {
		if p.Free <= 0 {
			break
		}
		if s.workers.admits(o, p) {
			s.promise(p, o)
		}
	}
}

// Followed are the attempts of a worker for which conductors wait now, so the worker may keep them.
func (s *Matcher) Followed(session jobs.SessionID) map[steps.ID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	followed := map[steps.ID]bool{}
	for id, o := range s.offers {
		if o.Offer.Worker == session && !o.done {
			followed[id] = true
		}
	}
	return followed
}

// Freed frees the slot of an attempt whose end is recorded, and fills the slot if the worker's call
// is waiting.
func (s *Matcher) Freed(session jobs.SessionID, id steps.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pulls[session]
	if p == nil || p.done || !p.Refill {
		return
	}
	if _, held := p.Holds[id]; held {
		delete(p.Holds, id)
		p.Free++
		s.promiseLocked(p)
	}
}

// Leave removes a worker at the end of its call.
func (s *Matcher) Leave(p *Pull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.done = true
	if s.pulls[p.Session] == p {
		delete(s.pulls, p.Session)
	}
}

// promise reports the worker of an attempt to the conductor. The worker gets the attempt when the conductor
// has recorded the worker.
func (s *Matcher) promise(p *Pull, o *Offer) {
	p.Free--
	s.workers.tried(p)
	p.notePromise()
	s.promises[o.Offer.Work.ID] = stepPromise{session: p.Session, made: time.Now()}
	o.reply(steps.Answer{Worker: p.Session, Name: p.Worker.Name})
}

// giveLocked answers a worker with its attempts that the worker's call does not name, and with the
// attempts that it must stop. Attempts beyond the limit of an answer wait for the next call.
func (s *Matcher) giveLocked(p *Pull, own ...*Offer) {
	answer, size := &conductordv1.PullStepsResponse{}, 0
	for _, o := range own {
		stopping, held := p.Holds[o.Offer.Work.ID]
		switch {
		case held && o.Offer.Stop && !stopping:
			answer.Stop = append(answer.Stop, o.Work.Id)
		case !p.Sees(o.Board): // the offer will find that the worker is lost
		case !held && !o.Offer.Stop && (size == 0 || size+o.Size <= wire.PageBytes):
			answer.Work = append(answer.Work, o.Work)
			size += o.Size
		}
	}
	if len(answer.Work)+len(answer.Stop) > 0 {
		p.reply(answer)
		if s.pulls[p.Session] == p {
			delete(s.pulls, p.Session)
		}
	}
}

// Report forwards an outcome to the conductor that follows the attempt, if there is one.
func (s *Matcher) Report(worker jobs.SessionID, outcome *steps.Outcome) (passed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.offers[outcome.ID]
	if o == nil || o.Offer.Worker != worker || !o.reply(steps.Answer{Outcome: outcome}) {
		return false
	}
	s.workers.judge(worker, o, outcome)
	return true
}

// Refusal is the conductor's refusal of a worker's checkpoint; nil: it has not refused the checkpoint.
func (s *Matcher) Refusal(worker jobs.SessionID, outcome *steps.Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.offers[outcome.ID]
	if o == nil || o.Offer.Worker != worker || o.Offer.Refused != outcome.Checkpoint.Number {
		return nil
	}
	return o.Offer.Refusal
}

// AwaitReport adds a waiting report, and returns the function that removes it.
func (s *Matcher) AwaitReport(flow logbook.FlowID) (r *stepReport, leave func()) {
	r = &stepReport{News: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reports[flow] == nil {
		s.reports[flow] = map[*stepReport]struct{}{}
	}
	s.reports[flow][r] = struct{}{}
	return r, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.reports[flow], r)
		if len(s.reports[flow]) == 0 {
			delete(s.reports, flow)
		}
	}
}

// Recorded wakes the reports of flows whose attempts have changed.
func (s *Matcher) Recorded(flows []logbook.FlowID) {
	if len(flows) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, flow := range flows {
		s.wakeReportsLocked(flow)
	}
}

func (s *Matcher) wakeReportsLocked(flow logbook.FlowID) {
	for r := range s.reports[flow] {
		select {
		case r.News <- struct{}{}:
		default: // signalled already
		}
	}
}

// Ended reports lost workers to their conductors, because the workers' sessions have ended.
func (s *Matcher) Ended(sessions []jobs.SessionID) {
	if len(sessions) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := map[jobs.SessionID]*Offer{}
	for _, o := range s.offers {
		if slices.Contains(sessions, o.Offer.Worker) {
			o.reply(steps.Answer{Lost: true})
			lost[o.Offer.Worker] = o
		}
	}
	maps.DeleteFunc(s.promises, func(_ steps.ID, promise stepPromise) bool { return slices.Contains(sessions, promise.session) })
	for _, session := range sessions {
		s.workers.end(session, lost[session])
		if p := s.pulls[session]; p != nil {
			p.reply(&conductordv1.PullStepsResponse{}) // the next call is refused
		}
	}
	for _, o := range s.offers {
		if slices.Contains(sessions, o.Offer.Only.Session) {
			s.widenLocked(o)
		}
	}
}

// Live describes a worker: its last call, and the held and failed steps of the flows that shows
// admits. Its times are by the clock of now.
func (s *Matcher) Live(entity *jobs.Entity, now time.Time, shows func(logbook.FlowID) bool) steps.Live {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := steps.Live{Entity: *entity}
	k := s.workers.known[entity.Session]
	if k == nil {
		return live
	}
	live.Heard = now.Add(-time.Since(k.heard))
	for id := range k.pull.Holds {
		if shows(id.Flow) {
			live.Holds++
		}
	}
	if r := s.workers.records[k.pull.identity()]; r != nil {
		for step := range r.failed {
			if shows(step.flow) {
				live.Failed++
			}
		}
		if !r.aside.IsZero() {
			live.Aside, live.Trial = now.Add(-time.Since(r.aside)), now.Add(time.Until(r.trial))
		}
	}
	return live
}

// Waiting are a job's offers that no worker has taken.
func (s *Matcher) Waiting(job jobs.JobID) []steps.Offer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []steps.Offer
	for _, o := range s.offers {
		if o.Offer.Work.Job == job && o.Offer.Worker == (jobs.SessionID{}) && !o.done {
			found = append(found, o.Offer)
		}
	}
	slices.SortFunc(found, func(a, b steps.Offer) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Work.Step, b.Work.Step))
	})
	return found
}

// suits reports whether a worker can run the offered step. If the offer names a worker, only this
// worker suits.
func (o *Offer) suits(p *Pull) bool {
	if only := &o.Offer.Only; !only.Session.IsZero() && p.Session != only.Session && !(o.widened && p.Worker.Name == only.Name) {
		return false
	}
	return steps.Suits(&p.Worker, o.Board, o.Offer.Work.Type, o.Offer.Work.Labels) && p.Sees(o.Board)
}

// reply answers the call, unless it has an answer. Call it under Matcher.mu.
func (o *Offer) reply(answer steps.Answer) bool {
	if o.done {
		return false
	}
	o.done = true
	o.Answer <- answer
	return true
}

// notePromise makes the call end soon, even if it assigns no attempt.
func (p *Pull) notePromise() {
	if !p.isPromise {
		p.isPromise = true
		close(p.Promised)
	}
}

func (p *Pull) reply(answer *conductordv1.PullStepsResponse) {
	if !p.done {
		p.done = true
		p.Answer <- answer
	}
}
