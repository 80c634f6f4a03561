//go:build linux

package test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

var killRounds = flag.Int("handler-kills", 1, "how often TestKilledHandlersDie kills each kind of process")

// ledger is a handler whose children write to one file, with the content of that file.
type ledger struct {
	*testing.T
	handlers, dir string
	longest       time.Duration // longest time from a kill to the end of all children
	rounds        int
}

// children is the number of processes that a run of the handler starts: in its group, as a child, a
// grandchild, an orphan and with an empty environment; and outside of its group.
const children = 5

// newLedger installs the handler. Each child appends the name of its run to the ledger every 50 ms.
func newLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{T: t, handlers: filepath.Join(t.TempDir(), "handlers"), dir: t.TempDir()}
	writer := filepath.Join(l.dir, "writer")
	writeHandler(t, l.dir, "writer", `echo $$ >>'`+l.dir+`/pids-'$1; while :; do echo $1 >>'`+l.dir+`/ledger'; sleep 0.05; done`)
	writeHandler(t, l.handlers, "writes", `read -r line
run=$CONDUCTORD_FLOW-$CONDUCTORD_ATTEMPT
'`+writer+`' $run &
sh -c "'`+writer+`' $run & wait" &
('`+writer+`' $run &)
env -i PATH="$PATH" '`+writer+`' $run &
setsid '`+writer+`' $run </dev/null >/dev/null 2>&1 3>&- &
while [ ! -e '`+l.dir+`'/free-$CONDUCTORD_FLOW ]; do sleep 0.05; done`)
	return l
}

// begun waits until all children of a run write, and returns their process ids.
func (l *ledger) begun(run string) (pids []int) {
	l.Helper()
	eventually(l.T, "the children of the handler write", func() bool {
		text, _ := os.ReadFile(filepath.Join(l.dir, "pids-"+run))
		pids = nil
		for field := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				l.Fatal(err)
			}
			pids = append(pids, pid)
		}
		return len(pids) == children
	})
	return pids
}

// gone waits for the end of the processes after a kill.
func (l *ledger) gone(killed time.Time, pids []int) {
	l.Helper()
	for _, pid := range pids {
		eventually(l.T, fmt.Sprintf("process %d is gone, which a handler of a killed process has started", pid), func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	}
	l.longest = max(l.longest, time.Since(killed))
}

// round posts a job, kills the process that runs its handler, which victim returns, and lets the
// next attempt end. It checks that the attempts do not overlap. Without next, it ends when all
// children are gone.
func (l *ledger) round(f *field, post func() string, victim func(jobs.Job) int, next func()) {
	l.Helper()
	id, err := jobs.ParseJobID(post())
	if err != nil {
		l.Fatal(err)
	}
	job, err := f.client.Job(within(l.T), id)
	if err != nil {
		l.Fatal(err)
	}
	first, second := fmt.Sprintf("%s-1", job.Flow), fmt.Sprintf("%s-2", job.Flow)
	pids := l.begun(first)
	if job, err = f.client.Job(within(l.T), id); err != nil {
		l.Fatal(err)
	}
	pid := victim(job)
	if pid <= 0 {
		l.Fatalf("the process that runs the handler of %+v is not found", job)
	}
	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		l.Fatal(err)
	}
	l.gone(killed, pids)
	if next == nil {
		return
	}
	next()
	l.begun(second)
	text, err := os.ReadFile(filepath.Join(l.dir, "ledger"))
	if err != nil {
		l.Fatal(err)
	}
	if before, after, _ := strings.Cut(string(text), second); strings.Contains(after, first) || !strings.Contains(before, first) {
		l.Errorf("the first attempt writes when the second has begun")
	}
	if err := os.WriteFile(filepath.Join(l.dir, "free-"+job.Flow.String()), nil, 0o600); err != nil {
		l.Fatal(err)
	}
	f.ends(id.String(), jobs.OutcomeSuccess)
	l.rounds++
}

// repeat runs a number of rounds, set by a flag, and reports.
func (l *ledger) repeat(t *testing.T, f *field, kind string, round func()) {
	t.Helper()
	l.longest, l.rounds = 0, 0
	for number := range *killRounds {
		if !t.Run(fmt.Sprintf("%s %d", kind, number+1), func(t *testing.T) { l.T, f.T = t, t; round() }) {
			return
		}
	}
	t.Logf("%s killed %d times without overlap: the children of its handlers were gone after %s at most", kind, l.rounds, l.longest.Round(time.Millisecond))
}

// TestKilledHandlersDie kills a node, a worker, or a conductor outside the nodes. All processes
// that its handler has started must end before another process runs the handler again.
func TestKilledHandlersDie(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	l := newLedger(t)
	f := openFieldWith(t, func(c *config.Config) { c.Conductor.Handlers, c.Sessions.TTL = []string{l.handlers}, 2*time.Second })
	f.handlers = l.handlers
	const step = "[[steps]]\nname = \"writes\"\n"

	l.repeat(t, f, "a node", func() {
		var killed *local.Node
		l.round(f, func() string { return f.runFlow(step) }, func(job jobs.Job) int {
			killed, _ = f.cluster.Node(job.Claim.Owner)
			return killed.PID()
		}, func() { killed.Kill() })
		if err := killed.Start(); err != nil {
			l.Fatal(err)
		}
		if err := killed.WaitReady(within(l.T)); err != nil {
			l.Fatal(err)
		}
	})
	l.repeat(t, f, "a worker", func() {
		first := f.worker()
		l.round(f, func() string { return f.run(step[len("[[steps]]\n"):]) }, func(jobs.Job) int {
			f.worker()
			return first.Process.Pid
		}, func() {})
	})
	l.repeat(t, f, "a conductor", func() {
		first := f.alone("first")
		l.round(f, func() string { return f.runFlow(step, "--label", "here") }, func(jobs.Job) int {
			f.alone("second")
			return first.Process.Pid
		}, func() {})
	})
}

// TestKilledHandlersOfDevDie checks the same for dev with one node, for dev with three nodes, and
// for a killed dev that has started three nodes.
func TestKilledHandlersOfDevDie(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	l := newLedger(t)
	const step = "[[steps]]\nname = \"writes\"\n"
	t.Run("one node", func(t *testing.T) {
		address, data := freeAddress(t), t.TempDir()
		args := []string{"--data-dir", data, "--handlers", l.handlers}
		dev := runDev(t, address, args...)
		f := devField(t, address)
		l.repeat(t, f, "dev", func() {
			l.round(f, func() string { return f.runFlow(step) },
				func(jobs.Job) int { return dev.command.Process.Pid },
				func() { dev.end(t, syscall.SIGKILL); dev = runDev(t, address, args...) })
		})
	})
	t.Run("three nodes", func(t *testing.T) {
		dev, greeting := startDevNodes(t, portsInARow(t), filepath.Join(t.TempDir(), "data"), "--handlers", l.handlers)
		var servers []string
		for _, node := range greeting.Nodes {
			servers = append(servers, node.API)
		}
		f := devField(t, servers...)
		post := func() string { return f.runFlow(step) }
		l.repeat(t, f, "a node of dev", func() {
			for _, server := range servers {
				eventually(l.T, "all nodes are ready", func() bool { _, err := get(l.T, "http://"+server+"/readyz"); return err == nil })
			}
			l.round(f, post, func(job jobs.Job) (pid int) {
				for line := range strings.Lines(ran(l.T, "conductor", "list", f.all)) {
					if fields := strings.Fields(line); fields[0] == job.Claim.Owner {
						pid, _ = strconv.Atoi(fields[3])
					}
				}
				return pid
			}, func() {})
		})
		l.T, f.T = t, t
		l.round(f, post, func(jobs.Job) int { return dev.Process.Pid }, nil)
	})
}

// devField is a field on the cluster of a dev.
func devField(t *testing.T, servers ...string) *field {
	t.Helper()
	client, err := raftboard.Dial(within(t), servers...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &field{T: t, client: client, all: "--server=" + strings.Join(servers, ",")}
}
