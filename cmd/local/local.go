// Package local runs a cluster of conductord processes on this machine. The demo, the tests and the
// benchmarks use it to start and kill real processes.
//
// A Cluster is several Nodes. Each Node is a process of the same binary, with its own configuration
// file, data directory and log file below one directory. Nodes can be killed, paused, terminated
// and started again. The processes end with the program that started them, even if it is killed.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/raftboard/credentials"
)

// Options describe a cluster.
type Options struct {
	Binary string // the conductord executable
	Dir    string // for all files of the cluster
	Nodes  int    // 0: 3
	// Configure changes the configuration of a node before it is written.
	Configure func(*config.Config)
	// Addresses finds free addresses. Nil: FreeAddresses.
	Addresses func(n int) ([]string, error)
	// Env is added to the processes' environment.
	Env []string
	// Detached processes outlive the program that started them.
	Detached bool
	// Gates routes the traffic between nodes through this program: see CutOff.
	Gates bool
}

// Cluster is a cluster of processes on this machine. Its methods must not be called concurrently on
// one node.
type Cluster struct {
	Nodes    []*Node
	options  Options
	launcher *launcher
	gates    gates
	doors    []net.Listener // listeners of the gates
	closing  sync.Once
}

// Node is one process, or the place for one.
type Node struct {
	Name    string
	API     string // host:port
	Raft    string // host:port
	Config  string // path of the configuration file
	DataDir string
	Log     string // path of the log file, to which every run appends

	settings config.Config
	program  string // empty: Options.Binary
	options  *Options
	launcher *launcher
	started  bool // was started before
	command  *exec.Cmd
	ended    chan struct{} // closed when the process has ended; nil: never started
	result   error         // of the process; set before ended is closed
	mu       sync.Mutex
}

// New writes the configurations of a cluster. Nothing runs yet. Close it.
func New(options Options) (*Cluster, error) {
	if options.Nodes == 0 {
		options.Nodes = 3
	}
	c := &Cluster{options: options, launcher: newLauncher(), gates: gates{shut: map[string]bool{}, joins: map[net.Conn][2]string{}}}
	if err := c.configure(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) configure() error {
	options := c.options
	find := options.Addresses
	if find == nil {
		find = FreeAddresses
	}
	addresses, err := find(3 * options.Nodes) // the last third is for the ports that gates forward to
	if err != nil {
		return err
	}
	var members []config.Member
	for i := range options.Nodes {
		node := &Node{
			Name: fmt.Sprintf("node%d", i+1), Raft: addresses[2*i], API: addresses[2*i+1],
			options: &c.options, launcher: c.launcher,
		}
		node.Config = filepath.Join(options.Dir, node.Name+".toml")
		node.DataDir = filepath.Join(options.Dir, node.Name)
		node.Log = filepath.Join(options.Dir, node.Name+".log")
		c.Nodes = append(c.Nodes, node)
		members = append(members, config.Member{Name: node.Name, Raft: node.Raft, API: node.API})
	}
	for i, node := range c.Nodes {
		settings := config.Default()
		settings.Node, settings.DataDir = node.Name, node.DataDir
		settings.Cluster.ID, settings.Cluster.Members = "local", members
		if options.Gates {
			door, err := net.Listen("tcp", node.Raft)
			if err != nil {
				return fmt.Errorf("cannot open the gate of %s: %w", node.Name, err)
			}
			settings.RaftListen = addresses[2*options.Nodes+i]
			c.doors = append(c.doors, door)
			go c.gates.serve(door, node.Name, settings.RaftListen)
		}
		node.settings = settings
		if err := node.Reconfigure(options.Configure); err != nil {
			return err
		}
	}
	return nil
}

// Close kills the running nodes, unless they are detached. It may be called more than once.
func (c *Cluster) Close() {
	c.closing.Do(func() {
		if !c.options.Detached {
			c.Kill()
		}
		c.launcher.close()
		for _, door := range c.doors {
			_ = door.Close()
		}
	})
}

// Start starts all nodes.
func (c *Cluster) Start() error {
	for _, node := range c.Nodes {
		if err := node.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Endpoints are the API addresses of all nodes.
func (c *Cluster) Endpoints() []string {
	var endpoints []string
	for _, node := range c.Nodes {
		endpoints = append(endpoints, node.API)
	}
	return endpoints
}

// Node finds a node by its name.
func (c *Cluster) Node(name string) (*Node, bool) {
	for _, node := range c.Nodes {
		if node.Name == name {
			return node, true
		}
	}
	return nil, false
}

// WaitReady waits until every running node is ready.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, node := range c.Nodes {
		if !node.Running() {
			continue
		}
		if err := node.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Kill kills the running processes, which then write nothing more.
func (c *Cluster) Kill() {
	for _, node := range c.Nodes {
		node.Kill()
	}
}

// Reconfigure changes the node's configuration, which its next process reads. A nil change writes
// the configuration unchanged.
func (n *Node) Reconfigure(change func(*config.Config)) error {
	if change != nil {
		change(&n.settings)
	}
	if err := os.WriteFile(n.Config, []byte(config.Write(n.settings)), 0o600); err != nil {
		return fmt.Errorf("cannot write a configuration: %w", err)
	}
	return nil
}

// Use sets the executable of the node's next process.
func (n *Node) Use(program string) { n.program = program }

// Start runs the node's process. The first start gets the flag that creates the node's identity.
func (n *Node) Start() error {
	if n.Running() {
		return fmt.Errorf("cannot start %s: it runs already", n.Name)
	}
	log, err := os.OpenFile(n.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write the log of %s: %w", n.Name, err)
	}
	defer func() { _ = log.Close() }() // the process has its own copy
	args := []string{"server", "--config", n.Config}
	if !n.started {
		args = append(args, "--init")
	}
	command := exec.Command(cmp.Or(n.program, n.options.Binary), args...)
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), n.options.Env...)
	command.SysProcAttr = processAttributes(n.options.Detached)
	if err := n.launcher.start(command); err != nil {
		return fmt.Errorf("cannot start %s: %w", n.Name, err)
	}
	ended := make(chan struct{})
	n.mu.Lock()
	n.command, n.ended, n.started = command, ended, true
	n.mu.Unlock()
	go func() { // ends with the process
		err := command.Wait()
		n.mu.Lock()
		n.result = err
		n.mu.Unlock()
		close(ended)
	}()
	return nil
}

// Running reports whether the process lives.
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// PID is the process id of the node's last process.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.command.Process.Pid
}

// Kill ends the process with SIGKILL, and returns when it has ended.
func (n *Node) Kill() {
	if n.Running() {
		n.Signal(syscall.SIGKILL)
		<-n.ended
	}
}

// Signal sends a signal to the process, if it runs.
func (n *Node) Signal(signal os.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.command != nil {
		_ = n.command.Process.Signal(signal)
	}
}

// Terminate asks the process to stop, waits for its end, and returns its exit status.
func (n *Node) Terminate(ctx context.Context) (int, error) {
	n.Signal(syscall.SIGTERM)
	return n.Wait(ctx)
}

// Wait waits for the end of the process, and returns its exit status.
func (n *Node) Wait(ctx context.Context) (int, error) {
	select {
	case <-n.ended:
	case <-ctx.Done():
		return 0, fmt.Errorf("%s has not ended: %w", n.Name, ctx.Err())
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.command.ProcessState.ExitCode(), nil
}

// WaitReady waits until the node reports that it is ready.
func (n *Node) WaitReady(ctx context.Context) error {
	const look = 20 * time.Millisecond
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		last := n.ask(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-n.ended:
			return fmt.Errorf("%s has ended: %s", n.Name, n.lastLine())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (see %s)", n.Name, last, n.Log)
		}
	}
}

func (n *Node) ask(ctx context.Context) error {
	url, client := "http://"+n.API+"/readyz", http.DefaultClient
	if authorities := (credentials.Files{CA: n.settings.TLS.CA}); !authorities.Empty() {
		store, err := credentials.Open(authorities, func(error) {})
		if err != nil {
			return err
		}
		transport := &http.Transport{TLSClientConfig: store.Client()}
		defer transport.CloseIdleConnections()
		url, client = "https://"+n.API+"/readyz", &http.Client{Transport: transport}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	const enough = 1 << 10
	said, err := io.ReadAll(io.LimitReader(response.Body, enough))
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(said)))
	}
	return err
}

// lastLine returns the last line of the node's log, which contains the reason of its end.
func (n *Node) lastLine() string {
	data, err := os.ReadFile(n.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}
