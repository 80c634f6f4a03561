//go:build !linux

package handler

import (
	"errors"
	"os"
	"os/exec"
)

const confines = false

func mayLimitOthers() bool { return false }

func (c *confined) start(command *exec.Cmd, _ *os.File) error { return command.Start() }

func ownCgroup() (string, error)                        { return "", errors.ErrUnsupported }
func makeCgroups(string, bool, bool) (string, error)    { return "", errors.ErrUnsupported }
func (c *confined) makeCgroup(string) (*os.File, error) { return nil, nil }
func killCgroups(string)                                {}
func (c *children) killAdopted(string)                  {}
