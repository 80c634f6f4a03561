package bareraft_test

import (
	"encoding/json"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/conductord/conductord/bench/bareraft"
	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/internal/measure"
)

// TestMain looks for leaked goroutines. It ignores raft's transport, which reads from a peer's
// last connection until the peer's process ends: within one process, never.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/raft.(*NetworkTransport).handleConn"))
}

// group is three members within the test's process, each on pipes.
type group struct {
	*testing.T
	inputs  []*json.Encoder
	outputs []*json.Decoder
}

func startGroup(t *testing.T, store string) *group {
	t.Helper()
	g := &group{T: t}
	members, err := local.FreeAddresses(3)
	if err != nil {
		t.Fatal(err)
	}
	const heartbeat = 800 * time.Millisecond // a lease of half of it outlasts the pauses of a busy machine
	for _, address := range members {
		g.start(bareraft.Options{
			Address: address, Members: members, Dir: t.TempDir(), LogStore: store,
			Heartbeat: heartbeat, Election: heartbeat, LeaderLease: heartbeat / 2, MaxAppendEntries: 512,
			SnapshotInterval: 30 * time.Second, SnapshotThreshold: 16_384, TrailingLogs: 65_536,
		})
	}
	return g
}

// start runs a member until its input ends, at the end of the test.
func (g *group) start(options bareraft.Options) {
	requests, input := io.Pipe()
	output, answers := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := bareraft.Serve(g.Context(), requests, answers)
		_ = requests.CloseWithError(io.ErrClosedPipe) // so no writer blocks on a member that has ended
		_ = answers.Close()
		done <- err
	}()
	g.Cleanup(func() {
		_ = input.Close()
		if err := <-done; err != nil {
			g.Errorf("a member ended: %v", err)
		}
	})
	g.inputs, g.outputs = append(g.inputs, json.NewEncoder(input)), append(g.outputs, json.NewDecoder(output))
	if err := g.inputs[len(g.inputs)-1].Encode(options); err != nil {
		g.Fatal(err)
	}
}

func (g *group) ask(i int, request bareraft.Request) bareraft.Answer {
	g.Helper()
	if err := g.inputs[i].Encode(request); err != nil {
		g.Fatal(err)
	}
	var answer bareraft.Answer
	if err := g.outputs[i].Decode(&answer); err != nil {
		g.Fatal(err)
	}
	return answer
}

// leader waits until a member leads.
func (g *group) leader() int {
	g.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		for i := range g.inputs {
			if g.ask(i, bareraft.Request{}).Leading {
				return i
			}
		}
		select {
		case <-look.C:
		case <-deadline.C:
			g.Fatal("no member leads")
		}
	}
}

func TestGroup(t *testing.T) {
	for _, store := range []string{"", "bolt", "wal"} {
		t.Run("log store "+store, func(t *testing.T) {
			if store != "" {
				longtest.Skip(t)
			}
			testGroup(t, store)
		})
	}
}

func testGroup(t *testing.T, store string) {
	g := startGroup(t, store)
	leader := g.leader()
	load := measure.Load{Callers: 8, PerCall: 10, Warm: 50 * time.Millisecond, Window: 500 * time.Millisecond}

	answer := g.ask(leader, bareraft.Request{Load: &load, Bytes: 600})
	if answer.Error != "" || answer.Run.Operations == 0 || answer.Run.P50 <= 0 {
		t.Fatalf("the leader's answer is %+v", answer)
	}
	if calls := uint64(answer.Run.Operations / load.PerCall); answer.Entries == 0 || answer.Entries > calls+uint64(load.Callers) {
		t.Errorf("%d calls made %d entries", calls, answer.Entries)
	}
	// An entry is written on its own, or together with the previous entry.
	if spent := answer.Usage; spent.CPU <= 0 || spent.Allocations <= 0 || spent.LogWrites <= 0 || spent.LogWrites > float64(answer.Entries)+2 {
		t.Errorf("%d entries have used %+v", answer.Entries, spent)
	}
	if idle := g.ask((leader+1)%3, bareraft.Request{}); idle.Error != "" || idle.Leading || idle.Usage.LogWrites <= 0 {
		t.Errorf("a follower's answer is %+v", idle)
	}
	if follower := g.ask((leader+1)%3, bareraft.Request{Load: &load, Bytes: 600}); follower.Error == "" {
		t.Error("a follower has replicated commands")
	}
	for _, size := range []int{0, 512<<10 + 1} {
		if refused := g.ask(leader, bareraft.Request{Load: &load, Bytes: size}); refused.Error == "" {
			t.Errorf("commands of %d bytes were proposed", size)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, options := range []bareraft.Options{
		{Members: []string{"127.0.0.1:1"}, Address: "127.0.0.1:2", Dir: t.TempDir()},
		{Members: []string{"127.0.0.1:1"}, Address: "127.0.0.1:1"},
		{Members: []string{"127.0.0.1:1"}, Address: "127.0.0.1:1", Dir: t.TempDir(), LogStore: "paper"},
	} {
		if node, err := bareraft.Open(options); err == nil {
			t.Errorf("a member with %+v was opened", options)
			_ = node.Close()
		}
	}
}
