package test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestSystemd checks that a daemon notifies systemd when it serves, while it is alive, and when it
// stops.
func TestSystemd(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("systemd is for Linux")
	}
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	told := map[string]int{}
	count := func(what string) int {
		mu.Lock()
		defer mu.Unlock()
		return told[what]
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		buffer := make([]byte, 1024)
		for {
			n, err := socket.Read(buffer)
			if err != nil {
				return
			}
			mu.Lock()
			told[string(buffer[:n])]++
			mu.Unlock()
		}
	})
	t.Cleanup(func() { _ = socket.Close(); reading.Wait() })
	dev := exec.Command(binary, "dev", "--api-listen", freeAddress(t), "--data-dir", t.TempDir())
	dev.Env = append(os.Environ(), "NOTIFY_SOCKET="+path, fmt.Sprint("WATCHDOG_USEC=", 200_000))
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- dev.Wait() }()
	eventually(t, "systemd is told that the daemon serves", func() bool { return count("READY=1") == 1 })
	eventually(t, "the watchdog is fed", func() bool { return count("WATCHDOG=1") >= 3 })
	if count("STOPPING=1") > 0 {
		t.Error("the daemon says that it is stopping")
	}
	if err := dev.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the daemon did not stop well: %v", err)
		}
	case <-within(t).Done():
		t.Fatal("the daemon does not stop")
	}
	eventually(t, "systemd is told that the daemon is stopping", func() bool { return count("STOPPING=1") == 1 })
}

// TestUnit checks that systemd restarts a node that a signal has ended. For systemd, SIGHUP,
// SIGINT, SIGPIPE and SIGTERM are no failures.
func TestUnit(t *testing.T) {
	unit, err := os.ReadFile(filepath.Join("..", "deploy", "conductord.service"))
	if err != nil || !strings.Contains(string(unit), "\nRestart=always\n") {
		t.Errorf("the unit restarts nodes by another rule (%v):\n%s", err, unit)
	}
}
