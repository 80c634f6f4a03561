package raftlog

import (
	"cmp"
	"time"
)

// defaultSnapshotBytes is the number of bytes of new log that make a snapshot due, for a small
// state: a starting node applies this log in a second or two.
const defaultSnapshotBytes = 64 << 20

// Timings are the times and sizes of raft.
type Timings struct {
	Heartbeat         time.Duration // silence after which a follower campaigns; 0: 500 ms
	Election          time.Duration // time after which a candidate tries again; 0: same as Heartbeat
	LeaderLease       time.Duration // time without a majority after which a leader steps down; 0: same as Heartbeat
	MaxAppendEntries  int           // entries of one replication message; 0: 64
	SnapshotInterval  time.Duration // time between two checks whether a snapshot is due; 0: 30 s
	SnapshotThreshold uint64        // entries since the last snapshot that make one due; 0: 16,384
	SnapshotBytes     int64         // bytes of log after which a snapshot is due, if they exceed half of the last snapshot; 0: 64 MiB
	TrailingLogs      uint64        // entries kept after a snapshot; 0: twice the threshold
}

// WithDefaults fills in the defaults.
func (t Timings) WithDefaults() Timings {
	t.Heartbeat = cmp.Or(t.Heartbeat, 500*time.Millisecond)
	t.Election = cmp.Or(t.Election, t.Heartbeat)
	t.LeaderLease = cmp.Or(t.LeaderLease, t.Heartbeat)
	t.MaxAppendEntries = cmp.Or(t.MaxAppendEntries, 64)
	t.SnapshotInterval = cmp.Or(t.SnapshotInterval, 30*time.Second)
	t.SnapshotThreshold = cmp.Or(t.SnapshotThreshold, 16_384)
	t.SnapshotBytes = cmp.Or(t.SnapshotBytes, defaultSnapshotBytes)
	t.TrailingLogs = cmp.Or(t.TrailingLogs, 2*t.SnapshotThreshold)
	return t
}
