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
		return "in " + shortSpan(t.Sub(now))
	}
	return shortSpan(now.Sub(t)) + " ago"
}

// shortSpan shows a span in the smallest unit that needs two digits, so that a column of ages
// is narrow.
func shortSpan(span time.Duration) string {
	const day, few = 24 * time.Hour, 100
	switch {
	case span < few*time.Second:
		return fmt.Sprintf("%ds", span/time.Second)
	case span < few*time.Minute:
		return fmt.Sprintf("%dm", span/time.Minute)
	case span < few*time.Hour:
		return fmt.Sprintf("%dh", span/time.Hour)
	}
	return fmt.Sprintf("%dd", span/day)
}
