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

// ZoneRelease is the release of the IANA time zone database that is a part of the program.
// To renew it, copy lib/time/zoneinfo.zip of a Go distribution, whose update.bash names the
// release beside it. Release and sum are held by a test.
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

// Zone finds a time zone by its name in the program's own database; empty is UTC. Files of
// the machine are never read: a name must mean the same on every node.
func Zone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	data, err := fs.ReadFile(zones(), name)
	if err != nil {
		return nil, &logbook.InvalidError{Field: "schedule zone", Reason: fmt.Sprintf(
			"%.64q is no name of the IANA time zone database (release %s), such as Europe/Berlin", name, ZoneRelease)}
	}
	return time.LoadLocationFromTZData(name, data)
}
