package admission

import (
	"runtime"
	"sync"
	"time"
)

// Budget limits the amounts that holders hold in parallel, such as bytes of bodies. No holder
// may hold more than is left over, so a single holder gets at most half, and a newcomer finds
// room. A holder's first piece may be larger. Only the total limits the empty holder.
type Budget struct {
	total, each int64 // each: limit of one holder, instead of a share of the rest; 0: unset

	mu   sync.Mutex
	used int64            // guarded by mu
	held map[string]int64 // by holder; guarded by mu
}

// take adds n units to the holder, and reports whether it did. It leaves at least left units of the
// total unused.
func (b *Budget) take(holder string, n, left int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	free, held := b.total-left-b.used-n, b.held[holder]
	most := free
	if b.each > 0 {
		most = b.each
	}
	if free < 0 || holder != "" && held+n > most && (held > 0 || b.each > 0) {
		return false
	}
	if b.held == nil {
		b.held = make(map[string]int64)
	}
	b.used += n
	b.held[holder] += n
	return true
}

// give returns n units of the holder to the budget.
func (b *Budget) give(holder string, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.held[holder] -= n; b.held[holder] == 0 {
		delete(b.held, holder)
	}
}

// A meter allows more after each span. A holder can use its part of a span at once. workSpan is short,
// because a burst of work at the start of a flood delays elections. entrySpan lets a client open
// several connections together. maxMeterWait is the longest time between two requests of a waiting
// holder: its part grows when others stop.
const (
	workSpan     = 50 * time.Millisecond
	entrySpan    = 250 * time.Millisecond
	maxMeterWait = time.Second
)

// meterParts is the precision of a share: with many holders, a share is less than one unit.
const meterParts = 1_000

// meter limits the work that holders cause per time. All active holders have equal shares, and a
// share is reserved for a newcomer. Work beyond a holder's share is a debt to later spans. All
// numbers are in units of 1/meterParts.
type meter struct {
	span  time.Duration
	total int64 // per span

	mu    sync.Mutex
	began time.Time        // start of the current span; guarded by mu
	used  map[string]int64 // by holder; guarded by mu
}

// newMeter makes a meter that allows perSecond units for each processor.
func newMeter(perSecond int64, span time.Duration) *meter {
	total := perSecond * meterParts * int64(runtime.GOMAXPROCS(0)) * int64(span) / int64(time.Second)
	return &meter{span: span, total: total, used: make(map[string]int64)}
}

// partLocked is the share of each holder in a span.
func (m *meter) partLocked() int64 { return max(1, m.total/int64(len(m.used)+1)) }

// take counts n units for the holder, and returns 0. If the holder has used up its share, take
// counts nothing and returns the time to wait.
func (m *meter) take(holder string, n int64, now time.Time) (wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.payLocked(now)
	part := m.partLocked()
	if debt := m.used[holder] - part; debt >= 0 {
		spans := time.Duration(min(debt/part, int64(maxMeterWait/m.span)) + 1)
		return min(m.began.Add(spans*m.span).Sub(now), maxMeterWait)
	}
	if n > 0 {
		m.used[holder] += n * meterParts
	}
	return 0
}

// payLocked reduces the use of all holders by their shares of the spans that have passed.
func (m *meter) payLocked(now time.Time) {
	spans := int64(now.Sub(m.began) / m.span)
	if spans <= 0 {
		return
	}
	paid := min(spans, m.total) * m.partLocked()
	for name, used := range m.used {
		if m.used[name] = used - paid; used <= paid {
			delete(m.used, name)
		}
	}
	if m.began.IsZero() {
		m.began = now
	} else {
		m.began = m.began.Add(time.Duration(spans) * m.span)
	}
}

// add counts n units as used.
func (m *meter) add(holder string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[holder] += n * meterParts
}
