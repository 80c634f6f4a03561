package cluster_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/test/cluster"
)

// disk is a layer between a node and its log that can inject faults. An acknowledged write of
// the log is synced, so a copy of the directory between two writes equals the log after a
// power loss.
type disk struct {
	mu     sync.Mutex // held by each write, and while the directory is copied
	fault  cluster.DiskFault
	mended chan struct{} // closed when the fault ends
	failed bool          // a write has failed
}

func newDisk() *disk { return &disk{mended: make(chan struct{})} }

func (d *disk) set(fault cluster.DiskFault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
	close(d.mended)
	d.mended = make(chan struct{})
}

// slowSync is the time of a write on a slow disk.
const slowSync = 200 * time.Millisecond

// write makes a write with the current fault of the disk.
func (d *disk) write(do func() error) error {
	d.mu.Lock()
	for d.fault == cluster.DiskHang || d.fault == cluster.DiskSlow {
		mended, slow := d.mended, d.fault == cluster.DiskSlow
		d.mu.Unlock()
		if slow {
			time.Sleep(slowSync)
			d.mu.Lock()
			break
		}
		<-mended
		d.mu.Lock()
	}
	defer d.mu.Unlock()
	failures := map[cluster.DiskFault]error{cluster.DiskFail: syscall.EIO, cluster.DiskFull: syscall.ENOSPC}
	err := failures[d.fault]
	if err == nil {
		return do()
	}
	if d.failed && !opening() {
		runtime.Goexit() // the first failure has ended the node
	}
	d.failed = true
	return err
}

// engine is a log on a disk.
type engine struct {
	logstore.Engine
	disk *disk
}

func (e *engine) StoreLog(log *raft.Log) error {
	return e.disk.write(func() error { return e.Engine.StoreLog(log) })
}
func (e *engine) StoreLogs(logs []*raft.Log) error {
	return e.disk.write(func() error { return e.Engine.StoreLogs(logs) })
}
func (e *engine) DeleteRange(first, last uint64) error {
	return e.disk.write(func() error { return e.Engine.DeleteRange(first, last) })
}
func (e *engine) Set(key, value []byte) error {
	return e.disk.write(func() error { return e.Engine.Set(key, value) })
}
func (e *engine) SetUint64(key []byte, value uint64) error {
	return e.disk.write(func() error { return e.Engine.SetUint64(key, value) })
}

// copyTo copies a data directory between two writes of the log. Other files are copied as they
// are at some moment, as SIGKILL leaves them; with powerless, unsynced files are truncated.
func (d *disk) copyTo(from, to string, powerless bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // renamed or removed meanwhile
		}
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if entry.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if powerless && (entry.Name() == "state.db" || strings.Contains(path, ".tmp")) {
			content = content[:len(content)/3]
		}
		return os.WriteFile(target, content, 0o600)
	})
}
