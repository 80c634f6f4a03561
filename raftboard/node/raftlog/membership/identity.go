// Package membership manages a node's membership in its raft group: the identity in the data
// directory, the other members, and changes of a data directory while no node uses it.
//
// The nouns: an Identity names a node, on any machine. A Members is the list of members. A node
// joins a cluster, is restored from a backup, or is converted to another log store.
//
// Nodes refuse a node that lost its disk or runs twice, if they remember its instance. After an
// interrupted change of a data directory, the directory contains no node, or a node that starts.
package membership

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// identityFile is in the data directory; a directory without it contains no node.
const (
	identityFile    = "node.json"
	temporarySuffix = ".tmp"
	lostAndFound    = "lost+found"
)

// Options are the settings of a node about itself and its cluster, before it starts.
type Options struct {
	Cluster    string
	Name       string
	DataDir    string
	Init       bool // the data directory may be created
	Members    []transport.Member
	LogStore   logstore.Kind
	RaftListen string
	Logger     hclog.Logger
}

// self is this node among the members, which the caller has checked.
func (o Options) self() transport.Member {
	return o.Members[slices.IndexFunc(o.Members, func(member transport.Member) bool { return member.Name == o.Name })]
}

// Identity names a node, on any machine. It is created once, at the first start, and moves with the
// data directory.
type Identity struct {
	Cluster     string `json:"cluster"`
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
	// Instance is a random number from the first start. A node that lost its disk and is made again
	// has another instance. Nodes that remember the first instance refuse it, because it has
	// forgotten its votes.
	Instance uuid.UUID `json:"instance"`
	// Generation counts restorations of the cluster from a backup or a survivor.
	Generation uint64 `json:"generation"`
	// Origin is the digest of the state with which a restored cluster started; empty: the cluster
	// started empty.
	Origin string `json:"origin,omitempty"`
	// Starts counts the starts of the node. A process with fewer starts than its
	// peers have seen runs from an old copy of the directory.
	Starts uint64 `json:"starts"`
	// Members is the list of the cluster's founders: the configuration's list, until the first
	// configuration of raft is in the log. After that it never changes, and raft's configuration
	// is the valid list of members.
	Members transport.Roster `json:"members"`
	// Bootstrapped is set when raft's log or snapshots have the state of the cluster.
	Bootstrapped bool `json:"bootstrapped"`
	// Joining is set for a node that joins a working cluster, until the node has caught up.
	Joining *joining `json:"joining,omitempty"`
	// LogStore is the store of log, term and votes. Writing it switches from one store to
	// another.
	LogStore logstore.Kind `json:"log_store"`
	// Peers are the instances of the other nodes, as first met.
	Peers map[raft.ServerID]uuid.UUID `json:"peers"`
}

// storedIdentity is the file. Its checksum detects damage: a damaged file could still be readable,
// and a changed id of a peer would keep the two nodes apart permanently.
type storedIdentity struct {
	Identity
	Checksum string `json:"checksum"` // of all other fields
}

// checksum is the CRC-32 of the identity as JSON, which has one form.
func (i *Identity) checksum() (string, error) {
	data, err := json.Marshal(i)
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE(data)), err
}

// joining is the unfinished part of a node's join.
type joining struct {
	// Vote: the node asks to be promoted to a voter after catching up.
	Vote bool `json:"vote"`
	// Replaces is the name of the node to remove then; empty: none.
	Replaces string `json:"replaces,omitempty"`
	// Members are the members of the cluster when this node joined. Until it has raft's
	// configuration, the node accepts messages only of these members, and of nodes that they
	// list. Empty: the first members.
	Members []raft.Server `json:"members,omitempty"`
}

// Server is the node's id in raft's configuration.
func (i *Identity) Server() raft.ServerID { return transport.ServerID(i.Name, i.Incarnation) }

// Fresh reports whether the node has never been part of a cluster.
func (i *Identity) Fresh() bool { return !i.Bootstrapped && i.Joining == nil }

// IdentityStore keeps the identity on disk, and writes down the peers it meets. It
// implements transport.Identity.
type IdentityStore struct {
	path string

	mu sync.Mutex
	id Identity
}

// LoadIdentity reads the data directory's identity, or makes one if this is
// the node's declared first start.
func LoadIdentity(o Options) (*IdentityStore, error) {
	store, err := readIdentity(o.DataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return store, store.create(o)
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(store.matches(o), store.keepsItsWord(o)); err != nil {
		return nil, err
	}
	store.id.Starts++
	return store, store.saveLocked() // no other goroutine has it yet
}

// WrongDirectory returns an error if the data directory belongs to another node, or does not match
// the configuration. It is called before the directory is locked: its error explains more than
// "another process uses the directory".
func WrongDirectory(o Options) error {
	store, err := readIdentity(o.DataDir)
	if err != nil {
		return nil // it is read again under the lock, and reported then
	}
	return store.matches(o)
}

// readIdentity reads the identity without changes or checks of the options.
func readIdentity(dataDir string) (*IdentityStore, error) {
	store := &IdentityStore{path: filepath.Join(dataDir, identityFile)}
	data, err := os.ReadFile(store.path)
	if err != nil {
		return store, fmt.Errorf("cannot read the node's identity: %w", err)
	}
	var stored storedIdentity
	if err := json.Unmarshal(data, &stored); err != nil {
		return store, fmt.Errorf("cannot read the node's identity in %s: %w", store.path, err)
	}
	store.id = stored.Identity
	sum, err := store.id.checksum()
	if err == nil && sum != stored.Checksum {
		err = fmt.Errorf("%s is damaged, or was changed by hand: it contains the checksum %.64q, and its fields have %q", store.path, stored.Checksum, sum)
	}
	return store, errors.Join(err, store.complete())
}

// MakeDataDir makes the data directory of a node for a later first start, so that Open needs no
// Init. It refuses a directory with any content.
func MakeDataDir(options Options) (err error) {
	options.Init = true
	lock, err := LockDataDir(options.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	store, err := readIdentity(options.DataDir)
	switch {
	case err == nil:
		return fmt.Errorf("%s already contains node %q of cluster %q: start this node", options.DataDir, store.id.Name, store.id.Cluster)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return store.create(options)
}

func (s *IdentityStore) create(o Options) error {
	if !o.Init {
		return fmt.Errorf("%s contains no node: for the first start of node %q, use --init, or run conductord node init; "+
			"if the node has run before, its disk is missing: do not replace it with an empty disk", o.DataDir, o.Name)
	}
	if err := checkEmpty(o.DataDir); err != nil {
		return err
	}
	s.id = Identity{
		Cluster: o.Cluster, Name: o.Name, Incarnation: transport.FirstIncarnation, Instance: uuid.New(), Generation: 1,
		LogStore: o.LogStore, Peers: map[raft.ServerID]uuid.UUID{}, Starts: 1, Members: RosterOf(o.Members),
	}
	return s.saveLocked()
}

// checkEmpty refuses a data directory with any content.
func checkEmpty(dataDir string) error {
	found, err := os.ReadDir(dataDir)
	if err != nil {
		return fmt.Errorf("cannot read the data directory: %w", err)
	}
	if slices.ContainsFunc(found, func(file fs.DirEntry) bool { return file.Name() == restoringFile }) {
		return fmt.Errorf("the restore of a backup into %s was interrupted: restore it again", dataDir)
	}
	if slices.ContainsFunc(found, func(file fs.DirEntry) bool { return file.Name() == joiningFile }) {
		return fmt.Errorf("the join of a node with the data directory %s was interrupted: join again", dataDir)
	}
	for _, file := range found {
		// A file system's own directory, and the remains of an interrupted first start, are not
		// data.
		if name := file.Name(); name != lostAndFound && name != lockFile && name != identityFile+temporarySuffix {
			return fmt.Errorf("cannot initialize a node in %s: the directory is not empty and has no %s (found %q)", dataDir, identityFile, name)
		}
	}
	return nil
}

func (s *IdentityStore) matches(o Options) error {
	if s.id.Name != o.Name {
		return fmt.Errorf("%s is the data directory of node %q, and this is node %q", o.DataDir, s.id.Name, o.Name)
	}
	if s.id.Cluster != o.Cluster {
		return fmt.Errorf("%s belongs to cluster %q, and the configuration has cluster %q", o.DataDir, s.id.Cluster, o.Cluster)
	}
	if s.id.LogStore != o.LogStore {
		return fmt.Errorf("%s keeps its raft log in %s, and the configuration has log_store = %q: change the configuration, or stop the node and run "+
			"\"conductord log-store convert --to %s --data-dir %s\"", o.DataDir, s.id.LogStore, o.LogStore, o.LogStore, o.DataDir)
	}
	return nil
}

// keepsItsWord refuses a new member list once the node has met a peer: that peer
// may have joined because this node had the same list.
func (s *IdentityStore) keepsItsWord(o Options) error {
	now := RosterOf(o.Members)
	if !s.id.Fresh() || maps.Equal(s.id.Members, now) {
		return nil
	}
	if len(s.id.Peers) == 0 {
		s.id.Members = now
		return nil
	}
	return fmt.Errorf("node %q has agreed with %q on the members %v, and its configuration now lists %v: restore cluster.members; "+
		"or, if this cluster has never worked, empty the data directories of all its nodes, and start each node with --init",
		s.id.Name, slices.Sorted(maps.Keys(s.id.Peers)), s.id.Members, now)
}

// complete refuses an identity that an editor or a newer program has changed.
func (s *IdentityStore) complete() error {
	if s.id.Incarnation == "" || s.id.Generation < 1 || s.id.Instance == uuid.Nil {
		return fmt.Errorf("%s is not complete: a node requires its incarnation, generation and instance", s.path)
	}
	if !slices.Contains(logstore.Kinds, s.id.LogStore) {
		return fmt.Errorf("%s contains the log store %.64q, which this program does not support", s.path, s.id.LogStore)
	}
	if s.id.Peers == nil {
		s.id.Peers = map[raft.ServerID]uuid.UUID{}
	}
	return nil
}

// Self is the part of the identity that other nodes receive.
func (s *IdentityStore) Self() transport.Hello {
	id := s.Get()
	return transport.Hello{
		Cluster: id.Cluster, Generation: id.Generation, Origin: id.Origin, Name: id.Name, Incarnation: id.Incarnation, Instance: id.Instance,
		Start: id.Starts, Peers: id.Peers,
	}
}

// Get returns a copy of the identity.
func (s *IdentityStore) Get() Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.id
	id.Peers = maps.Clone(id.Peers) // a copy, because it grows
	return id
}

// Change lets do change the identity, and saves it. do must not use the store.
func (s *IdentityStore) Change(do func(*Identity)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(&s.id)
	return s.saveLocked()
}

// SetBootstrapped records that raft's log or snapshots hold the state of the cluster.
func (s *IdentityStore) SetBootstrapped() error {
	return s.Change(func(id *Identity) { id.Bootstrapped = true })
}

// Meet remembers the instance of a peer at the first meeting, and later refuses another instance.
func (s *IdentityStore) Meet(peer raft.ServerID, instance uuid.UUID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, met := s.id.Peers[peer]
	if met && known != instance {
		return fmt.Errorf("node %q has lost its disk and was initialized again, or another node uses its name: "+
			"node %q knows instance %s, but the current instance is %s. To replace a node with a lost disk, run \"conductord cluster replace\" on its machine",
			peer, s.id.Name, known, instance)
	}
	if met {
		return nil
	}
	s.id.Peers[peer] = instance
	if err := s.saveLocked(); err != nil {
		delete(s.id.Peers, peer) // a peer is met only when the record is on disk
		return err
	}
	return nil
}

// saveLocked replaces the file in one step: after a crash, the old or the new file is present.
func (s *IdentityStore) saveLocked() error {
	sum, err := s.id.checksum()
	if err != nil {
		return fmt.Errorf("cannot encode the node's identity: %w", err)
	}
	data, err := json.MarshalIndent(storedIdentity{s.id, sum}, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode the node's identity: %w", err)
	}
	temporary := s.path + temporarySuffix
	if err := logstore.WriteSynced(temporary, append(data, '\n')); err != nil {
		return fmt.Errorf("cannot write the node's identity: %w", err)
	}
	if err := os.Rename(temporary, s.path); err != nil {
		return fmt.Errorf("cannot write the node's identity: %w", err)
	}
	return logstore.SyncPath(filepath.Dir(s.path))
}
