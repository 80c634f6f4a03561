package logbook_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/logbook"
)

// TestBackoffDelays: the growth of the delays, up to the maximum.
func TestBackoffDelays(t *testing.T) {
	for _, row := range []struct {
		name    string
		backoff logbook.Backoff
		want    string // after 1, 2, 3 and 4 failures
	}{
		{"nothing said", logbook.Backoff{}, "0s 0s 0s 0s"},
		{"even", logbook.Backoff{Delay: time.Second}, "1s 1s 1s 1s"},
		{"doubled, up to a longest", logbook.Backoff{Delay: time.Second, BackoffPercent: 200, MaxDelay: 3 * time.Second}, "1s 2s 3s 3s"},
		{"five minutes, where nothing is said", logbook.Backoff{Delay: time.Minute, BackoffPercent: 1_000}, "1m0s 5m0s 5m0s 5m0s"},
		{"a first one that is longer", logbook.Backoff{Delay: time.Hour, BackoffPercent: 200}, "1h0m0s 1h0m0s 1h0m0s 1h0m0s"},
		{"as fast as can be, as long as can be", logbook.Backoff{Delay: logbook.MaxDelay - 1, BackoffPercent: logbook.MaxBackoffPercent, MaxDelay: logbook.MaxDelay}, "8759h59m59.999999999s 8760h0m0s 8760h0m0s 8760h0m0s"},
	} {
		var got []string
		for failures := 1; failures <= 4; failures++ {
			got = append(got, row.backoff.Longest(failures).String())
		}
		if got := strings.Join(got, " "); got != row.want {
			t.Errorf("%s: %s, wanted %s", row.name, got, row.want)
		}
		if err := row.backoff.Check("retry"); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if none := row.backoff.Longest(0); none != 0 {
			t.Errorf("%s: without a failure: %s", row.name, none)
		}
	}
}

// TestBackoffJitter: the jitter shortens a delay by at most its share.
func TestBackoffJitter(t *testing.T) {
	for _, row := range []struct {
		percent int
		chance  uint64
		want    time.Duration
	}{
		{0, math.MaxUint64, 10 * time.Second},
		{20, 0, 10 * time.Second},
		{20, 1 << 63, 9 * time.Second},
		{20, math.MaxUint64, 8*time.Second + 1},
		{100, math.MaxUint64, 1},
	} {
		if got := (logbook.Backoff{Delay: 10 * time.Second, JitterPercent: row.percent}).Wait(1, row.chance); got != row.want {
			t.Errorf("%d %%, %d: %s, wanted %s", row.percent, row.chance, got, row.want)
		}
	}
}

// TestBackoffBounds: each field has limits, and a refusal names the field.
func TestBackoffBounds(t *testing.T) {
	for _, row := range []struct {
		field   string
		backoff logbook.Backoff
		want    error
	}{
		{"attempts", logbook.Backoff{Attempts: -1}, logbook.ErrInvalid},
		{"attempts", logbook.Backoff{Attempts: logbook.MaxAttempts + 1}, logbook.ErrLimit},
		{"delay", logbook.Backoff{Delay: -1}, logbook.ErrInvalid},
		{"delay", logbook.Backoff{Delay: logbook.MaxDelay + 1}, logbook.ErrInvalid},
		{"max_delay", logbook.Backoff{MaxDelay: -1}, logbook.ErrInvalid},
		{"max_delay", logbook.Backoff{MaxDelay: logbook.MaxDelay + 1}, logbook.ErrInvalid},
		{"max_delay", logbook.Backoff{Delay: time.Minute, MaxDelay: time.Second}, logbook.ErrInvalid},
		{"backoff_percent", logbook.Backoff{BackoffPercent: 99}, logbook.ErrInvalid},
		{"backoff_percent", logbook.Backoff{BackoffPercent: logbook.MaxBackoffPercent + 1}, logbook.ErrLimit},
		{"jitter_percent", logbook.Backoff{JitterPercent: -1}, logbook.ErrInvalid},
		{"jitter_percent", logbook.Backoff{JitterPercent: 101}, logbook.ErrInvalid},
	} {
		if err := row.backoff.Check("retry"); !errors.Is(err, row.want) || !strings.HasPrefix(err.Error(), "retry "+row.field) {
			t.Errorf("%+v: %v", row.backoff, err)
		}
	}
	most := logbook.Backoff{Attempts: logbook.MaxAttempts, Delay: logbook.MaxDelay, BackoffPercent: logbook.MaxBackoffPercent, MaxDelay: logbook.MaxDelay, JitterPercent: 100}
	if err := most.Check("retry"); err != nil {
		t.Error(err)
	}
}
