package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
)

const (
	// devRest is the time before dev restarts a dead node. Other nodes take over its jobs after 6.5
	// s, so the user can watch this.
	devRest = 15 * time.Second
	// devEnding is a node's time between SIGTERM and SIGKILL.
	devEnding = 5 * time.Second
	// devRaftOffset keeps the raft ports clear of the API ports.
	devRaftOffset = 100
	lastPort      = 1<<16 - 1
)

// greeting is the output of dev when its nodes are ready.
type greeting struct {
	Version string    `json:"version"`
	DataDir string    `json:"data_dir"`
	Nodes   []devInfo `json:"nodes"`

	began time.Time
	note  string // on the data directory
}

type devInfo struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	API  string `json:"api"`
}

// show prints the greeting, and the next command to type.
func (g *greeting) show(p *cli.Program) error {
	if p.JSON() {
		return p.WriteJSON(g)
	}
	lines := []string{
		fmt.Sprintf("conductord %s, ready after %s", g.Version, time.Since(g.began).Round(time.Millisecond)),
		"data     " + g.DataDir + g.note,
	}
	var servers []string
	for _, node := range g.Nodes {
		servers = append(servers, node.API)
		if len(g.Nodes) > 1 {
			lines = append(lines, fmt.Sprintf("%-7s  pid %d; to kill it: kill -9 %d", node.Name, node.PID, node.PID))
		}
	}
	lines = append(lines, "api      "+strings.Join(servers, ","), "browse   http://"+servers[0]+"/", "metrics  http://"+servers[0]+"/metrics")
	run := "conductord flow run " + filepath.Join(g.DataDir, examplesDir)
	if len(servers) > 1 {
		lines = append(lines, "try      export CONDUCTORD_SERVER="+strings.Join(servers, ","), "         "+run+"/travel.toml --wait --set pace=5")
	} else {
		lines = append(lines, "try      "+run+"/hello.toml --wait"+serverFlag(p, servers[0]))
	}
	return p.WriteLines(lines)
}

// addresses lists the raft address and the API address of each node in turn, as local.Cluster
// expects.
func (o devOptions) addresses(int) ([]string, error) {
	host, port, err := net.SplitHostPort(o.api)
	if err != nil {
		return nil, err
	}
	first, err := strconv.Atoi(port)
	if err != nil || first <= 0 || first+devRaftOffset+o.nodes > lastPort {
		return nil, fmt.Errorf("--api-listen with --nodes needs a port from 1 to %d, not %.64q", lastPort-devRaftOffset-o.nodes, port)
	}
	var addresses []string
	for i := first; i < first+o.nodes; i++ {
		addresses = append(addresses, net.JoinHostPort(host, strconv.Itoa(i+devRaftOffset)), net.JoinHostPort(host, strconv.Itoa(i)))
	}
	for _, address := range addresses {
		listener, err := net.Listen("tcp", address) // another cluster there would answer instead of this one
		if err != nil {
			return nil, err
		}
		if err := listener.Close(); err != nil {
			return nil, err
		}
	}
	return addresses, nil
}

// checkData refuses the data directory of another cluster.
func (o devOptions) checkData() error {
	if _, err := os.Stat(filepath.Join(o.dataDir, devNode)); err == nil && o.nodes > 1 {
		return fmt.Errorf("%s contains a one-node cluster: omit --nodes, or use another --data-dir", o.dataDir)
	}
	was, _ := config.Load(filepath.Join(o.dataDir, "node1.toml"), nil, nil) // missing: a new directory, or the directory of a single node
	if members := was.Cluster.Members; len(members) > 0 && (len(members) != o.nodes || members[0].API != o.api) {
		return fmt.Errorf("%s contains a cluster of %d nodes at %s: use --nodes %d --api-listen %s, or another --data-dir",
			o.dataDir, len(members), members[0].API, len(members), members[0].API)
	}
	return nil
}

// devCluster runs a process for each node until ctx ends.
func devCluster(ctx context.Context, p *cli.Program, o devOptions, g greeting) error {
	outliveReaders()
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program's file: %w", err)
	}
	var paths error
	cluster, err := local.New(local.Options{
		Binary: binary, Dir: o.dataDir, Nodes: o.nodes, Addresses: o.addresses,
		Configure: func(c *config.Config) {
			c.Log.Level, c.Conductor.Handlers, c.Conductor.ValueKeys = o.level, slices.Clone(o.handlers), p.ValueKeys()
			paths = errors.Join(paths, makeAbsolute(c)) // the files of the nodes are in another directory
		},
	})
	err = errors.Join(err, paths)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if err := cluster.Start(); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, devReady)
	defer cancel()
	if err := cluster.WaitReady(waiting); err != nil {
		return err
	}
	for _, node := range cluster.Nodes {
		g.Nodes = append(g.Nodes, devInfo{node.Name, node.PID(), node.API})
	}
	if err := g.show(p); err != nil {
		return err
	}
	var keepers sync.WaitGroup
	for _, node := range cluster.Nodes {
		keepers.Go(func() { keepRunning(ctx, p, node) }) // ends with ctx
	}
	keepers.Wait()
	return nil
}

// keepRunning restarts a node some time after it has ended. When ctx ends, it ends the node.
func keepRunning(ctx context.Context, p *cli.Program, node *local.Node) {
	for {
		if _, err := node.Wait(ctx); err != nil {
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), devEnding)
			defer cancel()
			_, _ = node.Terminate(ending) // otherwise the cluster's Close kills it
			return
		}
		p.Note("%s ended: if a majority runs, its jobs continue on other nodes within 7s; restart in %v", node.Name, devRest)
		select {
		case <-time.After(devRest):
		case <-ctx.Done():
			return
		}
		err := node.Start()
		if err == nil {
			err = node.WaitReady(ctx)
		}
		switch {
		case ctx.Err() != nil: // the next Wait also returns this
		case err != nil:
			p.Note("cannot start %s: %v", node.Name, err)
		default:
			p.Note("%s restarted; to kill it again: kill -9 %d", node.Name, node.PID())
		}
	}
}
