package handler

import (
	"os/exec"
	"sync"

	"github.com/conductord/conductord/flow/handler/guardian"
)

// children are the processes that a set has started and not yet waited for, and
// not the orphans that the kernel makes children of this process.
type children struct {
	// starting is held to read while a process is started and noted, and to
	// write while an orphan is looked for: a process that ends before it is
	// noted would pass for an orphan.
	starting sync.RWMutex
	pids     sync.Map      // of int
	removed  chan struct{} // a process has been removed; holds one
	guardian *guardian.Guardian
}

func (c *children) start(command *exec.Cmd, start func() error) error {
	c.starting.RLock()
	defer c.starting.RUnlock()
	err := start()
	if err == nil {
		c.pids.Store(command.Process.Pid, nil)
	}
	return err
}

// Run runs a command that is no handler, like the command's own Run. While ReapOrphans runs, it
// can take the exit status of other commands.
func (s *Set) Run(command *exec.Cmd) error {
	if err := s.children.start(command, command.Start); err != nil {
		return err
	}
	defer s.children.remove(command)
	return command.Wait()
}

// remove is called when the process has been waited for.
func (c *children) remove(command *exec.Cmd) {
	c.pids.Delete(command.Process.Pid)
	select {
	case c.removed <- struct{}{}:
	default:
	}
}
