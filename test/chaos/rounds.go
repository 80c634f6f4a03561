//go:build linux

package main

import (
	"time"

	"github.com/conductord/conductord/test/cluster"
)

// takeover limits the time from the TTL of a silent owner until its job is claimable. It is several
// times the promised grace, cool-down and second.
const takeover = 10 * time.Second

// longest limits the time without an acknowledged write during one kind of fault. It is
// several times the promise, for slow machines.
var longest = map[cluster.Nemesis]time.Duration{
	cluster.NemesisKill:     12 * time.Second,
	cluster.NemesisHungDisk: 14 * time.Second, // the leader gives up after 5 s
	cluster.NemesisClock:    8 * time.Second,
}

// shortRounds has a round for each nemesis. The round detects a daemon without the guard against
// that nemesis.
func shortRounds(plan cluster.Plan) [][]cluster.Fault {
	var rounds [][]cluster.Fault
	for _, kind := range plan.Kinds {
		fault := cluster.Fault{At: time.Second, Lasts: 3 * time.Second, Nemesis: kind, Node: cluster.Leader, Peer: 1}
		round := []cluster.Fault{fault}
		switch kind {
		case cluster.NemesisPause:
			round[0].Lasts = 8 * time.Second // longer than the TTL of its session
		case cluster.NemesisHungDisk:
			round[0].Lasts = 18 * time.Second
		case cluster.NemesisClock:
			// A clock that was wrong while its node led, and jobs whose owner dies then.
			round[0].Offset, round[0].Lasts = time.Hour, 3*time.Second
			for node := range plan.Size {
				at := time.Duration(3+2*node) * time.Second
				round = append(round, cluster.Fault{At: at, Lasts: time.Second, Nemesis: cluster.NemesisKill, Node: node})
			}
		case cluster.NemesisBadClient:
			round = nil
			for _, client := range plan.Client {
				fault.Client = client
				fault.Lasts = 3 * time.Second
				round = append(round, fault)
				fault.At += fault.Lasts
			}
		}
		rounds = append(rounds, round)
	}
	return rounds
}
