//go:build linux

package processes

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/test/cluster"
)

// stopTime is the limit of the time in which a node stops after SIGTERM: drain, hand over,
// close, on a machine that is four times slower.
const stopTime = 40 * time.Second

// endTime is the time for which a guardian may outlive its daemon: a second, and
// more on a busy machine.
const endTime = 3 * time.Second

// Options describe a cluster.
type Options struct {
	Binary    string // of Build
	Dir       string // for everything that the cluster writes; a short path
	Size      int    // 0: 3
	Configure func(*config.Config)
	// Liars makes all disks report a sync without syncing: the checks must then find that
	// power cuts lose acknowledged writes.
	Liars bool
}

// Processes is a cluster of processes on this machine's loopback. It implements
// cluster.Cluster and the fault interfaces that need no Lab.
type Processes struct {
	nodes   *local.Cluster
	dir     string
	places  []*place  // nil: no lab
	killed  []bool    // the last process of a node was ended by the harness
	damages []*damage // of each node, until Repair
	told    []string  // what became of nodes with damage

	mu    sync.Mutex
	wrong []error // found by bad clients; reported by Close
	liars bool    // disks say that they have synced, and have not
}

// New writes the configurations of a cluster. Nothing runs yet. Close it.
func New(o Options) (*Processes, error) {
	nodes, err := local.New(local.Options{Binary: filepath.Join(o.Dir, "run-node"), Dir: o.Dir, Nodes: o.Size, Configure: o.Configure})
	if err != nil {
		return nil, err
	}
	p := &Processes{nodes: nodes, dir: o.Dir, liars: o.Liars, killed: make([]bool, len(nodes.Nodes)), damages: make([]*damage, len(nodes.Nodes))}
	for i := range nodes.Nodes {
		if err := errors.Join(os.MkdirAll(p.control(i), 0o700), os.MkdirAll(p.temporary(i), 0o700)); err != nil {
			return nil, err
		}
		p.Skew(i, 0)
		p.say(i, "sync", "") // also of liars, until the first faults are mended
		p.say(i, "enter", "")
	}
	// local starts one program for all nodes; this one knows them apart.
	script := "#!/bin/sh\n" +
		"faults=" + filepath.Join(o.Dir, "faults") + "/$(basename \"$3\" .toml)\n" +
		"export CONDUCTORD_FAULTS=\"$faults\" TMPDIR=\"$faults/tmp\"\n" +
		"exec $(cat \"$faults/enter\") " + o.Binary + " \"$@\"\n"
	return p, os.WriteFile(filepath.Join(o.Dir, "run-node"), []byte(script), 0o700)
}

// control is the directory whose files set the faults of a node.
func (p *Processes) control(i int) string {
	return filepath.Join(p.dir, "faults", p.nodes.Nodes[i].Name)
}

func (p *Processes) temporary(i int) string { return filepath.Join(p.control(i), "tmp") }

// say replaces a file of the control directory.
func (p *Processes) say(i int, name, text string) {
	path := filepath.Join(p.control(i), name)
	must(os.WriteFile(path+".new", []byte(text), 0o600))
	must(os.Rename(path+".new", path))
}

// must ends the harness after an error of the harness itself.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("the harness does not work: %v", err))
	}
}

// Size is the number of nodes.
func (p *Processes) Size() int { return len(p.nodes.Nodes) }

// Endpoints are the API addresses of all nodes.
func (p *Processes) Endpoints() []string { return p.nodes.Endpoints() }

// Logs are the paths of the nodes' log files.
func (p *Processes) Logs() []string {
	var paths []string
	for _, node := range p.nodes.Nodes {
		paths = append(paths, node.Log)
	}
	return paths
}

// Dial connects the way a program at the given place connects.
func (p *Processes) Dial(place int) func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := new(net.Dialer)
	if place == cluster.Outside || p.places == nil {
		return dialer.DialContext
	}
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		var done sync.WaitGroup
		done.Go(func() {
			if err = p.places[place].join(); err == nil {
				conn, err = dialer.DialContext(ctx, network, address)
			}
		})
		done.Wait()
		return conn, err
	}
}

// Start runs a node.
func (p *Processes) Start(i int) error {
	p.killed[i] = false
	return p.nodes.Nodes[i].Start()
}

// Kill ends a node with SIGKILL. Processes of its steps survive.
func (p *Processes) Kill(i int) {
	p.killed[i] = p.killed[i] || p.Running(i)
	p.nodes.Nodes[i].Kill()
}

// Running reports whether a node's process lives.
func (p *Processes) Running(i int) bool { return p.nodes.Nodes[i].Running() }

// Ended is the end of the log of a node that has ended itself.
func (p *Processes) Ended(i int) error {
	if p.killed[i] || p.Running(i) {
		return nil
	}
	const lines = 6
	text, err := os.ReadFile(p.nodes.Nodes[i].Log)
	if err != nil {
		return err
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return errors.New(strings.Join(all[max(0, len(all)-lines):], "\n"))
}

// Pause stops a node's process.
func (p *Processes) Pause(i int) { p.nodes.Nodes[i].Signal(syscall.SIGSTOP) }

// Resume continues a paused node.
func (p *Processes) Resume(i int) { p.nodes.Nodes[i].Signal(syscall.SIGCONT) }

// Skew sets the distance of a node's wall clock from the true time, at once.
func (p *Processes) Skew(i int, offset time.Duration) {
	file, err := os.OpenFile(filepath.Join(p.control(i), "skew"), os.O_CREATE|os.O_WRONLY, 0o600)
	must(err)
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset.Nanoseconds())), 0) // mapped by the daemon: one write
	must(errors.Join(err, file.Close()))
}

// slowSync is the duration of each fsync of a slow disk.
const slowSync = 200 * time.Millisecond

// Disk makes each fsync of a node slow, fail or hang.
func (p *Processes) Disk(i int, fault cluster.DiskFault) {
	said := string(fault)
	if fault == cluster.DiskSlow {
		said = slowSync.String()
	}
	if said == "" && p.liars {
		said = "skip"
	}
	p.say(i, "sync", said)
}

// DiskFaults are the faults of fsync.
func (p *Processes) DiskFaults() []cluster.DiskFault {
	return []cluster.DiskFault{cluster.DiskSlow, cluster.DiskFail, cluster.DiskHang}
}

// Digest queries a node until it returns a digest; this needs a moment without applied
// entries.
func (p *Processes) Digest(ctx context.Context, i int) (index uint64, sum [32]byte, err error) {
	for p.Running(i) && ctx.Err() == nil {
		if index, sum, err = p.askDigest(ctx, i); err == nil {
			return index, sum, nil
		}
		const moment = 50 * time.Millisecond
		time.Sleep(moment)
	}
	return 0, sum, errors.Join(fmt.Errorf("%s does not tell its digest", p.nodes.Nodes[i].Name), err, p.Ended(i))
}

func (p *Processes) askDigest(ctx context.Context, i int) (index uint64, sum [32]byte, err error) {
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(p.control(i), "digest"))
	if err != nil {
		return 0, sum, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var text string
	if _, err := fmt.Fscan(conn, &index, &text); err != nil {
		return 0, sum, err
	}
	if n, err := hex.Decode(sum[:], []byte(text)); err != nil || n != len(sum) {
		return 0, sum, fmt.Errorf("not a digest: %q", text)
	}
	return index, sum, nil
}

// Close stops all nodes, and returns an error that names leftovers: processes of steps,
// temporary files, unfinished snapshots.
func (p *Processes) Close() error {
	p.mu.Lock()
	wrong := p.wrong
	p.mu.Unlock()
	for i, node := range p.nodes.Nodes {
		if node.Running() {
			p.Resume(i)
			node.Signal(syscall.SIGTERM)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	for _, node := range p.nodes.Nodes {
		if !node.Running() {
			continue
		}
		if status, err := node.Wait(ctx); err != nil || status != 0 {
			wrong = append(wrong, fmt.Errorf("%s ended with status %d after a request to stop: %w", node.Name, status, err))
		}
	}
	p.nodes.Close()
	for i, node := range p.nodes.Nodes {
		if p.places != nil {
			pids := p.places[i].inhabitants()
			for end := time.Now().Add(endTime); len(pids) > 0 && time.Now().Before(end); pids = p.places[i].inhabitants() {
				time.Sleep(10 * time.Millisecond)
			}
			if len(pids) > 0 {
				wrong = append(wrong, fmt.Errorf("%s has left processes behind: %s", node.Name, commands(pids)))
			}
		}
		for _, path := range append(filesBelow(p.temporary(i)), unfinished(node.DataDir)...) {
			wrong = append(wrong, fmt.Errorf("%s has left %s behind", node.Name, path))
		}
	}
	return errors.Join(wrong...)
}

func commands(pids []int) string {
	var texts []string
	for _, pid := range pids {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		texts = append(texts, strconv.Itoa(pid)+" "+strings.ReplaceAll(string(command), "\x00", " "))
	}
	return strings.Join(texts, ", ")
}

func filesBelow(dir string) []string {
	var paths []string
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != dir {
			paths = append(paths, path)
		}
		return nil
	})
	return paths
}

// unfinished are files that are only there while something is under way.
func unfinished(dir string) []string {
	var paths []string
	for _, path := range filesBelow(dir) {
		name := filepath.Base(path)
		if strings.HasSuffix(name, ".tmp") || filepath.Base(filepath.Dir(path)) == "steps" {
			paths = append(paths, path)
		}
	}
	return paths
}
