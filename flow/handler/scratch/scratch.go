// Package scratch makes temporary directories that can be recognised as
// abandoned. A process holds a lock on each directory that it uses. The kernel
// releases the lock when the process ends, also by SIGKILL, and Sweep then
// removes the directory. Where directories cannot be locked, Sweep removes none.
package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// makeTries bounds how often Make loses a new directory to a Sweep, which must
// come in the microseconds before the directory is locked.
const makeTries = 10

// Dir is a directory that this process holds.
type Dir struct {
	Path string
	lock *os.File // nil where directories cannot be locked
}

// Make makes a directory in parent (os.TempDir if empty), with a name that
// begins with prefix, and holds it.
func Make(parent, prefix string) (d *Dir, err error) {
	for range makeTries {
		path, fault := os.MkdirTemp(parent, prefix)
		if fault != nil {
			return nil, fault
		}
		if d, err = Hold(path); err == nil {
			return d, nil
		}
		_ = os.Remove(path) // most likely a Sweep has done so
	}
	return nil, err
}

// Hold holds a directory that exists. It fails if another process holds it.
func Hold(path string) (*Dir, error) {
	lock, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := tryLock(lock); errors.Is(err, syscall.EWOULDBLOCK) {
		_ = lock.Close() // nothing was written to it
		return nil, fmt.Errorf("another process uses %s", path)
	} else if err != nil { // there are no locks here; open, it could not be removed on Windows
		_ = lock.Close()
		return &Dir{Path: path}, nil
	}
	if _, err := os.Stat(path); err != nil { // a Sweep had it, and has removed it
		_ = lock.Close()
		return nil, err
	}
	return &Dir{path, lock}, nil
}

// Release gives the directory up and leaves it where it is.
func (d *Dir) Release() { _ = d.lock.Close() }

// Remove removes the directory with everything in it. It holds it until then:
// another process could take it in between.
func (d *Dir) Remove() error {
	defer d.Release()
	err := os.RemoveAll(d.Path)
	if err == nil {
		return nil
	}
	// Somebody may have taken their own permissions away.
	_ = filepath.WalkDir(d.Path, func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(d.Path)
}

// Sweep removes the directories in parent (os.TempDir if empty) that have the
// prefix and that no process holds.
func Sweep(parent, prefix string) error {
	if parent == "" {
		parent = os.TempDir()
	}
	entries, err := os.ReadDir(parent)
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		// One that cannot be held is used, has just gone, or is another user's.
		if d, fault := Hold(filepath.Join(parent, entry.Name())); fault == nil && d.lock != nil {
			err = errors.Join(err, d.Remove())
		}
	}
	return err
}
