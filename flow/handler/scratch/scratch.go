// Package scratch makes temporary directories that are recognisably abandoned when their process has died. A process
// holds a lock on each directory that it uses. The kernel releases the lock when the process ends, even by SIGKILL, and
// Sweep then removes the directory. Where directories cannot be locked, Sweep removes none.
package scratch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// makeTries limits how often Make can lose a new directory to a Sweep. This happens only if the
// Sweep comes in the microseconds before the directory is locked.
const makeTries = 10

// removeTime limits a removal, because a process that continuously creates files must not block the
// caller. Most directories take milliseconds.
const removeTime = time.Second

// ErrUnfinished: the content of a directory is not completely removed. The next Sweep removes the
// rest.
var ErrUnfinished = errors.New("it has too many files, or a process still creates files in it; the rest is removed later")

// Dir is a directory that this process holds.
type Dir struct {
	Path string
	lock *os.File // nil if directories cannot be locked
}

// Make makes a directory in parent (os.TempDir if empty), with a name that
// starts with prefix, and holds it.
func Make(parent, prefix string) (d *Dir, err error) {
	for range makeTries {
		path, fault := os.MkdirTemp(parent, prefix)
		if fault != nil {
			return nil, fault
		}
		if d, err = hold(path, onlyDirectory); err == nil {
			return d, nil
		}
		_ = os.Remove(path) // usually a Sweep has already removed it
	}
	return nil, err
}

// Hold holds a directory that exists. It fails if another process holds it.
func Hold(path string) (*Dir, error) { return hold(path, 0) }

func hold(path string, flags int) (*Dir, error) {
	lock, err := os.OpenFile(path, os.O_RDONLY|flags, 0)
	if err != nil {
		return nil, err
	}
	if err := tryLock(lock); errors.Is(err, syscall.EWOULDBLOCK) {
		_ = lock.Close() // nothing was written to it
		return nil, fmt.Errorf("another process uses %s", path)
	} else if err != nil { // no locks on this system; an open directory could not be removed on Windows
		_ = lock.Close()
		return &Dir{Path: path}, nil
	}
	if _, err := os.Stat(path); err != nil { // a Sweep has removed it meanwhile
		_ = lock.Close()
		return nil, err
	}
	return &Dir{path, lock}, nil
}

// Release releases the directory and leaves it where it is.
func (d *Dir) Release() { _ = d.lock.Close() }

// Remove removes the directory with everything in it, and holds the lock until the end: otherwise, another
// process could take the directory. It does not follow links. After removeTime it returns ErrUnfinished, and
// Sweep removes the rest.
func (d *Dir) Remove() error {
	defer d.Release()
	return remove(d.Path, time.Now().Add(removeTime))
}

// Sweep removes the directories in parent (os.TempDir if empty) that have the prefix and that no process holds. After
// removeTime it returns ErrUnfinished. Call it again to remove the rest.
func Sweep(parent, prefix string) error {
	if parent == "" {
		parent = os.TempDir()
	}
	until := time.Now().Add(removeTime)
	entries, err := os.ReadDir(parent)
	// A directory that grows continuously must not delay the removal of the others.
	rand.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		// A directory that cannot be locked is in use, has just disappeared, or belongs to
		// another user.
		if d, fault := hold(filepath.Join(parent, entry.Name()), onlyDirectory); fault == nil && d.lock != nil {
			err = errors.Join(err, remove(d.Path, until))
			d.Release()
		}
	}
	return err
}
