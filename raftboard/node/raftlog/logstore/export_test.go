package logstore

import "github.com/hashicorp/go-hclog"

// OpenWAL opens a log in raft-wal with segments of a size.
func OpenWAL(dir string, segmentBytes int, fatal func(error)) (*Log, error) {
	options := Options{Logger: hclog.NewNullLogger(), Fatal: fatal}
	return open(dir, options, func() (Engine, error) { return openWAL(Path(dir, WAL), options.Logger, segmentBytes) })
}
