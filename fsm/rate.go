package fsm

import (
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

const (
	// rateSlot is the span in which things are counted together.
	rateSlot = 15 * time.Second
	// rateSlots are as many as the longest span asked for takes, and the one
	// that runs.
	rateSlots = int64(15*time.Minute/rateSlot) + 1
)

// rate counts what happens, in a ring of spans of time. It knows no time but
// that which it is told: that of the entry.
type rate struct {
	slot   int64 // number of the latest span since 1970
	counts [rateSlots]uint64
}

func slotOf(now time.Time) int64 { return now.UnixNano() / int64(rateSlot) }

// add counts one. Time never runs backwards in a state machine.
func (r *rate) add(now time.Time) {
	slot := slotOf(now)
	for i := max(r.slot+1, slot-rateSlots+1); i <= slot; i++ {
		r.counts[i%rateSlots] = 0
	}
	r.slot = max(r.slot, slot)
	r.counts[r.slot%rateSlots]++
}

// within estimates the count over the last span: whole slots, plus a share of the oldest.
func (r *rate) within(now time.Time, span time.Duration) uint64 {
	slot, part := slotOf(now), uint64(now.UnixNano()%int64(rateSlot))
	if slot < r.slot { // a clock that is behind the state machine's
		slot, part = r.slot, 0
	}
	oldest := slot - int64(span/rateSlot)
	sum := r.at(oldest) * (uint64(rateSlot) - part) / uint64(rateSlot)
	for i := oldest + 1; i <= slot; i++ {
		sum += r.at(i)
	}
	return sum
}

// at is how many there were in a slot.
func (r *rate) at(slot int64) uint64 {
	if slot < 0 || slot > r.slot || slot <= r.slot-rateSlots {
		return 0
	}
	return r.counts[slot%rateSlots]
}

func (r *rate) spans(now time.Time) jobs.BoardRate {
	return jobs.BoardRate{
		One: r.within(now, time.Minute), Five: r.within(now, 5*time.Minute), Fifteen: r.within(now, 15*time.Minute),
	}
}

func (r *rate) message() *v1.CountersRate {
	if *r == (rate{}) {
		return nil
	}
	return &v1.CountersRate{Slot: r.slot, Counts: r.counts[:]}
}

func rateFromProto(message *v1.CountersRate) (rate, error) {
	r := rate{slot: message.GetSlot()}
	if n := len(message.GetCounts()); message != nil && int64(n) != rateSlots || r.slot < 0 {
		return rate{}, fmt.Errorf("a rate has %d spans, the latest of which is %d", n, r.slot)
	}
	copy(r.counts[:], message.GetCounts())
	return r, nil
}

// bucket holds what may happen in one second: each time takes a part of it,
// and it fills up within a second. It is counted as what is missing, in
// billionths of one, so that the arithmetic is exact and an unused bucket is zero.
type bucket struct {
	debt    uint64
	charged int64 // when the debt was what it is; Unix nanoseconds
}

// bucketUnit is one time, as a bucket counts it.
const bucketUnit = uint64(time.Second)

// owed is the debt that is left at a time. perSecond is at most jobs.MaxPostingRate, which
// keeps the products within 64 bits.
func (b bucket) owed(now time.Time, perSecond uint64) uint64 {
	debt := min(b.debt, perSecond*bucketUnit)
	elapsed := uint64(min(max(now.UnixNano()-b.charged, 0), int64(bucketUnit)))
	return debt - min(debt, elapsed*perSecond)
}

// charge is the bucket after one more, if there is room for it.
func (b bucket) charge(now time.Time, perSecond uint64) (bucket, bool) {
	debt := b.owed(now, perSecond)
	if debt+bucketUnit > perSecond*bucketUnit {
		return b, false
	}
	return bucket{debt: debt + bucketUnit, charged: now.UnixNano()}, true
}

// taken is how much of the burst is used at a time, rounded up.
func (b bucket) taken(now time.Time, perSecond uint64) uint64 {
	return (b.owed(now, perSecond) + bucketUnit - 1) / bucketUnit
}
