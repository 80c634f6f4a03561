package node

import (
	"slices"
	"time"

	"github.com/conductord/conductord/jobs"
)

const (
	// elsewhereTime is how long a new attempt is kept from the workers that have failed at its
	// step, while there is no other. A worker that ends or restarts is replaced within a few
	// seconds; a longer wait would only slow the retries of a single worker.
	elsewhereTime = 3 * time.Second
	// maxKnown bounds what is remembered of workers, also of those whose session has ended.
	maxKnown = 4096
)

// stepWorkers is what the leader remembers of the workers that have asked it for steps. It is
// under stepOffers.mu. After a change of leader, it begins empty: it is only about
// which worker gets an attempt first, never about whether one gets it.
type stepWorkers struct {
	known map[jobs.SessionID]*knownWorker
}

// knownWorker is a session of a worker.
type knownWorker struct {
	entity jobs.Entity
	heard  time.Time // when it asked last
	ended  bool
}

func newStepWorkers() stepWorkers { return stepWorkers{known: map[jobs.SessionID]*knownWorker{}} }

// hear notes that a worker asks for steps.
func (w *stepWorkers) hear(p *stepPull) {
	if w.known[p.session] == nil && len(w.known) >= maxKnown {
		w.forgetOldest()
	}
	w.known[p.session] = &knownWorker{entity: p.worker, heard: time.Now()}
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

// admits reports whether a worker that suits may have an attempt now.
func (w *stepWorkers) admits(o *stepOffer, p *stepPull) bool {
	admitted := time.Since(o.arrived) >= elsewhereTime || !w.hasFailed(o, p)
	o.kept = o.kept || !admitted
	return admitted
}

// end notes that a session has ended.
func (w *stepWorkers) end(session jobs.SessionID) {
	if k := w.known[session]; k != nil {
		k.ended = true
	}
}

// hasFailed reports whether a worker has failed at the step of an attempt, under this session
// or an ended one of its name: a process that its steps kill comes back under a new session.
// While the other session lives, the name is that of two processes.
func (w *stepWorkers) hasFailed(o *stepOffer, p *stepPull) bool {
	return slices.ContainsFunc(o.failed, func(session jobs.SessionID) bool {
		k := w.known[session]
		return session == p.session || k != nil && k.ended && k.entity.Name == p.worker.Name
	})
}
