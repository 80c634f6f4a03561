package handler_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/conductord/conductord/flow/handler"
)

// daemonVariable makes the test binary a daemon that runs one handler, from
// the directory that it names.
const daemonVariable = "HANDLER_TEST_DAEMON"

// TestDaemonKilled: a handler does not outlive a daemon that dies without a word.
func TestDaemonKilled(t *testing.T) {
	if directory := os.Getenv(daemonVariable); directory != "" {
		_, err := open(t, directory).Task("waits", "").Execute(t.Context(), call(nil))
		t.Fatalf("the handler has ended: %v", err)
	}
	daemon, pid := startDaemon(t, os.TempDir())
	if dead(numbers(pid)[0]) {
		t.Fatal("the handler is dead before the daemon")
	}
	if err := daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = daemon.Wait()
	waitFor(t, "the handler is dead", func() bool { return dead(numbers(pid)[0]) })
}

// startDaemon runs a daemon with one handler that waits, and gives the file with
// the handler's process id.
func startDaemon(t *testing.T, temporary string) (daemon *exec.Cmd, pid string) {
	t.Helper()
	directory := t.TempDir()
	pid = filepath.Join(directory, "pid")
	install(t, directory, "waits", `echo secret >file; echo $$ >`+pid+`; exec sleep 600`)
	daemon = exec.Command(os.Args[0], "-test.run=^TestDaemonKilled$")
	daemon.Env = append(os.Environ(), daemonVariable+"="+directory, "TMPDIR="+temporary)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = daemon.Process.Kill() })
	waitFor(t, "the handler has begun", func() bool { return len(numbers(pid)) > 0 })
	return daemon, pid
}

// TestWorkingDirectoryOfAKilledDaemon goes when the next one opens its
// handlers, and not while its daemon lives.
func TestWorkingDirectoryOfAKilledDaemon(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	daemon, _ := startDaemon(t, temporary)
	directory := t.TempDir()
	install(t, directory, "runs", `echo 1`)
	left := func() int {
		set := open(t, directory)
		if _, err := set.Task("runs", "").Execute(t.Context(), call(nil)); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(temporary)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	if count := left(); count != 1 {
		t.Errorf("%d directories are there, want that of the daemon, which lives", count)
	}
	if err := daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = daemon.Wait()
	if count := left(); count != 0 {
		t.Errorf("%d directories are left of a killed daemon", count)
	}
}

// TestDescriptors: a run leaves none open here, and a handler inherits none
// but its pipes and its own file.
func TestDescriptors(t *testing.T) {
	// As if the daemon's own parent had left it one.
	inherited, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	directory := t.TempDir()
	install(t, directory, "lists", `ls -l /proc/$$/fd >&2`)
	set := open(t, directory)
	run := func() string {
		c := call(nil)
		if _, err := set.Task("lists", "", handler.Scratch(t.TempDir())).Execute(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		text, _ := c.Stderr()
		return text
	}
	run()
	before := descriptors(t)
	lines := bufio.NewScanner(strings.NewReader(run()))
	for lines.Scan() {
		_, target, isLink := strings.Cut(lines.Text(), " -> ")
		if isLink && !strings.HasPrefix(target, "pipe:") && target != filepath.Join(directory, "lists") {
			t.Errorf("the handler has inherited %s", lines.Text())
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, want %d", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
