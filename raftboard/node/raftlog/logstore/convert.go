package logstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// A data directory holds one log store; the caller knows its kind. A conversion keeps other
// stores beside it for a while:
//
//	raft.db.new, raft-wal.new   a store that is being written: not valid yet
//	raft.db.old, raft-wal.old   the store from before the conversion
const (
	newSuffix = ".new"
	oldSuffix = ".old"
	// convertBytes is the size of one append of a copy: few fsyncs, little memory.
	convertBytes = 4 << 20
)

// Conversion converts the log in a data directory from one kind to another.
type Conversion struct {
	DataDir  string // the caller has locked it
	From, To Kind
	Logger   hclog.Logger
	// Commit records durably that To is the kind in use.
	Commit func() error
	// Step is called before each change on disk.
	Step func(what string)
}

// Converted is the result of a conversion.
type Converted struct {
	From, To    Kind
	First, Last uint64 // the entries; 0: none
	Kept        string // the old store, until DropOld; empty: no conversion was needed
}

// Run copies entries, term and votes into a new store beside the old store, reads everything back,
// puts the new store in place and calls Commit. It keeps the old store, see DropOld. If Run is
// interrupted at any point, the data directory opens with From before Commit and with To after
// Commit, and you can call Run again.
func (c Conversion) Run(ctx context.Context) (done Converted, err error) {
	done = Converted{From: c.From, To: c.To}
	c.Step("settle")
	if err := Settle(c.DataDir, c.From); err != nil || c.From == c.To {
		return done, err
	}
	target := Path(c.DataDir, c.To)
	if done.First, done.Last, err = c.copy(ctx, target+newSuffix); err != nil {
		return done, errors.Join(err, os.RemoveAll(target+newSuffix))
	}
	c.Step("rename the new store")
	if err := replace(target+newSuffix, target); err != nil {
		return done, err
	}
	c.Step("make it count")
	if err := c.Commit(); err != nil {
		return done, err
	}
	c.Step("set the old one aside")
	done.Kept = Path(c.DataDir, c.From) + oldSuffix
	return done, Settle(c.DataDir, c.To)
}

// Compaction is the result of a rewrite: the bytes of the store's file.
type Compaction struct{ Before, After int64 }

// Compact rewrites a bolt store without free pages, reads the copy back, and replaces the old
// store. Free pages come from a burst of entries or a slow follower. If Compact is interrupted at
// any point, the old store or the new store is in place. raft-wal removes its files by itself.
func (c Conversion) Compact(ctx context.Context) (done Compaction, err error) {
	if c.From != Bolt {
		return done, fmt.Errorf("the log store %s needs no compaction: it releases free space automatically", c.From)
	}
	c.Step("settle")
	if err := Settle(c.DataDir, c.From); err != nil {
		return done, err
	}
	c.To = c.From
	path := Path(c.DataDir, c.From)
	before, err := os.Stat(path)
	if err != nil {
		return done, fmt.Errorf("it has lost its raft log: %w", err)
	}
	if _, _, err := c.copy(ctx, path+newSuffix); err != nil {
		return done, errors.Join(err, os.RemoveAll(path+newSuffix))
	}
	c.Step("put it in the old one's place")
	if err := errors.Join(os.Rename(path+newSuffix, path), SyncPath(c.DataDir)); err != nil {
		return done, err
	}
	after, err := os.Stat(path)
	if err != nil {
		return done, err
	}
	return Compaction{before.Size(), after.Size()}, nil
}

// Settle cleans up after an interrupted conversion: it removes an unfinished store, and moves aside
// a store that is not of the current kind.
func Settle(dataDir string, inUse Kind) error {
	for _, kind := range Kinds {
		path := Path(dataDir, kind)
		if err := os.RemoveAll(path + newSuffix); err != nil {
			return fmt.Errorf("cannot remove the files of an interrupted conversion: %w", err)
		}
		if kind == inUse {
			continue
		}
		if err := replace(path, path+oldSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot rename the old log store: %w", err)
		}
	}
	return nil
}

// replace renames a file or directory durably, and removes a previous one with the new name.
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
	return SyncPath(filepath.Dir(to))
}

// DropOld removes the stores from before a conversion. Call it when the node has started
// successfully with the new one: from then on the old votes are outdated.
func DropOld(dataDir string) error {
	var faults []error
	for _, kind := range Kinds {
		faults = append(faults, os.RemoveAll(Path(dataDir, kind)+oldSuffix))
	}
	return errors.Join(faults...)
}

// copy writes a new store at a path and compares it with the old one.
func (c Conversion) copy(ctx context.Context, path string) (first, last uint64, err error) {
	if _, err := os.Stat(Path(c.DataDir, c.From)); err != nil {
		return 0, 0, fmt.Errorf("it has lost its raft log: %w", err)
	}
	// A fault of the old store is an error here, not a reason to end the process.
	source, err := Open(c.DataDir, c.From, Options{Logger: c.Logger, Fatal: func(error) {}})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	c.Step("begin the new store")
	err = c.withTarget(path, func(target Engine) error { return c.copyLog(ctx, source, target) })
	if err != nil {
		return 0, 0, err
	}
	c.Step("read it back")
	err = c.withTarget(path, func(target Engine) error {
		first, last, err = compareLogs(ctx, source, &Log{engine: target, dataDir: c.DataDir, fatal: func(error) {}})
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return first, last, syncTree(path)
}

func (c Conversion) withTarget(path string, use func(Engine) error) (err error) {
	engine, err := openEngine(c.To, path, c.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	return use(engine)
}

func (c Conversion) copyLog(ctx context.Context, source *Log, target Engine) error {
	c.Step("copy term and vote")
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
		c.Step("copy entries")
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
func eachEntry(ctx context.Context, log *Log, do func(*raft.Log) error) error {
	first, last, err := Bounds(log)
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

// compareLogs returns an error unless the copy has the same entries, term and vote.
func compareLogs(ctx context.Context, source, copied *Log) (first, last uint64, err error) {
	first, last, err = Bounds(source)
	if err != nil {
		return 0, 0, err
	}
	hasFirst, hasLast, err := Bounds(copied)
	if err == nil && (hasFirst != first || hasLast != last) {
		err = fmt.Errorf("the copy has entries %d to %d instead of %d to %d", hasFirst, hasLast, first, last)
	}
	if err != nil {
		return 0, 0, err
	}
	want, err := source.engine.Get(termsKey)
	has, copyErr := copied.engine.Get(termsKey)
	if err := errors.Join(err, copyErr); err != nil || !bytes.Equal(has, want) {
		return 0, 0, errors.Join(err, fmt.Errorf("the copy has term and vote %q instead of %q", has, want))
	}
	return first, last, eachEntry(ctx, source, func(entry *raft.Log) error {
		var other raft.Log
		if err := copied.GetLog(entry.Index, &other); err != nil {
			return fmt.Errorf("entry %d of the copy: %w", entry.Index, err)
		}
		if other.Term != entry.Term || other.Type != entry.Type || !bytes.Equal(other.Data, entry.Data) {
			return fmt.Errorf("entry %d of the copy differs", entry.Index)
		}
		return nil
	})
}

// syncTree makes a file, or a directory with its files, durable.
func syncTree(path string) error {
	return filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return SyncPath(path)
	})
}

// SyncPath makes a file, or the names in a directory, durable.
func SyncPath(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// WriteSynced writes a file durably.
func WriteSynced(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
