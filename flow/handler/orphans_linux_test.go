package handler_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/conductord/conductord/logbook"
)

// orphansVariable makes the test binary a daemon whose handlers leave orphans,
// with its files in the directory that it names.
const orphansVariable = "HANDLER_TEST_ORPHANS"

// TestOrphansAreReaped checks that the orphans of handlers leave no zombies, in their groups
// and outside. No handler and no other command loses its exit status to the reaper.
func TestOrphansAreReaped(t *testing.T) {
	if directory := os.Getenv(orphansVariable); directory != "" {
		leaveOrphans(t, directory)
		return
	}
	for _, row := range []struct {
		name  string
		flags uintptr
	}{{"by any process", 0}, {"by the first of a PID namespace", syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}} {
		t.Run(row.name, func(t *testing.T) {
			if row.flags != 0 && os.Geteuid() != 0 {
				t.Skip("only root can make a PID namespace")
			}
			directory := t.TempDir()
			daemon := exec.Command(os.Args[0], "-test.run=^TestOrphansAreReaped$")
			daemon.Env = append(os.Environ(), orphansVariable+"="+directory)
			daemon.SysProcAttr = &syscall.SysProcAttr{Cloneflags: row.flags}
			var said strings.Builder
			daemon.Stdout, daemon.Stderr = &said, &said
			stdin, err := daemon.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := daemon.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = daemon.Process.Kill() })
			pid := daemon.Process.Pid
			done := filepath.Join(directory, "done")
			waitFor(t, "all handlers have ended", func() bool { _, err := os.Stat(done); return err == nil })
			waitFor(t, "the daemon has adopted one that lives", func() bool { return len(childrenOf(t, pid, "S")) > 0 })
			waitFor(t, "the others are gone", func() bool { return len(childrenOf(t, pid, "DRSZ")) == 1 })
			if err := syscall.Kill(childrenOf(t, pid, "DRSZ")[0], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the last is gone", func() bool { return len(childrenOf(t, pid, "DRSZ")) == 0 })
			stdin.Close()
			if err := daemon.Wait(); err != nil {
				t.Errorf("the daemon: %v\n%s", err, said.String())
			}
		})
	}
}

// leaveOrphans runs handlers, and then waits for the end of stdin.
func leaveOrphans(t *testing.T, directory string) {
	if os.Getpid() == 1 { // as the first process of a container
		private := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
		if err := errors.Join(private, syscall.Mount("proc", "/proc", "proc", 0, "")); err != nil {
			t.Fatal(err)
		}
	}
	set := open(t, directory)
	ctx, cancel := context.WithCancel(t.Context())
	reaped := make(chan error, 1)
	go func() { reaped <- set.ReapOrphans(ctx) }()
	closed := `</dev/null >/dev/null 2>&1 3>&- &`
	for status := range 8 {
		install(t, directory, fmt.Sprint("leaves-", status), `sleep 600 & (sleep 0.01 &) & setsid sleep 0.05 `+closed+` exit `+fmt.Sprint(status))
	}
	stays := filepath.Join(directory, "stays.pid")
	install(t, directory, "stays", `env -i setsid sh -c 'echo $$ >`+stays+`; exec sleep 600' `+closed+` while [ ! -s `+stays+` ]; do sleep 0.02; done`)
	gone := filepath.Join(directory, "gone.pid")
	install(t, directory, "gone", `setsid sh -c '(setsid sleep 600 & echo $! >`+gone+`); echo $$ >>`+gone+`; exec sleep 600' `+closed+
		` while [ "$(wc -l <`+gone+`)" != 2 ]; do sleep 0.02; done`)
	if _, err := set.Task("gone", "").Execute(ctx, call(nil)); err != nil {
		t.Error(err)
	}
	for _, pid := range numbers(gone) {
		if !dead(pid) {
			t.Errorf("process %d runs on after its handler", pid)
		}
	}
	var working sync.WaitGroup
	for status := range 8 {
		working.Go(func() {
			for range 12 {
				_, err := set.Task(fmt.Sprint("leaves-", status), "").Execute(ctx, call(nil))
				var failure *logbook.Failure
				if status == 0 && err != nil || status != 0 && (!errors.As(err, &failure) || failure.Code != status) {
					t.Errorf("status %d: %v", status, err)
				}
			}
		})
	}
	for range 4 {
		working.Go(func() {
			for range 100 {
				var status *exec.ExitError
				if err := set.Run(exec.Command("sh", "-c", "exit 7")); !errors.As(err, &status) || status.ExitCode() != 7 {
					t.Errorf("a command: %v instead of exit status 7", err)
				}
			}
		})
	}
	working.Wait()
	if _, err := set.Task("stays", "").Execute(ctx, call(nil)); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "done"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(os.Stdin)
	cancel()
	if err := <-reaped; err != nil {
		t.Error(err)
	}
}

// childrenOf lists the children of a process that are in one of the states, without its guardian.
func childrenOf(t *testing.T, parent int, states string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the process has just ended
		}
		var pid, of int
		var state string
		name := strings.LastIndexByte(string(stat), ')')
		_, _ = fmt.Sscan(string(stat), &pid)
		if _, err := fmt.Sscan(string(stat[name+1:]), &state, &of); err == nil && of == parent && strings.Contains(states, state) && !strings.Contains(string(stat), "("+guardianName+")") {
			pids = append(pids, pid)
		}
	}
	return pids
}
