package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// sum is a step whose value is the sum of its number and the values of its inputs.
type sum struct {
	number int
	uses   []string
	runs   atomic.Int64 // how often it was begun
}

func (s *sum) name() string { return fmt.Sprintf("s%d", s.number) }

func (s *sum) Execute(_ context.Context, call *flow.Call) (any, error) {
	s.runs.Add(1)
	total := int64(s.number)
	for _, name := range s.uses {
		var value int64
		if err := json.Unmarshal(call.Arguments[name], &value); err != nil {
			return nil, fmt.Errorf("%s is %q: %w", name, call.Arguments[name], err)
		}
		total += value
	}
	return total % modulus, nil
}

// modulus keeps the sums small enough to be exact.
const modulus = 1_000_003

// random is a graph of n steps. Each uses up to most of those before it.
func random(n, most int, seed uint64) (flow.Node, []*sum) {
	draw := rand.New(rand.NewPCG(seed, 0))
	graph, steps := flow.Graph("f"), make([]*sum, n)
	for i := range steps {
		s := &sum{number: i}
		for _, used := range draw.Perm(i)[:draw.IntN(min(i, most)+1)] {
			s.uses = append(s.uses, steps[used].name())
		}
		steps[i] = s
		graph.Add(flow.NewStep(s.name(), s, flow.Requires(s.uses...), flow.Provides(s.name())))
	}
	return graph, steps
}

// TestStepsUseEachOtherAtRandom runs a hundred steps with ten workers. Each step uses up to
// ten earlier steps. Every step is done once and has the right value.
func TestStepsUseEachOtherAtRandom(t *testing.T) {
	const workers, count, most = 10, 100, 10
	for seed := range uint64(20) {
		root, steps := random(count, most, seed)
		result, err := engine.Local{Workers: workers}.Run(t.Context(), root, nil)
		if err != nil || result.State != logbook.FlowSuccess {
			t.Fatalf("seed %d: %s, %v", seed, result.State, err)
		}
		want := map[string]int64{}
		for _, s := range steps {
			total := int64(s.number)
			for _, name := range s.uses {
				total += want[name]
			}
			want[s.name()] = total % modulus
			var got int64
			if err := result.Decode(s.name(), &got); err != nil || got != want[s.name()] || s.runs.Load() != 1 {
				t.Errorf("seed %d: %s is %d after %d runs, want %d; %v", seed, s.name(), got, s.runs.Load(), want[s.name()], err)
			}
		}
	}
}
