package membership

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
)

// ConvertLog converts the data directory of a stopped node to another log store: see
// logstore.Conversion. node.json names the store in use. The old store remains until the node has
// started with the new store. If ConvertLog is interrupted at any point, the node starts with one
// of the two stores, and you can call ConvertLog again. It refuses a running node, and does not
// change a node that already has the store. It calls step before each change on disk.
func ConvertLog(ctx context.Context, dataDir string, to logstore.Kind, logger hclog.Logger, step func(string)) (done logstore.Converted, err error) {
	err = withStopped(dataDir, func(store *IdentityStore) error {
		if !slices.Contains(logstore.Kinds, to) {
			return fmt.Errorf("there is no log store %.64q; the log stores are %v", to, logstore.Kinds)
		}
		done, err = logstore.Conversion{
			DataDir: dataDir, From: store.id.LogStore, To: to, Logger: logger, Step: step,
			Commit: func() error { return store.Change(func(id *Identity) { id.LogStore = to }) },
		}.Run(ctx)
		return err
	})
	if err != nil {
		err = fmt.Errorf("cannot convert the log store of %s to %s: %w", dataDir, to, err)
	}
	return done, err
}

// CompactLog shrinks the file of a stopped node's raft log: see logstore.Conversion.Compact.
// step is called before each change on disk.
func CompactLog(ctx context.Context, dataDir string, logger hclog.Logger, step func(string)) (done logstore.Compaction, err error) {
	err = withStopped(dataDir, func(store *IdentityStore) error {
		done, err = logstore.Conversion{DataDir: dataDir, From: store.id.LogStore, Logger: logger, Step: step}.Compact(ctx)
		return err
	})
	if err != nil {
		err = fmt.Errorf("cannot compact the raft log of %s: %w", dataDir, err)
	}
	return done, err
}

// withStopped calls do with the data directory of a stopped node.
func withStopped(dataDir string, use func(*IdentityStore) error) (err error) {
	file, err := os.Stat(filepath.Join(dataDir, identityFile))
	if err != nil {
		return fmt.Errorf("it is not the data directory of a node: %w", err)
	}
	if err := checkOwner(dataDir, file); err != nil {
		return err
	}
	lock, err := LockDataDir(dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	identity, err := readIdentity(dataDir)
	if err != nil {
		return err
	}
	return use(identity)
}
