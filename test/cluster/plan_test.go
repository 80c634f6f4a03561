package cluster

import (
	"reflect"
	"testing"
	"time"
)

// TestSeedMakesTheSamePlan checks that a seed and a round's number determine the faults, and that
// no fault outlasts its round.
func TestSeedMakesTheSamePlan(t *testing.T) {
	plan := func(seed uint64) Plan {
		return Plan{
			Seed: seed, Size: 3, Round: time.Minute, Every: 3 * time.Second, Lasts: 10 * time.Second,
			Kinds: []Nemesis{NemesisKill, NemesisCut, NemesisClock}, Offsets: Offsets,
		}
	}
	for round := range 50 {
		faults := plan(1).Faults(round)
		if len(faults) < 5 || !reflect.DeepEqual(faults, plan(1).Faults(round)) {
			t.Fatalf("round %d has once these faults:%s\nand once these:%s", round, list(faults), list(plan(1).Faults(round)))
		}
		if reflect.DeepEqual(faults, plan(2).Faults(round)) {
			t.Errorf("round %d is the same with another seed", round)
		}
		for _, fault := range faults {
			if fault.At+fault.Lasts > time.Minute || fault.Nemesis == NemesisCut && fault.Peer == fault.Node {
				t.Errorf("round %d has the fault %v", round, fault)
			}
		}
	}
}
