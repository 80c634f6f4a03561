package schedules

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/conductord/conductord/logbook"
)

// Rule computes the slots of a schedule. It is immutable. The slots depend on the program's time
// zone data, so the state machine never evaluates a rule. The leader evaluates it, and the leader's
// command carries the slots.
type Rule struct {
	zone       *time.Location
	start, end time.Time // zero: unbounded

	every  time.Duration // the interval; 0: a cron rule
	fields *cronFields   // only for a cron rule
	hourly bool          // the cron rule matches every hour of the day
}

// MinInterval is the shortest interval. Every interval is a multiple of it. Cron rules have the
// same precision.
const MinInterval = time.Second

// everyPrefix starts a rule with an interval.
const everyPrefix = "@every "

// ParseRule reads the rule, the zone, the start and the end of a schedule. ErrInvalid.
//
// A rule is one of these:
//
//   - five cron fields: minute, hour, day of month, month, day of week;
//   - six cron fields, with seconds first;
//   - a word such as @hourly or @daily;
//   - "@every" with a duration of whole seconds. Intervals count from the schedule's start, or
//     from 1970 without a start, so slots do not depend on when the schedule was saved.
//
// When the clocks of the zone change, these rules apply:
//
//   - A local time that does not exist moves to the first moment after the gap.
//   - If a local time exists twice, only the first one is a slot.
//   - Local times that become the same moment are one slot.
//   - A cron rule with every hour of the day matches whenever the clocks show a matching time,
//     including the second time.
func ParseRule(s *Schedule) (*Rule, error) {
	zone, err := Zone(s.Zone)
	if err != nil {
		return nil, err
	}
	r := &Rule{zone: zone, start: s.Start, end: s.End}
	if !s.Start.IsZero() && !s.End.IsZero() && s.End.Before(s.Start) {
		return nil, &logbook.InvalidError{Field: "schedule end", Reason: "before its start"}
	}
	if text, found := strings.CutPrefix(s.Rule, everyPrefix); found {
		return r, r.parseInterval(text)
	}
	return r, r.parseCron(s.Rule)
}

func (r *Rule) parseInterval(text string) error {
	every, err := time.ParseDuration(strings.TrimSpace(text))
	switch {
	case err != nil:
		return &logbook.InvalidError{Field: "schedule rule", Reason: fmt.Sprintf("%.64q is not a duration", text)}
	case every < MinInterval || every%MinInterval != 0:
		return &logbook.InvalidError{Field: "schedule rule", Reason: fmt.Sprintf("%s is not a whole number of seconds, or is less than 1s", every)}
	}
	r.every = every
	return nil
}

func (r *Rule) parseCron(text string) error {
	fields, err := parseCron(text)
	if err != nil {
		return &logbook.InvalidError{Field: "schedule rule", Reason: fmt.Sprintf("cannot parse %.64q: %v", text, err)}
	}
	const years = 28 * 366 * secondsPerDay // they contain each date on each day of the week
	if _, ok := fields.next(0, years); !ok {
		return &logbook.InvalidError{Field: "schedule rule", Reason: fmt.Sprintf("%.64q never matches a time", text)}
	}
	const hours = 1<<24 - 1
	r.fields, r.hourly = fields, fields.hour&hours == hours
	return nil
}

// lastSlot returns the latest possible slot: the latest time that fits into int64 nanoseconds.
func lastSlot() time.Time { return time.Unix(0, math.MaxInt64) }

// Next returns the first slot after a moment. It returns zero if there is none until the end of the
// schedule or the year 2262.
func (r *Rule) Next(after time.Time) time.Time {
	if !r.start.IsZero() && after.Before(r.start) {
		after = r.start.Add(-1)
	}
	var next time.Time
	if r.every > 0 {
		next = r.nextInterval(after)
	} else {
		next = r.nextLocal(after)
	}
	if next.IsZero() || (!r.end.IsZero() && next.After(r.end)) || next.After(lastSlot()) {
		return time.Time{}
	}
	return next
}

func (r *Rule) nextInterval(after time.Time) time.Time {
	from := r.start
	if from.IsZero() {
		from = time.Unix(0, 0)
	}
	if after.Before(from) {
		return from.UTC()
	}
	count := after.Sub(from)/r.every + 1
	if count > math.MaxInt64/r.every {
		return time.Time{}
	}
	return from.Add(count * r.every).UTC()
}

// nextLocal visits the periods between clock changes of the zone. In each period it looks for the
// first matching time that the clocks show, or that they skipped at the change before it. Times are
// seconds; local times count from 1970 as if the zone were UTC. Every step goes forward, and the year
// 2262 ends the search.
func (r *Rule) nextLocal(after time.Time) time.Time {
	last := lastSlot().Unix()
	for from := after.Unix() + 1; from < last; {
		offset, end := r.period(from)
		low := from + offset
		if !r.hourly {
			low = r.unseen(from)
		}
		if local, ok := r.fields.next(low, end+offset); ok {
			return time.Unix(max(from, local-offset), 0).UTC()
		}
		from = end
	}
	return time.Time{}
}

const secondsPerDay = 24 * 60 * 60

// period returns the offset of the local time from UTC at a moment, and the end of this period.
func (r *Rule) period(from int64) (offset, end int64) {
	moment := time.Unix(from, 0).In(r.zone)
	_, seconds := moment.Zone()
	_, bound := moment.ZoneBounds()
	if end = bound.Unix(); bound.IsZero() {
		end = lastSlot().Unix()
	}
	if end <= from { // package time ends each year after 365 days
		end = from - from%secondsPerDay + secondsPerDay
	}
	return int64(seconds), end
}

// unseen returns the first local time that the clocks did not show before a moment. After a change
// back, this is the time after the latest shown one. After a change forward, it is the start of the
// gap.
func (r *Rule) unseen(from int64) int64 {
	const longest = 2 * secondsPerDay // no clock was ever set back by more than a day
	unseen := int64(math.MinInt64)
	for at := from - longest; at < from; {
		offset, end := r.period(at)
		at = min(end, from)
		unseen = max(unseen, at+offset)
	}
	return unseen
}

// Upcoming returns the next slots after a moment, at most most.
func (r *Rule) Upcoming(after time.Time, most int) []time.Time {
	var slots []time.Time
	for len(slots) < most {
		next := r.Next(after)
		if next.IsZero() {
			break
		}
		slots, after = append(slots, next), next
	}
	return slots
}
