package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Nemesis is one kind of fault.
type Nemesis string

// The nemeses. Their effect on a node ends after Fault.Lasts.
const (
	NemesisKill      Nemesis = "kill"
	NemesisPause     Nemesis = "pause"
	NemesisIsolate   Nemesis = "isolate"  // a node is cut off in both directions
	NemesisDeaf      Nemesis = "deaf"     // a node receives nothing from other nodes
	NemesisMute      Nemesis = "mute"     // a node sends nothing to other nodes
	NemesisCut       Nemesis = "cut"      // one direction between two nodes
	NemesisFlicker   Nemesis = "flicker"  // short cuts at random, so that answers are late
	NemesisClock     Nemesis = "clock"    // a wall clock jumps, and jumps back
	NemesisSlowDisk  Nemesis = "slowdisk" //
	NemesisBadDisk   Nemesis = "baddisk"  // syncs fail
	NemesisHungDisk  Nemesis = "hungdisk" // syncs don't return
	NemesisFullDisk  Nemesis = "fulldisk" //
	NemesisPower     Nemesis = "power"    // one node loses its unsynced writes
	NemesisBlackout  Nemesis = "blackout" // all nodes lose their unsynced writes together
	NemesisDamage    Nemesis = "damage"   // a file of a node is damaged
	NemesisBadClient Nemesis = "badclient"
)

// Fault is a single fault.
type Fault struct {
	At      time.Duration // time since the start of the round
	Lasts   time.Duration
	Nemesis Nemesis
	Node    int           // or Leader
	Peer    int           // for NemesisCut: it receives nothing from Node
	Offset  time.Duration // for NemesisClock
	Client  string        // for NemesisBadClient
}

// String shows the fault in one line.
func (f Fault) String() string {
	node := fmt.Sprintf("node %d", f.Node)
	switch {
	case f.Node == Leader:
		node = "the leader"
	case f.Nemesis == NemesisBlackout:
		node = "all nodes"
	}
	line := fmt.Sprintf("%8v for %-7v %-9s %s", f.At, f.Lasts, f.Nemesis, node)
	switch f.Nemesis {
	case NemesisCut:
		line += fmt.Sprintf(" to node %d", f.Peer)
	case NemesisClock:
		line += fmt.Sprintf(" by %v", f.Offset)
	case NemesisBadClient:
		line += " " + f.Client
	}
	return line
}

// Plan makes the faults of rounds from a seed.
type Plan struct {
	Seed   uint64
	Size   int           // of the cluster
	Round  time.Duration // time of one round in which faults are injected
	Every  time.Duration // average time between the starts of faults
	Lasts  time.Duration // maximum duration of a fault
	Kinds  []Nemesis     // nemeses to draw from
	Client []string      // kinds of bad clients
	// Offsets are offsets of clocks; each can be positive or negative.
	Offsets []time.Duration
	// Fixed are the faults of the rounds, repeated; nil: random faults.
	Fixed [][]Fault
}

// Offsets are the offsets of wrong clocks: some seconds to a year.
var Offsets = []time.Duration{time.Second, time.Minute, time.Hour, 365 * 24 * time.Hour}

// Faults returns the faults of one round, in order. A round first draws a few nemeses, so that
// some rounds have one kind of fault and others a mixture.
func (p Plan) Faults(round int) []Fault {
	if len(p.Fixed) > 0 {
		return p.Fixed[round%len(p.Fixed)]
	}
	draw := rand.New(rand.NewPCG(p.Seed, uint64(round)))
	if len(p.Kinds) == 0 {
		return nil
	}
	kinds := slices.Clone(p.Kinds)
	draw.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = kinds[:1+draw.IntN(len(kinds))]
	var faults []Fault
	for at := p.between(draw, p.Every/4, p.Every); at < p.Round; at += p.between(draw, p.Every/4, 2*p.Every) {
		faults = append(faults, p.fault(draw, at, kinds[draw.IntN(len(kinds))]))
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return faults
}

func (p Plan) fault(draw *rand.Rand, at time.Duration, kind Nemesis) Fault {
	f := Fault{At: at, Nemesis: kind, Node: draw.IntN(p.Size)}
	if draw.IntN(3) == 0 {
		f.Node = Leader // gets more faults than its share, because it does the most
	}
	f.Lasts = min(p.between(draw, p.Lasts/50, p.Lasts), p.Round-at)
	f.Peer = (max(f.Node, 0) + 1 + draw.IntN(max(1, p.Size-1))) % p.Size
	f.Offset = p.Offsets[draw.IntN(len(p.Offsets))]
	if draw.IntN(2) == 0 {
		f.Offset = -f.Offset
	}
	if len(p.Client) > 0 {
		f.Client = p.Client[draw.IntN(len(p.Client))]
	}
	return f
}

func (p Plan) between(draw *rand.Rand, low, high time.Duration) time.Duration {
	return (low + time.Duration(draw.Int64N(int64(high-low)+1))).Round(time.Millisecond)
}

// list prints faults, one per line.
func list(faults []Fault) string {
	var lines strings.Builder
	for _, fault := range faults {
		lines.WriteString("\n  " + fault.String())
	}
	return lines.String()
}
