//go:build linux

package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// zombies counts the children of a process that have ended and that it has not waited for.
func zombies(t *testing.T, parent int) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		if strings.Contains(string(stat), fmt.Sprintf(") Z %d ", parent)) {
			count++
		}
	}
	return count
}

// TestHandlersLeaveNothing runs a daemon as the first process of a PID namespace, as in a
// container. The daemon waits for the orphans of its handlers, and at its start removes
// leftovers of a killed daemon's handlers.
func TestHandlersLeaveNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	address := freeAddress(t)
	handlers, data, temporary := filepath.Join(t.TempDir(), "handlers"), t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	left := filepath.Join(t.TempDir(), "left")
	writeHandler(t, handlers, "in-its-group", "sleep 600 & echo 1")
	writeHandler(t, handlers, "outside", "setsid sleep 0.2 </dev/null >/dev/null 2>&1 3>&- & echo 2")
	writeHandler(t, handlers, "killed", "mkdir -p locked/in; echo secret >locked/in/file; chmod 0 locked; pwd >>"+left+"; exec sleep 600")
	args := []string{"--data-dir", data, "--handlers", handlers}
	first := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	dev := runDevAs(t, first, address, args...)

	document := "name = \"orphans\"\npattern = \"linear\"\n[[steps]]\nname = \"in-its-group\"\n[[steps]]\nname = \"outside\"\n"
	if got := command(t, document, "flow", "run", "-", "--wait", "--server", address); got.code != 0 {
		t.Fatalf("the flow with orphans: %+v", got)
	}
	eventually(t, "the daemon has waited for all orphans", func() bool { return zombies(t, dev.command.Process.Pid) == 0 })

	if got := command(t, "name = \"one\"\n[[steps]]\nname = \"killed\"\n", "flow", "run", "-", "--server", address); got.code != 0 {
		t.Fatalf("the flow that is cut off: %+v", got)
	}
	eventually(t, "the step runs", func() bool { text, _ := os.ReadFile(left); return len(text) > 0 })
	dev.end(t, syscall.SIGKILL)
	text, err := os.ReadFile(left)
	if err != nil {
		t.Fatal(err)
	}
	directory := strings.TrimSpace(string(text))
	if _, err := os.Stat(directory); err != nil || !strings.HasPrefix(directory, data) {
		t.Errorf("the working directory of the killed daemon's handler is %s, want one below %s: %v", directory, data, err)
	}
	dev = runDevAs(t, first, address, args...)
	if _, err := os.Stat(directory); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", directory, err)
	}
	dev.end(t, syscall.SIGTERM)
	if entries, err := os.ReadDir(temporary); err != nil || len(entries) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", entries, err)
	}
}

// TestDevRemovesWhatAKilledOneLeft checks that the next dev removes the temporary data directory of
// a killed dev, but not of a live one.
func TestDevRemovesWhatAKilledOneLeft(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	directories := func() []string {
		found, err := filepath.Glob(filepath.Join(temporary, "conductord-dev-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	runDev(t, freeAddress(t)).end(t, syscall.SIGKILL)
	killed := directories()
	if len(killed) != 1 {
		t.Fatalf("the data of the killed dev are in %q", killed)
	}
	kept := runDev(t, freeAddress(t), "--data-dir", filepath.Join(temporary, "conductord-dev-kept"))
	lives := runDev(t, freeAddress(t))
	if left := directories(); len(left) != 2 || left[0] == killed[0] || left[1] == killed[0] {
		t.Errorf("%q are left; want the files of the running processes, and not %q", left, killed)
	}
	lives.end(t, syscall.SIGTERM)
	kept.end(t, syscall.SIGTERM)
	if left := directories(); len(left) != 1 || filepath.Base(left[0]) != "conductord-dev-kept" {
		t.Errorf("left after the end are %q", left)
	}
}
