//go:build !unix

package handler

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

const (
	openFlags   = os.O_RDONLY
	checksModes = false
)

// errPlatform: without process groups a handler could not be stopped reliably.
var errPlatform = errors.New("handlers run on Unix only")

func commandFor(_ *os.File, path string, _ ...*os.File) *exec.Cmd {
	return &exec.Cmd{Path: path, Args: []string{path}, Err: errPlatform}
}

func trustedOwner(fs.FileInfo) bool    { return true }
func executable(mode fs.FileMode) bool { return mode.IsRegular() }

type child struct{}

func (child) await(*exec.Cmd)      {}
func (child) reap(*exec.Cmd) error { return errPlatform }

func signalGroup(int, syscall.Signal) {}

// sealDescriptors does nothing: this system has no call for all descriptors.
func sealDescriptors() {}
