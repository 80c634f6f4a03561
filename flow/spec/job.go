package spec

import (
	"fmt"
	"math"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// Job has defaults for the posting of the document's job. The poster of a job overrides them.
type Job struct {
	Key       string   `json:"key,omitempty"`
	Attempts  int      `json:"attempts,omitempty"`
	OnFailure string   `json:"on_failure,omitempty"`
	Priority  string   `json:"priority,omitempty"` // a number or a name, for jobs.ParsePriority
	Labels    []string `json:"labels,omitempty"`
	Retention Duration `json:"retention,omitzero"`
}

// maxRetention is the limit of jobs.Posting.Retention, which package spec cannot import.
const maxRetention = 365 * 24 * time.Hour

// job reads the table of defaults for the job; nil if there is none. The poster checks names of priorities and the
// sizes of labels: see jobs.CheckPosting.
func (r *reader) job(t *table) *Job {
	inner := t.inner("job")
	if inner == nil {
		return nil
	}
	job := &Job{
		Attempts:  inner.integer("attempts", 1, logbook.MaxAttempts),
		OnFailure: inner.choice("on_failure", []string{"complete", "retry", "park"}),
		Priority:  priority(inner),
		Labels:    inner.texts("labels"),
		Retention: inner.durationUpTo("retention", maxRetention),
	}
	if inner.has("key") {
		job.Key = r.name(inner, "key")
	}
	for _, label := range job.Labels {
		r.checkSymbol(inner, "labels", label)
	}
	const above = "it is a key of the document: write it above the first table"
	inner.elsewhere = map[string]string{"deadline": above, "timeout": above}
	inner.rest()
	return job
}

// priority reads a number or a name.
func priority(t *table) string {
	if !t.has("priority") {
		return ""
	}
	if name, ok := t.values["priority"].(string); ok {
		return name
	}
	if number := t.integer("priority", math.MinInt32, math.MaxInt32); !t.failed("priority") {
		return fmt.Sprint(number)
	}
	return ""
}

// Deadline is the deadline of a step: a duration after its first start, or a time of day, such as 18:00
// Europe/Berlin.
type Deadline struct {
	After Duration
	At    string
}

// IsZero reports whether there is no deadline.
func (d Deadline) IsZero() bool { return d == Deadline{} }

// MarshalText writes the deadline so that Parse reads it again.
func (d Deadline) MarshalText() ([]byte, error) {
	if d.At != "" {
		return []byte(d.At), nil
	}
	return d.After.MarshalText()
}

// deadline reads the deadline of a step. A time of day starts with two digits and a colon.
func (t *table) deadline(key string) Deadline {
	text, ok := t.values[key].(string)
	if !ok || !flow.IsTimeOfDay(text) {
		return Deadline{After: t.duration(key)}
	}
	t.known[key] = true
	if err := flow.CheckTimeOfDay(text); err != nil {
		t.fault(key, "%v", err)
	}
	return Deadline{At: text}
}
