// Package zones has the time zones of the IANA database, embedded in the program.
package zones

import (
	"archive/zip"
	"bytes"
	_ "embed" // for the zones
	"fmt"
	"io/fs"
	"sync"
	"time"
)

// Release is the release of the embedded IANA time zone database. To update it, copy
// lib/time/zoneinfo.zip from a Go distribution; update.bash beside it has the release. A test checks
// release and checksum.
const Release = "2025c"

//go:embed zoneinfo.zip
var archive []byte

var files = sync.OnceValue(func() fs.FS {
	opened, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		panic("internal error: cannot read the embedded time zones: " + err.Error())
	}
	return opened
})

// Load returns the time zone with this name from the embedded database; an empty name is UTC. It never
// reads files of the machine, because a name must mean the same on every node.
func Load(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	data, err := fs.ReadFile(files(), name)
	if err != nil {
		return nil, fmt.Errorf("%.64q is no name of the IANA time zone database (release %s), such as Europe/Berlin", name, Release)
	}
	return time.LoadLocationFromTZData(name, data)
}
