package flow

import (
	"fmt"
	"strings"
	"time"

	"github.com/conductord/conductord/internal/duration"
	"github.com/conductord/conductord/internal/zones"
)

// DeadlineAt is Deadline with a time of day: all executions of the step end at the first such time after the start
// of the first one. The text is the time and the IANA name of its zone, such as "18:00 Europe/Berlin"; without a
// zone, UTC.
//
// A time that does not exist on a day, because the clocks go forward, is the first moment after the gap. If a time
// exists twice on a day, the first one applies.
func DeadlineAt(text string) StepOption {
	return stepOption(func(s *Step) {
		at, err := parseTimeOfDay(text)
		if err != nil {
			s.fault("its deadline: %w", err)
			return
		}
		s.deadlineAt = &at
	})
}

// DeadlineFrom is the end of the step's deadline, if its first execution started at began; zero: no deadline.
func (s *Step) DeadlineFrom(began time.Time) time.Time {
	var end time.Time
	if s.deadline > 0 {
		end = began.Add(s.deadline)
	}
	if s.deadlineAt != nil {
		if at := s.deadlineAt.next(began); end.IsZero() || at.Before(end) {
			end = at
		}
	}
	return end
}

// DeadlineText describes the deadline; empty: none.
func (s *Step) DeadlineText() string {
	var parts []string
	if s.deadline > 0 {
		parts = append(parts, duration.Text(s.deadline)+" after its start")
	}
	if s.deadlineAt != nil {
		parts = append(parts, "at "+s.deadlineAt.text)
	}
	return strings.Join(parts, " or ")
}

// timeOfDay is a time that comes once on each day.
type timeOfDay struct {
	text         string
	hour, minute int
	zone         *time.Location
}

// IsTimeOfDay reports whether a text starts like a time of day, such as 18:00, and not like a duration.
func IsTimeOfDay(text string) bool { return strings.Contains(text, ":") }

// CheckTimeOfDay refuses a text that DeadlineAt refuses.
func CheckTimeOfDay(text string) error {
	_, err := parseTimeOfDay(text)
	return err
}

func parseTimeOfDay(text string) (timeOfDay, error) {
	clock, zone, _ := strings.Cut(text, " ")
	parsed, err := time.Parse("15:04", clock)
	if err != nil || len(clock) != len("15:04") {
		return timeOfDay{}, fmt.Errorf("%.80q is not a time of day; write 00:00 to 23:59, and a space and the IANA name of a time zone, such as 18:00 Europe/Berlin", text)
	}
	location, err := zones.Load(zone)
	if err != nil {
		return timeOfDay{}, err
	}
	return timeOfDay{text: clock + " " + location.String(), hour: parsed.Hour(), minute: parsed.Minute(), zone: location}, nil
}

// next is the first such time after a moment.
func (d *timeOfDay) next(after time.Time) time.Time {
	year, month, day := after.In(d.zone).Date()
	// If a zone skipped a day, the time of the day before can be later than the moment.
	for day--; ; day++ {
		if at := d.on(year, month, day); at.After(after) {
			return at
		}
	}
}

// on is the time on a day.
func (d *timeOfDay) on(year int, month time.Month, day int) time.Time {
	wanted := time.Date(year, month, day, d.hour, d.minute, 0, 0, time.UTC)
	at := time.Date(year, month, day, d.hour, d.minute, 0, 0, d.zone)
	start, end := at.ZoneBounds()
	switch shown := local(at); {
	case shown.After(wanted): // the time is in a gap that ends at start
		return start
	case shown.Before(wanted):
		return end
	}
	if start.IsZero() {
		return at
	}
	_, before := start.Add(-1).Zone()
	if earlier := wanted.Add(-time.Duration(before) * time.Second).In(d.zone); earlier.Before(start) {
		return earlier // the time exists twice
	}
	return at
}

// local is what the clocks of a zone show at a moment, as if the zone were UTC.
func local(at time.Time) time.Time {
	_, offset := at.Zone()
	return at.UTC().Add(time.Duration(offset) * time.Second)
}
