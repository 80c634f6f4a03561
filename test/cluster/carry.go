package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// moment is the start or the end of a fault.
type moment struct {
	at    time.Duration
	fault *Fault
	node  *int // the affected node
	end   bool
}

// carryOut injects the faults into the cluster, each at its time, and returns when the last one has
// ended. A node that ended itself without a fault of its disk is an error.
func (r *Runner) carryOut(ctx context.Context, faults []Fault) error {
	began := time.Now()
	var moments []moment
	for i := range faults {
		fault, node := &faults[i], new(int)
		moments = append(moments, moment{fault.At, fault, node, false}, moment{fault.At + fault.Lasts, fault, node, true})
	}
	moments = append(moments, moment{at: r.Plan.Round})
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	for _, m := range moments {
		rest(ctx, time.Until(began.Add(m.at)))
		if err := ctx.Err(); err != nil {
			return err
		}
		switch {
		case m.fault == nil:
		case m.end:
			r.end(ctx, *m.fault, *m.node)
		default:
			*m.node = r.begin(ctx, *m.fault)
			r.Report.Faults[m.fault.Nemesis]++
		}
		if err := errors.Join(r.failed, r.ended()); err != nil {
			return err
		}
	}
	return nil
}

// ended finds a node that has ended itself without a permitted reason.
func (r *Runner) ended() error {
	for i := range r.Cluster.Size() {
		if r.Cluster.Running(i) {
			continue
		}
		reason := r.Cluster.Ended(i)
		if reason != nil && !r.excused[i] {
			return fmt.Errorf("node %d has ended itself, and its disk was well: %w", i, reason)
		}
	}
	return nil
}

// begin starts a fault, and returns its node.
func (r *Runner) begin(ctx context.Context, f Fault) int {
	node := f.Node
	if node == Leader {
		node, _ = r.leader(ctx) // node 0 without a leader
	}
	switch f.Nemesis {
	case NemesisKill:
		r.killConductor(node)
		r.Cluster.Kill(node)
	case NemesisPower:
		r.killConductor(node)
		r.Cluster.(PowerCutter).PowerCut(node)
	case NemesisBlackout:
		for i := range r.Cluster.Size() {
			r.killConductor(i)
			r.Cluster.(PowerCutter).PowerCut(i)
		}
	case NemesisPause:
		r.Cluster.(Pauser).Pause(node)
	case NemesisIsolate, NemesisDeaf, NemesisMute:
		for other := range r.Cluster.Size() {
			if other != node && f.Nemesis != NemesisMute {
				r.Cluster.(Cutter).Cut(other, node)
			}
			if other != node && f.Nemesis != NemesisDeaf {
				r.Cluster.(Cutter).Cut(node, other)
			}
		}
	case NemesisCut:
		r.Cluster.(Cutter).Cut(node, (node+1+f.Peer%(r.Cluster.Size()-1))%r.Cluster.Size())
	case NemesisFlicker:
		until, cancel := context.WithTimeout(ctx, f.Lasts)
		r.fading.Go(func() {
			defer cancel()
			r.flicker(until, f)
		})
	case NemesisClock: // one at a time: a majority must have the right time
		for i := range r.Cluster.Size() {
			r.Cluster.(Skewer).Skew(i, 0)
		}
		r.Cluster.(Skewer).Skew(node, f.Offset)
	case NemesisDamage:
		r.killConductor(node)
		r.excused[node] = true
		r.failed = r.Cluster.(Damager).Damage(node, r.Plan.Seed^uint64(f.At))
	case NemesisBadClient:
		until, cancel := context.WithTimeout(ctx, f.Lasts)
		r.fading.Go(func() {
			defer cancel()
			r.Cluster.(BadClients).BadClient(until, node, f.Client)
		})
	default:
		if fault := diskFaults[f.Nemesis]; fault != DiskSlow {
			r.excused[node] = true
		}
		r.Cluster.(Disks).Disk(node, diskFaults[f.Nemesis])
	}
	return node
}

// flicker cuts one direction after the other, each for less than a leader's lease. Earlier
// messages arrive late and look new.
func (r *Runner) flicker(ctx context.Context, f Fault) {
	cutter, size := r.Cluster.(Cutter), r.Cluster.Size()
	draw := rand.New(rand.NewPCG(uint64(f.At), uint64(f.Lasts)))
	for ctx.Err() == nil {
		for from := range size {
			for to := range size {
				if from != to && draw.IntN(3) == 0 {
					cutter.Cut(from, to)
				}
			}
		}
		rest(ctx, time.Duration(draw.IntN(450))*time.Millisecond)
		cutter.HealCuts()
		rest(ctx, time.Duration(draw.IntN(100))*time.Millisecond)
	}
}

var diskFaults = map[Nemesis]DiskFault{
	NemesisSlowDisk: DiskSlow, NemesisBadDisk: DiskFail, NemesisHungDisk: DiskHang, NemesisFullDisk: DiskFull,
}

// end ends a fault. It restarts a node that does not run, for any reason.
func (r *Runner) end(ctx context.Context, f Fault, node int) {
	switch f.Nemesis {
	case NemesisPause:
		r.Cluster.(Pauser).Resume(node)
	case NemesisIsolate, NemesisDeaf, NemesisMute, NemesisCut:
		r.Cluster.(Cutter).HealCuts()
	case NemesisClock:
		r.Cluster.(Skewer).Skew(node, 0)
	case NemesisDamage:
		r.failed = r.Cluster.(Damager).Repair(node)
	case NemesisSlowDisk, NemesisBadDisk, NemesisHungDisk, NemesisFullDisk:
		r.Cluster.(Disks).Disk(node, DiskNone)
	}
	for i := range r.Cluster.Size() {
		if f.Nemesis != NemesisBlackout && i != node {
			continue
		}
		if err := r.start(i); err != nil {
			r.Log("%v: tried again when all is mended", err)
			continue
		}
		const moment = 2 * time.Second // without an answering node, it starts after the round
		starting, cancel := context.WithTimeout(ctx, moment)
		_ = r.startConductor(starting, i)
		cancel()
	}
}

// heal ends all faults.
func (r *Runner) heal() {
	for i := range r.Cluster.Size() {
		if c, ok := r.Cluster.(Pauser); ok {
			c.Resume(i)
		}
		if c, ok := r.Cluster.(Skewer); ok {
			c.Skew(i, 0)
		}
		if c, ok := r.Cluster.(Disks); ok {
			c.Disk(i, DiskNone)
		}
	}
	if c, ok := r.Cluster.(Cutter); ok {
		c.HealCuts()
	}
}

// Supported are the nemeses that a cluster can produce.
func Supported(c Cluster) []Nemesis {
	kinds := []Nemesis{NemesisKill}
	if _, ok := c.(Pauser); ok {
		kinds = append(kinds, NemesisPause)
	}
	if _, ok := c.(Cutter); ok {
		kinds = append(kinds, NemesisIsolate, NemesisDeaf, NemesisMute, NemesisCut, NemesisFlicker)
	}
	if _, ok := c.(Skewer); ok {
		kinds = append(kinds, NemesisClock)
	}
	if disks, ok := c.(Disks); ok {
		for _, kind := range []Nemesis{NemesisSlowDisk, NemesisBadDisk, NemesisHungDisk, NemesisFullDisk} {
			if slices.Contains(disks.DiskFaults(), diskFaults[kind]) {
				kinds = append(kinds, kind)
			}
		}
	}
	if _, ok := c.(PowerCutter); ok {
		kinds = append(kinds, NemesisPower, NemesisBlackout)
	}
	if _, ok := c.(Damager); ok {
		kinds = append(kinds, NemesisDamage)
	}
	if _, ok := c.(BadClients); ok {
		kinds = append(kinds, NemesisBadClient)
	}
	return kinds
}
