package node_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/valuekeys"
)

// someKeys are keys with these ids, of one letter each. A key is derived from its id.
func someKeys(t *testing.T, ids ...string) *valuekeys.Keys {
	t.Helper()
	text := ""
	for _, id := range ids {
		text += fmt.Sprintf("%s = %q\n", id, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(id, 32))))
	}
	keys, err := valuekeys.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// canaries makes values that are easy to find, and counts them.
type canaries struct{ made int }

func (c *canaries) text() string {
	c.made++
	return fmt.Sprintf("canary %d", c.made)
}

func (c *canaries) value() json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"v":"%s"}`, c.text()))
}

func (c *canaries) failure() *logbook.Failure {
	return &logbook.Failure{Kind: logbook.FailureError, Message: c.text(), Stack: c.text(), Details: logbook.Values{"fact": c.value()},
		Causes: []logbook.Failure{{Kind: "other", Message: c.text(), Details: logbook.Values{"fact": c.value()}}}}
}

// everything is all data of a job, its book and its flow that a client can read.
func everything(t *testing.T, client *raftboard.Client, job jobs.JobID, schedule schedules.Ref) string {
	t.Helper()
	var all strings.Builder
	add := func(value any, err error) {
		text, encodeErr := json.Marshal(value)
		if err := errors.Join(err, encodeErr); err != nil {
			t.Fatal(err)
		}
		all.Write(append(text, '\n'))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	read, err := client.Job(ctx, job)
	add(read, err)
	add(client.Jobs(ctx, jobs.Query{}))
	add(client.Wait(ctx, job))
	add(client.Explain(ctx, job))
	add(client.Errors(ctx, jobs.ErrorQuery{}))
	add(client.Book(ctx, read.Book))
	add(client.Books(ctx, "", 0))
	add(client.FlowDetail(ctx, read.Flow))
	add(client.Checkpoints(ctx, read.Flow, "running"))
	add(client.Schedule(ctx, schedule, schedules.Look{}))
	for event, err := range client.Watch(ctx, jobs.Watch{After: &jobs.Position{}, Job: job}) {
		add(event, err)
		if event.Kind == jobs.EventTrashed {
			break
		}
	}
	return all.String()
}

// atoms are changes of two steps: one with values in each place of an attempt, and one with a checkpoint.
func (m *canaries) atoms(token logbook.Token, at time.Time) []logbook.AtomChange {
	return []logbook.AtomChange{
		{Name: "running", Kind: logbook.KindTask, State: logbook.AtomRunning, Attempts: []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, Token: token, StartedAt: at}}},
		{Name: "running", Kind: logbook.KindTask, Checkpoints: []logbook.Checkpoint{{Name: "row", Value: m.value(), At: at}}},
		{Name: "step", Kind: logbook.KindTask, State: logbook.AtomRunning, Progress: &logbook.Progress{Done: 1, Details: m.value(), At: at}, Attempts: []logbook.Attempt{
			{Action: logbook.ActionExecute, Number: 1, Token: token, StartedAt: at, EndedAt: at, Result: m.value(), Stderr: m.text()},
			{Action: logbook.ActionRevert, Number: 1, Token: token, StartedAt: at, EndedAt: at, Failure: m.failure(), Failures: []logbook.Failure{*m.failure()}},
		}},
	}
}

// TestValuesAreEncrypted: only a client with the key reads values of programs in plain text. Names,
// states and kinds are readable for all.
func TestValuesAreEncrypted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	with, without := c.clientWith(someKeys(t, "a")), c.client()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var made canaries
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	flow := logbook.FlowDetail{ID: logbook.NewFlowID(), Name: "flow", Factory: logbook.Factory{Name: "factory", Args: made.value()},
		Store: logbook.Values{"s": made.value()}, Meta: logbook.Values{"m": made.value()}}
	book := logbook.Book{ID: logbook.NewBookID(), Name: "book", Meta: logbook.Values{"m": made.value()}, Flows: []logbook.FlowDetail{flow}}
	posting := jobs.Posting{ID: jobs.NewJobID(), Name: "job", Book: &book, Details: made.value(), Store: logbook.Values{"s": made.value()}}
	for range 2 { // a repeat is the same posting
		posted, err := jobs.PostOne(ctx, with, posting)
		must(err)
		if string(posted.Details) != string(posting.Details) {
			t.Errorf("the answer has %s", posted.Details)
		}
	}
	must(with.SaveBook(ctx, book)) // the same book, although the job is unfinished

	session, err := with.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "conductor"})
	must(err)
	claimed, err := with.Claim(ctx, session.ID, posting.ID, jobs.NewNonce())
	must(err)
	if string(claimed.Flow.Factory.Args) != string(flow.Factory.Args) || string(claimed.Job.Store["s"]) != string(posting.Store["s"]) {
		t.Errorf("claimed %s and %s", claimed.Flow.Factory.Args, claimed.Job.Store)
	}
	token, at := claimed.Job.Claim.Token, claimed.Job.ModifiedAt
	update := logbook.Update{Flow: flow.ID, Token: token, Sequence: 1, State: logbook.FlowRunning,
		Definition: &logbook.Definition{Hash: made.text(), Packed: []byte("steps")},
		Atoms:      made.atoms(token, at)}
	for range 2 {
		verdicts, err := with.Update(ctx, update)
		must(errors.Join(append(verdicts, err)...))
	}
	last := logbook.Update{Flow: flow.ID, Token: token, Sequence: 2, State: logbook.FlowFailure, Cause: made.failure()}
	ending := jobs.Ending{Job: posting.ID, Token: token, Update: &last, Reason: made.text(), Failure: made.failure()}
	must(with.Trash(ctx, ending))
	must(with.Trash(ctx, ending))
	_, err = with.Intervene(ctx, logbook.Intervention{ID: uuid.New(), Flow: flow.ID, Kind: logbook.InterveneComplete, Step: "step", By: "ann", Hold: true, Result: made.value()})
	must(err)
	ref := schedules.Ref{Board: jobs.DefaultBoard, Name: "schedule"}
	schedule := schedules.Schedule{Board: ref.Board, Name: ref.Name, Rule: "@yearly", Posting: jobs.Posting{Name: "slot", Details: made.value(), Store: logbook.Values{"s": made.value()},
		Book: &logbook.Book{Name: "book", Flows: []logbook.FlowDetail{{Name: "flow", Factory: logbook.Factory{Name: "factory", Args: made.value()}}}}}}
	_, err = with.SaveSchedule(ctx, schedule)
	must(err)

	stored := everything(t, without, posting.ID, ref)
	if strings.Contains(stored, "canary") {
		t.Errorf("plain values: %s", stored)
	}
	for _, readable := range []string{`"step"`, `"other"`, `"factory"`, "trashed"} {
		if !strings.Contains(stored, readable) {
			t.Errorf("%s cannot be read", readable)
		}
	}
	plain := everything(t, with, posting.ID, ref)
	if strings.Contains(plain, "$encrypted") {
		t.Errorf("encrypted values: %s", plain)
	}
	for n := range made.made {
		if !strings.Contains(plain, fmt.Sprintf("canary %d", n+1)) {
			t.Errorf("canary %d is lost", n+1)
		}
	}
	// Other keys are like no keys. With the key among others, the values are plain.
	if got := everything(t, c.clientWith(someKeys(t, "b")), posting.ID, ref); got != stored {
		t.Errorf("with another key: %s", got)
	}
	if got := everything(t, c.clientWith(someKeys(t, "b", "a")), posting.ID, ref); got != plain {
		t.Errorf("after a rotation: %s", got)
	}

	// The jobs of a schedule, whose ids a node has made.
	slot, err := with.RunSchedule(ctx, schedules.Command{Ref: ref})
	must(err)
	job, err := with.Job(ctx, slot.Job)
	must(err)
	detail, err := with.FlowDetail(ctx, job.Flow)
	must(err)
	if string(job.Details) != string(schedule.Posting.Details) ||
		string(job.Store["s"]) != string(schedule.Posting.Store["s"]) || string(detail.Factory.Args) != string(schedule.Posting.Book.Flows[0].Factory.Args) {
		t.Errorf("the job of a slot has %s, %s and %s", job.Details, job.Store, detail.Factory.Args)
	}
}

// TestMovedValuesAreRefused: a value that was moved to another name, job or step is not decrypted.
func TestMovedValuesAreRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	with, without := c.clientWith(someKeys(t, "a")), c.client()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first, err := jobs.PostOne(ctx, with, jobs.Posting{Kind: "none", Name: "first", Store: logbook.Values{"price": json.RawMessage(`1`), "limit": json.RawMessage(`1`)}})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := without.Job(ctx, first.ID)
	if err != nil || string(stored.Store["price"]) == string(stored.Store["limit"]) {
		t.Fatalf("%s, %v", stored.Store, err)
	}
	moved, err := jobs.PostOne(ctx, without, jobs.Posting{Kind: "none", Name: "second", Details: stored.Store["price"], Store: logbook.Values{"price": stored.Store["price"]}})
	if err != nil {
		t.Fatal(err)
	}
	read, err := with.Job(ctx, moved.ID)
	if id, encrypted := valuekeys.KeyID(read.Store["price"]); err != nil || !encrypted || id != "a" {
		t.Errorf("it is %s, %v", read.Store["price"], err)
	}
	if _, encrypted := valuekeys.KeyID(read.Details); !encrypted {
		t.Errorf("it is %s", read.Details)
	}
}

// TestLongTextsFitWhenEncrypted: the longest failure and the longest stderr that a conductor
// records fit when they are encrypted. The end of the stderr is kept.
func TestLongTextsFitWhenEncrypted(t *testing.T) {
	t.Parallel()
	const smallest = 64 << 10 // minimum for a configuration with keys
	c := newCluster(t, 1, func(o *node.Options) { o.Limits = logbook.MaxLimits; o.Limits.Value = smallest }).startAll()
	client := c.clientWith(someKeys(t, "a"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	long := strings.Repeat("long ", 50_000)
	failure := &logbook.Failure{Kind: logbook.FailureError, Message: long, Stack: long}
	for range 100 {
		failure.Causes = append(failure.Causes, logbook.Failure{Kind: logbook.FailureError, Message: "short", Stack: "short", Causes: failure.Causes[:min(1, len(failure.Causes))]})
	}
	for i := range failure.Causes {
		failure.Causes[i].Details = logbook.Values{}
		for name := range logbook.MaxDetails {
			failure.Causes[i].Details[fmt.Sprint(name)] = json.RawMessage("1")
		}
	}
	limits := logbook.MaxLimits
	limits.Value = smallest
	failure = flow.FitFailure(failure, client.PlainLimits(limits))
	detail := logbook.FlowDetail{ID: logbook.NewFlowID(), Name: "flow", Factory: logbook.Factory{Name: "factory"}}
	if err := client.SaveBook(ctx, logbook.Book{ID: logbook.NewBookID(), Name: "book", Flows: []logbook.FlowDetail{detail}}); err != nil {
		t.Fatal(err)
	}
	attempt := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, StartedAt: time.Unix(1, 0), EndedAt: time.Unix(2, 0),
		Failure: failure, Stderr: strings.Repeat("x", logbook.MaxStderr-3) + "end"}
	update := logbook.Update{Flow: detail.ID, Sequence: 1, State: logbook.FlowRunning, Cause: failure,
		Atoms: []logbook.AtomChange{{Name: "step", Kind: logbook.KindTask, State: logbook.AtomRunning, Attempts: []logbook.Attempt{attempt}}}}
	verdicts, err := client.Update(ctx, update)
	if err := errors.Join(append(verdicts, err)...); err != nil {
		t.Fatal(err)
	}
	read, err := client.FlowDetail(ctx, detail.ID)
	if err != nil {
		t.Fatal(err)
	}
	kept := read.Atoms[0].Attempts[0]
	if !strings.HasSuffix(kept.Stderr, "xend") || !kept.StderrTruncated || len(kept.Stderr) != valuekeys.PlainSize(logbook.MaxStderr) || kept.Failure.Message != failure.Message {
		t.Errorf("%d bytes of stderr, %d of the message", len(kept.Stderr), len(kept.Failure.Message))
	}
}

// TestEncryptedFlowsAreNotChecked: a node cannot check a flow that it cannot read.
func TestEncryptedFlowsAreNotChecked(t *testing.T) {
	t.Parallel()
	refuse := func(*logbook.FlowDetail, logbook.Values) error { return logbook.ErrInvalid }
	c := newCluster(t, 1, func(o *node.Options) { o.CheckFlow = refuse }).startAll()
	for _, row := range []struct {
		client *raftboard.Client
		want   error
	}{{c.client(), logbook.ErrInvalid}, {c.clientWith(someKeys(t, "a")), nil}} {
		detail := logbook.FlowDetail{ID: logbook.NewFlowID(), Name: "flow", Factory: logbook.Factory{Name: "factory", Args: json.RawMessage(`1`)}}
		posting := jobs.Posting{Name: "job", Book: &logbook.Book{ID: logbook.NewBookID(), Name: "book", Flows: []logbook.FlowDetail{detail}}}
		if _, err := jobs.PostOne(t.Context(), row.client, posting); !errors.Is(err, row.want) {
			t.Errorf("%v, want %v", err, row.want)
		}
	}
}

// TestRepeatsUnderAnotherKey: a repeat with another current key has other bytes, so it is a
// conflict and changes nothing.
func TestRepeatsUnderAnotherKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	posting := jobs.Posting{ID: jobs.NewJobID(), Kind: "none", Name: "job", Details: json.RawMessage(`1`)}
	before, after := c.clientWith(someKeys(t, "a", "b")), c.clientWith(someKeys(t, "b", "a"))
	if _, err := jobs.PostOne(t.Context(), before, posting); err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.PostOne(t.Context(), after, posting); !errors.Is(err, jobs.ErrConflict) {
		t.Errorf("got %v", err)
	}
	if job, err := after.Job(t.Context(), posting.ID); err != nil || string(job.Details) != `1` {
		t.Errorf("it has %s, %v", job.Details, err)
	}
}
