package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/measure"
	"github.com/conductord/conductord/raftboard/node"
)

// BenchmarkInProcess does every work on three nodes within this process. Use it for profiles,
// not for figures. The samples of each node and of the callers have their own label, and the
// log has the name of the leader:
//
//	go test ./bench -run - -bench InProcess/post-64 -cpuprofile cpu.out
//	go tool pprof -top -tagfocus role=node1 cpu.out
func BenchmarkInProcess(b *testing.B) {
	for _, w := range works() {
		b.Run(w.name, func(b *testing.B) { benchmarkInProcess(b, w) })
	}
}

func benchmarkInProcess(b *testing.B, w work) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	at := &place{}
	endpoints, follower := startNodes(ctx, b)
	at.dial, at.follower = dialer(endpoints...), follower
	load := w.load
	load.Warm, load.Window = time.Second, 5*time.Second
	labelled("callers", func() {
		var err error
		if at.client, err = at.dial(ctx); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(at.client.Close)
		ready, err := w.open(ctx, at, load)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(ready.close)
		var used []measure.Usage
		run, err := measure.DriveTimed(ctx, load, ready.call, func(context.Context) error {
			usage, err := measure.OwnUsage()
			used = append(used, usage)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		each := used[1].Since(used[0]).Per(float64(run.Operations))
		b.ReportMetric(microseconds(each.CPU), "cpu-us/op")
		b.ReportMetric(each.Allocations, "allocs/op-all")
		b.ReportMetric(run.PerSecond, "ops/s")
		b.ReportMetric(inMilliseconds(run.P50), "p50-ms")
	})
}

// labelled runs a function, and labels the samples of it and its goroutines.
func labelled(role string, run func()) {
	pprof.Do(context.Background(), pprof.Labels("role", role), func(context.Context) { run() })
}

// startNodes returns the APIs of all nodes, and the API of a follower.
func startNodes(ctx context.Context, b *testing.B) (endpoints []string, follower string) {
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
		} else {
			follower = members[i].API
		}
	}
	return endpoints, follower
}
