package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/conductord/conductord/test/attack"
)

// measureElections kills the leader while each flood runs against the other two nodes. It prints
// the time without a leader, with and without the flood.
func measureElections(ctx context.Context, c *attack.Cluster, dir string, wanted *regexp.Regexp) error {
	fmt.Printf("%-28s %5s   %s\n", "flood", "hosts", "time without a leader, median and longest: with, without")
	for i, kind := range attack.Floods {
		if !wanted.MatchString(kind.Name) {
			continue
		}
		var with, without []time.Duration
		for range *elections {
			for number, times := range map[int]*[]time.Duration{i: &with, len(attack.Floods): &without} {
				took, err := elect(ctx, c, dir, number)
				if err != nil {
					return err
				}
				*times = append(*times, took)
			}
		}
		slices.Sort(with)
		slices.Sort(without)
		fmt.Printf("%-28s %5d   %s %s   %s %s\n", kind.Name, kind.Hosts, with[len(with)/2], with[len(with)-1], without[len(without)/2], without[len(without)-1])
	}
	return nil
}

// elect kills the leader during a flood of the other nodes, and returns the time without a
// leader.
func elect(ctx context.Context, c *attack.Cluster, dir string, number int) (time.Duration, error) {
	old := leader(ctx, c)
	for _, node := range c.Nodes {
		if node != old {
			defer startFlood(c.Target(node.API).Token, dir, number, node.API)()
		}
	}
	killed := time.Now()
	old.Kill()
	leader(ctx, c)
	took := time.Since(killed).Round(time.Millisecond)
	if err := old.Start(); err != nil {
		return 0, err
	}
	return took, c.WaitReady(ctx)
}
