// Package duration writes durations as people write them: "720h", not "720h0m0s". The text is
// accepted by time.ParseDuration.
package duration

import (
	"strings"
	"time"
)

// Text writes a duration without the zero minutes and seconds that its String method adds.
func Text(d time.Duration) string {
	text := d.String()
	if trimmed, found := strings.CutSuffix(text, "m0s"); found {
		text = trimmed + "m"
	}
	if trimmed, found := strings.CutSuffix(text, "h0m"); found {
		text = trimmed + "h"
	}
	return text
}
