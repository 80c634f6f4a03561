package test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/conductord/conductord/internal/longtest"
)

// devProcess is one run of `conductord dev`.
type devProcess struct {
	address string
	command *exec.Cmd
	log     *bytes.Buffer // to be read after its end
}

// runDev starts dev, waits until it is ready, and ends it at the end of the test.
func runDev(t *testing.T, address string, more ...string) *devProcess {
	t.Helper()
	return runDevAs(t, nil, address, more...)
}

// runDevAs is runDev with attributes of the process.
func runDevAs(t *testing.T, attributes *syscall.SysProcAttr, address string, more ...string) *devProcess {
	t.Helper()
	d := &devProcess{address, exec.Command(binary, append([]string{"dev", "--api-listen", address}, more...)...), &bytes.Buffer{}}
	d.command.SysProcAttr = attributes
	d.command.Stdout, d.command.Stderr = d.log, d.log
	if err := d.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.command.Process.Kill()
		_ = d.command.Wait()
		if t.Failed() {
			t.Logf("dev said:\n%s", d.log.String())
		}
	})
	devReady(t, address)
	return d
}

func (d *devProcess) end(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := d.command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	_ = d.command.Wait() // the signal determines its status
	if said := d.log.String(); strings.Contains(said, "starting election") {
		t.Errorf("the only node warns of its own election:\n%s", said)
	}
}

// TestDevRestarted checks that jobs continue when dev is stopped or killed and then started
// again in the same directory. A second dev in the same directory names the conflict.
func TestDevRestarted(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	address := freeAddress(t)
	handlers, data := filepath.Join(t.TempDir(), "handlers"), t.TempDir()
	gate := filepath.Join(t.TempDir(), "gate")
	writeHandler(t, handlers, "first", "echo 1")
	writeHandler(t, handlers, "second", "while [ ! -e '"+gate+"' ]; do sleep 0.05; done; echo 2")
	// Left behind by a first start that is killed before it writes anything.
	if err := os.Mkdir(filepath.Join(data, "dev"), 0o700); err != nil {
		t.Fatal(err)
	}
	args := []string{"--data-dir", data, "--handlers", handlers}
	dev := runDev(t, address, args...)

	refused := command(t, "", "dev", "--api-listen", address)
	if refused.code != 1 || !strings.Contains(refused.err, "address already in use") || !strings.Contains(refused.err, "choose another address") {
		t.Errorf("a second dev: %+v", refused)
	}
	document := "name = \"two\"\npattern = \"linear\"\n[[steps]]\nname = \"first\"\n[[steps]]\nname = \"second\"\n"
	id := strings.TrimSpace(command(t, document, "flow", "run", "-", "--server", address).out)
	show := func() string { return command(t, "", "flow", "show", id, "--server", address).out }
	for number, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		runs := regexp.MustCompile(`second +running .*` + []string{"", "attempt 2"}[number])
		eventually(t, "the second step runs", func() bool { return runs.MatchString(show()) })
		dev.end(t, signal)
		dev = runDev(t, address, args...)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := command(t, "", "job", "wait", id, "--server", address)
	if got.code != 0 || !strings.Contains(got.err, "success") {
		t.Errorf("the job: %+v", got)
	}
	if steps := show(); !regexp.MustCompile(`first +success .*→ 1\n`).MatchString(steps) || strings.Contains(regexp.MustCompile(`first.*`).FindString(steps), "attempt") {
		t.Errorf("the first step has run again:\n%s", steps)
	}
}
