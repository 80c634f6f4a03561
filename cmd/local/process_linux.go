package local

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// processAttributes makes a process die with the thread that started it, and therefore with any end
// of this program.
func processAttributes(detached bool) *syscall.SysProcAttr {
	if detached {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// PauseSignals returns the signals that stop and continue a process, if the system has them.
func PauseSignals() (stop, goOn os.Signal, can bool) { return syscall.SIGSTOP, syscall.SIGCONT, true }

// launcher starts processes from one locked thread. Go can end any other thread at any time, and
// the kernel would then kill the processes that the thread started.
type launcher struct {
	queue   chan *exec.Cmd
	results chan error
}

// newLauncher starts the launcher's goroutine; it ends with close.
func newLauncher() *launcher {
	l := &launcher{queue: make(chan *exec.Cmd), results: make(chan error)}
	go func() {
		runtime.LockOSThread()
		for command := range l.queue {
			l.results <- command.Start()
		}
	}()
	return l
}

func (l *launcher) start(command *exec.Cmd) error {
	l.queue <- command
	return <-l.results
}

func (l *launcher) close() { close(l.queue) }
