//go:build linux

package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
)

// lasting is a command that runs until a signal ends it.
type lasting struct{ *exec.Cmd }

// startLasting starts a command whose log has no reader, and waits until ready returns true;
// without ready, until the command prints something.
func startLasting(t *testing.T, ready func() bool, name string, args ...string) lasting {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := lasting{exec.CommandContext(within(t), name, args...)}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	l.Stdout, l.Stderr = out, write
	if err := errors.Join(read.Close(), l.Start(), write.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	if ready == nil {
		ready = func() bool { info, err := os.Stat(out.Name()); return err == nil && info.Size() > 0 }
	}
	eventually(t, strings.Join(args, " ")+" is ready", ready)
	return l
}

// ends sends a signal, and checks that the command ends orderly, with status 0.
func (l lasting) ends(t *testing.T, with syscall.Signal) {
	t.Helper()
	if err := l.Process.Signal(with); err != nil {
		t.Fatal(err)
	}
	if err := l.Wait(); err != nil {
		t.Errorf("%v after %v: %v", l.Args[1:], with, err)
	}
}

// TestLastingCommands checks each command that runs until a signal: it continues after the reader
// of its log has ended, and SIGHUP ends it like SIGTERM.
func TestLastingCommands(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	// A program that handles SIGHUP starts its children with the default, even if the tests run
	// under nohup.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
	f := openField(t)
	one := newClusterOf(t, 1, func(c *config.Config) { c.Log.Level = "trace" }).Nodes[0]
	lists := func(noun, name string) func() bool {
		return func() bool { return strings.Contains(ran(t, noun, "list", f.all), name) }
	}
	for _, row := range []struct {
		ready func() bool
		args  string
	}{
		{func() bool { _, err := get(t, "http://"+one.API+"/readyz"); return err == nil }, "server --init --config " + one.Config},
		{nil, "dev --log-level trace --api-listen " + freeAddress(t)},
		{nil, "dev --nodes 3 --api-listen " + portsInARow(t)},
		{lists("worker", "w1"), "worker --log-level trace --name w1 --handlers " + f.handlers + " " + f.all},
		{lists("conductor", "c1"), "conductor run --log-level trace --name c1 --handlers " + f.handlers + " " + f.all},
	} {
		args := strings.Fields(row.args)
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			for _, with := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
				startLasting(t, row.ready, binary, args...).ends(t, with)
			}
		})
	}
}

// TestNohup checks that a command that was started with SIGHUP ignored continues after SIGHUP.
func TestNohup(t *testing.T) {
	t.Parallel()
	dev := startLasting(t, nil, "/bin/sh", "-c", "trap '' HUP; exec "+binary+" dev --api-listen "+freeAddress(t))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", dev.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if ignored := regexp.MustCompile(`SigIgn:\s+\w*[13579bdf]\n`); !ignored.Match(status) { // the lowest bit is SIGHUP
		t.Errorf("dev does not ignore SIGHUP: %s", status)
	}
	dev.ends(t, syscall.SIGTERM)
}
