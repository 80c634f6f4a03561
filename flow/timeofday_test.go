package flow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow"
)

// TestTimeOfDay: the first such time after the start, also on days on which the clocks change. Berlin goes from 2
// to 3 on 2026-03-29, and from 3 back to 2 on 2026-10-25. Samoa had no 30 December 2011. Santiago's 6 September 2026
// starts at 1.
func TestTimeOfDay(t *testing.T) {
	for _, row := range []struct{ at, began, want string }{
		{"18:00 Europe/Berlin", "2026-06-01T09:00:00Z", "2026-06-01T18:00:00+02:00"},
		{"18:00 Europe/Berlin", "2026-06-01T16:00:00Z", "2026-06-02T18:00:00+02:00"},
		{"18:00 Europe/Berlin", "2026-06-01T15:59:59Z", "2026-06-01T18:00:00+02:00"},
		{"18:00", "2026-06-01T17:59:59Z", "2026-06-01T18:00:00Z"},
		{"00:00 UTC", "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z"},
		{"02:30 Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00"},
		{"02:30 Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-30T02:30:00+02:00"},
		{"02:30 Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T02:30:00+02:00"},
		{"02:30 Europe/Berlin", "2026-10-25T00:45:00Z", "2026-10-26T02:30:00+01:00"},
		{"01:30 America/New_York", "2026-10-31T12:00:00Z", "2026-11-01T01:30:00-04:00"},
		{"18:00 Pacific/Apia", "2011-12-30T05:00:00Z", "2011-12-31T00:00:00+14:00"},
		{"18:00 Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-31T18:00:00+14:00"},
		{"00:15 America/Santiago", "2026-09-05T12:00:00Z", "2026-09-06T01:00:00-03:00"},
	} {
		step := flow.NewStep("a", idle{}, flow.DeadlineAt(row.at))
		if got := step.DeadlineFrom(moment(t, row.began)); !got.Equal(moment(t, row.want)) {
			t.Errorf("%s after %s is %s, want %s", row.at, row.began, got.Format(time.RFC3339), row.want)
		}
	}
}

// TestEarlierDeadline: with a duration and a time of day, the earlier end counts.
func TestEarlierDeadline(t *testing.T) {
	step := flow.NewStep("a", idle{}, flow.DeadlineAt("18:00 Europe/Berlin"), flow.Deadline(2*time.Hour))
	if got, want := step.DeadlineText(), "2h after its start or at 18:00 Europe/Berlin"; got != want {
		t.Errorf("described as %q, want %q", got, want)
	}
	for began, want := range map[string]string{"2026-06-01T09:00:00Z": "2026-06-01T11:00:00Z", "2026-06-01T15:00:00Z": "2026-06-01T16:00:00Z"} {
		if got := step.DeadlineFrom(moment(t, began)); !got.Equal(moment(t, want)) {
			t.Errorf("a step that began at %s must end by %s, want %s", began, got, want)
		}
	}
}

// TestWrongTimeLimits: Compile refuses times of day that do not exist, and a timeout of a nested flow.
func TestWrongTimeLimits(t *testing.T) {
	for text, want := range map[string]string{
		"24:00": "is not a time of day", "8:00": "is not a time of day", "18:00:00": "is not a time of day", "": "is not a time of day",
		"18:00 Europe/Atlantis": "is not in the IANA time zone database",
	} {
		if _, err := flow.Compile(flow.NewStep("a", idle{}, flow.DeadlineAt(text))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	inner := flow.Linear("inner", flow.NewStep("a", idle{})).Timeout(time.Hour)
	if _, err := flow.Compile(flow.Linear("outer", inner)); err == nil || !strings.Contains(err.Error(), `flow "inner" is a flow within a flow and cannot have a timeout`) {
		t.Errorf("a timeout of a nested flow: %v", err)
	}
	if _, err := flow.Compile(flow.Linear("f", flow.NewStep("a", idle{})).Timeout(-1)); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("a negative timeout: %v", err)
	}
}

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
