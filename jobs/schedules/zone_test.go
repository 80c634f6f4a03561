package schedules_test

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/internal/zones"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
)

const zoneArchive = "../../internal/zones/zoneinfo.zip"

// TestZoneRelease: the release that messages name is the release of the data.
func TestZoneRelease(t *testing.T) {
	data, err := os.ReadFile(zoneArchive)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if got := zones.Release + " " + hex.EncodeToString(sum[:]); got != "2025c 8f55634d05f8bca1f7bc7c69c5933428c69357e0bdf565e5ba224e3f88ff12e8" {
		t.Errorf("the zones are %s: set zones.Release, and the sum here", got)
	}
}

// TestZonesAreThoseOfTheDatabase: no name depends on the machine.
func TestZonesAreThoseOfTheDatabase(t *testing.T) {
	for _, name := range []string{"", "UTC", "Europe/Berlin", "CET", "EST5EDT", "US/Eastern", "Europe/Kiev", "Europe/Kyiv", "Asia/Kolkata"} {
		if zone, err := schedules.Zone(name); err != nil || name != "" && zone.String() != name {
			t.Errorf("zone %q: %v, %v", name, zone, err)
		}
	}
	for _, name := range []string{
		"Local", "localtime", "posixrules", "right/Europe/Berlin", "posix/Europe/Berlin", "Europe", "Europe/", "/Europe/Berlin", "europe/berlin",
		"../UTC", "Europe/../UTC", "./UTC", "Mars/Olympus", "tzdata.zi", "zone.tab", strings.Repeat("x", 1000),
	} {
		s := &schedules.Schedule{Rule: "@daily", Zone: name}
		const want = "is no name of the IANA time zone database"
		if _, err := schedules.ParseRule(s); !errors.Is(err, jobs.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("zone %.40q: %v", name, err)
		}
	}
}

// wall is the local time in a zone.
type wall struct{ minute, hour, day, month, weekday int }

// countedRule is a rule with its meaning according to docs/schedules.md.
type countedRule struct {
	text      string
	everyHour bool
	matches   func(w wall) bool
}

var countedRules = []countedRule{
	{"0 * * * *", true, func(w wall) bool { return w.minute == 0 }},
	{"@hourly", true, func(w wall) bool { return w.minute == 0 }},
	{"*/30 * * * *", true, func(w wall) bool { return w.minute%30 == 0 }},
	{"15,45 */1 * * *", true, func(w wall) bool { return w.minute == 15 || w.minute == 45 }},
	{"7 * * * 0", true, func(w wall) bool { return w.minute == 7 && w.weekday == 0 }},
	{"7 * * * 7", true, func(w wall) bool { return w.minute == 7 && w.weekday == 0 }},
	{"13 * * * 1", true, func(w wall) bool { return w.minute == 13 && w.weekday == 1 }},
	{"13 * * * TUE-THU", true, func(w wall) bool { return w.minute == 13 && w.weekday >= 2 && w.weekday <= 4 }},
	{"5 * * * 5", true, func(w wall) bool { return w.minute == 5 && w.weekday == 5 }},
	{"5 * * * 5,6", true, func(w wall) bool { return w.minute == 5 && w.weekday >= 5 }},
	{"5 0-23 * * SAT-SUN", true, func(w wall) bool { return w.minute == 5 && (w.weekday == 6 || w.weekday == 0) }},
	{"13 * 1 * *", true, func(w wall) bool { return w.minute == 13 && w.day == 1 }},
	{"13 * 30,31 12 *", true, func(w wall) bool { return w.minute == 13 && w.day >= 30 && w.month == 12 }},
	{"*/10 * 28-31 3 *", true, func(w wall) bool { return w.minute%10 == 0 && w.day >= 28 && w.month == 3 }},
	{"* * 28 3 *", true, func(w wall) bool { return w.day == 28 && w.month == 3 }},
	{"0 * 29 2 *", true, func(w wall) bool { return w.minute == 0 && w.day == 29 && w.month == 2 }},
	{"0 * 13 * 5", true, func(w wall) bool { return w.minute == 0 && (w.day == 13 || w.weekday == 5) }},
	{"0 * */2 * MON", true, func(w wall) bool { return w.minute == 0 && w.day%2 == 1 && w.weekday == 1 }},
	{"59 * * 9,10 *", true, func(w wall) bool { return w.minute == 59 && (w.month == 9 || w.month == 10) }},
	{"30 * * MAR,APR FRI-MON", true, func(w wall) bool {
		return w.minute == 30 && (w.month == 3 || w.month == 4) && (w.weekday >= 5 || w.weekday <= 1)
	}},
	{"@daily", false, func(w wall) bool { return w.minute == 0 && w.hour == 0 }},
	{"@midnight", false, func(w wall) bool { return w.minute == 0 && w.hour == 0 }},
	{"@weekly", false, func(w wall) bool { return w.minute == 0 && w.hour == 0 && w.weekday == 0 }},
	{"@monthly", false, func(w wall) bool { return w.minute == 0 && w.hour == 0 && w.day == 1 }},
	{"@yearly", false, func(w wall) bool { return w.minute == 0 && w.hour == 0 && w.day == 1 && w.month == 1 }},
	{"30 0 * * *", false, func(w wall) bool { return w.minute == 30 && w.hour == 0 }},
	{"0 1 * * *", false, func(w wall) bool { return w.minute == 0 && w.hour == 1 }},
	{"30 1 * * *", false, func(w wall) bool { return w.minute == 30 && w.hour == 1 }},
	{"0 2 * * *", false, func(w wall) bool { return w.minute == 0 && w.hour == 2 }},
	{"15 2 * * *", false, func(w wall) bool { return w.minute == 15 && w.hour == 2 }},
	{"30 2 * * *", false, func(w wall) bool { return w.minute == 30 && w.hour == 2 }},
	{"59 2 * * *", false, func(w wall) bool { return w.minute == 59 && w.hour == 2 }},
	{"0 3 * * *", false, func(w wall) bool { return w.minute == 0 && w.hour == 3 }},
	{"30 3 * * *", false, func(w wall) bool { return w.minute == 30 && w.hour == 3 }},
	{"30 23 * * *", false, func(w wall) bool { return w.minute == 30 && w.hour == 23 }},
	{"0 1,2,3 * * *", false, func(w wall) bool { return w.minute == 0 && w.hour >= 1 && w.hour <= 3 }},
	{"*/20 0-4 * * *", false, func(w wall) bool { return w.minute%20 == 0 && w.hour <= 4 }},
	{"0 0-22 * * *", false, func(w wall) bool { return w.minute == 0 && w.hour <= 22 }},
	{"0 */2 * * *", false, func(w wall) bool { return w.minute == 0 && w.hour%2 == 0 }},
	{"0 1-23/2 * * *", false, func(w wall) bool { return w.minute == 0 && w.hour%2 == 1 }},
	{"0 9 * * MON-FRI", false, func(w wall) bool { return w.minute == 0 && w.hour == 9 && w.weekday >= 1 && w.weekday <= 5 }},
	{"30 2 * * SUN", false, func(w wall) bool { return w.minute == 30 && w.hour == 2 && w.weekday == 0 }},
	{"0 0 * * 5-7", false, func(w wall) bool { return w.minute == 0 && w.hour == 0 && (w.weekday >= 5 || w.weekday == 0) }},
	{"30 0 * 3,10 7", false, func(w wall) bool {
		return w.minute == 30 && w.hour == 0 && (w.month == 3 || w.month == 10) && w.weekday == 0
	}},
	{"0 0 30 12 *", false, func(w wall) bool { return w.minute == 0 && w.hour == 0 && w.day == 30 && w.month == 12 }},
	{"0 12 31 * *", false, func(w wall) bool { return w.minute == 0 && w.hour == 12 && w.day == 31 }},
	{"0 12 29 FEB *", false, func(w wall) bool { return w.minute == 0 && w.hour == 12 && w.day == 29 && w.month == 2 }},
	{"0 2 1-7 * SUN", false, func(w wall) bool { return w.minute == 0 && w.hour == 2 && (w.day <= 7 || w.weekday == 0) }},
	{"0 2 */2 * SUN", false, func(w wall) bool { return w.minute == 0 && w.hour == 2 && w.day%2 == 1 && w.weekday == 0 }},
	{"0 2 1-15 * */3", false, func(w wall) bool { return w.minute == 0 && w.hour == 2 && w.day <= 15 && w.weekday%3 == 0 }},
}

// firstYear and lastYear limit the compared years. Samoa has no 30 December 2011.
const firstYear = 2005

func lastYear() int { return longtest.Rounds(2014, 2034) }

// spare is the number of minutes that are known before and after the years.
const spare = 3 * 24 * 60

func minuteOf(year int) int64 { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix() / 60 }

// shown reads a rule for every minute that clocks can show in the years.
func (r *countedRule) shown() []bool {
	all := make([]bool, 0, minuteOf(lastYear()+1)-minuteOf(firstYear)+2*spare)
	for day := minuteOf(firstYear) - spare; day < minuteOf(lastYear()+1)+spare; day += 24 * 60 {
		date := time.Unix(day*60, 0).UTC()
		w := wall{day: date.Day(), month: int(date.Month()), weekday: int(date.Weekday())}
		for w.hour = range 24 {
			for w.minute = range 60 {
				all = append(all, r.matches(w))
			}
		}
	}
	return all
}

// clockRun is a time in which a zone keeps its offset, in minutes.
type clockRun struct{ until, ahead int64 }

// runsOf reads the offset of a zone every hour, and every minute of an hour in which it changes.
func runsOf(zone *time.Location) (runs []clockRun) {
	ahead := func(minute int64) int64 {
		_, seconds := time.Unix(minute*60, 0).In(zone).Zone()
		return int64(seconds) / 60
	}
	before := ahead(minuteOf(firstYear))
	for hour := minuteOf(firstYear); hour < minuteOf(lastYear()+1); hour += 60 {
		for minute := hour + 1; ahead(hour+60) != before && minute <= hour+60; minute++ {
			if now := ahead(minute); now != before {
				runs, before = append(runs, clockRun{minute, before}), now
			}
		}
	}
	return append(runs, clockRun{minuteOf(lastYear() + 1), before})
}

// compare goes through the years minute by minute. A rule with every hour has a slot whenever the clocks
// show a match. Another rule has a slot when the clocks show a match for the first time.
func (r *countedRule) compare(t *testing.T, name string, runs []clockRun, shown []bool) (slots int) {
	t.Helper()
	rule, err := schedules.ParseRule(&schedules.Schedule{Rule: r.text, Zone: name})
	if err != nil {
		t.Error(err)
		return 0
	}
	origin, minute := minuteOf(firstYear)-spare, minuteOf(firstYear)
	seen := minute + runs[0].ahead - 1
	next := rule.Next(time.Unix(minute*60-1, 0))
	for _, run := range runs {
		for ; minute < run.until; minute++ {
			local, due := minute+run.ahead, false
			if r.everyHour {
				due = shown[local-origin]
			}
			for ; !r.everyHour && seen < local; seen++ {
				due = due || shown[seen+1-origin]
			}
			if due != (next.Unix() == minute*60) {
				t.Errorf("%s in %s: at %s a slot is %t, and the rule's next is %s", r.text, name, time.Unix(minute*60, 0).UTC(), due, next)
				return slots
			}
			if due {
				slots++
				next = rule.Next(next)
			}
		}
	}
	return slots
}

// zonesEnv makes TestAllZones compare everything: CONDUCTORD_ZONES=all takes half an hour.
const zonesEnv = "CONDUCTORD_ZONES"

// TestAllZones compares rules with a count by the minute: all zones, 50 rules and 30 years, or a
// sample with the zones in which days and midnights are missing. Without long tests it covers 10
// years.
func TestAllZones(t *testing.T) {
	names := zoneNames(t)
	sampled := map[string][]string{
		"7 * * * 0": {"Asia/Beirut"}, "5 * * * 5": {"Africa/Cairo"}, "5 * * * 5,6": {"Egypt"}, "* * 28 3 *": {"Asia/Beirut"},
		"13 * * * 1": {"Pacific/Apia"}, "13 * 30,31 12 *": {"Pacific/Apia", "Pacific/Fakaofo"}, "@daily": {"Pacific/Apia", "America/Santiago"},
		"15 2 * * *": {"Australia/Lord_Howe"}, "0 0 30 12 *": {"Pacific/Apia"}, "30 1 * * *": {"Africa/Casablanca", "Antarctica/Troll"},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range longtest.Rounds(1, 8) {
		rule := countedRules[random.IntN(len(countedRules))].text
		sampled[rule] = append(sampled[rule], names[random.IntN(len(names))])
	}
	runs, slots, pairs := map[string][]clockRun{}, 0, 0
	for i := range countedRules {
		rule, chosen := &countedRules[i], sampled[countedRules[i].text]
		if os.Getenv(zonesEnv) == "all" {
			chosen = names
		}
		if len(chosen) == 0 {
			continue
		}
		shown := rule.shown()
		for _, name := range chosen {
			if runs[name] == nil {
				zone, err := schedules.Zone(name)
				if err != nil {
					t.Fatal(err)
				}
				runs[name] = runsOf(zone)
			}
			slots += rule.compare(t, name, runs[name], shown)
			pairs++
		}
	}
	t.Logf("%d pairs of a rule and a zone, %d slots from %d to %d", pairs, slots, firstYear, lastYear())
}

// zoneNames are the names in the database, one for each group with the same data.
func zoneNames(t *testing.T) (names []string) {
	archive, err := zip.OpenReader(zoneArchive)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	known := map[string]bool{}
	for _, file := range archive.File {
		reader, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file.Name, "/") && !known[string(data)] {
			known[string(data)] = true
			names = append(names, file.Name)
		}
	}
	return names
}

// TestSearchesEnd: finding the next slot, or finding that there is none, is fast for every
// distance. This includes days that a zone skipped.
func TestSearchesEnd(t *testing.T) {
	began := time.Now()
	for _, zone := range zoneNames(t) {
		for _, text := range []string{"13 * * * 1", "13 * 1 * *", "0 0 29 2 *", "0 0 */28 2 MON", "59 23 31 12 *"} {
			r := ruleOf(t, text, zone)
			for _, year := range []int{1, 1844, 1993, 1994, 2011, 2200} {
				from := time.Date(year, 12, 28, 0, 0, 0, 0, time.UTC)
				if next := r.Next(from); !next.After(from) {
					t.Errorf("%s in %s after %s: %s", text, zone, from, next)
				}
			}
			for _, year := range []int{2263, 9999} {
				if next := r.Next(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)); !next.IsZero() {
					t.Errorf("%s in %s after the last slot: %s", text, zone, next)
				}
			}
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
}
