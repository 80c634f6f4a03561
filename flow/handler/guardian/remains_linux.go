package guardian

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// endTries and endPause limit the wait for the end of killed processes. A process that hangs in
	// the kernel remains; the next start tries again.
	endTries = 2000
	endPause = time.Millisecond
)

// rename sets the name of the process. Otherwise the kernel would use the name of the
// program's file.
func rename() { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// forbidTracing prevents handlers of this user from tracing the process and from reading its
// memory.
func forbidTracing() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// KillCgroup kills all processes in a cgroup, and removes the cgroup.
func KillCgroup(path string) {
	_ = os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
	for range endTries {
		if err := os.Remove(path); !errors.Is(err, syscall.EBUSY) {
			return
		}
		time.Sleep(endPause)
	}
}

// KillAtHome kills all processes whose HOME starts with one of the prefixes.
func KillAtHome(prefixes ...string) {
	KillUntilGone(func() (found bool) {
		processes, _ := os.ReadDir("/proc")
		for _, process := range processes {
			pid, err := strconv.Atoi(process.Name())
			found = err == nil && pid != os.Getpid() && KillIfAtHome(pid, prefixes...) || found
		}
		return found
	})
}

// KillUntilGone repeats kill until kill reports that it has found nothing.
func KillUntilGone(kill func() (found bool)) {
	if self, _ := os.Readlink("/proc/self"); self != strconv.Itoa(os.Getpid()) {
		return // /proc shows the process ids of another namespace
	}
	for range endTries {
		if !kill() {
			return
		}
		time.Sleep(endPause)
	}
}

// KillIfAtHome kills a process whose HOME starts with one of the prefixes. An ended process has
// no environment, so it is left alone.
func KillIfAtHome(pid int, prefixes ...string) bool {
	environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	atHome := func(variable []byte) bool {
		home, isHome := strings.CutPrefix(string(variable), "HOME=")
		return isHome && slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(home, prefix) })
	}
	return slices.ContainsFunc(bytes.SplitAfter(environment, []byte{0}), atHome) && syscall.Kill(pid, syscall.SIGKILL) == nil
}
