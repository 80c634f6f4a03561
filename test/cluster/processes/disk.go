//go:build linux

package processes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"
)

// diskBytes is the size of a node's file system: small enough to fill it at once, and large
// enough for the state and log of an hour of chaos.
const diskBytes = 1 << 30

// disk is an ext4 file system in a file, mounted at a node's data directory.
type disk struct {
	image, mount string
}

func newDisk(image, mount string) (*disk, error) {
	file, err := os.Create(image)
	if err != nil {
		return nil, err
	}
	err = errors.Join(file.Truncate(diskBytes), file.Close(), os.MkdirAll(mount, 0o700))
	if err != nil {
		return nil, err
	}
	d := &disk{image: image, mount: mount}
	// No block is kept back for root: a full disk is full for the daemon too.
	if err := runAll("mkfs.ext4 -q -F -m 0 " + image); err != nil {
		return nil, err
	}
	if err := d.attach(); err != nil {
		return nil, err
	}
	// The daemon wants an empty directory for its first start.
	return d, errors.Join(os.Remove(filepath.Join(mount, "lost+found")), os.Chmod(mount, 0o700))
}

func (d *disk) attach() error { return runAll("mount -o loop " + d.image + " " + d.mount) }

func (d *disk) detach() error { return runAll("umount " + d.mount) }

// lose stops the file system as a power cut does: writes that were not synced are lost, also
// those in its journal in memory. Processes that use the file system get I/O errors: end them,
// and then call renew.
func (d *disk) lose() error {
	dir, err := os.Open(d.mount)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	const shutdown, withoutFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	how := uint32(withoutFlush)
	if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, dir.Fd(), shutdown, uintptr(unsafe.Pointer(&how))); failed != 0 {
		return fmt.Errorf("cannot cut the power of %s: %w", d.mount, failed)
	}
	return nil
}

// renew brings the file system back after lose; mounting it replays its journal.
func (d *disk) renew() error {
	if err := d.detach(); err != nil {
		return err
	}
	return d.attach()
}

func (d *disk) filler() string { return filepath.Join(d.mount, "filler") }

// fill leaves no block free.
func (d *disk) fill() error {
	file, err := os.Create(d.filler())
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for size, block := int64(0), int64(64<<20); block >= 512; {
		err := syscall.Fallocate(int(file.Fd()), 0, size, block)
		switch {
		case err == nil:
			size += block
		case errors.Is(err, syscall.ENOSPC):
			block /= 2
		case !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("cannot fill %s: %w", d.mount, err)
		}
	}
	return nil
}

func (d *disk) free() error {
	if err := os.Remove(d.filler()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
