package cli

import (
	"fmt"
	"time"
)

const SinceUsage = "only at or after this time (2026-01-02T15:04:05Z, or 1h for an hour ago)"

// ParseMoment reads a flag such as --not-before: a time, or a duration from now.
func ParseMoment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if after, err := time.ParseDuration(text); err == nil {
		return now.Add(after), nil
	}
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil || moment.IsZero() { // the zero time is invalid
		return time.Time{}, UsageError(fmt.Errorf("%s must be a time such as 2030-01-02T15:04:05Z, or a duration such as 10m", flag))
	}
	return moment, nil
}

// ParsePast reads a flag such as --since: a time in the past, or a duration before now, with or
// without a minus sign.
func ParsePast(flag, text string, now time.Time) (time.Time, error) {
	past := text
	if span, err := time.ParseDuration(text); err == nil && span > 0 && text[0] != '+' {
		past = "-" + text
	}
	moment, err := ParseMoment(flag, past, now)
	if err == nil && moment.After(now) {
		err = UsageError(fmt.Errorf("%s is in the future: %.64s; for a time in the past, use a duration such as 10m", flag, text))
	}
	return moment, err
}

// TimeText shows a time to the second, in the local time zone; empty for the zero time. Flags
// that take times accept this form.
func (p *Program) TimeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	zone := time.UTC
	if p.Zone != nil && !p.utc {
		zone = p.Zone
	}
	return t.In(zone).Format(time.RFC3339)
}

// AgoText shows in tables the time since a moment or until it; empty for the zero time.
func AgoText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	now := time.Now()
	if t.After(now) {
		return "in " + shortSpan(t.Sub(now))
	}
	return shortSpan(now.Sub(t)) + " ago"
}

// shortSpan shows a duration in the smallest unit that needs at most two digits, so that a column
// of ages is narrow.
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
