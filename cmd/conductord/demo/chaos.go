package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/conductord/conductord/cmd/local"
)

const (
	chaosJobs    = 2               // per second of chaos: they take about as long
	chaosCrashes = 100             // of a job: so that no job is trashed because its nodes die too often
	chaosSettle  = 2 * time.Minute // from the end of the chaos until every job must have ended
	longestFault = 6 * time.Second // the longest fault: a session expires after five seconds
)

// fault is a fault of a node, with its start and end.
type fault struct {
	does func(*local.Node)
	ends func(*local.Node) error
}

func (d *demo) faults() (faults map[string]fault, names []string) {
	kill := fault{func(n *local.Node) { n.Kill(); d.story.killed(n.Name) }, (*local.Node).Start}
	cut := fault{func(n *local.Node) { d.cluster.CutOff(n.Name, true) }, func(n *local.Node) error { d.cluster.CutOff(n.Name, false); return nil }}
	faults, names = map[string]fault{"kills": kill, "partitions": cut}, []string{"kills", "partitions"}
	if stop, goOn, can := local.PauseSignals(); can {
		faults["pauses"] = fault{func(n *local.Node) { n.Signal(stop) }, func(n *local.Node) error { n.Signal(goOn); return nil }}
		names = append(names, "pauses")
	}
	return faults, names
}

// wreck injects faults into random nodes, one after another, until the time is over or every job
// has ended.
func (d *demo) wreck(ctx context.Context) error {
	if d.seed == 0 {
		d.seed = 1 + rand.Uint64N(1_000_000)
	}
	d.program.Note("chaos for %v; the same faults again: conductord demo --chaos=%v --seed %d", d.chaos, d.chaos, d.seed)
	draw := rand.New(rand.NewPCG(d.seed, 0))
	faults, names := d.faults()
	until, cancel := context.WithTimeout(ctx, d.chaos)
	defer cancel()
	ended := func(s *story) bool { return s.finished == len(d.posted) }
	for until.Err() == nil {
		name, node := names[draw.IntN(len(names))], d.cluster.Nodes[draw.IntN(len(d.cluster.Nodes))]
		lasts, rests := time.Duration(draw.Int64N(int64(longestFault))), time.Duration(draw.Int64N(int64(longestFault/2)))
		faults[name].does(node)
		d.story.suffer(name)
		d.await(until, lasts, ended)
		if err := faults[name].ends(node); err != nil {
			return err
		}
		if err := node.WaitReady(ctx); err != nil {
			return err
		}
		if err := d.story.remember(ctx); err != nil {
			return err
		}
		if d.await(until, rests, ended) {
			break
		}
	}
	return d.story.until(ctx, ended)
}

// await waits for a condition for a limited time, and reports whether it became true.
func (d *demo) await(ctx context.Context, long time.Duration, condition func(*story) bool) bool {
	waiting, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	return d.story.until(waiting, condition) == nil
}

// suffer counts a fault, and shows it.
func (s *story) suffer(fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[fault]++
	s.shown = time.Time{}
	s.showLocked(time.Now())
}

// suffered describes the faults so far; empty without chaos.
func (s *story) suffered() (text string) {
	for _, name := range []string{"kills", "pauses", "partitions"} {
		if s.faults[name] > 0 {
			text += fmt.Sprintf("  %s %d", name, s.faults[name])
		}
	}
	return text
}
