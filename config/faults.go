package config

import (
	"fmt"
	"strings"
)

// Fault is one thing that is wrong.
type Fault struct {
	Place   string // the file, "environment" or "flags"; empty where nothing was said
	Line    int    // of the file; 0: not known
	Key     string // as the place spells it: raft.heartbeat, CONDUCTORD_RAFT_HEARTBEAT, --raft-heartbeat
	Message string
}

// Error gives "file:line: key: message", without the parts that are not known.
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

// Faults is everything that is wrong, as one error: a line for each.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, 0, len(f))
	for _, fault := range f {
		lines = append(lines, fault.Error())
	}
	return strings.Join(lines, "\n")
}
