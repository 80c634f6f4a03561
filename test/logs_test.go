package test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
)

// following is a running command, and its output so far.
type following struct {
	*exec.Cmd
	mu   sync.Mutex
	text bytes.Buffer
}

func (f *following) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.Write(p)
}

func (f *following) said() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.String()
}

// follow runs a command until the end of the test.
func follow(t *testing.T, args ...string) *following {
	t.Helper()
	f := &following{Cmd: exec.CommandContext(within(t), binary, args...)}
	f.Stdout, f.Stderr = f, f
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	return f
}

// runsAt is the node whose conductor has a job.
func runsAt(t *testing.T, cluster *local.Cluster, job, server string) (holder *local.Node, others []*local.Node) {
	t.Helper()
	eventually(t, "the job is claimed", func() bool {
		text := ran(t, "job", "get", job, server)
		holder, others = nil, nil
		for _, node := range cluster.Nodes {
			if strings.Contains(strings.ReplaceAll(text, " ", ""), "\nowner:"+node.Name+"\n") {
				holder = node
			} else {
				others = append(others, node)
			}
		}
		return holder != nil
	})
	return holder, others
}

// TestLogsWhileAStepRuns reads the output of a running handler at another node, without its
// secrets. When the node dies, the reader continues with the next owner. Afterwards, the end
// of the output is read from the logbook.
func TestLogsWhileAStepRuns(t *testing.T) {
	t.Parallel()
	handlers, outside := filepath.Join(t.TempDir(), "handlers"), t.TempDir()
	const canary = "canary-of-the-logs-5512"
	if err := os.WriteFile(filepath.Join(outside, "db"), []byte(canary), 0o600); err != nil {
		t.Fatal(err)
	}
	free := filepath.Join(outside, "free")
	writeHandler(t, handlers, "talker", `read -r line; n=0
while [ ! -e '`+free+`' ]; do n=$((n+1)); printf 'line %s of %s: it knows cana' $n $CONDUCTORD_ATTEMPT >&2; sleep 0.1; echo 'ry-of-the-logs-5512' >&2; done
echo "bye $line" >&2; echo 1`)
	document := filepath.Join(outside, "flow.toml")
	text := "name = \"f\"\n[store]\ndb = {secret = \"db\"}\n[[steps]]\nname = \"talker\"\nrequires = [\"db\"]\n"
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster, _ := startCluster(t, func(c *config.Config) {
		c.Conductor.Handlers = []string{handlers}
		c.Secrets = config.Secrets{Directory: outside}
	})
	all := "--server=" + strings.Join(cluster.Endpoints(), ",")
	job, _, _ := strings.Cut(ran(t, "flow", "run", document, all), "\n")
	holder, others := runsAt(t, cluster, job, all)

	reader := follow(t, "job", "logs", "-f", job, "--server", others[0].API)
	eventually(t, "lines are read while the step runs", func() bool {
		return strings.Contains(reader.said(), "talker | line 3 of 1: it knows [secret db]")
	})
	for _, node := range cluster.Nodes {
		said := ran(t, "job", "logs", job, "--step", "talker", "-o", "json", "--server", node.API)
		if first, _, _ := strings.Cut(said, "\n"); !strings.Contains(first, `"text":"line 1 of 1: it knows [secret db]"`) {
			t.Errorf("node %s: %s", node.Name, said)
		}
	}
	if said, err := exec.CommandContext(t.Context(), binary, "job", "logs", job, "--step", "other", all).CombinedOutput(); err == nil || !strings.Contains(string(said), `has no step "other"`) {
		t.Errorf("of a step that the flow does not have: %v, %s", err, said)
	}

	holder.Kill()
	eventually(t, "the next owner continues it", func() bool { return strings.Contains(reader.said(), "line 3 of 2: it knows [secret db]") })
	if err := os.WriteFile(free, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := reader.Wait(); err != nil {
		t.Errorf("%v: %s", err, reader.said())
	}
	said := reader.said()
	for _, want := range []string{"continues at node", "talker #2 | bye ", "is completed: success"} {
		if !strings.Contains(said, want) {
			t.Errorf("the reader has not seen %q: %s", want, said)
		}
	}
	afterwards := ran(t, "job", "logs", job, "--server", others[0].API)
	if !strings.Contains(afterwards, "talker #2 | bye ") {
		t.Errorf("afterwards: %s", afterwards)
	}
	if strings.Contains(said+afterwards, canary) {
		t.Errorf("a secret was shown: %s %s", said, afterwards)
	}
}
