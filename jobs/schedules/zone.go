package schedules

import (
	"archive/zip"
	"bytes"
	_ "embed" // for the zones
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/conductord/conductord/logbook"
)

// ZoneRelease is the release of the embedded IANA time zone database. To update it, copy
// lib/time/zoneinfo.zip from a Go distribution; update.bash beside it has the release. A test checks
// release and checksum.
const ZoneRelease = "2025c"

//go:embed zoneinfo.zip
var zoneArchive []byte

var zones = sync.OnceValue(func() fs.FS {
	archive, err := zip.NewReader(bytes.NewReader(zoneArchive), int64(len(zoneArchive)))
	if err != nil {
		panic("internal error: cannot read the embedded time zones: " + err.Error())
	}
	return archive
})

// Zone returns the time zone with this name from the embedded database; an empty name is UTC. It never
// reads files of the machine, because a name must mean the same on every node. ErrInvalid for an
// unknown name.
func Zone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	data, err := fs.ReadFile(zones(), name)
	if err != nil {
		return nil, &logbook.InvalidError{Field: "schedule zone", Reason: fmt.Sprintf(
			"%.64q is not in the IANA time zone database (release %s); use a name such as Europe/Berlin", name, ZoneRelease)}
	}
	return time.LoadLocationFromTZData(name, data)
}
