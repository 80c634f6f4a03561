package cli

import (
	"fmt"
	"time"
)

// timeText shows a moment to the second, in the zone of the reader, and nothing for no
// moment. It can be given to flags that take moments.
func (p *Program) timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	zone := time.UTC
	if p.Zone != nil && !p.utc {
		zone = p.Zone
	}
	return t.In(zone).Format(time.RFC3339)
}

// agoText shows how long ago a moment was, or how soon it will be, for tables; nothing
// for no moment.
func agoText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	now := time.Now()
	if t.After(now) {
		return "in " + roughly(t.Sub(now))
	}
	return roughly(now.Sub(t)) + " ago"
}

// roughly shows a span in the largest unit of which it has two, or in seconds.
func roughly(span time.Duration) string {
	const day = 24 * time.Hour
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}} {
		if span >= 2*unit.size {
			return fmt.Sprintf("%d%s", span/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%ds", span/time.Second)
}
