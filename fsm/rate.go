package fsm

import (
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

const (
	// rateSlot is the length of a slot. A rate has one count for each slot.
	rateSlot = 15 * time.Second
	// rateSlots is the number of slots: the longest span of a query, and the current slot.
	rateSlots = int64(15*time.Minute/rateSlot) + 1
)

// rate counts events in a ring of slots. The caller passes the time, which is the entry's time.
type rate struct {
	slot   int64 // number of the latest slot since 1970
	counts [rateSlots]uint64
}

func slotOf(now time.Time) int64 { return now.UnixNano() / int64(rateSlot) }

// add counts one event. The time of a state machine never runs backwards.
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
	if slot < r.slot { // a clock earlier than the state machine's time
		slot, part = r.slot, 0
	}
	oldest := slot - int64(span/rateSlot)
	sum := r.at(oldest) * (uint64(rateSlot) - part) / uint64(rateSlot)
	for i := oldest + 1; i <= slot; i++ {
		sum += r.at(i)
	}
	return sum
}

// at returns the count of a slot; 0 if the ring does not have it.
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

// bucket is a token bucket that holds the tokens of one second, and refills within a second. It
// stores the missing tokens, in billionths of a token. So the arithmetic is exact, and an unused bucket
// is zero.
type bucket struct {
	debt    uint64 // missing tokens at the time charged
	charged int64  // Unix nanoseconds
}

// bucketUnit is one token in the unit of debt.
const bucketUnit = uint64(time.Second)

// owed returns the debt at a time. perSecond is at most jobs.MaxPostingRate, which keeps the products
// within 64 bits.
func (b bucket) owed(now time.Time, perSecond uint64) uint64 {
	debt := min(b.debt, perSecond*bucketUnit)
	elapsed := uint64(min(max(now.UnixNano()-b.charged, 0), int64(bucketUnit)))
	return debt - min(debt, elapsed*perSecond)
}

// charge returns the bucket without one more token; false if it has no token left.
func (b bucket) charge(now time.Time, perSecond uint64) (bucket, bool) {
	debt := b.owed(now, perSecond)
	if debt+bucketUnit > perSecond*bucketUnit {
		return b, false
	}
	return bucket{debt: debt + bucketUnit, charged: now.UnixNano()}, true
}

// taken returns the missing tokens at a time, rounded up.
func (b bucket) taken(now time.Time, perSecond uint64) uint64 {
	return (b.owed(now, perSecond) + bucketUnit - 1) / bucketUnit
}
