package cli

import "time"

// Ago formats a time as tables show it.
func Ago(t time.Time) string { return AgoText(t) }

// Profiles is the file of profiles.
type Profiles = profiles

// ParseProfiles reads the file's text.
func ParseProfiles(text []byte) (Profiles, error) { return parseProfiles(text) }

// Text is the file's text.
func (s *profiles) Text() ([]byte, error) { return s.text() }
