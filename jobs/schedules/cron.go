package schedules

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// cronFields is a parsed cron rule. Each field has one bit for each matching number.
type cronFields struct {
	second, minute, hour, day, month, weekday uint64
	// both: day of month and day of week must both match; otherwise one match is enough.
	both bool
}

// cronField has the allowed values of one field of a rule.
type cronField struct {
	name             string
	low, high, limit int    // limit: the highest accepted number
	cycle            int    // numbers count modulo cycle: Sunday is 0 and 7
	names            string // names of three letters each, starting with low
}

const week = 7

var cronColumns = [...]cronField{
	{"second", 0, 59, 59, 64, ""},
	{"minute", 0, 59, 59, 64, ""},
	{"hour", 0, 23, 23, 64, ""},
	{"day of month", 1, 31, 31, 64, ""},
	{"month", 1, 12, 12, 64, "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"},
	{"day of week", 0, 6, 7, week, "SUNMONTUEWEDTHUFRISAT"},
}

var cronWords = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
	"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

// parseCron reads five fields, six fields with seconds first, or a word. As in crontab(5), one match
// of day of month or day of week is enough, unless one of these fields starts with "*" or "?".
func parseCron(text string) (f *cronFields, err error) {
	given := strings.Fields(cmp.Or(cronWords[text], text))
	if len(given) == len(cronColumns)-1 {
		given = append([]string{"0"}, given...)
	}
	if len(given) != len(cronColumns) {
		return nil, errors.New("it needs five fields, or six fields with the seconds first, or a word such as @daily")
	}
	f = &cronFields{both: strings.ContainsAny(given[3][:1]+given[5][:1], "*?")}
	for i, mask := range []*uint64{&f.second, &f.minute, &f.hour, &f.day, &f.month, &f.weekday} {
		for _, element := range strings.Split(given[i], ",") {
			low, high, step, err := cronColumns[i].span(element)
			if err != nil {
				return nil, err
			}
			for n := low; n <= high; n += step {
				*mask |= 1 << (n % cronColumns[i].cycle)
			}
		}
	}
	return f, nil
}

// span reads a number, a name, a range or "*", with or without a step.
func (c *cronField) span(element string) (low, high, step int, err error) {
	span, every, stepped := strings.Cut(element, "/")
	from, to, ranged := strings.Cut(span, "-")
	low, high, step = c.low, c.high, 1
	if span != "*" && span != "?" {
		low, err = c.number(from)
		if ranged && err == nil {
			high, err = c.number(to)
		} else if !stepped {
			high = low
		}
	}
	if high < low && c.cycle == week { // such as SAT-SUN
		high += week
	}
	if high < low && err == nil {
		err = fmt.Errorf("the range %.16q of the %s ends before it starts", span, c.name)
	}
	if stepped && err == nil {
		if step, err = strconv.Atoi(every); err != nil || step < 1 || step > c.limit {
			err = fmt.Errorf("the step %.16q of the %s is not a number from 1 to %d", every, c.name, c.limit)
		}
	}
	return low, high, step, err
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

// next returns the first matching time t with low <= t < high; false if there is none. Times are
// seconds of a clock without changes. The cost is one step for each day or month until the match.
func (f *cronFields) next(low, high int64) (int64, bool) {
	for date := time.Unix(low, 0).UTC().Truncate(24 * time.Hour); date.Unix() < high; {
		if f.month>>date.Month()&1 == 0 {
			date = time.Date(date.Year(), date.Month()+1, 1, 0, 0, 0, 0, time.UTC)
			continue
		}
		day, weekday := f.day>>date.Day()&1 != 0, f.weekday>>date.Weekday()&1 != 0
		if day && weekday || !f.both && (day || weekday) {
			if second, ok := f.timeOfDay(int(max(0, low-date.Unix()))); ok {
				found := date.Unix() + int64(second)
				return found, found < high
			}
		}
		date = date.AddDate(0, 0, 1)
	}
	return 0, false
}

// timeOfDay returns the first matching second of a day, not before from.
func (f *cronFields) timeOfDay(from int) (int, bool) {
	const minute, hour = 60, 60 * 60
	for h := bitFrom(f.hour, from/hour); h < 24; h = bitFrom(f.hour, h+1) {
		for m := bitFrom(f.minute, max(0, from-h*hour)/minute); m < minute; m = bitFrom(f.minute, m+1) {
			if s := bitFrom(f.second, max(0, from-h*hour-m*minute)); s < minute {
				return h*hour + m*minute + s, true
			}
		}
	}
	return 0, false
}

// bitFrom returns the lowest bit of a mask that is not below place; 64 or more if there is none.
func bitFrom(mask uint64, place int) int { return place + bits.TrailingZeros64(mask>>place) }
