package membership

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// A node joins a running cluster in these steps. Join chooses a random instance, asks the leader to
// add the node as a member without a vote, and writes the node's identity. When the node starts,
// the leader connects and sends the state. The node then asks for its vote.

// joiningFile marks a data directory with an unfinished join. It contains the instance, so an
// interrupted join can be repeated.
const joiningFile = "join.incomplete"

// Join sets how a node joins a cluster.
type Join struct {
	NonVoter bool   // the node never asks for a vote
	Replaces string // name of the replaced member, which can be its own name; empty: none
}

// Admission is the answer of the cluster that a node joins.
type Admission struct {
	Generation uint64
	Origin     string
	Founders   []transport.Member // with which the cluster started
	Members    []transport.Member // current members; empty: unknown
}

// JoinCluster makes the data directory of a node that joins a cluster: the options' own member. The
// directory must be empty, or contain the remains of an interrupted join. ask requests that the
// cluster adds the node with this instance as a member; a repeat is harmless.
func JoinCluster(options Options, how Join, ask func(self transport.Member, instance uuid.UUID) (Admission, error)) error {
	if err := joinCluster(options, how, ask); err != nil {
		return fmt.Errorf("cannot join with the data directory %s: %w", options.DataDir, err)
	}
	return nil
}

func joinCluster(options Options, how Join, ask func(self transport.Member, instance uuid.UUID) (Admission, error)) (err error) {
	lock, err := LockDataDir(options.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	instance, again, err := drawInstance(options.DataDir)
	if err != nil {
		return err
	}
	self := options.self()
	self.Incarnation = transport.IncarnationOf(instance)
	admission, err := ask(self, instance)
	if err != nil && !again && !errors.Is(err, jobs.ErrUncertain) { // the node is not a member
		return errors.Join(err, os.Remove(filepath.Join(options.DataDir, joiningFile)))
	}
	if err != nil {
		return err
	}
	var now []raft.Server
	for _, member := range admission.Members {
		now = append(now, raft.Server{ID: member.ID(), Address: member.Address()})
	}
	store := &IdentityStore{path: filepath.Join(options.DataDir, identityFile), id: Identity{
		Cluster: options.Cluster, Name: self.Name, Incarnation: self.Incarnation, Instance: instance,
		Generation: admission.Generation, Origin: admission.Origin, LogStore: options.LogStore, Peers: map[raft.ServerID]uuid.UUID{},
		Members: RosterOf(admission.Founders), Joining: &joining{Vote: !how.NonVoter, Replaces: how.Replaces, Members: now},
	}}
	if err := store.saveLocked(); err != nil {
		return err
	}
	return os.Remove(filepath.Join(options.DataDir, joiningFile))
}

// drawInstance chooses the random instance of a joining node and stores it, or reads the instance
// that an interrupted join has stored.
func drawInstance(dataDir string) (instance uuid.UUID, again bool, err error) {
	path := filepath.Join(dataDir, joiningFile)
	if _, err := os.Stat(filepath.Join(dataDir, identityFile)); err == nil {
		return uuid.Nil, false, errors.New("it contains a node: start this node, or join with an empty directory")
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = checkEmpty(dataDir)
	}
	if err != nil {
		return uuid.Nil, false, err
	}
	if instance, err := uuid.ParseBytes(text); err == nil {
		return instance, true, nil
	}
	instance = uuid.New()
	if err := logstore.WriteSynced(path, []byte(instance.String())); err != nil {
		return uuid.Nil, false, err
	}
	return instance, false, logstore.SyncPath(dataDir)
}
