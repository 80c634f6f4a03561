package admission

import (
	"runtime"
	"sync"
	"time"
)

// Budget is of what holders hold in parallel, such as bytes of bodies. No holder may have
// more than is left then, so one alone has half at most, and a newcomer finds room. Its first
// piece may be larger. The empty holder is bounded by the total alone.
type Budget struct {
	total, each int64 // each: of one holder, instead of as much as is left; 0: unset

	mu   sync.Mutex
	used int64            // under mu
	held map[string]int64 // by holder; under mu
}

// take gives the holder n more, and reports whether it did. It leaves at least left units of the
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

// meterSpan is the time after which a meter allows more.
const meterSpan = 250 * time.Millisecond

// meter bounds the work that holders cause in a time. All active holders have equal parts, and
// a part is left for a newcomer. Whatever a holder takes beyond its part is a debt to later spans.
type meter struct {
	total int64 // in meterSpan

	mu    sync.Mutex
	began time.Time        // of the present span; under mu
	used  map[string]int64 // by holder; under mu
}

// newMeter makes a meter that allows perSecond units for each processor.
func newMeter(perSecond int64) *meter {
	return &meter{total: perSecond * int64(runtime.GOMAXPROCS(0)) * int64(meterSpan) / int64(time.Second), used: make(map[string]int64)}
}

// partLocked is what each holder may use in a span.
func (m *meter) partLocked() int64 { return max(1, m.total/int64(len(m.used)+1)) }

// take counts n units for the holder, and returns 0. If the holder has used up its part, take
// counts nothing and returns the time to wait.
func (m *meter) take(holder string, n int64, now time.Time) (wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if spans := int64(now.Sub(m.began) / meterSpan); spans > 0 {
		paid := min(spans, m.total) * m.partLocked()
		for name, used := range m.used {
			if m.used[name] = used - paid; used <= paid {
				delete(m.used, name)
			}
		}
		m.began = now
	}
	if m.used[holder] >= m.partLocked() {
		return m.began.Add(meterSpan).Sub(now)
	}
	if n > 0 {
		m.used[holder] += n
	}
	return 0
}

// add notes n as used.
func (m *meter) add(holder string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[holder] += n
}
