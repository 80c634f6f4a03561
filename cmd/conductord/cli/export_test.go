package cli

import (
	"bytes"
	"time"

	"github.com/conductord/conductord/logbook"
)

// DrawTree draws a flow as flow show does, or as it is drawn on a terminal.
func DrawTree(detail *logbook.FlowDetail, now time.Time, terminal bool) []string {
	t := tree{rows: rowsOf(detail), detail: detail, now: now, results: !terminal}
	if terminal {
		t.width, t.height = 80, 24
	}
	return t.lines()
}

// Evidence is what is shown of a failed flow beside its cause.
func Evidence(cause *logbook.Failure, detail *logbook.FlowDetail) (lines []string) {
	for _, f := range flowEvidence(cause, detail) {
		lines = append(lines, f.name+": "+f.text)
	}
	return lines
}

// Attempts is what flow show --attempts lists.
func Attempts(detail *logbook.FlowDetail) string {
	var out bytes.Buffer
	if err := (&Program{Out: &out}).writeAttempts(detail); err != nil {
		return err.Error()
	}
	return out.String()
}

// Ago is how tables show a moment.
func Ago(t time.Time) string { return agoText(t) }

// Profiles is the file of profiles.
type Profiles = profiles

// ParseProfiles reads the file's text.
func ParseProfiles(text []byte) (Profiles, error) { return parseProfiles(text) }

// Text is the file's text.
func (s *profiles) Text() ([]byte, error) { return s.text() }
