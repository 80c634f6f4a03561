package load

import (
	"math"
	"math/bits"
	"time"
)

// fineness is the number of kept bits of a duration. The width of a bucket is at most one part
// in 2^fineness of its durations (1.6 %), so quantiles have this precision.
const fineness = 6

// bucketCount is enough for every duration.
const bucketCount = (64 - fineness) << fineness

// Histogram counts durations in buckets that grow with them, so that a run of
// any length takes the same memory. The zero value is empty and ready. One
// goroutine uses it.
type Histogram struct {
	counts [bucketCount]uint64
	total  uint64
	max    time.Duration
}

// bucketOf is linear up to 2^(fineness+1). Beyond that, each doubling has 2^fineness buckets.
func bucketOf(v uint64) int {
	shift := max(0, bits.Len64(v)-fineness-1)
	return shift<<fineness + int(v>>shift)
}

// upperOf is the largest value of a bucket.
func upperOf(bucket int) uint64 {
	shift := max(0, bucket>>fineness-1)
	return (uint64(bucket-shift<<fineness)+1)<<shift - 1
}

// Record counts a duration. A negative duration counts as zero.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(uint64(d))]++
	h.total++
	h.max = max(h.max, d)
}

// Add adds the counts of another histogram.
func (h *Histogram) Add(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.max = max(h.max, other.max)
}

// Total is the number of recorded durations.
func (h *Histogram) Total() uint64 { return h.total }

// Max is the longest duration.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile is the smallest duration that at least the share q of the durations does not exceed
// (nearest rank), rounded up by at most 1.6 %. Zero without durations.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := max(1, uint64(math.Ceil(q*float64(h.total))))
	seen := uint64(0)
	for i, n := range h.counts {
		if seen += n; seen >= rank {
			return min(time.Duration(upperOf(i)), h.max)
		}
	}
	return h.max
}
