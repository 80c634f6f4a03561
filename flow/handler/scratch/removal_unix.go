//go:build unix

package scratch

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// onlyDirectory opens a directory and nothing else: no link to a directory, and no pipe, which
// would block.
const onlyDirectory = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK

// batch is the number of names read from a directory in one call.
const batch = 1024

// removal empties a directory whose content hostile processes can change meanwhile. It names entries only by the
// descriptor of their directory, so links cannot redirect it. The content of a subdirectory moves up to the top before
// the subdirectory is removed: two descriptors are enough for any depth.
type removal struct {
	path  string
	top   *os.File
	until time.Time
	done  int // entries that were removed or moved
}

// remove removes a directory with everything in it.
func remove(path string, until time.Time) error {
	r, err := removal{path: path, until: until}, error(nil)
	if r.top, err = r.open(unix.AT_FDCWD, path, "."); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	defer r.top.Close()
	for before := -1; before < r.done || errors.Is(err, unix.ENOTEMPTY); {
		before = r.done
		if err = r.each(r.top, r.empty); err == nil {
			err = os.Remove(path)
		}
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if errors.Is(err, ErrUnfinished) {
			break
		}
	}
	return fmt.Errorf("cannot remove all of %s: %w", path, err)
}

// each removes the entries of a directory, and calls otherwise for entries that cannot be removed directly.
func (r *removal) each(directory *os.File, otherwise func(name string) error) (fault error) {
	if _, err := directory.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for {
		if time.Now().After(r.until) {
			return ErrUnfinished
		}
		names, end := directory.Readdirnames(batch)
		for _, name := range names {
			if time.Now().After(r.until) {
				return ErrUnfinished
			}
			err := unlink(directory, name)
			if err != nil {
				err = otherwise(name)
			}
			switch {
			case err == nil, errors.Is(err, unix.ENOENT): // another Sweep may have removed it
				r.done++
			case errors.Is(err, ErrUnfinished):
				return err
			case fault == nil:
				fault = fmt.Errorf("%q: %w", name, err)
			}
		}
		if errors.Is(end, io.EOF) {
			return fault
		} else if end != nil {
			return end
		}
	}
}

// unlink removes a file, a link or an empty directory.
func unlink(directory *os.File, name string) error {
	at := int(directory.Fd())
	err := unix.Unlinkat(at, name, 0)
	if err == nil {
		return nil
	}
	if fault := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); !errors.Is(fault, unix.ENOTDIR) {
		return fault
	}
	return err
}

// empty removes a directory at the top, and moves the directories in it to the top.
func (r *removal) empty(name string) error {
	directory, err := r.open(int(r.top.Fd()), name, name)
	if err != nil {
		return err
	}
	defer directory.Close()
	err = r.each(directory, func(child string) error {
		from, to := int(directory.Fd()), fmt.Sprintf("%016x", rand.Uint64())
		err := unix.Renameat(from, child, int(r.top.Fd()), to)
		if errors.Is(err, unix.EACCES) {
			r.unlock(filepath.Join(name, child))
			err = unix.Renameat(from, child, int(r.top.Fd()), to)
		}
		return err
	})
	if err != nil {
		return err
	}
	return unlink(r.top, name)
}

// open opens a directory and makes this process's user its owner. The former owner can then add nothing to
// it, even through open descriptors. within is the directory's path below the top.
func (r *removal) open(at int, name, within string) (*os.File, error) {
	number, err := unix.Openat(at, name, onlyDirectory|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) {
		r.unlock(within)
		number, err = unix.Openat(at, name, onlyDirectory|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, err
	}
	directory := os.NewFile(uintptr(number), name)
	_ = directory.Chown(os.Geteuid(), -1) // only root can
	_ = directory.Chmod(0o700)
	return directory, nil
}

// unlock gives this process's user access to a directory that the same user has closed. Root needs none.
func (r *removal) unlock(within string) {
	if os.Geteuid() == 0 {
		return
	}
	parent, base := filepath.Split(filepath.Clean(r.path))
	root, err := os.OpenRoot(filepath.Clean(parent))
	if err != nil {
		return
	}
	defer root.Close()
	_ = root.Chmod(filepath.Join(base, within), 0o700)
}
