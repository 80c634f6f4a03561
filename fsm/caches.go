package fsm

// caches hold decoded rows that most commands need, as they are after the last command. The
// machine's writer has them all. A reader has none: its maps are nil.
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
