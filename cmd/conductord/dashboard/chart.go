package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
)

// Sizes of the chart, in its own units: one unit of width for each slot. The chart grows with the
// available data, up to a day.
const (
	minChartWidth = 36
	maxChartWidth = 288
	chartHeight   = 60
)

// chart shows the last day: a line for posted jobs, an area for successful jobs, and marks for
// failed jobs above it.
type chart struct {
	Posted, Succeeded string // paths of SVG
	Failed            []mark
	Width             int
	Most              uint64    // maximum of a slot
	Sums              [3]uint64 // posted, succeeded, failed
	From              time.Time // earlier slots are unknown
	Slot, Span        string    // duration of one slot, and of all slots
}

// mark is a failed slot.
type mark struct{ X, Y, Height int }

// newChart draws the slots aligned to the right, so that the current time is always there.
func newChart(a *v1.ActivityResponse) *chart {
	c := &chart{From: a.GetSince().AsTime(), Slot: durationText(a.GetSlot().AsDuration())}
	slots := a.GetSlots()
	slots = slots[max(0, len(slots)-maxChartWidth):]
	c.Width = max(len(slots), minChartWidth)
	c.Span = durationText(time.Duration(c.Width) * a.GetSlot().AsDuration())
	for _, s := range slots {
		c.Most = max(c.Most, s.GetPosted(), s.GetFinished())
		c.Sums[0], c.Sums[1], c.Sums[2] = c.Sums[0]+s.GetPosted(), c.Sums[1]+s.GetFinished()-s.GetFailed(), c.Sums[2]+s.GetFailed()
	}
	height := func(n uint64) int { return int(n * (chartHeight - 4) / max(c.Most, 1)) }
	var posted, succeeded strings.Builder
	left := c.Width - len(slots)
	fmt.Fprintf(&succeeded, "M%d %d", left, chartHeight)
	for i, s := range slots {
		y := chartHeight - height(s.GetPosted())
		if i == 0 {
			fmt.Fprintf(&posted, "M%d %d", left, y)
		}
		fmt.Fprintf(&posted, "V%dH%d", y, left+i+1)
		top := chartHeight - height(s.GetFinished()-s.GetFailed())
		fmt.Fprintf(&succeeded, "V%dH%d", top, left+i+1)
		if n := s.GetFailed(); n > 0 {
			tall := max(height(n), 2)
			c.Failed = append(c.Failed, mark{left + i, top - tall, tall})
		}
	}
	fmt.Fprintf(&succeeded, "V%dZ", chartHeight)
	c.Posted, c.Succeeded = posted.String(), succeeded.String()
	return c
}

// shownUpcoming is the number of schedules in the overview.
const shownUpcoming = 5

// upcoming are the schedules with the next slots, the earliest first.
func upcoming(all []*v1.Schedule) []*v1.Schedule {
	all = slices.DeleteFunc(all, func(s *v1.Schedule) bool { return s.GetNext() == nil || s.GetPause() != nil })
	slices.SortFunc(all, func(a, b *v1.Schedule) int {
		return cmp.Or(a.GetNext().AsTime().Compare(b.GetNext().AsTime()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return all[:min(len(all), shownUpcoming)]
}
