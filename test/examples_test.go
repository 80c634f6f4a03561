package test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conductord/conductord/internal/longtest"
)

// TestExamplePrograms runs the example programs against a cluster: workers, and the
// programs that post them jobs.
func TestExamplePrograms(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	cluster, _ := startCluster(t, nil)
	for _, row := range []struct {
		worker, post string   // their folders
		posted       []string // what post prints
		worked       string   // output of the worker
	}{
		{"worker", "post", []string{"Hello, world!"}, "Hello, world!"},
		{"email/worker", "email/post", []string{"completed success"}, "to Ada: Your booking"},
	} {
		t.Run(row.worker, func(t *testing.T) { runExample(t, cluster.Endpoints(), row.worker, row.post, row.posted, row.worked) })
	}
}

func runExample(t *testing.T, endpoints []string, workerFolder, postFolder string, posted []string, worked string) {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir, modulePath+"/examples/"+workerFolder, modulePath+"/examples/"+postFolder)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the examples: %v\n%s", err, output)
	}
	var said bytes.Buffer
	worker := exec.Command(filepath.Join(dir, "worker"))
	worker.Env = append(os.Environ(), "CONDUCTORD_SERVER="+strings.Join(endpoints, ","))
	worker.Stdout, worker.Stderr = &said, &said
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = worker.Process.Kill() }()

	poster := exec.CommandContext(within(t), filepath.Join(dir, "post"))
	poster.Env = append(os.Environ(), "CONDUCTORD_SERVER="+endpoints[0])
	output, err := poster.CombinedOutput()
	if err != nil {
		t.Fatalf("post: %v\n%s", err, output)
	}
	for _, want := range posted {
		if !strings.Contains(string(output), want) {
			t.Errorf("post did not say %q:\n%s", want, output)
		}
	}
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := worker.Wait(); err != nil {
		t.Errorf("the worker did not stop well: %v", err)
	}
	if !strings.Contains(said.String(), worked) {
		t.Errorf("the worker said %q", said.String())
	}
}

// TestExampleFlow runs the travel flow of the README: once successfully, and once with a declined
// card, after which everything is cancelled.
func TestExampleFlow(t *testing.T) {
	t.Parallel()
	dev := startDev(t)
	flowFile := filepath.Join("..", "examples", "travel.toml")
	for _, row := range []struct {
		name   string
		args   []string
		status int
		want   []string
	}{
		{"booked", nil, 0, []string{"charge-card success", "flow travel success", `receipt = `}},
		{"undone", []string{"--set", `fail_at="charge-card"`}, 1,
			[]string{"failed step: charge-card", "book-flight reverted", "book-hotel reverted", "book-car reverted", "flow travel reverted", "card declined"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			args := append([]string{"flow", "run", flowFile, "--wait", "--server", dev, "--set", "pace=0"}, row.args...)
			command := exec.CommandContext(within(t), binary, args...)
			output, err := command.CombinedOutput()
			if command.ProcessState.ExitCode() != row.status {
				t.Errorf("status %d, want %d (%v)", command.ProcessState.ExitCode(), row.status, err)
			}
			for _, want := range row.want {
				if !strings.Contains(string(output), want) {
					t.Errorf("it did not say %q:\n%s", want, output)
				}
			}
		})
	}
}

// demoTime limits the demo, whose own limit is shorter.
const demoTime = 5 * time.Minute

// TestDemo runs the demo as it is, and with chaos: it ends with status 0 only if
// nothing was lost and no recorded result has changed.
func TestDemo(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	for _, row := range []struct {
		args []string
		want []string
		told string
	}{
		{nil, []string{`"posted": 60`, `"succeeded": 54`, `"reverted": 6`}, "killed node"},
		{[]string{"--chaos=15s", "--seed=3"}, []string{`"posted": 30`, `"succeeded": 27`, `"reverted": 3`}, "conductord demo --chaos=15s --seed 3"},
	} {
		t.Run(strings.Join(row.args, " "), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), demoTime)
			defer cancel()
			var told strings.Builder
			command := exec.CommandContext(ctx, binary, append([]string{"demo", "-o", "json"}, row.args...)...)
			command.Stderr = &told
			output, err := command.Output()
			if err != nil {
				t.Fatalf("the demo failed: %v\n%s%s", err, told.String(), output)
			}
			for _, want := range append(row.want, `"lost": 0`, `"recorded_results_changed": 0`) {
				if !strings.Contains(string(output), want) {
					t.Errorf("the summary does not say %s:\n%s", want, output)
				}
			}
			if !strings.Contains(told.String(), row.told) {
				t.Errorf("it did not say %q:\n%s", row.told, told.String())
			}
		})
	}
}

// TestHelloSaysHello: stdout has only the result.
func TestHelloSaysHello(t *testing.T) {
	t.Parallel()
	dev := startDev(t)
	got := command(t, "", "flow", "run", filepath.Join("..", "examples", "hello.toml"), "--wait", "--server", dev, "--set", "guest=Grace")
	if got.code != 0 || got.out != "greeting = \"Hello, Grace!\"\n" {
		t.Errorf("got %+v", got)
	}
}
