package config

import (
	"fmt"
	"strings"
)

// Fault is one fault of a configuration.
type Fault struct {
	Place   string // the file, "environment" or "flags"; empty for a missing value
	Line    int    // line of the file; 0: unknown
	Key     string // in the place's spelling: raft.heartbeat, CONDUCTORD_RAFT_HEARTBEAT, --raft-heartbeat
	Message string
}

// Error returns "file:line: key: message", without unknown parts.
func (f Fault) Error() string {
	var text strings.Builder
	if f.Place != "" {
		text.WriteString(f.Place)
		if f.Line > 0 {
			fmt.Fprintf(&text, ":%d", f.Line)
		}
		text.WriteString(": ")
	}
	if f.Key != "" {
		text.WriteString(f.Key + ": ")
	}
	text.WriteString(f.Message)
	return text.String()
}

// Faults are all faults of a configuration, as one error with a line for each fault.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, 0, len(f))
	for _, fault := range f {
		lines = append(lines, fault.Error())
	}
	return strings.Join(lines, "\n")
}
