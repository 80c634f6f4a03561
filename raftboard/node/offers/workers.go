package offers

import (
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

const (
	// elsewhereTime is the time that a new attempt is withheld from workers that have failed at its
	// step, while no other worker takes it. A worker that ends or restarts is replaced within a few
	// seconds. A longer wait would only slow the retries of a single worker.
	elsewhereTime = 3 * time.Second
	// maxKnown limits the remembered workers, including workers whose session has ended.
	maxKnown = 4096
	// asideAfter is the number of different steps that must fail, with no success between,
	// before their worker is set aside. Attempts at one step count once: a bad step must
	// not set a worker aside.
	asideAfter = 5
	// asideFirst is the first pause of a worker that is set aside. Each failed trial doubles the
	// pause, up to asideMost: a repaired worker gets steps again within a few minutes.
	asideFirst = 30 * time.Second
	asideMost  = 10 * time.Minute
	// quietAfter is the time after which a silent worker does not count as another worker: a call
	// waits 60 s at most.
	quietAfter = 90 * time.Second
)

// stepWorkers is the leader's record of workers that have asked for steps. Matcher.mu protects it.
// It is empty after a change of leader: it only decides which worker gets an attempt first, never
// whether any worker gets it.
type stepWorkers struct {
	logger  hclog.Logger
	known   map[jobs.SessionID]*knownWorker
	records map[workerIdentity]*workerRecord
}

// knownWorker is a session of a worker.
type knownWorker struct {
	pull  *Pull     // the last call
	heard time.Time // time of its last call
	ended bool
}

// workerIdentity identifies a worker across its sessions.
type workerIdentity struct{ principal, name string }

func (p *Pull) identity() workerIdentity { return workerIdentity{p.Principal, p.Worker.Name} }

type failedStep struct {
	flow   logbook.FlowID
	step   string
	action logbook.Action
}

// workerRecord is the record of a worker whose latest step has failed.
type workerRecord struct {
	failed  map[failedStep]bool
	changed time.Time

	// Only for a worker that is set aside; otherwise zero.

	aside   time.Time     // time when it was set aside
	trial   time.Time     // time of its next attempt
	pause   time.Duration // between trials
	onTrial bool          // it has an attempt on trial
}

func newStepWorkers(logger hclog.Logger) stepWorkers {
	return stepWorkers{logger: logger, known: map[jobs.SessionID]*knownWorker{}, records: map[workerIdentity]*workerRecord{}}
}

// hear records that a worker has requested steps.
func (w *stepWorkers) hear(p *Pull) {
	if w.known[p.Session] == nil && len(w.known) >= maxKnown {
		w.forgetOldest()
	}
	w.known[p.Session] = &knownWorker{pull: p, heard: time.Now()}
}

func (w *stepWorkers) forgetOldest() {
	var oldest jobs.SessionID
	for session, k := range w.known {
		if first := w.known[oldest]; first == nil || k.heard.Before(first.heard) {
			oldest = session
		}
	}
	delete(w.known, oldest)
}

// end records the end of a session. The steps that it held are lost together, and count as one
// failure: a machine that fails once is not set aside for its many steps.
func (w *stepWorkers) end(session jobs.SessionID, lost *Offer) {
	if k := w.known[session]; k != nil {
		k.ended = true
		if lost != nil {
			w.fail(k.pull, lost)
		}
	}
}

// judge evaluates an outcome. A permanent failure is the step's verdict on its input, and a failure
// after a stop is caused by the conductor. Neither is a success or a failure of the worker.
func (w *stepWorkers) judge(session jobs.SessionID, o *Offer, outcome *steps.Outcome) {
	k := w.known[session]
	switch {
	case k == nil || !outcome.Done || outcome.NotYet > 0:
	case outcome.Failure == nil:
		if r := w.records[k.pull.identity()]; r != nil && !r.aside.IsZero() {
			w.logger.Info("worker gets steps again", "worker", k.pull.Worker.Name, "session", session)
		}
		delete(w.records, k.pull.identity())
	case !outcome.Failure.Permanent && !o.Offer.Stop:
		w.fail(k.pull, o)
	}
}

// fail counts a failure of a worker.
func (w *stepWorkers) fail(p *Pull, o *Offer) {
	now, id := time.Now(), p.identity()
	r := w.records[id]
	if r == nil {
		if len(w.records) >= maxKnown {
			w.forgetRecords(now)
		}
		r = &workerRecord{failed: map[failedStep]bool{}}
		w.records[id] = r
	}
	r.changed = now
	if len(r.failed) < asideAfter {
		r.failed[failedStep{o.Offer.Work.Flow, o.Offer.Work.Step, o.Offer.Work.Action}] = true
	}
	switch {
	case r.aside.IsZero() && len(r.failed) >= asideAfter:
		r.aside, r.pause = now, asideFirst
		r.trial = now.Add(r.pause)
		w.logger.Warn("worker set aside", "worker", p.Worker.Name, "session", p.Session, "failed_steps", len(r.failed), "trial_in", r.pause)
	case r.onTrial:
		r.onTrial, r.pause = false, min(2*r.pause, asideMost)
		r.trial = now.Add(r.pause)
	}
}

// forgetRecords removes records that changed long ago, or all. In the worst case, a worker must
// fail again to be set aside.
func (w *stepWorkers) forgetRecords(now time.Time) {
	for id, r := range w.records {
		if now.Sub(r.changed) > 2*asideMost {
			delete(w.records, id)
		}
	}
	if len(w.records) >= maxKnown {
		clear(w.records)
	}
}

// tried records that a worker gets an attempt. A worker that is set aside gets the next one after
// its pause.
func (w *stepWorkers) tried(p *Pull) {
	if r := w.records[p.identity()]; r != nil && !r.aside.IsZero() && !w.isAside(p) {
		r.onTrial, r.trial = true, time.Now().Add(r.pause)
	}
}

// isAside reports whether a worker should get nothing now.
func (w *stepWorkers) isAside(p *Pull) bool {
	r := w.records[p.identity()]
	return r != nil && !r.aside.IsZero() && time.Now().Before(r.trial)
}

// admits reports whether a worker that suits may have an attempt now.
func (w *stepWorkers) admits(o *Offer, p *Pull) bool {
	failed, aside := time.Since(o.arrived) < elsewhereTime && w.hasFailed(o, p), w.isAside(p)
	better := func(other *Pull) bool { return !(failed && w.hasFailed(o, other)) && !(aside && w.isAside(other)) }
	admitted := !failed && !aside || !w.hasOther(o, better)
	o.kept = o.kept || !admitted
	return admitted
}

// hasOther reports whether a better suitable worker is alive, even if it is busy. If there is none,
// workers that have failed, or are set aside, get the attempt at once: a wait would only add to the
// pauses of the step's own retries.
func (w *stepWorkers) hasOther(o *Offer, better func(*Pull) bool) bool {
	for _, k := range w.known {
		if !k.ended && time.Since(k.heard) < quietAfter && o.suits(k.pull) && better(k.pull) {
			return true
		}
	}
	return false
}

// hasFailed reports whether a worker has failed at the step of an attempt, under this session or
// an ended one of its name: a process that its steps kill returns under a new session. While the
// other session lives, two processes have the name.
func (w *stepWorkers) hasFailed(o *Offer, p *Pull) bool {
	return slices.ContainsFunc(o.Failed, func(session jobs.SessionID) bool {
		k := w.known[session]
		return session == p.Session || k != nil && k.ended && k.pull.identity() == p.identity()
	})
}

// SetAside is the number of live workers that are set aside.
func (s *Matcher) SetAside() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	aside := 0
	for _, k := range s.workers.known {
		if r := s.workers.records[k.pull.identity()]; r != nil && !r.aside.IsZero() && !k.ended {
			aside++
		}
	}
	return aside
}
