package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/test/bench/measure"
)

// BenchmarkInProcess does every work on three nodes within this process, for
// profiles and not for figures. The samples of each node and of the callers
// have a label of their own, and the name of the leader is logged:
//
//	go test ./test/bench -run - -bench InProcess/post-64 -cpuprofile cpu.out
//	go tool pprof -top -tagfocus role=node1 cpu.out
func BenchmarkInProcess(b *testing.B) {
	for _, w := range works() {
		b.Run(w.name, func(b *testing.B) { benchmarkInProcess(b, w) })
	}
}

func benchmarkInProcess(b *testing.B, w work) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	endpoints := startNodes(ctx, b)
	var client *raftboard.Client
	labelled("callers", func() {
		var err error
		if client, err = raftboard.Dial(ctx, endpoints...); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(client.Close)
		if w.flows {
			stop, err := startConductor(ctx, endpoints, w.load.Callers)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(stop)
		}
	})
	load := w.load
	load.Warm, load.Window = time.Second, 5*time.Second
	labelled("callers", func() {
		var used []time.Duration
		run, err := measure.Drive(ctx, load,
			func(ctx context.Context) error { return w.call(ctx, client, load.PerCall) },
			func(context.Context) error { used = append(used, processorTime(b)); return nil })
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64((used[1]-used[0]).Microseconds())/float64(run.Operations), "cpu-us/op")
		b.ReportMetric(run.PerSecond, "ops/s")
		b.ReportMetric(float64(run.P50)/float64(time.Millisecond), "p50-ms")
	})
}

// labelled runs something, and marks what it and its goroutines do.
func labelled(role string, run func()) {
	pprof.Do(context.Background(), pprof.Labels("role", role), func(context.Context) { run() })
}

// processorTime is what this process has used. Beside other work on the machine it
// is steadier than any rate.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func startNodes(ctx context.Context, b *testing.B) (endpoints []string) {
	addresses, err := local.FreeAddresses(6)
	if err != nil {
		b.Fatal(err)
	}
	var members []node.Member
	for i := range 3 {
		members = append(members, node.Member{Name: fmt.Sprint("node", i+1), Raft: addresses[2*i], API: addresses[2*i+1]})
		endpoints = append(endpoints, addresses[2*i+1])
	}
	timings := config.Default().Raft
	dir := b.TempDir()
	var nodes []*node.Node
	for _, member := range members {
		labelled(member.Name, func() {
			opened, err := node.Open(node.Options{
				Name: member.Name, Cluster: "bench", Members: members, DataDir: filepath.Join(dir, member.Name), Init: true,
				Raft:  node.RaftTimings{MaxAppendEntries: timings.MaxAppendEntries, Heartbeat: 2 * time.Second},
				Fatal: func(err error) { b.Errorf("%s cannot go on: %v", member.Name, err) },
			})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = opened.Close() })
			nodes = append(nodes, opened)
		})
	}
	for i, opened := range nodes {
		if err := opened.WaitReady(ctx); err != nil {
			b.Fatal(err)
		}
		if opened.Leading() {
			b.Logf("%s leads", members[i].Name)
		}
	}
	return endpoints
}
