package node

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

// stepOffers brings the conductors that offer attempts together with the workers that wait
// for them. An offer is here while its call waits, so there is nothing to keep and nothing to
// restore: after a change of leader, both sides repeat their calls at the new one.
//
//	Offer ──> waits ── a Pull fits ──> promised: the call answers, and the conductor records the worker
//	Offer with the worker ──> held ── a Pull that does not name it ──> given to the worker
//	                               ── a Report ──> the call answers with the outcome
//	                               ── the worker's session ends ──> the call answers that it is lost
type stepOffers struct {
	mu       sync.Mutex
	offers   map[steps.ID]*stepOffer
	pulls    map[jobs.SessionID]*stepPull
	promises map[steps.ID]stepPromise
	workers  stepWorkers
	pulled   uint64 // calls so far
	reports  map[logbook.FlowID]map[*stepReport]struct{}
}

// stepOffer is a call of Offer that waits.
type stepOffer struct {
	offer  steps.Offer
	work   *conductordv1.StepWork
	size   int
	board  string
	failed []jobs.SessionID  // workers whose earlier attempts of this round have failed
	answer chan steps.Answer // holds one

	// Under stepOffers.mu.

	arrived time.Time
	widened bool // its only worker's session has ended: others of the name may have it
	kept    bool // from a worker that suits and is free
	done    bool // it has its answer
}

// stepPull is a call of Pull that waits.
type stepPull struct {
	number  uint64 // order of arrival
	session jobs.SessionID
	worker  jobs.Entity
	// principal opened the session; with the name of the worker, it says which process it is.
	principal string
	refill    bool                    // see steps.Pull.Refill
	sees      func(board string) bool // its principal may work there
	holds     map[steps.ID]bool       // true: it is stopping
	promised  chan struct{}           // closed when it was promised an attempt
	answer    chan *conductordv1.PullStepsResponse

	// Under stepOffers.mu.

	free      int // slots
	isPromise bool
	done      bool
}

// stepPromise is an attempt that a worker gets once its conductor has recorded that. Until the
// conductor offers the attempt again, it takes a slot of the worker. A new leader knows of none.
type stepPromise struct {
	session jobs.SessionID
	made    time.Time
}

// stepReport is a call of Report that waits. news holds one: an offer of the flow has arrived, or an
// attempt of the flow was recorded.
type stepReport struct{ news chan struct{} }

func newStepOffers(logger hclog.Logger) *stepOffers {
	return &stepOffers{
		offers: map[steps.ID]*stepOffer{}, pulls: map[jobs.SessionID]*stepPull{}, promises: map[steps.ID]stepPromise{},
		workers: newStepWorkers(logger), reports: map[logbook.FlowID]map[*stepReport]struct{}{},
	}
}

// offer adds an offer. It takes the place of an earlier call for the same attempt, whose
// caller has gone or is another owner of the flow.
func (s *stepOffers) offer(o *stepOffer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.arrived = time.Now()
	if earlier := s.offers[o.offer.Work.ID]; earlier != nil {
		o.arrived = earlier.arrived
		earlier.reply(steps.Answer{})
	} else if len(s.offers) >= steps.MaxOffers {
		return fmt.Errorf("%w: %d steps wait for workers, which is the limit", jobs.ErrOverloaded, steps.MaxOffers)
	}
	s.offers[o.offer.Work.ID] = o
	delete(s.promises, o.offer.Work.ID)
	s.wakeReportsLocked(o.offer.Work.Flow)
	if o.offer.Worker != (jobs.SessionID{}) {
		if p := s.pulls[o.offer.Worker]; p != nil {
			s.giveLocked(p, o)
		}
		return nil
	}
	s.placeLocked(o)
	return nil
}

// place looks again for a worker, because a reason to keep the attempt from one may be over.
func (s *stepOffers) place(o *stepOffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.kept && !o.done {
		s.placeLocked(o)
	}
}

// placeLocked promises an attempt to the worker that has waited longest.
func (s *stepOffers) placeLocked(o *stepOffer) {
	var first *stepPull
	o.kept = false
	for _, p := range s.pulls {
		if p.free > 0 && !p.done && o.suits(p) && s.workers.admits(o, p) && (first == nil || p.number < first.number) {
			first = p
		}
	}
	if first != nil {
		s.promise(first, o)
	}
}

// widen notes that the session has ended that alone could have an attempt.
func (s *stepOffers) widen(o *stepOffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.widenLocked(o)
}

func (s *stepOffers) widenLocked(o *stepOffer) {
	if o.widened = true; !o.done && o.offer.Worker == (jobs.SessionID{}) {
		s.placeLocked(o)
	}
}

// lose tells the conductor that its worker may not have the attempt any more.
func (s *stepOffers) lose(o *stepOffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.reply(steps.Answer{Lost: true})
}

// withdraw removes an offer whose call ends.
func (s *stepOffers) withdraw(o *stepOffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.done = true
	if s.offers[o.offer.Work.ID] == o {
		delete(s.offers, o.offer.Work.ID)
	}
}

// pull adds a worker that waits. It takes the place of an earlier call of the session.
func (s *stepOffers) pull(p *stepPull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if earlier := s.pulls[p.session]; earlier != nil {
		earlier.reply(&conductordv1.PullStepsResponse{})
	}
	s.pulled++
	p.number = s.pulled
	s.pulls[p.session] = p
	s.workers.hear(p)
	var own []*stepOffer
	for id, o := range s.offers {
		if o.offer.Worker != p.session {
			continue
		}
		own = append(own, o)
		if _, held := p.holds[id]; !held {
			p.free--
		}
	}
	if promised := s.promisedLocked(p.session); promised > 0 {
		p.free -= promised
		p.notePromise() // one may lapse: the next call has the slot then
	}
	s.promiseLocked(p)
	s.giveLocked(p, own...)
}

// promisedLocked counts the attempts that were promised to a worker and that are not recorded yet.
// It forgets promises that have lapsed.
func (s *stepOffers) promisedLocked(session jobs.SessionID) (promised int) {
	for id, promise := range s.promises {
		if time.Since(promise.made) >= promiseTime {
			delete(s.promises, id)
		} else if promise.session == session {
			promised++
		}
	}
	return promised
}

// promiseLocked promises a worker those of the waiting attempts that suit it, the oldest first.
func (s *stepOffers) promiseLocked(p *stepPull) {
	if p.free <= 0 {
		return
	}
	var waiting []*stepOffer
	for _, o := range s.offers {
		if !o.done && o.offer.Worker == (jobs.SessionID{}) && o.suits(p) {
			waiting = append(waiting, o)
		}
	}
	slices.SortFunc(waiting, func(a, b *stepOffer) int {
		return cmp.Or(a.offer.Since.Compare(b.offer.Since), cmp.Compare(a.offer.Work.Step, b.offer.Work.Step))
	})
	for _, o := range waiting {
		if p.free <= 0 {
			break
		}
		if s.workers.admits(o, p) {
			s.promise(p, o)
		}
	}
}

// followed are the attempts of a worker that conductors wait for now: the worker rightly holds them.
func (s *stepOffers) followed(session jobs.SessionID) map[steps.ID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	followed := map[steps.ID]bool{}
	for id, o := range s.offers {
		if o.offer.Worker == session && !o.done {
			followed[id] = true
		}
	}
	return followed
}

// freed gives the slot of an attempt, whose end is recorded, to the call of its worker that waits.
func (s *stepOffers) freed(session jobs.SessionID, id steps.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pulls[session]
	if p == nil || p.done || !p.refill {
		return
	}
	if _, held := p.holds[id]; held {
		delete(p.holds, id)
		p.free++
		s.promiseLocked(p)
	}
}

// leave removes a worker whose call ends.
func (s *stepOffers) leave(p *stepPull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.done = true
	if s.pulls[p.session] == p {
		delete(s.pulls, p.session)
	}
}

// promise tells the conductor which worker gets an attempt. The worker gets it once that is recorded.
func (s *stepOffers) promise(p *stepPull, o *stepOffer) {
	p.free--
	s.workers.tried(p)
	p.notePromise()
	s.promises[o.offer.Work.ID] = stepPromise{session: p.session, made: time.Now()}
	o.reply(steps.Answer{Worker: p.session, Name: p.worker.Name})
}

// giveLocked answers a worker with those of its attempts that it does not name, and with
// those that it must stop. More than one answer holds are left for the next call.
func (s *stepOffers) giveLocked(p *stepPull, own ...*stepOffer) {
	answer, size := &conductordv1.PullStepsResponse{}, 0
	for _, o := range own {
		stopping, held := p.holds[o.offer.Work.ID]
		switch {
		case held && o.offer.Stop && !stopping:
			answer.Stop = append(answer.Stop, o.work.Id)
		case !p.sees(o.board): // the offer finds the worker lost
		case !held && !o.offer.Stop && (size == 0 || size+o.size <= wire.PageBytes):
			answer.Work = append(answer.Work, o.work)
			size += o.size
		}
	}
	if len(answer.Work)+len(answer.Stop) > 0 {
		p.reply(answer)
		if s.pulls[p.session] == p {
			delete(s.pulls, p.session)
		}
	}
}

// report passes an outcome on to the conductor that follows the attempt, if there is one.
func (s *stepOffers) report(worker jobs.SessionID, outcome *steps.Outcome) (passed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.offers[outcome.ID]
	if o == nil || o.offer.Worker != worker || !o.reply(steps.Answer{Outcome: outcome}) {
		return false
	}
	s.workers.judge(worker, o, outcome)
	return true
}

// awaitReport adds a report that waits, and returns what removes it.
func (s *stepOffers) awaitReport(flow logbook.FlowID) (r *stepReport, leave func()) {
	r = &stepReport{news: make(chan struct{}, 1)}
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

// recorded wakes the reports of flows whose attempts have changed.
func (s *stepOffers) recorded(flows []logbook.FlowID) {
	if len(flows) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, flow := range flows {
		s.wakeReportsLocked(flow)
	}
}

func (s *stepOffers) wakeReportsLocked(flow logbook.FlowID) {
	for r := range s.reports[flow] {
		signal(r.news)
	}
}

// ended tells the conductors that workers are lost, because their sessions have ended.
func (s *stepOffers) ended(sessions []jobs.SessionID) {
	if len(sessions) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := map[jobs.SessionID]*stepOffer{}
	for _, o := range s.offers {
		if slices.Contains(sessions, o.offer.Worker) {
			o.reply(steps.Answer{Lost: true})
			lost[o.offer.Worker] = o
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
		if slices.Contains(sessions, o.offer.Only.Session) {
			s.widenLocked(o)
		}
	}
}

// live is a worker with what is remembered of it, and of the flows that are shown. The answer's times are by now.
func (s *stepOffers) live(entity *jobs.Entity, now time.Time, shows func(logbook.FlowID) bool) steps.Live {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := steps.Live{Entity: *entity}
	k := s.workers.known[entity.Session]
	if k == nil {
		return live
	}
	live.Heard = now.Add(-time.Since(k.heard))
	for id := range k.pull.holds {
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

// waiting are the offers of a job that no worker has taken.
func (s *stepOffers) waiting(job jobs.JobID) []steps.Offer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []steps.Offer
	for _, o := range s.offers {
		if o.offer.Work.Job == job && o.offer.Worker == (jobs.SessionID{}) && !o.done {
			found = append(found, o.offer)
		}
	}
	slices.SortFunc(found, func(a, b steps.Offer) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Work.Step, b.Work.Step))
	})
	return found
}

// suits reports whether a worker does what is offered, and is the only one that may, if there is one.
func (o *stepOffer) suits(p *stepPull) bool {
	if only := &o.offer.Only; !only.Session.IsZero() && p.session != only.Session && !(o.widened && p.worker.Name == only.Name) {
		return false
	}
	return steps.Suits(&p.worker, o.board, o.offer.Work.Type, o.offer.Work.Labels) && p.sees(o.board)
}

// reply answers the call, unless it has an answer. Under stepOffers.mu.
func (o *stepOffer) reply(answer steps.Answer) bool {
	if o.done {
		return false
	}
	o.done = true
	o.answer <- answer
	return true
}

// notePromise has the call end soon, even if no attempt is given.
func (p *stepPull) notePromise() {
	if !p.isPromise {
		p.isPromise = true
		close(p.promised)
	}
}

func (p *stepPull) reply(answer *conductordv1.PullStepsResponse) {
	if !p.done {
		p.done = true
		p.answer <- answer
	}
}
