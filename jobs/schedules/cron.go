package schedules

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// cronFields is a cron rule: in each field a bit for each number that matches.
type cronFields struct {
	second, minute, hour, day, month, weekday uint64
	// both: day of month and day of week must match; otherwise one of them is enough.
	both bool
}

// cronField is what one field of a rule may hold.
type cronField struct {
	name             string
	low, high, limit int    // limit: the highest number that may be written
	names            string // of three letters each, from low on
}

// week is the number of weekdays. Sunday is 0, and can be written as 7.
const week = 7

func cronColumns() [6]cronField {
	return [...]cronField{
		{"second", 0, 59, 59, ""},
		{"minute", 0, 59, 59, ""},
		{"hour", 0, 23, 23, ""},
		{"day of month", 1, 31, 31, ""},
		{"month", 1, 12, 12, "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"},
		{"day of week", 0, week - 1, week, "SUNMONTUEWEDTHUFRISAT"},
	}
}

// cronWords are the rules that have names.
func cronWords() map[string]string {
	return map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
	}
}

// parseCron reads five fields, six with seconds first, or a word. As in crontab(5), a day
// of month and a day of week are alternatives, unless one of the fields begins with "*".
func parseCron(text string) (*cronFields, error) {
	if rule := cronWords()[text]; rule != "" {
		text = rule
	}
	given := strings.Fields(text)
	columns := cronColumns()
	if len(given) == len(columns)-1 {
		given = append([]string{"0"}, given...)
	}
	if len(given) != len(columns) {
		return nil, errors.New("wants five fields, six with seconds first, or a word such as @daily")
	}
	f := &cronFields{}
	for i, mask := range []*uint64{&f.second, &f.minute, &f.hour, &f.day, &f.month, &f.weekday} {
		var err error
		if *mask, err = columns[i].parse(given[i]); err != nil {
			return nil, err
		}
	}
	const day, weekday, stars = 3, 5, "*?"
	f.both = strings.Contains(stars, given[day][:1]) || strings.Contains(stars, given[weekday][:1])
	return f, nil
}

// parse reads a list of numbers, names, ranges and steps.
func (c *cronField) parse(text string) (mask uint64, err error) {
	for _, element := range strings.Split(text, ",") {
		low, high, step := c.low, c.high, 1
		span, every, stepped := strings.Cut(element, "/")
		from, to, ranged := strings.Cut(span, "-")
		if span != "*" && span != "?" {
			if low, err = c.number(from); err != nil {
				return 0, err
			}
			switch {
			case ranged:
				if high, err = c.number(to); err != nil {
					return 0, err
				}
			case !stepped:
				high = low
			}
		}
		if stepped {
			if step, err = strconv.Atoi(every); err != nil || step < 1 || step > c.limit {
				return 0, fmt.Errorf("the step %.16q of the %s is not a number from 1 to %d", every, c.name, c.limit)
			}
		}
		if high < low && c.limit == week { // such as SAT-SUN
			high += week
		}
		if high < low {
			return 0, fmt.Errorf("the range %.16q of the %s ends before it starts", span, c.name)
		}
		for n := low; n <= high; n += step {
			if c.limit == week {
				mask |= 1 << (n % week)
			} else {
				mask |= 1 << n
			}
		}
	}
	return mask, nil
}

func (c *cronField) number(text string) (int, error) {
	const letters = 3
	if at := strings.Index(c.names, strings.ToUpper(text)); len(text) == letters && at >= 0 && at%letters == 0 {
		return c.low + at/letters, nil
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || int(n) < c.low || int(n) > c.limit {
		return 0, fmt.Errorf("the %s %.16q is not %d to %d", c.name, text, c.low, c.limit)
	}
	return int(n), nil
}

const secondsPerDay = 24 * 60 * 60

// next is the first time from low on and before high that matches, in seconds of a clock
// that never changes; false if there is none. It counts days, and needs a step for each day
// or month between the two at most.
func (f *cronFields) next(low, high int64) (int64, bool) {
	day, from := low/secondsPerDay, int(low%secondsPerDay)
	if from < 0 { // before 1970
		day, from = day-1, from+secondsPerDay
	}
	for ; day*secondsPerDay < high; from = 0 {
		date := time.Unix(day*secondsPerDay, 0).UTC()
		if f.month>>date.Month()&1 == 0 {
			day = time.Date(date.Year(), date.Month()+1, 1, 0, 0, 0, 0, time.UTC).Unix() / secondsPerDay
			continue
		}
		if f.hasDay(date) {
			if second, ok := f.timeOfDay(from); ok {
				found := day*secondsPerDay + int64(second)
				return found, found < high
			}
		}
		day++
	}
	return 0, false
}

func (f *cronFields) hasDay(date time.Time) bool {
	day, weekday := f.day>>date.Day()&1 != 0, f.weekday>>date.Weekday()&1 != 0
	if f.both {
		return day && weekday
	}
	return day || weekday
}

// timeOfDay is the first time of a day that matches, from a second of the day on.
func (f *cronFields) timeOfDay(from int) (int, bool) {
	const minute, hour, day = 60, 60 * 60, 24
	for h := bitFrom(f.hour, from/hour); h < day; h = bitFrom(f.hour, h+1) {
		for m := bitFrom(f.minute, max(0, from-h*hour)/minute); m < minute; m = bitFrom(f.minute, m+1) {
			if s := bitFrom(f.second, max(0, from-h*hour-m*minute)); s < minute {
				return h*hour + m*minute + s, true
			}
		}
	}
	return 0, false
}

// bitFrom is the lowest bit of a mask from a place on; 64 or more if there is none.
func bitFrom(mask uint64, place int) int { return place + bits.TrailingZeros64(mask>>place) }
