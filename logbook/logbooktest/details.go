package logbooktest

import (
	"encoding/json"
	"time"

	"github.com/conductord/conductord/logbook"
)

func definitionStays(k *kit) {
	id := k.begun()
	first := &logbook.Definition{Hash: "first", Packed: []byte{0, 1, 2, 0xff}}
	second := &logbook.Definition{Hash: "second"}
	for i, step := range []struct{ given, want *logbook.Definition }{{nil, nil}, {first, first}, {nil, first}, {second, second}, {nil, second}} {
		k.update(logbook.Update{Flow: id, Sequence: uint64(i + 1), Definition: step.given})
		k.same("definition", k.flow(id).Definition, step.want)
	}
	if read := k.book(k.flow(id).Book); read.Flows[0].Definition != nil {
		k.Errorf("a book reads as %s, want no definition", render(read))
	}
	bad := logbook.Update{Flow: id, Sequence: 6, Definition: &logbook.Definition{}}
	k.wantsInvalid("a definition without a hash", k.verdict(bad))
	bad.Definition = &logbook.Definition{Hash: "third", Packed: make([]byte, k.longest()+1)}
	k.wantsLimit("a definition that is too long", k.verdict(bad), k.longest(), k.longest()+1)
	k.same("definition after the refusals", k.flow(id).Definition, second)
}

func progressOfLastAttempt(k *kit) {
	id := k.begun()
	half := &logbook.Progress{Done: 5, Total: 10, Details: json.RawMessage(`{"file": "b"}`), At: someTime}
	most := &logbook.Progress{Done: 9, Total: 10, At: someTime.Add(time.Second)}
	sequence := uint64(0)
	for _, step := range []struct {
		what   string
		change logbook.AtomChange
		want   *logbook.Progress
	}{
		{"an attempt has begun", logbook.AtomChange{State: logbook.AtomRunning, Attempts: []logbook.Attempt{execution(1)}}, nil},
		{"it tells how far it is", logbook.AtomChange{Progress: half}, half},
		{"it says no more", logbook.AtomChange{}, half},
		{"it is further", logbook.AtomChange{Progress: most}, most},
		{"it has ended", logbook.AtomChange{State: logbook.AtomPending, Attempts: []logbook.Attempt{ended(execution(1), nil)}}, most},
		{"the next has begun", logbook.AtomChange{State: logbook.AtomRunning, Attempts: []logbook.Attempt{execution(2)}}, nil},
		{"it ends and tells where", logbook.AtomChange{State: logbook.AtomSuccess, Attempts: []logbook.Attempt{ended(execution(2), nil)}, Progress: half}, half},
	} {
		sequence++
		step.change.Name, step.change.Kind = "pay", logbook.KindTask
		k.update(logbook.Update{Flow: id, Sequence: sequence, Atoms: []logbook.AtomChange{step.change}})
		k.same("progress when "+step.what, k.atom(id, "pay").Progress, step.want)
	}
	backwards := task("pay")
	backwards.Progress = &logbook.Progress{Done: 11, Total: 10}
	k.wantsInvalid("more than all", k.verdict(logbook.Update{Flow: id, Sequence: sequence + 1, Atoms: []logbook.AtomChange{backwards}}))
}

func openAttemptIsAsked(k *kit) {
	id := k.begun()
	asked := execution(1)
	for i := range 3 {
		asked.Asked = i
		change := task("pay")
		change.State, change.RetryAt, change.Attempts = logbook.AtomPending, someTime, []logbook.Attempt{asked}
		k.update(logbook.Update{Flow: id, Sequence: uint64(i + 1), Atoms: []logbook.AtomChange{change}})
		k.same("attempts", k.atom(id, "pay").Attempts, []logbook.Attempt{asked})
	}
}

func finishedFlowStays(k *kit) {
	for _, road := range [][]logbook.FlowState{
		{logbook.FlowRunning, logbook.FlowSuccess},
		{logbook.FlowRunning, logbook.FlowReverting, logbook.FlowReverted},
		{logbook.FlowRunning, logbook.FlowReverting, logbook.FlowFailure},
	} {
		id := k.begun()
		for i, state := range road {
			k.update(logbook.Update{Flow: id, Sequence: uint64(i + 1), State: state})
		}
		last, next := road[len(road)-1], uint64(len(road)+1)
		for _, other := range []logbook.FlowState{logbook.FlowRunning, logbook.FlowReverting, logbook.FlowSuspended, logbook.FlowPending} {
			update := logbook.Update{Flow: id, Sequence: next, State: other}
			k.wants(string(last)+" to "+string(other), k.verdict(update), logbook.ErrConflict)
		}
		k.standsAt(id, last, uint64(len(road)))
	}
}

func unknownKindRefused(k *kit) {
	id := k.begun()
	for _, kind := range []logbook.AtomKind{"", "dance"} {
		change := logbook.AtomChange{Name: "pay", Kind: kind, State: logbook.AtomRunning}
		k.wantsInvalid("the kind "+string(kind), k.verdict(logbook.Update{Flow: id, Sequence: 1, Atoms: []logbook.AtomChange{change}}))
	}
	k.standsAt(id, logbook.FlowPending, 0)
	for i, kind := range []logbook.AtomKind{logbook.KindTask, logbook.KindRetry, logbook.KindEach} {
		k.update(logbook.Update{Flow: id, Sequence: uint64(i + 1), Atoms: []logbook.AtomChange{{Name: string(kind), Kind: kind}}})
	}
}
