package raftlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
)

// SnapshotsDir is raft's name for the directory of snapshots. Each snapshot is a directory named
// term-index-milliseconds, with the suffix ".tmp" while it is being written.
const SnapshotsDir = "snapshots"

// SnapshotsRetained is the number of retained snapshots: if the newest is damaged, the previous one
// and the log can replace it.
const SnapshotsRetained = 2

// temporarySuffix follows raft's name of a snapshot that is being written.
const temporarySuffix = ".tmp"

// raft's keys in the stable store, as the checks at the start use them.
var (
	CurrentTermKey  = []byte("CurrentTerm")
	lastVoteTermKey = []byte("LastVoteTerm")
)

// savedState is the state on a node's disk at its start.
type savedState struct {
	dir       string // of the snapshots
	begun     bool   // the node has once been part of the cluster
	store     *Snapshots
	snapshots []savedSnapshot // in raft's order: the newest first
	log       *logstore.Log
	first     uint64 // entry of the log; 0: it is empty
	last      uint64
	logger    hclog.Logger
}

// savedSnapshot is one snapshot, by its name.
type savedSnapshot struct {
	name                string
	term, index, millis uint64
}

// OpenSnapshots opens the snapshots, and checks them, the log and the term
// against each other before raft reads them. raft itself skips a damaged
// snapshot, and may then start without entries that this node has acknowledged.
func OpenSnapshots(dataDir string, begun bool, log *logstore.Log, logger hclog.Logger) (*Snapshots, error) {
	store, err := raft.NewFileSnapshotStoreWithLogger(dataDir, SnapshotsRetained, logger)
	if err != nil {
		return nil, fmt.Errorf("cannot open the snapshots: %w", err)
	}
	dir := filepath.Join(dataDir, SnapshotsDir)
	s := &savedState{dir: dir, begun: begun, store: &Snapshots{FileSnapshotStore: store, dir: dir}, log: log, logger: logger}
	if err := s.list(); err != nil {
		return nil, fmt.Errorf("cannot read the snapshots: %w", err)
	}
	if s.first, s.last, err = logstore.Bounds(log); err != nil {
		return nil, fmt.Errorf("cannot read the raft log: %w", err)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s.store, nil
}

// Snapshots are raft's snapshots, without the snapshots that raft must not restore.
type Snapshots struct {
	*raft.FileSnapshotStore
	useless map[string]bool // by name: the log lacks the entries that follow them
	applied *appliedGuard   // like fatal, set before raft starts
	fatal   func(error)
	dir     string
}

// Create starts a snapshot of this node, or a snapshot from a leader. It replaces older snapshots
// only if it is complete.
func (c *Snapshots) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64, to raft.Transport) (raft.SnapshotSink, error) {
	if err := c.applied.mayReplace(index); err != nil {
		c.fatal(err)
		return nil, err
	}
	sink, err := c.FileSnapshotStore.Create(version, index, term, members, membersIndex, to)
	if err != nil {
		return nil, err
	}
	from, into := io.Pipe()
	fault := make(chan error, 1)
	go func() { // ends with the sink
		err := fsm.CheckSnapshot(from)
		_ = from.CloseWithError(cmp.Or(err, io.EOF))
		fault <- err
	}()
	return &checkedSink{sink, into, sync.OnceValue(func() error { return errors.Join(into.Close(), <-fault) })}, nil
}

// checkedSink checks a snapshot while the snapshot is written.
type checkedSink struct {
	raft.SnapshotSink
	copied *io.PipeWriter
	fault  func() error // checks the complete snapshot
}

// Write writes a part of the snapshot, unless the previous parts are invalid.
func (s *checkedSink) Write(part []byte) (int, error) {
	if _, err := s.copied.Write(part); err != nil {
		return 0, err
	}
	return s.SnapshotSink.Write(part)
}

// Close keeps the snapshot if it is complete.
func (s *checkedSink) Close() error {
	if err := s.fault(); err != nil {
		return errors.Join(err, s.SnapshotSink.Cancel())
	}
	return s.SnapshotSink.Close()
}

// Cancel discards the snapshot.
func (s *checkedSink) Cancel() error {
	_ = s.fault()
	return s.SnapshotSink.Cancel()
}

// Open reads a snapshot.
func (c *Snapshots) Open(name string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, content, err := c.FileSnapshotStore.Open(name)
	return meta, &keptSnapshot{content, filepath.Join(c.dir, name)}, err
}

// keptSnapshot is the content of a snapshot, with its place.
type keptSnapshot struct {
	io.ReadCloser
	path string
}

// discardSnapshot removes an unrestorable snapshot, in the form in which raft reads it.
func discardSnapshot(content io.ReadCloser) error {
	if counted, ok := content.(raft.ReadCloserWrapper); ok {
		content = counted.WrappedReadCloser()
	}
	if kept, ok := content.(*keptSnapshot); ok {
		return os.RemoveAll(kept.path)
	}
	return nil
}

// List returns the snapshots that raft may restore, the newest first.
func (c *Snapshots) List() ([]*raft.SnapshotMeta, error) {
	all, err := c.FileSnapshotStore.List()
	return slices.DeleteFunc(all, func(meta *raft.SnapshotMeta) bool { return c.useless[meta.ID] }), err
}

// list finds the snapshots, and removes snapshots whose writing was interrupted. This process has
// locked the data directory, so no other process is writing a snapshot.
func (s *savedState) list() error {
	found, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, entry := range found {
		if strings.HasSuffix(entry.Name(), temporarySuffix) {
			if err := os.RemoveAll(filepath.Join(s.dir, entry.Name())); err != nil {
				return err
			}
			s.logger.Info("incomplete snapshot removed", "name", entry.Name())
			continue
		}
		snapshot := savedSnapshot{name: entry.Name()}
		if _, err := fmt.Sscanf(snapshot.name, "%d-%d-%d", &snapshot.term, &snapshot.index, &snapshot.millis); err == nil {
			s.snapshots = append(s.snapshots, snapshot)
		}
	}
	slices.SortFunc(s.snapshots, func(a, b savedSnapshot) int {
		return slices.Compare([]uint64{b.term, b.index, b.millis}, []uint64{a.term, a.index, a.millis})
	})
	return nil
}

// check repairs the state if nothing is lost, and otherwise refuses it.
func (s *savedState) check() error {
	term, err := s.log.GetUint64(CurrentTermKey)
	if err != nil || term == 0 {
		return err // without a term the log is new or lost: Past distinguishes these
	}
	good, damaged, why := s.newestReadable()
	if err := s.checkTerm(term); err != nil {
		return err
	}
	if err := s.checkEntries(good, damaged, why); err != nil {
		return err
	}
	s.hideOlder(good)
	for _, snapshot := range damaged {
		s.logger.Warn("damaged snapshot removed", "name", snapshot.name, "error", why)
		if err := os.RemoveAll(filepath.Join(s.dir, snapshot.name)); err != nil {
			return fmt.Errorf("cannot remove a damaged snapshot: %w", err)
		}
	}
	if s.last == 0 || s.last >= good.index {
		return nil
	}
	// The process ended after it stored a leader's snapshot, and before raft cleared the log.
	// raft-wal accepts no entry after a gap.
	s.logger.Info("outdated raft log cleared", "last", s.last, "snapshot", good.name)
	return s.log.DeleteRange(s.first, s.last)
}

// newestReadable finds the newest snapshot with a correct checksum; the zero value means the empty
// state before entry 1. The newer snapshots are damaged, and why is the fault of the newest one. It
// does not read older snapshots, because nothing depends on them.
func (s *savedState) newestReadable() (good savedSnapshot, damaged []savedSnapshot, why error) {
	for i, snapshot := range s.snapshots {
		meta, content, err := s.store.Open(snapshot.name)
		if err == nil {
			_ = content.Close()
			if meta.ID == snapshot.name && meta.Index == snapshot.index && meta.Term == snapshot.term {
				return snapshot, s.snapshots[:i], why
			}
			err = fmt.Errorf("its meta.json belongs to snapshot %q, which ends with entry %d", meta.ID, meta.Index)
		}
		if why == nil {
			why = err
		}
	}
	return savedSnapshot{}, s.snapshots, why
}

// hideOlder hides older snapshots that the log does not continue, so that raft cannot restore one
// of them when the good snapshot fails. It also removes the remains of interrupted removals.
func (s *savedState) hideOlder(good savedSnapshot) {
	s.store.useless = map[string]bool{}
	for _, older := range s.snapshots[slices.Index(s.snapshots, good)+1:] {
		if s.last < good.index || s.first > older.index+1 {
			s.store.useless[older.name] = true
		}
		if _, err := os.Stat(filepath.Join(s.dir, older.name, "meta.json")); errors.Is(err, fs.ErrNotExist) {
			_ = os.RemoveAll(filepath.Join(s.dir, older.name))
		}
	}
}

// checkTerm refuses a term that is older than the last vote or entry: the votes of later terms are
// lost with it. A snapshot may have a later term, because an operator may have copied it here.
func (s *savedState) checkTerm(term uint64) error {
	voted, err := s.log.GetUint64(lastVoteTermKey)
	if err != nil {
		return err
	}
	newest := voted
	if s.last > 0 {
		var entry raft.Log
		if err := s.log.GetLog(s.last, &entry); err != nil {
			return err
		}
		newest = max(newest, entry.Term)
	}
	if term < newest {
		return fmt.Errorf("the raft log in %s contains term %d, and this node has been in term %d, so votes are lost; %s",
			filepath.Dir(s.dir), term, newest, logstore.StopForGood)
	}
	return nil
}

// checkEntries refuses a state that lacks entries which this node has had. The
// entries before the log must be in a snapshot, and the entries of a damaged
// snapshot must be in the log.
func (s *savedState) checkEntries(good savedSnapshot, damaged []savedSnapshot, why error) error {
	wanted := uint64(0) // the entry that a snapshot must reach
	if s.first > good.index+1 {
		wanted = s.first - 1
	}
	if len(damaged) > 0 && s.last < damaged[0].index {
		wanted = max(wanted, damaged[0].index)
	}
	switch bring := s.bringSnapshot(wanted); {
	case s.begun && s.last == 0 && len(s.snapshots) == 0:
		return fmt.Errorf("%s contains no snapshot and the raft log has no entry, but this node has been part of the cluster, so its state is lost; %s", s.dir, logstore.StopForGood)
	case wanted == 0:
		return nil
	case len(damaged) > 0:
		return fmt.Errorf("snapshot %s is damaged (%w), and %s does not contain its data: %s",
			filepath.Join(s.dir, damaged[0].name), why, s.rest(good), bring)
	default:
		return fmt.Errorf("a snapshot is missing in %s: %s does not contain entries %d to %d: %s", s.dir, s.rest(good), good.index+1, wanted, bring)
	}
}

// rest describes the entries and snapshots that remain.
func (s *savedState) rest(good savedSnapshot) string {
	text := "an empty raft log"
	if s.last > 0 {
		text = fmt.Sprintf("the raft log with entries %d to %d", s.first, s.last)
	}
	if good.name == "" {
		return text
	}
	return "snapshot " + good.name + " with " + text
}

// bringSnapshot is the remedy for a lost snapshot. This node's log and votes are complete, so
// any equally new snapshot of the cluster can replace it.
func (s *savedState) bringSnapshot(wanted uint64) string {
	return fmt.Sprintf("copy a snapshot of another node of this cluster that reaches entry %d or later (its name is TERM-ENTRY-TIME) to this directory, "+
		"as with \"cp -r OTHER/%s/TERM-ENTRY-TIME %s\", and start this node again", wanted, SnapshotsDir, s.dir)
}

// Past is a node's knowledge of its earlier runs.
type Past struct {
	Fresh           bool         // the node has never been part of a cluster
	Bootstrapped    bool         // log and snapshots hold the state of the cluster
	SetBootstrapped func() error // called when log and snapshots are found to have it
}

// check refuses a node that has run before and has lost its raft log.
func (p Past) check(dataDir string, log *logstore.Log, cached raft.LogStore, snapshots raft.SnapshotStore) error {
	existing, stateErr := raft.HasExistingState(cached, log, snapshots)
	term, termErr := log.GetUint64(CurrentTermKey)
	last, lastErr := cached.LastIndex()
	if err := errors.Join(stateErr, termErr, lastErr); err != nil {
		return fmt.Errorf("cannot read the raft state: %w", err)
	}
	switch {
	case p.Fresh && term == 1 && last == 0:
		// The first start was interrupted between term and configuration. No vote was given,
		// because raft gets no connection before a node has joined.
		return log.SetUint64(CurrentTermKey, 0)
	case existing && term > 0: // without a term the votes are lost, even if there is a snapshot
		return p.SetBootstrapped()
	case existing, p.Bootstrapped:
		return fmt.Errorf("%s has lost its raft log: this node has run before and must not start again with its old identity", dataDir)
	}
	return nil
}
