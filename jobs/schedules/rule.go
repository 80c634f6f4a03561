package schedules

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/conductord/conductord/logbook"
)

// Rule says at which moments a schedule has its slots. It is immutable. Its
// answers depend on the zone data of this machine, so the state machine never
// asks one: a leader does, and its command carries the answers.
type Rule struct {
	zone       *time.Location
	start, end time.Time // zero: unbounded

	every  time.Duration      // of an interval; 0: it is a cron rule
	fields *cron.SpecSchedule // of a cron rule
	hourly bool               // every hour of the day is in it
}

// MinInterval is the shortest interval, and what every interval is a multiple
// of: cron rules cannot say more either.
const MinInterval = time.Second

// everyPrefix begins the rule of an interval.
const everyPrefix = "@every "

// cronParser reads what a Rule documents.
func cronParser() cron.Parser {
	return cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
}

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
// taken the first time only. Rules with every hour of the day in them know no
// local hour: their slots go on evenly through the change. Two local times
// that become the same moment are one slot.
func ParseRule(s *Schedule) (*Rule, error) {
	zone, err := loadZone(s.Zone)
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

func loadZone(name string) (*time.Location, error) {
	if name == "Local" { // which is another one on every node
		return nil, &logbook.InvalidError{Field: "schedule zone", Reason: `"Local" is no zone that all nodes share`}
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, &logbook.InvalidError{Field: "schedule zone", Reason: fmt.Sprintf("%.64q is not a zone that this machine knows", name)}
	}
	return zone, nil
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
	if strings.Contains(text, "=") {
		// The parser would take a zone before the fields, and not survive one
		// that is cut short.
		return &logbook.InvalidError{Field: "schedule rule", Reason: "holds a zone, which has a field of its own"}
	}
	parsed, err := cronParser().Parse(text)
	if err != nil {
		return &logbook.InvalidError{Field: "schedule rule", Reason: fmt.Sprintf("%.64q cannot be read: %v", text, err)}
	}
	fields, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return &logbook.InvalidError{Field: "schedule rule", Reason: fmt.Sprintf("%.64q is not a rule of cron fields", text)}
	}
	// Five years that hold every date there is.
	if fields.Location = time.UTC; fields.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return &logbook.InvalidError{Field: "schedule rule", Reason: fmt.Sprintf("%.64q is a time that never comes", text)}
	}
	const hours = 1<<24 - 1
	// In UTC, fields are read as if the zone had no changes; see nextLocal.
	r.fields, r.hourly = fields, fields.Hour&hours == hours
	if r.hourly {
		fields.Location = r.zone
	}
	return nil
}

// lastSlot is the last moment that a slot can have: that of the last time which
// is kept in nanoseconds.
func lastSlot() time.Time { return time.Unix(0, math.MaxInt64) }

// Next is the first slot after a moment; zero if there is none within five
// years of a cron rule, or before the end, or before the year 2262.
func (r *Rule) Next(after time.Time) time.Time {
	if !r.start.IsZero() && after.Before(r.start) {
		after = r.start.Add(-1)
	}
	var next time.Time
	switch {
	case r.every > 0:
		next = r.nextInterval(after)
	case r.hourly:
		next = r.fields.Next(after.In(r.zone)).UTC()
	default:
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

// nextLocal looks for the next time on the clocks of the zone, as if they
// never changed, and then for the moment at which they show it. A later time
// on the clocks is never an earlier moment, so the first that is late enough
// is the next.
func (r *Rule) nextLocal(after time.Time) time.Time {
	shown := after.In(r.zone)
	local := time.Date(shown.Year(), shown.Month(), shown.Day(), shown.Hour(), shown.Minute(), shown.Second(), shown.Nanosecond(), time.UTC)
	for {
		if local = r.fields.Next(local); local.IsZero() {
			return time.Time{}
		}
		if moment := r.moment(local); moment.After(after) {
			return moment.UTC()
		}
	}
}

// moment is the first moment at which the clocks of the zone show a time, or
// the first after the gap if they never do.
func (r *Rule) moment(local time.Time) time.Time {
	guess := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, r.zone)
	begin, end := guess.ZoneBounds()
	_, offset := guess.Zone()
	switch shows := guess.Add(time.Duration(offset) * time.Second).UTC(); {
	case shows.After(local):
		return begin
	case shows.Before(local):
		return end
	case begin.IsZero():
		return guess
	}
	_, before := begin.Add(-1).Zone()
	if earlier := guess.Add(time.Duration(offset-before) * time.Second); earlier.Before(begin) {
		return earlier
	}
	return guess
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
