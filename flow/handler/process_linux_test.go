package handler_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/conductord/conductord/flow/handler"
)

// daemonVariable makes the test binary a daemon that runs one handler, from
// the directory that it names.
const daemonVariable = "HANDLER_TEST_DAEMON"

// guardianName is the name of a daemon's guardian, which ends the processes of the daemon's
// handlers.
const guardianName = "handler-guard"

// guardianOf returns the guardian of a daemon; 0: none runs.
func guardianOf(daemon int) (pid int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, _ := os.ReadFile(file)
		if regexp.MustCompile(fmt.Sprintf(`\(%s\) [^Z] %d `, guardianName, daemon)).Match(stat) {
			_, _ = fmt.Sscan(string(stat), &pid)
		}
	}
	return pid
}

// TestDaemonKilled: no handler and no child of a handler outlives a daemon that is killed, even if its
// guardian was killed before, or if a signal ends the daemon's whole group.
func TestDaemonKilled(t *testing.T) {
	if directory := os.Getenv(daemonVariable); directory != "" {
		_, err := open(t, directory).Task("waits", "").Execute(t.Context(), call(nil))
		t.Fatalf("the handler has ended: %v", err)
	}
	for name, kill := range map[string]func(t *testing.T, daemon int){
		"alone": func(t *testing.T, daemon int) { end(t, daemon) },
		"with its group": func(t *testing.T, daemon int) {
			for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE} {
				if err := syscall.Kill(guardianOf(daemon), signal); err != nil {
					t.Fatal(err)
				}
			}
			end(t, -daemon)
		},
		"after its guardian": func(t *testing.T, daemon int) {
			first := guardianOf(daemon)
			end(t, first)
			waitFor(t, "there is another guardian", func() bool { next := guardianOf(daemon); return next != 0 && next != first })
			end(t, daemon)
		},
	} {
		t.Run(name, func(t *testing.T) {
			daemon, pids := startDaemon(t, os.TempDir())
			for _, pid := range numbers(pids) {
				if dead(pid) {
					t.Fatalf("process %d is dead before the daemon", pid)
				}
			}
			guardian := guardianOf(daemon.Process.Pid)
			kill(t, daemon.Process.Pid)
			_ = daemon.Wait()
			for _, pid := range append(numbers(pids), guardian) {
				waitFor(t, fmt.Sprintf("process %d is dead, of %v and the guardian %d", pid, numbers(pids), guardian), func() bool { return dead(pid) })
			}
		})
	}
}

func end(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// startDaemon runs a daemon in its own process group, with one handler that waits. It returns the
// file with the process ids of the handler and its children: a child in the handler's group, one
// with an empty environment, and one outside.
func startDaemon(t *testing.T, temporary string) (daemon *exec.Cmd, pid string) {
	t.Helper()
	directory := t.TempDir()
	pid = filepath.Join(directory, "pid")
	install(t, directory, "waits", `echo secret >file; sleep 600 & echo $! >`+pid+`; env -i sleep 600 & echo $! >>`+pid+`
		(sleep 600 & echo $! >>`+pid+`); setsid sh -c 'echo $$ >>`+pid+`; exec sleep 600' & echo $$ >>`+pid+`; exec sleep 600`)
	const processes = 5
	daemon = exec.Command(os.Args[0], "-test.run=^TestDaemonKilled$")
	daemon.Env = append(os.Environ(), daemonVariable+"="+directory, "TMPDIR="+temporary)
	daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = daemon.Process.Kill() })
	waitFor(t, "the handler has begun", func() bool { return len(numbers(pid)) == processes })
	return daemon, pid
}

// TestWorkingDirectoryOfAKilledDaemon: the next daemon that opens its handlers removes the
// directory, but not while the old daemon lives.
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

// TestDescriptors: a run leaves no descriptor open in the daemon, and a handler inherits only its
// pipes and its own file.
func TestDescriptors(t *testing.T) {
	// An open descriptor that the daemon could have inherited.
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
	// Another handler keeps the guardian and its pipes open until the end.
	begun := filepath.Join(directory, "begun")
	install(t, directory, "stays", `echo >`+begun+`; exec sleep 600`)
	ctx, cancel := context.WithCancel(t.Context())
	var staying sync.WaitGroup
	staying.Go(func() { _, _ = set.Task("stays", "").Execute(ctx, call(nil)) })
	defer staying.Wait()
	defer cancel()
	waitFor(t, "the other handler has begun", func() bool { _, err := os.Stat(begun); return err == nil })
	run()
	before := descriptors(t)
	lines := bufio.NewScanner(strings.NewReader(run()))
	for lines.Scan() {
		_, target, isLink := strings.Cut(lines.Text(), " -> ")
		if isLink && !strings.HasPrefix(target, "pipe:") && target != filepath.Join(directory, "lists") {
			t.Errorf("the handler has inherited %s", lines.Text())
		}
	}
	run()
	run()
	if after := descriptors(t); after > before { // fewer are open if the end of an earlier test closes some
		t.Errorf("%d descriptors are open after three runs, and before there were %d", after, before)
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
