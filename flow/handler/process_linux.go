package handler

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// openFlags do not block on a FIFO; checkFile then refuses it.
	openFlags   = os.O_RDONLY | syscall.O_NONBLOCK
	checksModes = true
)

// executed is the path of the opened file in the new process: the third of exec.Cmd's
// ExtraFiles, after the pipes of the progress and of its answers. An interpreter opens the path by itself, so the
// file must stay open across exec. The handler inherits one read-only descriptor of its own
// executable.
const executed = "/proc/self/fd/5"

func commandFor(file *os.File, path string, pipes ...*os.File) *exec.Cmd {
	return &exec.Cmd{
		Path:        executed,
		Args:        []string{path},
		ExtraFiles:  append(pipes, file),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
}

func trustedOwner(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}

func executable(mode fs.FileMode) bool { return mode.Perm()&0o111 != 0 }

// child waits for a process in two steps: it learns of the end first, and releases the process
// id only when the group has been killed.
type child struct{}

func (child) await(command *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, command.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (child) reap(command *exec.Cmd) error { return command.Wait() }

// signalGroup has nothing to report: a group that is gone needs no signal.
func signalGroup(leader int, signal syscall.Signal) { _ = syscall.Kill(-leader, signal) }

// sealDescriptors keeps the daemon's inherited descriptors, such as the pipe of a supervisor,
// from handlers: Go opens files as close-on-exec, but inherited descriptors are not. Kernels before
// 5.11 lack the call; there the descriptors leak, as from most programs.
func sealDescriptors() {
	const first = 3
	_ = unix.CloseRange(first, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
}
