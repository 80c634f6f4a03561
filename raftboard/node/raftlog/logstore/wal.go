package logstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

const (
	// walDir contains log, term and votes of a node with the log store wal.
	walDir = "raft-wal"
	// walSegmentBytes is raft-wal's own default, which its users run.
	walSegmentBytes = 64 << 20
)

// walLog is raft-wal as an Engine. Term and votes are in raft-wal's own meta file, so a data
// directory holds one store and not halves of two.
//
// raft-wal takes an unreadable end of its log for a write that a crash cut off, and drops it
// silently. If the whole last segment is missing, it starts another. The mark of Log detects both
// after an orderly end; walMeta finds damage further back.
type walLog struct {
	*wal.WAL
	segments *walSegments
}

// walSegments is raft-wal's own keeper of segments. It also remembers why raft-wal could not make a
// new segment. raft-wal makes the segment in the background, logs the reason, and returns only "the
// old segment is closed" for the next write.
type walSegments struct {
	*segment.Filer
	failure atomic.Pointer[error]
}

// Create makes a segment.
func (s *walSegments) Create(info types.SegmentInfo) (types.SegmentWriter, error) {
	writer, err := s.Filer.Create(info)
	if err != nil {
		s.failure.Store(&err)
	}
	return writer, err
}

func openWAL(dir string, logger hclog.Logger, segmentBytes int) (Engine, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := checkBolt(filepath.Join(dir, metadb.FileName)); err != nil {
		return nil, err
	}
	meta, segments := &walMeta{logger: logger}, &walSegments{Filer: segment.NewFiler(dir, walfs.New())}
	opened, err := wal.Open(dir,
		wal.WithLogger(logger),
		wal.WithSegmentSize(segmentBytes),
		wal.WithMetaStore(meta),
		wal.WithSegmentFiler(segments))
	if err != nil {
		return nil, errors.Join(err, meta.Close()) // raft-wal leaves it open
	}
	return &walLog{WAL: opened, segments: segments}, nil
}

// StoreLog stores one entry durably.
func (w *walLog) StoreLog(log *raft.Log) error { return w.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries durably.
func (w *walLog) StoreLogs(logs []*raft.Log) error {
	err := w.WAL.StoreLogs(logs)
	if why := w.segments.failure.Load(); err != nil && why != nil {
		return fmt.Errorf("cannot begin a segment: %w", *why)
	}
	return err
}

// walMeta is raft-wal's own meta store, and checks the segments before raft-wal does.
type walMeta struct {
	metadb.BoltMetaDB
	logger hclog.Logger
}

// Load reads the list of segments, and prepares the segments for raft-wal:
//   - It refuses a segment that was cut short, and a last segment that is damaged before its
//     end: raft-wal would drop everything after the damage.
//   - It wipes the incomplete write of a crash at the end: raft-wal 0.4.2 refuses every further
//     write if that was the closing of a segment.
//   - A last segment that is closed in its file, but not yet in the meta store, is closed there
//     too, for the same reason.
func (m *walMeta) Load(dir string) (types.PersistentState, error) {
	state, err := m.BoltMetaDB.Load(dir)
	if err != nil || len(state.Segments) == 0 {
		return state, err
	}
	for _, info := range state.Segments[:len(state.Segments)-1] {
		if err := checkSealed(dir, info); err != nil {
			return state, err
		}
	}
	last := &state.Segments[len(state.Segments)-1]
	if !last.SealTime.IsZero() {
		return state, checkSealed(dir, *last)
	}
	tail, err := m.mendTail(filepath.Join(dir, segment.FileName(*last)), *last)
	if err != nil || tail.indexStart == 0 {
		return state, err
	}
	last.SealTime = time.Now()
	last.IndexStart = uint64(tail.indexStart)
	last.MaxIndex = last.BaseIndex + tail.entries - 1
	state.Segments = append(state.Segments, types.SegmentInfo{
		ID: state.NextSegmentID, BaseIndex: last.MaxIndex + 1, MinIndex: last.MaxIndex + 1,
		SizeLimit: last.SizeLimit, Codec: last.Codec, CreateTime: time.Now(),
	})
	state.NextSegmentID++
	return state, m.CommitState(state)
}

// checkSealed refuses a truncated closed segment: its index is at the end.
func checkSealed(dir string, info types.SegmentInfo) error {
	const offsetBytes = 4
	path := filepath.Join(dir, segment.FileName(info))
	file, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing: %s", path, StopForGood)
	}
	if err != nil {
		return err
	}
	if wants := int64(info.IndexStart) + offsetBytes*int64(info.MaxIndex-info.BaseIndex+1); file.Size() < wants {
		return cutShort(path, file.Size(), wants)
	}
	return nil
}

// mendTail checks the segment with the end of the log, and removes the remains of a write that a
// crash interrupted.
func (m *walMeta) mendTail(path string, info types.SegmentInfo) (walTail, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return walTail{}, nil // a crash came before its creation; or it is lost, which the mark detects
	}
	if err != nil {
		return walTail{}, err
	}
	tail, err := readTail(file)
	switch {
	case err != nil:
	case tail.lost:
		err = fmt.Errorf("%s is damaged at byte %d: %s", path, tail.end, StopForGood)
	case tail.entries == 0 && tail.size < int64(info.SizeLimit):
		// Its creation was interrupted, for example by a full disk. raft-wal creates it again.
		err = os.Remove(path)
	case tail.size < int64(info.SizeLimit):
		err = cutShort(path, tail.size, int64(info.SizeLimit))
	case tail.torn:
		m.logger.Info("raft log ends with an incomplete write", "file", path, "at", tail.end)
		err = wipe(file, tail.end, tail.size)
	}
	return tail, errors.Join(err, file.Close())
}
