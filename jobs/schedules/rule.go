package schedules

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/conductord/conductord/logbook"
)

// Rule says at which moments a schedule has its slots. It is immutable. Its
// answers depend on the time zones of this program, so the state machine never
// asks one: a leader does, and its command carries the answers.
type Rule struct {
	zone       *time.Location
	start, end time.Time // zero: unbounded

	every  time.Duration // of an interval; 0: it is a cron rule
	fields *cronFields   // of a cron rule
	hourly bool          // every hour of the day is in it
}

// MinInterval is the shortest interval, and what every interval is a multiple
// of: cron rules cannot say more either.
const MinInterval = time.Second

// everyPrefix begins the rule of an interval.
const everyPrefix = "@every "

// ParseRule reads the rule, the zone and the bounds of a schedule.
//
// A rule is five cron fields (minute, hour, day of month, month, day of week),
// six with seconds before them, a word such as @hourly or @daily, or "@every"
// with a duration of whole seconds. Intervals are counted from the start, or
// from 1970 where there is none, so that their slots do not depend on when the
// schedule was made.
//
// Where the clocks of the zone change, a local time that does not exist is
// moved to the first moment after the gap, and one that exists twice is
// taken the first time only. Two local times that become the same moment are
// one slot. Rules with every hour of the day in them know no local hour: they
// have a slot whenever the clocks show a time that matches, also the second time.
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
		return &logbook.InvalidError{Field: "schedule rule", Reason: fmt.Sprintf("%s is not a number of whole seconds, and at least one", every)}
	}
	r.every = every
	return nil
}

func (r *Rule) parseCron(text string) error {
	fields, err := parseCron(text)
	if err != nil {
		return &logbook.InvalidError{Field: "schedule rule", Reason: fmt.Sprintf("%.64q cannot be read: %v", text, err)}
	}
	const years = 28 * 366 * secondsPerDay // they have each date on each day of the week
	if _, ok := fields.next(0, years); !ok {
		return &logbook.InvalidError{Field: "schedule rule", Reason: fmt.Sprintf("%.64q is a time that never comes", text)}
	}
	const hours = 1<<24 - 1
	r.fields, r.hourly = fields, fields.hour&hours == hours
	return nil
}

// lastSlot is the last moment that a slot can have: that of the last time which
// is kept in nanoseconds.
func lastSlot() time.Time { return time.Unix(0, math.MaxInt64) }

// Next is the first slot after a moment; zero if there is none before the end
// of the schedule or the year 2262.
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

// nextLocal goes through the periods between the changes of the zone's clocks. In each it
// looks for the first matching time that the clocks show there, or have just left out. Times
// are seconds: on the clocks, those since 1970 as if the zone were UTC. Every step goes
// forward, and the year 2262 ends the search.
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

// period is how far the clocks are ahead of UTC at a moment, and until when.
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

// unseen is the first time that the clocks have not shown before a moment. When they are
// put back, it is what they showed last; when they are put forward, where the gap begins.
func (r *Rule) unseen(from int64) int64 {
	const longest = 2 * secondsPerDay // no clock was ever put back by more than a day
	unseen := int64(math.MinInt64)
	for at := from - longest; at < from; {
		offset, end := r.period(at)
		at = min(end, from)
		unseen = max(unseen, at+offset)
	}
	return unseen
}

// Upcoming are the next slots after a moment, as many as there are up to most.
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
