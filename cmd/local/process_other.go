//go:build !linux

package local

import (
	"os"
	"os/exec"
	"syscall"
)

// processAttributes are empty: on this system, the processes of a killed program keep running.
func processAttributes(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// PauseSignals returns no signals: this system has none.
func PauseSignals() (stop, goOn os.Signal, can bool) { return nil, nil, false }

// launcher starts processes.
type launcher struct{}

func newLauncher() *launcher { return &launcher{} }

func (*launcher) start(command *exec.Cmd) error { return command.Start() }

func (*launcher) close() {}
