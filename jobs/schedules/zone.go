package schedules

import (
	"time"

	"github.com/conductord/conductord/internal/zones"
	"github.com/conductord/conductord/logbook"
)

// Zone returns the time zone with this name from the embedded database; an empty name is UTC.
// ErrInvalid for an unknown name.
func Zone(name string) (*time.Location, error) {
	zone, err := zones.Load(name)
	if err != nil {
		return nil, &logbook.InvalidError{Field: "schedule zone", Reason: err.Error()}
	}
	return zone, nil
}
