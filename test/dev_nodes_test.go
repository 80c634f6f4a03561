package test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/conductord/conductord/internal/longtest"
)

// devGreeting is the output of dev with -o json.
type devGreeting struct {
	Version string
	DataDir string `json:"data_dir"`
	Nodes   []struct {
		Name, API string
		PID       int
	}
}

// startDevNodes runs `conductord dev --nodes 3`, and returns its output once it is ready.
func startDevNodes(t *testing.T, address, data string, more ...string) (*exec.Cmd, devGreeting) {
	t.Helper()
	dev := exec.Command(binary, append([]string{"dev", "--nodes", "3", "--api-listen", address, "--data-dir", data, "-o", "json"}, more...)...)
	var said bytes.Buffer
	dev.Stderr = &said
	out, err := dev.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = dev.Process.Kill()
		_ = dev.Wait()
		if t.Failed() {
			t.Logf("dev said:\n%s", said.String())
		}
	})
	var greeting devGreeting
	if err := json.NewDecoder(out).Decode(&greeting); err != nil {
		t.Fatal(err)
	}
	return dev, greeting
}

// portsInARow finds the first of three free ports, with three more a hundred above. The other tests
// of this process use lower ports, and those of package local higher ones.
func portsInARow(t *testing.T) string {
	t.Helper()
	const from, to, apart = 12_000, 21_000, 100
	for range 1_000 {
		first := from + rand.IntN(to-from)
		free := true
		for _, port := range []int{0, 1, 2, apart, apart + 1, apart + 2} {
			listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+port))
			if free = free && err == nil; err == nil {
				_ = listener.Close()
			}
		}
		if free {
			return fmt.Sprintf("127.0.0.1:%d", first)
		}
	}
	t.Fatal("no ports are free")
	return ""
}

// TestDevNodes checks that dev runs three processes, restarts a killed one, ends all of them when
// it is interrupted, and uses its data again.
func TestDevNodes(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	address, data := portsInARow(t), filepath.Join(t.TempDir(), "data")
	dev, greeting := startDevNodes(t, address, data)
	if len(greeting.Nodes) != 3 || greeting.Nodes[0].API != address || greeting.DataDir != data {
		t.Fatalf("dev says %+v", greeting)
	}
	killed := greeting.Nodes[1]
	if err := syscall.Kill(killed.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ready := func() bool { _, err := get(t, "http://"+killed.API+"/readyz"); return err == nil }
	eventually(t, "the killed node is gone", func() bool { return !ready() })
	servers := []string{greeting.Nodes[0].API, greeting.Nodes[2].API}
	hello := filepath.Join(data, "examples", "hello.toml")
	run := command(t, "", "flow", "run", hello, "--wait", "--server", strings.Join(servers, ","))
	if run.code != 0 {
		t.Errorf("with a node killed: %+v", run)
	}
	eventually(t, "the killed node is back", ready)

	if err := dev.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := dev.Wait(); err != nil {
		t.Errorf("dev, interrupted: %v", err)
	}
	for _, node := range greeting.Nodes {
		if text, err := get(t, "http://"+node.API+"/metrics"); err == nil {
			t.Errorf("%s still answers: %.80s", node.Name, text)
		}
	}
	refused := command(t, "", "dev", "--data-dir", data, "--api-listen", freeAddress(t))
	if refused.code != 1 || !strings.Contains(refused.err, "--nodes 3 --api-listen "+address) {
		t.Errorf("one node with the data of three: %+v", refused)
	}
	startDevNodes(t, address, data)
	if found := command(t, "", "job", "list", "--server", address); !strings.Contains(found.out, "hello") {
		t.Errorf("after the restart there are these jobs: %+v", found)
	}
}

// TestDevGreets checks the output of dev: the suggested command works as printed, and there is
// no warning.
func TestDevGreets(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	dev := exec.Command(binary, "dev", "--api-listen", address)
	var warned bytes.Buffer
	dev.Stderr = &warned
	out, err := dev.StdoutPipe()
	if err == nil {
		err = dev.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dev.Process.Kill() }()
	var said, try string
	for lines := bufio.NewScanner(out); try == "" && lines.Scan(); said += lines.Text() + "\n" {
		if command, found := strings.CutPrefix(lines.Text(), "try      conductord "); found {
			try = command
		}
	}
	want := regexp.MustCompile(`^conductord \S+, ready after \S+
data     \S+ \(removed at the end\)
api      ` + address + `
browse   http://` + address + `/
metrics  http://` + address + `/metrics
try      conductord flow run \S+/examples/hello.toml --wait --server ` + address + `
$`)
	if !want.MatchString(said) {
		t.Errorf("dev said:\n%s", said)
	}
	if tried := command(t, "", strings.Fields(try)...); tried.code != 0 {
		t.Errorf("what it says to try: %+v", tried)
	}
	if err := dev.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := dev.Wait(); err != nil || warned.Len() > 0 {
		t.Errorf("dev ends with %v, and has warned:\n%s", err, &warned)
	}
}

// TestDevRefuses checks that wrong flags and taken ports are named.
func TestDevRefuses(t *testing.T) {
	for flags, want := range map[string]string{
		"--nodes 2":                              "--nodes must be 1, 3, 5 or 7, not 2",
		"--nodes 3 --insecure":                   "nodes insecure",
		"--nodes 3 --api-listen 127.0.0.1:0":     "needs a port from 1 to",
		"--nodes 3 --api-listen 127.0.0.1:65500": "needs a port from 1 to",
	} {
		got := command(t, "", append([]string{"dev"}, strings.Fields(flags)...)...)
		if got.code != 2 || !strings.Contains(got.err, want) {
			t.Errorf("dev %s: %+v", flags, got)
		}
	}
	address := freeAddress(t)
	occupant, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = occupant.Close() }()
	if got := command(t, "", "dev", "--nodes", "3", "--api-listen", address); got.code != 2 || !strings.Contains(got.err, "another process, such as another conductord, uses this port: stop that process, or choose another address (`conductord dev`: --api-listen; `conductord config init`: --port)") {
		t.Errorf("at the port of another program: %+v", got)
	}
}
