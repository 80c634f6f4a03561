package jobs_test

import (
	"errors"
	"testing"

	"github.com/conductord/conductord/jobs"
)

func TestParsePriority(t *testing.T) {
	for _, row := range []struct {
		text string
		want jobs.Priority
		back string
	}{
		{"very-high", jobs.VeryHigh, "very-high"},
		{"high", jobs.High, "high"},
		{"normal", jobs.Normal, "normal"},
		{"low", jobs.Low, "low"},
		{"very-low", jobs.VeryLow, "very-low"},
		{"VERY_HIGH", jobs.VeryHigh, "very-high"},
		{"Very-Low", jobs.VeryLow, "very-low"},
		{"0", jobs.Normal, "normal"},
		{"100", jobs.High, "high"},
		{"-7", -7, "-7"},
		{"2147483647", 2147483647, "2147483647"},
		{"-2147483648", -2147483648, "-2147483648"},
	} {
		got, err := jobs.ParsePriority(row.text)
		if err != nil || got != row.want || got.String() != row.back {
			t.Errorf("%q: got %d (%s), %v; want %d (%s)", row.text, int32(got), got, err, int32(row.want), row.back)
		}
	}
	for _, text := range []string{"", "highest", "very high", "2147483648", "-2147483649", "1.5", "1e2", " 1"} {
		if got, err := jobs.ParsePriority(text); !errors.Is(err, jobs.ErrInvalid) {
			t.Errorf("%q: got %d and %v", text, got, err)
		}
	}
}
