//go:build unix && !linux

package handler

import (
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

const (
	// openFlags do not block on a FIFO; checkFile then refuses it.
	openFlags   = os.O_RDONLY | syscall.O_NONBLOCK
	checksModes = true
)

// commandFor runs the file by its path: there is no portable way to run an opened file.
// Between the check and the start, only root and the daemon's own user can change the file.
func commandFor(_ *os.File, path string, pipes ...*os.File) *exec.Cmd {
	return &exec.Cmd{
		Path:        path,
		Args:        []string{path},
		ExtraFiles:  pipes,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
}

func trustedOwner(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}

func executable(mode fs.FileMode) bool { return mode.Perm()&0o111 != 0 }

// child reaps the process as soon as it ends: no portable call reports the end without
// reaping. The following kill may therefore, in theory, reach a new group with the same
// number.
type child struct{ err error }

func (c *child) await(command *exec.Cmd)      { c.err = command.Wait() }
func (c *child) reap(command *exec.Cmd) error { return c.err }

// signalGroup has nothing to report: a group that is gone needs no signal.
func signalGroup(leader int, signal syscall.Signal) { _ = syscall.Kill(-leader, signal) }

// sealDescriptors does nothing: this system has no call for all descriptors.
func sealDescriptors() {}
