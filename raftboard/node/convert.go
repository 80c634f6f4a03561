package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/raftboard/node/logstore"
)

// ConvertLog changes the data directory of a stopped node to another kind of log
// store: see logstore.Conversion. node.json says which kind is in use; the old
// store is kept until the node has started with the new one. Stopped at any moment,
// it leaves a node that starts with one of the two, and it may be called again. A
// node that runs is refused, and one that has the store already is left as it is.
func ConvertLog(ctx context.Context, dataDir string, to logstore.Kind, logger hclog.Logger) (logstore.Converted, error) {
	done, err := convertLog(ctx, dataDir, to, logger, func(string) {})
	if err != nil {
		return done, fmt.Errorf("cannot change the log store of %s over to %s: %w", dataDir, to, err)
	}
	return done, nil
}

// convertLog calls step before each change on disk.
func convertLog(ctx context.Context, dataDir string, to logstore.Kind, logger hclog.Logger, step func(string)) (done logstore.Converted, err error) {
	if !slices.Contains(logstore.Kinds, to) {
		return done, fmt.Errorf("there is no log store %.64q, but %v", to, logstore.Kinds)
	}
	if _, err := os.Stat(filepath.Join(dataDir, identityFile)); err != nil {
		return done, fmt.Errorf("it is not the data directory of a node: %w", err)
	}
	lock, err := lockDataDir(dataDir)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	identity, err := readIdentity(dataDir)
	if err != nil {
		return done, err
	}
	return logstore.Conversion{
		DataDir: dataDir, From: identity.id.LogStore, To: to, Logger: logger, Step: step,
		Commit: func() error { return identity.setLogStore(to) },
	}.Run(ctx)
}
