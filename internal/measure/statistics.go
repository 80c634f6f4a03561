package measure

import (
	"cmp"
	"math"
	"slices"
)

// Quantile is the smallest value that at least the share q of the values does not exceed
// (nearest rank). The values are in ascending order. Zero without values.
func Quantile[T cmp.Ordered](sorted []T, q float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Spread is the range of a few values. With only a handful of runs, the extremes are more
// informative than a deviation.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// SpreadOf describes values; it is zero if there are none. The median of an
// even number of values is the mean of the two in the middle.
func SpreadOf(values []float64) Spread {
	n := len(values)
	if n == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Low: sorted[0], High: sorted[n-1]}
}

// Share is a part of a whole; of nothing it is zero.
func Share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
