package duration_test

import (
	"testing"
	"time"

	"github.com/conductord/conductord/internal/duration"
)

func TestText(t *testing.T) {
	for text, d := range map[string]time.Duration{
		"0s": 0, "1.5s": 1500 * time.Millisecond, "10s": 10 * time.Second, "1m": time.Minute, "10m": 10 * time.Minute, "1m30s": 90 * time.Second,
		"1h": time.Hour, "20h": 20 * time.Hour, "720h": 720 * time.Hour, "1h10m": 70 * time.Minute, "1h0m10s": time.Hour + 10*time.Second,
		"-2h": -2 * time.Hour,
	} {
		parsed, err := time.ParseDuration(text)
		if got := duration.Text(d); got != text || err != nil || parsed != d {
			t.Errorf("%d is written %q, not %q; read as %d, %v", d, got, text, parsed, err)
		}
	}
}
