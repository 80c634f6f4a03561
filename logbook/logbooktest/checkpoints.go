package logbooktest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/conductord/conductord/logbook"
)

var checkpointRows = []row{
	{"checkpoints are kept from attempt to attempt", checkpointsKept},
	{"a round ends with its checkpoints", checkpointsOfRound},
	{"a checkpoint needs a running attempt", checkpointNeedsAttempt},
	{"checkpoints at the limits are kept, one more is refused", checkpointsAtLimit},
	{"a checkpoint is a name and a value", checkpointsAreValues},
	{"each attempt numbers its own checkpoints", checkpointsNumbered},
}

// recording is a flow whose step "import" records checkpoints.
type recording struct {
	*kit
	flow     logbook.FlowID
	sequence uint64
}

func (k *kit) recording() *recording { return &recording{kit: k, flow: k.begun()} }

func (r *recording) change(c logbook.AtomChange) {
	r.Helper()
	c.Name, c.Kind = "import", logbook.KindTask
	r.sequence++
	r.update(logbook.Update{Flow: r.flow, Sequence: r.sequence, Atoms: []logbook.AtomChange{c}})
}

// begin starts an execution.
func (r *recording) begin(number int) {
	r.Helper()
	r.change(logbook.AtomChange{State: logbook.AtomRunning, Attempts: []logbook.Attempt{execution(number)}})
}

// refuses returns the refusal of checkpoints.
func (r *recording) refuses(checkpoints ...logbook.Checkpoint) error {
	r.Helper()
	change := task("import")
	change.Checkpoints = checkpoints
	return r.verdict(logbook.Update{Flow: r.flow, Sequence: r.sequence + 1, Atoms: []logbook.AtomChange{change}})
}

func checkpoint(name, value string) logbook.Checkpoint {
	return logbook.Checkpoint{Name: name, Value: json.RawMessage(value), At: someTime}
}

// has checks the checkpoints of the step, and their counts in its atom.
func (r *recording) has(what, last string, want logbook.Values) {
	r.Helper()
	got, err := r.conn.Checkpoints(r.ctx, r.flow, "import")
	r.wants("Checkpoints "+what, err, nil)
	r.same("checkpoints "+what, got, want)
	counts := r.atom(r.flow, "import").Checkpoints
	if len(want) == 0 {
		r.same("counts "+what, counts, nil)
	} else if counts == nil || counts.Count != len(want) || counts.Last != last || !counts.At.Equal(someTime) || counts.Bytes < want.Size() { // encrypted values are longer
		r.Errorf("counts %s: %s", what, render(counts))
	}
}

func checkpointsKept(k *kit) {
	r := k.recording()
	r.begin(1)
	r.change(logbook.AtomChange{Checkpoints: []logbook.Checkpoint{checkpoint("a", `1`), checkpoint("b", `"two"`)}})
	r.has("of the first attempt", "b", logbook.Values{"a": json.RawMessage(`1`), "b": json.RawMessage(`"two"`)})
	r.change(logbook.AtomChange{Checkpoints: []logbook.Checkpoint{checkpoint("a", `{"longer":true}`)}})
	kept := logbook.Values{"a": json.RawMessage(`{"longer":true}`), "b": json.RawMessage(`"two"`)}
	r.has("after one was replaced", "a", kept)
	r.change(logbook.AtomChange{State: logbook.AtomPending, RetryAt: someTime.Add(time.Minute), Attempts: []logbook.Attempt{failed(execution(1), logbook.Failure{Kind: "error"})}})
	r.has("after a failure", "a", kept)
	r.begin(2)
	r.has("in the second attempt", "a", kept)
	if other, err := k.conn.Checkpoints(k.ctx, r.flow, "other"); err != nil || len(other) > 0 {
		k.Errorf("another step has checkpoints %v, %v", other, err)
	}
	_, err := k.conn.Checkpoints(k.ctx, logbook.NewFlowID(), "import")
	k.wants("checkpoints of an absent flow", err, logbook.ErrNotFound)
}

func checkpointsOfRound(k *kit) {
	for _, end := range []struct {
		what    string
		changes []logbook.AtomChange
	}{
		{"success", []logbook.AtomChange{{State: logbook.AtomSuccess, Attempts: []logbook.Attempt{ended(execution(1), nil)}}}},
		{"an undo", []logbook.AtomChange{
			{State: logbook.AtomFailure, Attempts: []logbook.Attempt{failed(execution(1), logbook.Failure{Kind: "error"})}},
			{State: logbook.AtomReverting, Attempts: []logbook.Attempt{reversal(1)}},
			{State: logbook.AtomReverted, Attempts: []logbook.Attempt{ended(reversal(1), nil)}},
		}},
		{"a reset", []logbook.AtomChange{{State: logbook.AtomPending, Attempts: []logbook.Attempt{{Action: logbook.ActionReset, Number: 1, StartedAt: someTime, EndedAt: someTime}}}}},
	} {
		r := k.recording()
		r.begin(1)
		r.change(logbook.AtomChange{Checkpoints: []logbook.Checkpoint{checkpoint("a", `1`)}})
		for i := range end.changes {
			r.has("before the end by "+end.what, "a", logbook.Values{"a": json.RawMessage(`1`)})
			r.change(end.changes[i])
		}
		r.has("after "+end.what, "", nil)
		if end.what == "a reset" {
			r.begin(2)
			r.change(logbook.AtomChange{Checkpoints: []logbook.Checkpoint{checkpoint("b", `2`)}})
			r.has("of the next round", "b", logbook.Values{"b": json.RawMessage(`2`)})
		}
	}
	dropped := k.recording()
	dropped.begin(1)
	dropped.change(logbook.AtomChange{Checkpoints: []logbook.Checkpoint{checkpoint("a", `1`)}})
	k.wants("DestroyBook", k.conn.DestroyBook(k.ctx, k.flow(dropped.flow).Book), nil)
	_, err := k.conn.Checkpoints(k.ctx, dropped.flow, "import")
	k.wants("checkpoints of a flow without its book", err, logbook.ErrNotFound)
}

func checkpointNeedsAttempt(k *kit) {
	r := k.recording()
	k.wants("a checkpoint before the first attempt", r.refuses(checkpoint("a", `1`)), logbook.ErrConflict)
	r.begin(1)
	r.change(logbook.AtomChange{State: logbook.AtomPending, RetryAt: someTime, Attempts: []logbook.Attempt{failed(execution(1), logbook.Failure{Kind: "error"})}})
	k.wants("a checkpoint of an attempt that has ended", r.refuses(checkpoint("a", `1`)), logbook.ErrConflict)
	r.begin(2)
	both := task("import")
	both.State, both.Attempts, both.Checkpoints = logbook.AtomSuccess, []logbook.Attempt{ended(execution(2), nil)}, []logbook.Checkpoint{checkpoint("a", `1`)}
	k.wantsInvalid("a checkpoint with the end of its attempt", k.verdict(logbook.Update{Flow: r.flow, Sequence: r.sequence + 1, Atoms: []logbook.AtomChange{both}}))
	r.has("after the refusals", "", nil)
}

func checkpointsNumbered(k *kit) {
	r := k.recording()
	number := func(what string, want int) {
		k.same("number "+what, r.atom(r.flow, "import").Checkpoints.Number, want)
	}
	record := func(value string, number int) {
		c := checkpoint("a", value)
		c.Number = number
		r.change(logbook.AtomChange{Checkpoints: []logbook.Checkpoint{c}})
	}
	r.begin(1)
	record(`1`, 1)
	record(`2`, 7)
	number("of the latest checkpoint", 7)
	asked := execution(1)
	asked.Asked = 1
	r.change(logbook.AtomChange{Attempts: []logbook.Attempt{asked}})
	number("after \"not yet\"", 0)
	record(`3`, 1)
	r.change(logbook.AtomChange{State: logbook.AtomPending, RetryAt: someTime, Attempts: []logbook.Attempt{failed(asked, logbook.Failure{Kind: "error"})}})
	r.begin(2)
	number("in the next attempt", 0)
	r.has("after all", "a", logbook.Values{"a": json.RawMessage(`3`)})
}

func checkpointsAtLimit(k *kit) {
	r := k.recording()
	r.begin(1)
	var many []logbook.Checkpoint
	for i := range logbook.MaxCheckpoints {
		many = append(many, checkpoint(fmt.Sprint(i), `0`))
	}
	r.change(logbook.AtomChange{Checkpoints: many})
	k.wantsLimit("one checkpoint more", r.refuses(checkpoint("more", `0`)), logbook.MaxCheckpoints, logbook.MaxCheckpoints+1)
	r.change(logbook.AtomChange{Checkpoints: []logbook.Checkpoint{checkpoint("7", `1`)}}) // it replaces one
	k.same("count", r.atom(r.flow, "import").Checkpoints.Count, logbook.MaxCheckpoints)

	r = k.recording()
	r.begin(1)
	full := checkpoint("0", `"`+strings.Repeat("x", logbook.MaxCheckpoint-len(`""`))+`"`)
	long := checkpoint("0", `"`+strings.Repeat("x", 2*logbook.MaxCheckpoint)+`"`) // encrypted values may be longer
	k.wants("a value that is too long", r.refuses(long), logbook.ErrLimit)
	least := logbook.MaxCheckpointBytes/full.Size() - 1
	var err error
	kept := 0
	for ; err == nil && kept <= 4*least; kept++ {
		full.Name = fmt.Sprint(kept)
		if err = r.refuses(full); err == nil {
			r.sequence++
		}
	}
	if k.wants("more bytes", err, logbook.ErrLimit); kept <= least {
		k.Errorf("%d checkpoints of %d bytes were refused", kept, full.Size())
	}
}

func checkpointsAreValues(k *kit) {
	r := k.recording()
	r.begin(1)
	k.wantsInvalid("a checkpoint without a name", r.refuses(checkpoint("", `1`)))
	k.wantsInvalid("a checkpoint without a value", r.refuses(checkpoint("a", ``)))
	k.wantsInvalid("a checkpoint that is not JSON", r.refuses(checkpoint("a", `{`)))
	r.has("after the refusals", "", nil)
}
