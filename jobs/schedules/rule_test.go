package schedules_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return moment.UTC()
}

func ruleOf(t testing.TB, rule, zone string) *schedules.Rule {
	t.Helper()
	r, err := schedules.ParseRule(&schedules.Schedule{Rule: rule, Zone: zone})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRulesThroughClockChanges: a local time that does not exist moves to the end of the gap,
// a time that exists twice counts once, and hourly rules continue evenly. Berlin goes from 2
// to 3 on 2026-03-29, and from 3 back to 2 on 2026-10-25; New York from 2 to 3 on 2026-03-08,
// and from 2 back to 1 on 2026-11-01.
func TestRulesThroughClockChanges(t *testing.T) {
	const berlin, newYork = "Europe/Berlin", "America/New_York"
	for _, row := range []struct {
		name, rule, zone, after string
		want                    []string
	}{
		{"Berlin, spring, in the gap", "30 2 * * *", berlin, "2026-03-27T12:00:00Z", []string{
			"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		{"Berlin, spring, before and after the gap", "0 1,2,3 * * *", berlin, "2026-03-28T23:30:00Z", []string{
			"2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T01:00:00+02:00"}},
		{"Berlin, spring, every half hour", "*/30 * * * *", berlin, "2026-03-29T00:15:00Z", []string{
			"2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"}},
		{"Berlin, autumn, twice", "30 2 * * *", berlin, "2026-10-24T12:00:00Z", []string{
			"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"Berlin, autumn, from between the two", "30 2 * * *", berlin, "2026-10-25T01:00:00Z", []string{
			"2026-10-26T02:30:00+01:00"}},
		{"Berlin, autumn, every half hour of one hour", "*/30 2 * * *", berlin, "2026-10-24T12:00:00Z", []string{
			"2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:00:00+01:00"}},
		{"Berlin, autumn, every half hour", "*/30 * * * *", berlin, "2026-10-24T23:45:00Z", []string{
			"2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00",
			"2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00"}},
		{"New York, spring, in the gap", "30 2 * * *", newYork, "2026-03-07T12:00:00Z", []string{
			"2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"}},
		{"New York, spring, hourly", "@hourly", newYork, "2026-03-08T06:00:00Z", []string{
			"2026-03-08T03:00:00-04:00", "2026-03-08T04:00:00-04:00"}},
		{"New York, autumn, twice", "30 1 * * *", newYork, "2026-10-31T12:00:00Z", []string{
			"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"}},
		{"New York, autumn, hourly", "@hourly", newYork, "2026-11-01T04:30:00Z", []string{
			"2026-11-01T01:00:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T02:00:00-05:00"}},
		{"an interval knows no zone", "@every 12h", berlin, "2026-03-28T13:00:00Z", []string{
			"2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z"}},
		{"midnight that does not exist", "@daily", "America/Santiago", "2026-09-05T12:00:00Z", []string{
			"2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"}},
		{"Beirut, every hour of the Sunday whose midnight does not exist", "7 * * * 0", "Asia/Beirut", "2027-03-26T12:00:00Z", []string{
			"2027-03-28T01:07:00+03:00", "2027-03-28T02:07:00+03:00"}},
		{"Cairo, every hour of such a Friday", "5 * * * 5", "Africa/Cairo", "2027-04-29T12:00:00Z", []string{
			"2027-04-30T01:05:00+03:00", "2027-04-30T02:05:00+03:00"}},
		{"Samoa, over the Friday that was left out", "13 * * * 5", "Pacific/Apia", "2011-12-28T00:00:00Z", []string{
			"2012-01-06T00:13:00+14:00", "2012-01-06T01:13:00+14:00"}},
		{"Samoa, at a time of that day", "0 12 30 12 *", "Pacific/Apia", "2011-12-28T00:00:00Z", []string{
			"2011-12-31T00:00:00+14:00", "2012-12-30T12:00:00+14:00"}},
		{"a change of half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{
			"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := ruleOf(t, row.rule, row.zone).Upcoming(at(t, row.after), len(row.want))
			if len(got) != len(row.want) {
				t.Fatalf("got %v", got)
			}
			for i, want := range row.want {
				if !got[i].Equal(at(t, want)) {
					t.Errorf("slot %d is %s, want %s", i+1, got[i], want)
				}
			}
		})
	}
}

func TestRules(t *testing.T) {
	for _, row := range []struct{ rule, after, want string }{
		{"*/5 * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"},
		{"*/5 * * * *", "2026-01-01T00:04:59.999999999Z", "2026-01-01T00:05:00Z"},
		{"15 30 4 * * *", "2026-01-01T00:00:00Z", "2026-01-01T04:30:15Z"},
		{"0 0 * * MON", "2026-01-01T00:00:00Z", "2026-01-05T00:00:00Z"},
		{"0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 0 13 * FRI", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"},
		{"0 0 */2 * MON", "2026-01-01T00:00:00Z", "2026-01-05T00:00:00Z"},
		{"0 0 */2 * MON", "2026-01-05T00:00:00Z", "2026-01-19T00:00:00Z"},
		{"0 0 13 * */2", "2026-01-01T00:00:00Z", "2026-01-13T00:00:00Z"},
		{"0 0 ? * mon", "2026-01-01T00:00:00Z", "2026-01-05T00:00:00Z"},
		{"0 0 * * 7", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"0 0 * * 5-7", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"0 0 * * SAT-SUN", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"0 0 * * FRI-MON", "2026-01-04T00:00:00Z", "2026-01-05T00:00:00Z"},
		{"0 0 * jan,JUL 1-5/2", "2026-02-01T00:00:00Z", "2026-07-01T00:00:00Z"},
		{"5/20 * * * *", "2026-01-01T00:05:00Z", "2026-01-01T00:25:00Z"},
		{"@monthly", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"},
		{"@every 90s", "2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z"},
		{"@every 1s", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:01Z"},
	} {
		if got := ruleOf(t, row.rule, "").Next(at(t, row.after)); !got.Equal(at(t, row.want)) {
			t.Errorf("%q after %s: %s, want %s", row.rule, row.after, got, row.want)
		}
	}
	for rule, want := range map[string]string{
		"61 * * * *": `the minute "61" is not 0 to 59`, "* 22-2 * * *": `the range "22-2" of the hour ends before it starts`,
		"* * * * 8": `the day of week "8" is not 0 to 7`, "*/90 * * * *": `the step "90" of the minute is not a number from 1 to 59`,
		"* * * ENE *": `the month "ENE" is not 1 to 12`, "* * *": "it needs five fields", "1,,2 * * * *": `the minute "" is not`, "-5 * * * *": `the minute "" is not`,
	} {
		if _, err := schedules.ParseRule(&schedules.Schedule{Rule: rule}); !errors.Is(err, jobs.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("rule %q: %v", rule, err)
		}
	}
	for rule, zone := range map[string]string{
		"": "", "* * * *": "", "61 * * * *": "", "@sometimes": "", "CRON_TZ=UTC * * * * *": "", "TZ=": "", "@every 0s": "",
		"@every 1.5s": "", "@every -1h": "", "@every tomorrow": "", "0 0 31 2 *": "", "@daily": "Mars/Olympus", "@hourly": "Local",
	} {
		if _, err := schedules.ParseRule(&schedules.Schedule{Rule: rule, Zone: zone}); !errors.Is(err, jobs.ErrInvalid) {
			t.Errorf("rule %q in zone %q: %v", rule, zone, err)
		}
	}
}

func TestRuleBounds(t *testing.T) {
	start, end := at(t, "2026-01-01T00:00:10Z"), at(t, "2026-01-01T00:00:30Z")
	r, err := schedules.ParseRule(&schedules.Schedule{Rule: "@every 10s", Start: start, End: end})
	if err != nil {
		t.Fatal(err)
	}
	got := r.Upcoming(at(t, "2020-01-01T00:00:00Z"), 10)
	if len(got) != 3 || !got[0].Equal(start) || !got[2].Equal(end) {
		t.Errorf("slots %v", got)
	}
	if _, err := schedules.ParseRule(&schedules.Schedule{Rule: "@daily", Start: end, End: start}); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("an end before the start: %v", err)
	}
	// Later times can be neither stored nor sent.
	if far := ruleOf(t, "@every 876000h", "").Upcoming(end, 10); len(far) != 2 || far[1].Year() != 2169 {
		t.Errorf("slots every hundred years: %v", far)
	}
}

// TestSlotsDoNotDependOnWhenOneAsks: the next slot is the same from every time between two slots.
// No slot is lost or invented.
func TestSlotsDoNotDependOnWhenOneAsks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"}).Draw(t, "zone")
		text := rapid.SampledFrom([]string{"*/20 * * * *", "30 2 * * *", "*/20 1-3 * * *", "0 0,3 * * 0", "@every 50m"}).Draw(t, "rule")
		r, err := schedules.ParseRule(&schedules.Schedule{Rule: text, Zone: zone})
		if err != nil {
			t.Fatal(err)
		}
		day := rapid.SampledFrom([]string{"2026-03-07", "2026-03-28", "2026-04-04", "2026-10-03", "2026-10-24", "2026-10-31"}).Draw(t, "day")
		from, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		moment := from.Add(time.Duration(rapid.IntRange(0, 48*3600).Draw(t, "second")) * time.Second)
		next := r.Next(moment)
		if !next.After(moment) {
			t.Fatalf("the next slot after %s is %s", moment, next)
		}
		between := moment.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(moment))-1).Draw(t, "later")))
		if again := r.Next(between); !again.Equal(next) {
			t.Fatalf("after %s the next slot is %s, and after %s it is %s", moment, next, between, again)
		}
	})
}
