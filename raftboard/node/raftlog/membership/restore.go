package membership

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/raftboard/node/backup"
	"github.com/conductord/conductord/raftboard/node/proposer"
	"github.com/conductord/conductord/raftboard/node/raftlog"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// A new cluster starts from a backup in these steps. On each machine, the same file is restored
// into the empty data directory of a node. All nodes then have the same snapshot, the same first
// configuration of raft, and an empty log, like a cluster that was stopped after a snapshot. So any
// majority of them can start.
//
// The restored cluster is a new generation. Its nodes refuse nodes of the original cluster. Its
// tokens are newer than all earlier tokens, so earlier owners of jobs cannot write. Nodes that were
// restored from different files have different states at one index. They refuse each other in the
// handshake by Origin.

// StateFile is the state in a data directory, a cache of snapshots and log.
const StateFile = "state.db"

// restoringFile marks a data directory with an unfinished restore.
const restoringFile = "restore.incomplete"

// firstTerm is the term of a restored snapshot: terms of a restored cluster start again.
const firstTerm = 1

// indexStep is the distance from the index of the backup to the first index of the restored
// cluster. Clients remember log indexes: positions of events, and the state that they have read.
// Indexes after the backup must not be higher than the new cluster's indexes: otherwise, clients
// would wait for the new cluster to reach them.
const indexStep = 1_000_000_000

// Restore describes how a backup becomes a new cluster. It must be equal on all nodes.
type Restore struct {
	// Generation of the new cluster; 0: one more than the generation of the backup. If you restore
	// a backup a second time, use a higher generation than the first time: otherwise, tokens of the
	// first restored cluster could be valid in the second one.
	Generation uint64
	// FromCluster is the id of the original cluster; empty: the id in the options.
	FromCluster string
	// PauseSchedules pauses all schedules, so that a copy of a cluster posts nothing by
	// itself.
	PauseSchedules bool
}

// Restored describes the result of a restore.
type Restored struct {
	Manifest   backup.Manifest
	Generation uint64
	Index      uint64 // first index of the new cluster
	Sessions   int    // closed sessions, whose jobs are claimable again
	Paused     int    // schedules
}

// RestoreBackup makes the data directory of a new node from a backup. The directory must
// be empty, or hold the remains of a restore that was cut off, which are removed. If it
// fails, the directory holds no node.
func RestoreBackup(options Options, from io.Reader, how Restore) (Restored, error) {
	r := restoration{options: options, how: how}
	if err := r.run(from); err != nil {
		return Restored{}, fmt.Errorf("cannot restore into %s: %w", options.DataDir, err)
	}
	return r.done, nil
}

type restoration struct {
	options Options
	how     Restore
	done    Restored
}

func (r *restoration) path(name string) string { return filepath.Join(r.options.DataDir, name) }

func (r *restoration) run(from io.Reader) (err error) {
	lock, err := LockDataDir(r.options.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := r.claimDirectory(); err != nil {
		return err
	}
	origin, err := r.restore(from)
	if err != nil {
		return errors.Join(err, r.clear())
	}
	store := &IdentityStore{path: r.path(identityFile), id: Identity{
		Cluster: r.options.Cluster, Name: r.options.Name, Incarnation: transport.FirstIncarnation, Instance: uuid.New(), Generation: r.done.Generation, Origin: origin,
		LogStore: r.options.LogStore, Peers: map[raft.ServerID]uuid.UUID{}, Members: RosterOf(r.options.Members), Bootstrapped: true,
	}}
	if err := store.saveLocked(); err != nil {
		return err
	}
	return os.Remove(r.path(restoringFile))
}

// claimDirectory marks a directory for a restore. It refuses any content except the remains of a
// restore.
func (r *restoration) claimDirectory() error {
	if _, err := os.Stat(r.path(identityFile)); err == nil {
		return errors.New("it contains a node: restore into an empty directory")
	}
	if _, err := os.Stat(r.path(restoringFile)); err == nil {
		if err := r.clear(); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := checkEmpty(r.options.DataDir); err != nil {
		return err
	}
	if err := logstore.WriteSynced(r.path(restoringFile), nil); err != nil {
		return err
	}
	return logstore.SyncPath(r.options.DataDir)
}

// clear removes the files of a restore, and its mark last.
func (r *restoration) clear() error {
	made, err := os.ReadDir(r.options.DataDir)
	if err != nil {
		return err
	}
	for _, file := range made {
		if name := file.Name(); name != lockFile && name != restoringFile && name != lostAndFound {
			err = errors.Join(err, os.RemoveAll(r.path(name)))
		}
	}
	if err != nil {
		return err
	}
	return os.Remove(r.path(restoringFile))
}

// restore makes all files except the identity, and returns the origin.
func (r *restoration) restore(from io.Reader) (origin string, err error) {
	var machine *fsm.Machine
	r.done.Manifest, err = backup.Read(from, func(manifest backup.Manifest, state io.Reader) error {
		if err := r.accept(manifest); err != nil {
			return err
		}
		machine, err = fsm.Open(fsm.Options{Path: r.path(StateFile), Logger: r.options.Logger, Generation: r.done.Generation})
		if err != nil {
			return err
		}
		return restoreState(machine, state)
	})
	if machine != nil {
		defer func() { err = errors.Join(err, machine.Close()) }()
	}
	if err != nil {
		return "", err
	}
	if machine.AppliedIndex() != r.done.Manifest.Index || machine.Generation() != r.done.Generation {
		return "", fmt.Errorf("%w: its manifest has index %d, and its state has index %d", backup.ErrBad, r.done.Manifest.Index, machine.AppliedIndex())
	}
	if err := r.settle(machine); err != nil {
		return "", err
	}
	if err := r.keep(machine); err != nil {
		return "", err
	}
	digest, err := machine.Digest()
	return hex.EncodeToString(digest[:]), err
}

func restoreState(machine *fsm.Machine, state io.Reader) error {
	err := machine.Restore(state)
	if errors.Is(err, fsm.ErrBadSnapshot) {
		return fmt.Errorf("%w: %w", backup.ErrBad, err)
	}
	return err
}

// accept checks a manifest before the state is read.
func (r *restoration) accept(manifest backup.Manifest) error {
	if expected := cmp.Or(r.how.FromCluster, r.options.Cluster); manifest.Cluster != expected {
		return fmt.Errorf("the backup is from cluster %q, not from %q: to restore it anyway, use --from-cluster", manifest.Cluster, expected)
	}
	r.done.Generation = cmp.Or(r.how.Generation, manifest.Generation+1)
	if r.done.Generation <= manifest.Generation {
		return fmt.Errorf("generation %d is not higher than the generation of the backup, %d", r.done.Generation, manifest.Generation)
	}
	return nil
}

// settle closes all sessions and pauses the schedules, with the ordinary commands of a cluster. The
// commands have the time of the backup, so all nodes reach the same state.
func (r *restoration) settle(machine *fsm.Machine) error {
	if _, err := machine.Apply([]fsm.Entry{{Index: machine.AppliedIndex() + indexStep, Term: firstTerm}}); err != nil {
		return err
	}
	var commands []*conductordv1.Command
	sessions, err := machine.Sessions()
	if err != nil {
		return err
	}
	for i := range sessions {
		commands = append(commands, &conductordv1.Command{Kind: &conductordv1.Command_CloseSession{
			CloseSession: &conductordv1.CloseSessionCommand{Session: sessions[i].ID.String()},
		}})
	}
	r.done.Sessions = len(sessions)
	for after := ""; r.how.PauseSchedules; {
		page, err := machine.Schedules(schedules.Query{After: after})
		if err != nil {
			return err
		}
		for i := range page.Items {
			if s := &page.Items[i]; s.Pause == nil {
				r.done.Paused++
				commands = append(commands, &conductordv1.Command{Kind: &conductordv1.Command_PauseSchedule{PauseSchedule: &conductordv1.PauseScheduleCommand{
					Board: s.Board, Name: s.Name, By: "backup restore", Reason: "the cluster was restored from a backup",
				}}})
			}
		}
		if after = page.Next; after == "" {
			break
		}
	}
	for len(commands) > 0 {
		now := commands[:min(len(commands), proposer.MaxEntryCommands)]
		commands = commands[len(now):]
		if err := apply(machine, now); err != nil {
			return err
		}
	}
	return nil
}

// apply applies commands as the next entry. A refusal is an error, too.
func apply(machine *fsm.Machine, commands []*conductordv1.Command) error {
	data, err := command.EncodeEntry(&conductordv1.Entry{TimeUnixNano: machine.Time().UnixNano(), Commands: commands})
	if err != nil {
		return err
	}
	results, err := machine.Apply([]fsm.Entry{{Index: machine.AppliedIndex() + 1, Term: firstTerm, Data: data}})
	if err != nil {
		return err
	}
	for i, result := range results[0] {
		if refusal := result.GetError(); refusal != nil {
			return fmt.Errorf("%s: %s", command.Name(commands[i]), refusal.GetMessage())
		}
	}
	return nil
}

// keep writes the state as raft's first snapshot, and the term. The state's own file is a cache of
// the snapshot, which the node rebuilds at its start.
func (r *restoration) keep(machine *fsm.Machine) (err error) {
	snapshot, err := machine.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	store, err := raft.NewFileSnapshotStoreWithLogger(r.options.DataDir, raftlog.SnapshotsRetained, r.options.Logger)
	if err != nil {
		return err
	}
	_, addresses := raft.NewInmemTransport("") // needed only to encode addresses for old programs
	sink, err := store.Create(raft.SnapshotVersionMax, snapshot.Index, firstTerm, FirstConfiguration(RosterOf(r.options.Members)), 1, addresses)
	if err != nil {
		return err
	}
	if _, err := snapshot.WriteTo(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	r.done.Index = snapshot.Index
	log, err := logstore.Open(r.options.DataDir, r.options.LogStore, logstore.Options{Logger: r.options.Logger, Fatal: func(error) {}})
	if err != nil {
		return err
	}
	return errors.Join(log.SetUint64(raftlog.CurrentTermKey, firstTerm), log.Close())
}

// VerifyBackup reads a backup, restores its state into a scratch directory, and compares the digest
// of the restored state with the manifest. It removes its files.
func VerifyBackup(from io.Reader, scratch string) (manifest backup.Manifest, err error) {
	dir, err := os.MkdirTemp(scratch, "conductord-verify-*")
	if err != nil {
		return manifest, fmt.Errorf("cannot verify: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	machine, err := fsm.Open(fsm.Options{Path: filepath.Join(dir, StateFile)})
	if err != nil {
		return manifest, fmt.Errorf("cannot verify: %w", err)
	}
	defer func() { err = errors.Join(err, machine.Close()) }()
	if manifest, err = backup.Read(from, func(_ backup.Manifest, state io.Reader) error { return restoreState(machine, state) }); err != nil {
		return manifest, err
	}
	digest, err := machine.Digest()
	if err != nil {
		return manifest, err
	}
	if found := hex.EncodeToString(digest[:]); found != manifest.Digest || machine.AppliedIndex() != manifest.Index || machine.Generation() != manifest.Generation {
		return manifest, fmt.Errorf("%w: the digest of its state at index %d is %s, and its manifest has %s at index %d",
			backup.ErrBad, machine.AppliedIndex(), found, manifest.Digest, manifest.Index)
	}
	return manifest, nil
}

// FirstConfiguration is the configuration of a new cluster, the same on all nodes.
func FirstConfiguration(members transport.Roster) raft.Configuration {
	var configuration raft.Configuration
	for _, name := range members.Names() {
		configuration.Servers = append(configuration.Servers, raft.Server{ID: transport.ServerID(name, transport.FirstIncarnation), Address: members[name]})
	}
	return configuration
}
