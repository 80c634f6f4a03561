package jobs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// Priority orders jobs: jobs with a higher priority are claimed first. Any number is valid;
// a few have names.
type Priority int32

// The named priorities.
const (
	VeryLow  Priority = -200
	Low      Priority = -100
	Normal   Priority = 0
	High     Priority = 100
	VeryHigh Priority = 200
)

var priorityNames = map[Priority]string{
	VeryLow: "very-low", Low: "low", Normal: "normal", High: "high", VeryHigh: "very-high",
}

// String returns the name of the priority, or its number.
func (p Priority) String() string {
	if name, ok := priorityNames[p]; ok {
		return name
	}
	return strconv.Itoa(int(p))
}

// ParsePriority reads a number, or a name in upper or lower case with "_" or "-".
// ErrInvalid.
func ParsePriority(text string) (Priority, error) {
	folded := strings.ReplaceAll(strings.ToLower(text), "_", "-")
	for priority, name := range priorityNames {
		if name == folded {
			return priority, nil
		}
	}
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return Normal, &logbook.InvalidError{
			Field:  "priority",
			Reason: fmt.Sprintf("%.64q must be very-low, low, normal, high, very-high, or a whole number of 32 bits", text),
		}
	}
	return Priority(number), nil
}
