package handler

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReapOrphans makes this process the parent of everything that handlers leave behind, even outside
// their process groups. It waits for the end of each such process, so no zombies remain. It returns
// when ctx ends. Call it once, and only in a program that starts all its processes with this set,
// by handlers and Run: it takes the exit status of every other child.
func (s *Set) ReapOrphans(ctx context.Context) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become the parent of orphaned processes: %w", err)
	}
	ended := make(chan os.Signal, 1) // one signal is enough for several orphans, because every look finds all
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		for s.children.reapOrphan() {
		}
		select {
		case <-ended:
		case <-s.children.removed:
		case <-ctx.Done():
			return nil
		}
	}
}

// reapOrphan waits for one orphan that has ended, if there is one. A child of our own that has
// ended can hide orphans. The search after the removal of that child finds them.
func (c *children) reapOrphan() bool {
	c.starting.Lock()
	defer c.starting.Unlock()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		return false // no children
	}
	pid := int((*endedChild)(unsafe.Pointer(&info)).pid)
	if _, own := c.pids.Load(pid); own || pid == 0 {
		return false
	}
	_, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return err == nil
}

// endedChild is the head of a siginfo_t about a child; unix.Siginfo does not
// name what follows the three numbers, which is aligned like a pointer.
type endedChild struct {
	_   [3]int32
	_   [0]uintptr
	pid int32
}
