package fsm

// caches have decoded rows that most commands need, in their current state. Only the machine's writer has them. In
// a reader, the maps are nil.
type caches struct {
	heads        heads
	known        knownJobs
	flows        knownFlows
	counterCache *counterCache
	claimants    claimants
	quotas       *quotas
}

func newCaches() caches {
	return caches{
		heads: make(heads), known: make(knownJobs), flows: make(knownFlows),
		counterCache: newCounterCache(), claimants: make(claimants), quotas: new(quotas),
	}
}
