package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// snapshotsDir is raft's name for the directory of snapshots. Each is a
// directory named term-index-milliseconds; while it is written, ".tmp" follows.
const snapshotsDir = "snapshots"

// savedState is what raft goes on from at a start.
type savedState struct {
	dir       string // of the snapshots
	begun     bool   // the node has once been part of the cluster
	store     *checkedSnapshots
	snapshots []savedSnapshot // in raft's order: the newest first
	log       *guardedLog
	first     uint64 // entry of the log; 0: it is empty
	last      uint64
	logger    hclog.Logger
}

// savedSnapshot is one snapshot, by its name.
type savedSnapshot struct {
	name                string
	term, index, millis uint64
}

// openSnapshots opens the snapshots, and checks them, the log and the term
// against each other before raft reads them. raft itself passes over a damaged
// snapshot, and may go on without entries that this node has acknowledged.
func openSnapshots(dataDir string, begun bool, log *guardedLog, logger hclog.Logger) (*checkedSnapshots, error) {
	store, err := raft.NewFileSnapshotStoreWithLogger(dataDir, snapshotsRetained, logger)
	if err != nil {
		return nil, fmt.Errorf("cannot open the snapshots: %w", err)
	}
	s := &savedState{
		dir: filepath.Join(dataDir, snapshotsDir), begun: begun, store: &checkedSnapshots{FileSnapshotStore: store}, log: log, logger: logger,
	}
	if err := s.list(); err != nil {
		return nil, fmt.Errorf("cannot read the snapshots: %w", err)
	}
	if s.first, s.last, err = bounds(log); err != nil {
		return nil, fmt.Errorf("cannot read the raft log: %w", err)
	}
	if err := s.check(); err != nil {
		if s.store.verified != nil {
			_ = s.store.content.Close()
		}
		return nil, err
	}
	return s.store, nil
}

// checkedSnapshots are raft's snapshots without those that it must not go back to.
type checkedSnapshots struct {
	*raft.FileSnapshotStore
	useless map[string]bool // by name: the log does not hold what came after them
	applied *appliedGuard   // set before raft starts, as is fatal
	fatal   func(error)

	verified *raft.SnapshotMeta // the snapshot that was read at the start; nil once raft has it
	content  io.ReadCloser      // its content, at the beginning
}

// Open reads a snapshot, and verifies it first. The one that was verified at the
// start is not read for that once more.
func (c *checkedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if meta := c.verified; meta != nil && meta.ID == id {
		c.verified = nil
		return meta, c.content, nil
	}
	return c.FileSnapshotStore.Open(id)
}

// Create begins a snapshot of this node's own, or one that a leader sends.
func (c *checkedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64, to raft.Transport) (raft.SnapshotSink, error) {
	if err := c.applied.mayReplace(index); err != nil {
		c.fatal(err)
		return nil, err
	}
	return c.FileSnapshotStore.Create(version, index, term, members, membersIndex, to)
}

// List gives the snapshots that raft may restore, the newest first.
func (c *checkedSnapshots) List() ([]*raft.SnapshotMeta, error) {
	all, err := c.FileSnapshotStore.List()
	return slices.DeleteFunc(all, func(meta *raft.SnapshotMeta) bool { return c.useless[meta.ID] }), err
}

// list reads which snapshots there are, and removes those whose writing was cut
// off. The lock on the data directory is held, so nobody writes one.
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
			s.logger.Info("removed a snapshot whose writing was cut off", "name", entry.Name())
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

// check repairs what raft would have gone on from, and refuses the rest.
func (s *savedState) check() error {
	term, err := s.log.GetUint64(currentTermKey)
	if err != nil || term == 0 {
		return err // without a term the log is new or lost: bootstrap knows which
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
		s.logger.Warn("removed a damaged snapshot: the one before it and the log hold the same", "name", snapshot.name, "error", why)
		if err := os.RemoveAll(filepath.Join(s.dir, snapshot.name)); err != nil {
			return fmt.Errorf("cannot remove a damaged snapshot: %w", err)
		}
	}
	if s.last == 0 || s.last >= good.index {
		return nil
	}
	// A leader's snapshot was kept, and then the process ended before raft
	// cleared the log, as it does next. raft-wal takes no entry behind a gap.
	s.logger.Info("cleared a raft log that ends before the newest snapshot", "last", s.last, "snapshot", good.name)
	return s.log.DeleteRange(s.first, s.last)
}

// newestReadable finds the newest snapshot whose checksum is right; the zero
// value is the empty state before entry 1. why is what is wrong with the newest
// of those that are newer. Older ones are not read: nothing depends on them.
func (s *savedState) newestReadable() (good savedSnapshot, damaged []savedSnapshot, why error) {
	for i, snapshot := range s.snapshots {
		meta, content, err := s.store.FileSnapshotStore.Open(snapshot.name)
		if err == nil {
			if meta.ID == snapshot.name && meta.Index == snapshot.index && meta.Term == snapshot.term {
				s.store.verified, s.store.content = meta, content
				return snapshot, s.snapshots[:i], why
			}
			_ = content.Close()
			err = fmt.Errorf("its meta.json is that of snapshot %q, which ends with entry %d", meta.ID, meta.Index)
		}
		if why == nil {
			why = err
		}
	}
	return savedSnapshot{}, s.snapshots, why
}

// hideOlder keeps raft from going back, should the good snapshot not restore, to
// one behind which entries are missing. It removes what is left of those whose
// removal was cut off.
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

// checkTerm refuses a term, and so votes, that are older than what was written
// after them. A snapshot may be of a later term: an operator has brought it.
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
		return fmt.Errorf("the raft log in %s says that the term is %d, and this node has been in term %d: it has forgotten votes; %s",
			filepath.Dir(s.dir), term, newest, remedy)
	}
	return nil
}

// checkEntries refuses a state of which entries are missing that this node has
// had. What is older than the log must be in a snapshot, and what a damaged
// snapshot held must be in the log.
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
		return fmt.Errorf("%s holds no snapshot and the raft log has no entry, but this node has been part of the cluster: its state is lost; %s", s.dir, remedy)
	case wanted == 0:
		return nil
	case len(damaged) > 0:
		return fmt.Errorf("snapshot %s is damaged (%w), and %s does not hold what it held: %s",
			filepath.Join(s.dir, damaged[0].name), why, s.rest(good), bring)
	default:
		return fmt.Errorf("a snapshot is missing in %s: %s does not hold entries %d to %d: %s", s.dir, s.rest(good), good.index+1, wanted, bring)
	}
}

// rest describes what is left.
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

// bringSnapshot is the remedy for a lost snapshot. The log and the votes of this
// node are whole, so any state of the cluster that is as new will do.
func (s *savedState) bringSnapshot(wanted uint64) string {
	return fmt.Sprintf("copy a snapshot of another node of this cluster that reaches entry %d or later (its name is TERM-ENTRY-TIME) to this directory, "+
		"as with \"cp -r OTHER/%s/TERM-ENTRY-TIME %s\", and start this node again", wanted, snapshotsDir, s.dir)
}
