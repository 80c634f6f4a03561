package membership

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/backup"
	"github.com/conductord/conductord/raftboard/node/proposer"
	"github.com/conductord/conductord/raftboard/node/raftlog"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
	"github.com/conductord/conductord/raftboard/node/sums"
)

// StoppedNode describes the data directory of a stopped node.
type StoppedNode struct {
	Node        string
	Cluster     string
	Generation  uint64
	LogStore    logstore.Kind
	Snapshot    uint64 // the last entry of the newest valid snapshot; 0: none
	First, Last uint64 // entries of the log; 0: it is empty
	Index, Term uint64 // of the last entry in snapshot and log together
	Digest      string // of the state after all entries
	Jobs        map[jobs.State]uint64
}

// CheckStopped reads the identity, the snapshots and the whole log of a stopped node, and applies
// the log to a separate state in a scratch directory. It changes nothing in the data directory. The
// error names what is damaged or missing.
func CheckStopped(dataDir, scratch string) (StoppedNode, error) {
	found, err := readStopped(dataDir, scratch, func(s *stopped) error { return nil })
	if err != nil {
		return found, fmt.Errorf("cannot use the data directory %s: %w", dataDir, err)
	}
	return found, nil
}

// ExtractBackup makes a backup from the data directory of a stopped node, with all entries of its
// log. The last entries may never have reached a majority. It refuses while a majority of the
// cluster answers, unless force is true.
func ExtractBackup(dataDir, scratch, version string, force bool, to io.Writer) error {
	_, err := readStopped(dataDir, scratch, func(s *stopped) error {
		if answers, voters := s.answering(); !force && len(answers) > voters/2 {
			return fmt.Errorf("a majority of the cluster answers (%s): create a backup of the running cluster instead, or use --force", strings.Join(answers, ", "))
		}
		snapshot, err := s.machine.Snapshot()
		if err != nil {
			return err
		}
		of := backup.Manifest{Cluster: s.found.Cluster, Node: s.found.Node, Version: version}
		return errors.Join(backup.Make(to, of, snapshot, func() error { return nil }), snapshot.Close())
	})
	if err != nil {
		return fmt.Errorf("cannot create a backup from %s: %w", dataDir, err)
	}
	return nil
}

// stopped is an open data directory of a stopped node.
type stopped struct {
	dataDir  string
	identity *IdentityStore
	log      *logstore.Log // a copy, because opening a store can change it
	machine  *fsm.Machine
	members  []raft.Server // of the latest configuration
	found    StoppedNode
}

func readStopped(dataDir, scratch string, use func(*stopped) error) (found StoppedNode, err error) {
	if _, err := os.Stat(filepath.Join(dataDir, identityFile)); err != nil {
		return found, fmt.Errorf("it contains no node: %w", err)
	}
	lock, err := LockDataDir(dataDir)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	s := &stopped{dataDir: dataDir}
	if s.identity, err = readIdentity(dataDir); err != nil {
		return found, err
	}
	id := s.identity.id
	s.members = FirstConfiguration(id.Members).Servers
	s.found = StoppedNode{Node: id.Name, Cluster: id.Cluster, Generation: id.Generation, LogStore: id.LogStore}
	dir, err := os.MkdirTemp(scratch, "conductord-check-*")
	if err != nil {
		return s.found, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := s.openLog(dir); err != nil {
		return s.found, err
	}
	defer func() { err = errors.Join(err, s.log.Close()) }()
	s.machine, err = fsm.Open(fsm.Options{Path: filepath.Join(dir, StateFile), Generation: id.Generation})
	if err != nil {
		return s.found, err
	}
	defer func() { err = errors.Join(err, s.machine.Close()) }()
	if err := s.restore(dir); err != nil {
		return s.found, err
	}
	if err := s.replay(); err != nil {
		return s.found, err
	}
	digest, err := s.machine.Digest()
	if err != nil {
		return s.found, err
	}
	s.found.Index, s.found.Term, s.found.Digest = s.machine.AppliedIndex(), s.machine.AppliedTerm(), hex.EncodeToString(digest[:])
	s.found.Jobs = s.machine.Counts()
	return s.found, use(s)
}

// openLog opens a copy of the log.
func (s *stopped) openLog(dir string) error {
	kind := s.identity.id.LogStore
	from, to := logstore.Path(s.dataDir, kind), logstore.Path(dir, kind)
	info, err := os.Stat(from)
	if err != nil {
		return fmt.Errorf("it has lost its raft log: %w", err)
	}
	if info.IsDir() {
		err = os.CopyFS(to, os.DirFS(from))
	} else {
		err = copyFile(from, to)
	}
	if err != nil {
		return err
	}
	if s.log, err = logstore.Open(dir, kind, logstore.Options{Fatal: func(error) {}}); err != nil {
		return err
	}
	s.found.First, s.found.Last, err = logstore.Bounds(s.log)
	return err
}

func copyFile(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// restore checks log and snapshots as a start does, and restores the newest snapshot.
func (s *stopped) restore(dir string) error {
	if err := linkTree(filepath.Join(s.dataDir, raftlog.SnapshotsDir), filepath.Join(dir, raftlog.SnapshotsDir)); err != nil {
		return err
	}
	store, err := raftlog.OpenSnapshots(dir, s.identity.id.Bootstrapped, s.log, hclog.NewNullLogger())
	if err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), dir, s.dataDir)) // this advice is meant for the node itself
	}
	snapshots, err := store.List()
	if err != nil || len(snapshots) == 0 {
		return err
	}
	meta, content, err := store.Open(snapshots[0].ID)
	if err != nil {
		return fmt.Errorf("snapshot %s is damaged: %w", snapshots[0].ID, err)
	}
	if err := errors.Join(s.machine.Restore(content), content.Close()); err != nil {
		return fmt.Errorf("snapshot %s is damaged: %w", snapshots[0].ID, err)
	}
	s.found.Snapshot, s.members = meta.Index, meta.Configuration.Servers
	return nil
}

// linkTree copies a directory whose files never change. It uses hard links where possible.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == from {
			return nil
		}
		if err != nil {
			return err
		}
		copied := filepath.Join(to, strings.TrimPrefix(path, from))
		if entry.IsDir() {
			return os.MkdirAll(copied, 0o700)
		}
		if os.Link(path, copied) == nil {
			return nil
		}
		return copyFile(path, copied)
	})
}

// replay applies the entries of the log that the snapshot does not have.
func (s *stopped) replay() error {
	if s.found.Last == 0 {
		return nil
	}
	for next := s.machine.AppliedIndex() + 1; next <= s.found.Last; {
		var entries []fsm.Entry
		for ; next <= s.found.Last && len(entries) < proposer.MaxEntryCommands; next++ {
			var entry raft.Log
			if err := s.log.GetLog(next, &entry); err != nil {
				return fmt.Errorf("cannot read entry %d of the raft log: %w", next, err)
			}
			if entry.Type == raft.LogConfiguration {
				s.members = raft.DecodeConfiguration(entry.Data).Servers
			}
			entries = append(entries, fsm.Entry{Index: entry.Index, Term: entry.Term, Unanswered: true})
			if entry.Type == raft.LogCommand && !sums.IsCheck(entry.Data) {
				entries[len(entries)-1].Data = entry.Data
			}
		}
		if _, err := s.machine.Apply(entries); err != nil {
			return fmt.Errorf("cannot apply entries %d to %d: %w", entries[0].Index, entries[len(entries)-1].Index, err)
		}
	}
	return nil
}

// answering returns the names of the other voters whose raft port answers, and the number of all
// voters.
func (s *stopped) answering() (names []string, voters int) {
	const patience = time.Second
	for _, server := range s.members {
		if server.Suffrage != raft.Voter {
			continue
		}
		voters++
		member, err := transport.ParseAddress(server.Address)
		if err != nil || server.ID == s.identity.id.Server() {
			continue
		}
		if conn, err := net.DialTimeout("tcp", member.Raft, patience); err == nil {
			_ = conn.Close()
			names = append(names, member.Name)
		}
	}
	return names, voters
}
