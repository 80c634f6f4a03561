package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// A data directory holds one log store, and node.json says which. Beside it
// there may be what a change from one store to another leaves for a while:
//
//	raft.db.new, raft-wal.new   a store that is being written; worth nothing
//	raft.db.old, raft-wal.old   the store from before the change
const (
	newSuffix = ".new"
	oldSuffix = ".old"
	// convertBytes is how much is copied in one append: few fsyncs, little memory.
	convertBytes = 4 << 20
)

// raft's keys in the stable store, as the checks at the start ask for them.
var (
	currentTermKey  = []byte("CurrentTerm")
	lastVoteTermKey = []byte("LastVoteTerm")
)

func logPath(dataDir string, kind LogStore) string {
	if kind == LogStoreWAL {
		return filepath.Join(dataDir, walDir)
	}
	return filepath.Join(dataDir, boltFile)
}

// Conversion tells what ConvertLog has done.
type Conversion struct {
	From, To    LogStore
	First, Last uint64 // the entries; 0: none
	Kept        string // the old store, until the node's next good start; empty: nothing was to be done
}

// ConvertLog changes the data directory of a stopped node over to another log
// store. It copies entries, term and votes into a new store beside the old
// one, reads all of it back, and makes the new one count by replacing
// node.json; the old one is kept aside until the node has started well. Cut
// off at any moment, it leaves a node that starts with the old store or with
// the new one, and it can be said again. A node that runs is refused, and one
// that has the store already is left as it is.
func ConvertLog(ctx context.Context, dataDir string, to LogStore, logger hclog.Logger) (Conversion, error) {
	done, err := convertLog(ctx, dataDir, to, logger, func(string) {})
	if err != nil {
		return done, fmt.Errorf("cannot change the log store of %s over to %s: %w", dataDir, to, err)
	}
	return done, nil
}

// convertLog tells step before each thing that lasts.
func convertLog(ctx context.Context, dataDir string, to LogStore, logger hclog.Logger, step func(string)) (done Conversion, err error) {
	if !slices.Contains(LogStores, to) {
		return done, fmt.Errorf("there is no log store %.64q, but %v", to, LogStores)
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
	done = Conversion{From: identity.id.LogStore, To: to}
	step("settle")
	if err := settleStores(dataDir, done.From); err != nil || done.From == to {
		return done, err
	}
	if done.First, done.Last, err = copyStore(ctx, dataDir, done.From, to, logger, step); err != nil {
		return done, errors.Join(err, os.RemoveAll(logPath(dataDir, to)+newSuffix))
	}
	step("rename the new store")
	if err := replace(logPath(dataDir, to)+newSuffix, logPath(dataDir, to)); err != nil {
		return done, err
	}
	step("make it count")
	if err := identity.setLogStore(to); err != nil {
		return done, err
	}
	step("set the old one aside")
	done.Kept = logPath(dataDir, done.From) + oldSuffix
	return done, settleStores(dataDir, to)
}

// settleStores finishes what a conversion that was cut off has left: a store
// that was being written goes, and one that does not count is set aside.
func settleStores(dataDir string, counts LogStore) error {
	for _, kind := range LogStores {
		path := logPath(dataDir, kind)
		if err := os.RemoveAll(path + newSuffix); err != nil {
			return fmt.Errorf("cannot remove what is left of a conversion: %w", err)
		}
		if kind == counts {
			continue
		}
		if err := replace(path, path+oldSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot set the old log store aside: %w", err)
		}
	}
	return nil
}

// replace renames a file or directory, in the place of another, durably.
func replace(from, to string) error {
	if _, err := os.Lstat(from); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// dropOldStore removes the store from before a conversion when this node has
// started well with the new one: from now on its votes are too old.
func (n *Node) dropOldStore() {
	if !n.caughtUp.Load() {
		return
	}
	for _, kind := range LogStores {
		if err := os.RemoveAll(logPath(n.options.DataDir, kind) + oldSuffix); err != nil {
			n.logger.Warn("cannot remove the old log store", "error", err)
		}
	}
}

// copyStore writes a new store beside the one that counts, and compares.
func copyStore(ctx context.Context, dataDir string, from, to LogStore, logger hclog.Logger, step func(string)) (first, last uint64, err error) {
	if _, err := os.Stat(logPath(dataDir, from)); err != nil {
		return 0, 0, fmt.Errorf("it has lost its raft log: %w", err)
	}
	// A fault of the old store is an error here, and no reason to end the process.
	source, err := openLog(dataDir, from, logger, func(error) {})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	path := logPath(dataDir, to) + newSuffix
	step("begin the new store")
	err = withEngine(to, path, logger, func(target logEngine) error { return copyLog(ctx, source, target, step) })
	if err != nil {
		return 0, 0, err
	}
	step("read it back")
	err = withEngine(to, path, logger, func(target logEngine) error {
		first, last, err = compareLogs(ctx, source, &guardedLog{engine: target, dataDir: dataDir, fatal: func(error) {}})
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return first, last, syncTree(path)
}

func withEngine(kind LogStore, path string, logger hclog.Logger, use func(logEngine) error) (err error) {
	engine, err := openEngine(kind, path, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	return use(engine)
}

func copyLog(ctx context.Context, source *guardedLog, target logEngine, step func(string)) error {
	step("copy term and vote")
	record, err := source.engine.Get(termsKey)
	if err == nil && record != nil {
		err = target.Set(termsKey, record)
	}
	if err != nil {
		return err
	}
	var batch []*raft.Log
	bytes := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		step("copy entries")
		err := target.StoreLogs(batch)
		batch, bytes = nil, 0
		return err
	}
	err = eachEntry(ctx, source, func(entry *raft.Log) error {
		batch = append(batch, entry)
		if bytes += len(entry.Data); bytes < convertBytes && len(batch) < markEvery {
			return nil
		}
		return flush()
	})
	return errors.Join(err, flush())
}

// eachEntry reads and verifies all entries of a log, in order.
func eachEntry(ctx context.Context, log *guardedLog, do func(*raft.Log) error) error {
	first, last, err := bounds(log)
	if err != nil || last == 0 {
		return err
	}
	for index := first; index <= last; index++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		entry := &raft.Log{}
		if err := log.GetLog(index, entry); err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
		if err := do(entry); err != nil {
			return err
		}
	}
	return nil
}

func bounds(log raft.LogStore) (first, last uint64, err error) {
	if first, err = log.FirstIndex(); err != nil {
		return 0, 0, err
	}
	last, err = log.LastIndex()
	return first, last, err
}

// compareLogs refuses a copy that is not the same in all that raft goes by.
func compareLogs(ctx context.Context, source, copied *guardedLog) (first, last uint64, err error) {
	first, last, err = bounds(source)
	if err != nil {
		return 0, 0, err
	}
	hasFirst, hasLast, err := bounds(copied)
	if err == nil && (hasFirst != first || hasLast != last) {
		err = fmt.Errorf("the copy has entries %d to %d, and should have %d to %d", hasFirst, hasLast, first, last)
	}
	if err != nil {
		return 0, 0, err
	}
	want, err := source.engine.Get(termsKey)
	has, copyErr := copied.engine.Get(termsKey)
	if err := errors.Join(err, copyErr); err != nil || !bytes.Equal(has, want) {
		return 0, 0, errors.Join(err, fmt.Errorf("the copy has term and vote %q, and should have %q", has, want))
	}
	return first, last, eachEntry(ctx, source, func(entry *raft.Log) error {
		var other raft.Log
		if err := copied.GetLog(entry.Index, &other); err != nil {
			return fmt.Errorf("entry %d of the copy: %w", entry.Index, err)
		}
		if other.Term != entry.Term || other.Type != entry.Type || !bytes.Equal(other.Data, entry.Data) {
			return fmt.Errorf("entry %d of the copy is another", entry.Index)
		}
		return nil
	})
}

// syncTree makes a file, or a directory with its files, last.
func syncTree(path string) error {
	return filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncDir(path) // works for files too
	})
}
