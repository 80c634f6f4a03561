package handler

import (
	"os/exec"
	"sync"

	"github.com/conductord/conductord/flow/handler/guardian"
)

// children are the processes that a set has started and not yet waited for. They do not include
// orphans that the kernel makes children of this process.
type children struct {
	// starting is read-locked while a process starts and is noted, and write-locked during a
	// search for orphans. Otherwise a process that ends before it is noted would look like an
	// orphan.
	starting sync.RWMutex
	pids     sync.Map      // of int
	removed  chan struct{} // a process has been removed; with a buffer of one
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

// Run runs a command that is not a handler, like the command's own Run. Use it while ReapOrphans
// runs, which can take the exit status of other commands.
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
