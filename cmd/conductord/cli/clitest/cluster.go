package clitest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node/backup"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

// Cluster is a board in memory, with answers about nodes and members that a test sets. Each command
// closes its connection; the Cluster stays open until the end of the test.
type Cluster struct {
	*boardtest.Board
	Statuses   []raftboard.NodeStatus
	Members    []raftboard.Member
	Compared   []raftboard.MemberCheck
	Broken     error         // error of Backup
	AskedStale int           // number of requests for stale answers
	Age        time.Duration // age of stale answers; negative: unknown
	Meanwhile  func()        // runs once, after the next list of principals was read; nil: nothing
}

// Open opens an empty cluster.
func Open(t *testing.T) *Cluster {
	t.Helper()
	return &Cluster{Board: boardtest.New(t, boardtest.Options{})}
}

// Stale counts the requests for stale answers.
func (c *Cluster) Stale() cli.Cluster {
	c.AskedStale++
	return c
}

// StaleAge returns Age.
func (c *Cluster) StaleAge() (time.Duration, bool) { return c.Age, c.Age >= 0 }

// Principals lets another caller act between the read of the principals and the next call.
func (c *Cluster) Principals(ctx context.Context, after string) (logbook.Page[access.Principal], error) {
	page, err := c.Board.Principals(ctx, after)
	if then := c.Meanwhile; then != nil {
		c.Meanwhile = nil
		then()
	}
	return page, err
}

// Nodes returns Statuses.
func (c *Cluster) Nodes(context.Context) ([]raftboard.NodeStatus, error) { return c.Statuses, nil }

// TransferLeader names the new leader: the given node, or n2. No member has the name "nobody".
func (c *Cluster) TransferLeader(_ context.Context, to string) (string, error) {
	if to == "nobody" {
		return "", jobs.ErrNotFound
	}
	return cmp.Or(to, "n2"), nil
}

// AddMember adds an entry to Members. It refuses the name n2, unless the new node replaces a member.
func (c *Cluster) AddMember(_ context.Context, member raftboard.NewMember) (raftboard.Admission, error) {
	if member.Name == "n2" && member.Replaces == "" {
		return raftboard.Admission{}, jobs.ErrConflict
	}
	c.Members = append(c.Members, raftboard.Member{Name: member.Name, ID: member.Name + ".new", RaftAddress: member.RaftAddress, APIAddress: member.APIAddress})
	return raftboard.Admission{Generation: 1, Founders: c.Members[:1]}, nil
}

// RemoveMember removes an entry of Members.
func (c *Cluster) RemoveMember(_ context.Context, name string) ([]raftboard.Member, error) {
	at, err := c.member(name)
	if err == nil {
		c.Members = slices.Delete(c.Members, at, at+1)
	}
	return c.Members, err
}

// SetVote changes an entry of Members.
func (c *Cluster) SetVote(_ context.Context, name string, vote bool) ([]raftboard.Member, error) {
	at, err := c.member(name)
	if err == nil {
		c.Members[at].Voter = vote
	}
	return c.Members, err
}

// MoveMember changes the addresses of an entry of Members.
func (c *Cluster) MoveMember(_ context.Context, name, raftAddress, apiAddress string) ([]raftboard.Member, error) {
	at, err := c.member(name)
	if err == nil {
		c.Members[at].RaftAddress, c.Members[at].APIAddress = raftAddress, apiAddress
	}
	return c.Members, err
}

// Upgrade answers with version 2. With one entry in Statuses, it fails with a conflict.
func (c *Cluster) Upgrade(context.Context) (int, error) {
	if len(c.Statuses) == 1 {
		return 0, jobs.ErrConflict
	}
	return 2, nil
}

// Verify returns Compared.
func (c *Cluster) Verify(context.Context) (raftboard.Comparison, error) {
	return raftboard.Comparison{Index: 42, Members: c.Compared}, nil
}

func (c *Cluster) member(name string) (int, error) {
	at := slices.IndexFunc(c.Members, func(m raftboard.Member) bool { return m.Name == name })
	if at < 0 {
		return 0, jobs.ErrNotFound
	}
	return at, nil
}

// Backup returns a backup without a valid state.
func (c *Cluster) Backup(context.Context, bool) (io.ReadCloser, error) {
	const state = "no state"
	var file bytes.Buffer
	manifest := backup.Manifest{Cluster: "test", Generation: 1, Index: 42, Term: 3, Node: "n1", StateBytes: int64(len(state)), Digest: "abc"}
	if err := backup.Write(&file, manifest, strings.NewReader(state)); err != nil {
		return nil, err
	}
	return io.NopCloser(&file), c.Broken
}

// Close does nothing, because the test closes the board.
func (c *Cluster) Close() error { return nil }

// Worker does the work of a conductor step by step, so that a test knows the expected output of the
// commands.
type Worker struct {
	T        *testing.T
	Cluster  cli.Cluster
	Session  jobs.SessionID
	Claimed  jobs.Claimed
	sequence uint64
	started  time.Time
}

// NewWorker opens a session and claims a job.
func NewWorker(t *testing.T, cluster cli.Cluster, id jobs.JobID) *Worker {
	t.Helper()
	w := &Worker{T: t, Cluster: cluster, Session: jobs.NewSessionID(), started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	_, err := cluster.OpenSession(t.Context(), jobs.Opening{ID: w.Session, Name: "w1", Host: "h1", PID: 7, TTL: time.Hour})
	w.Must(err)
	w.Claimed, err = cluster.Claim(t.Context(), w.Session, id, jobs.NewNonce())
	w.Must(err)
	return w
}

// Must ends the test on an error.
func (w *Worker) Must(err error) {
	if err != nil {
		w.T.Helper()
		w.T.Fatal(err)
	}
}

// Next makes the next update of the flow.
func (w *Worker) Next(state logbook.FlowState, changes ...logbook.AtomChange) logbook.Update {
	w.sequence++
	return logbook.Update{Flow: w.Claimed.Job.Flow, Token: w.Claimed.Job.Token, Sequence: w.sequence, State: state, Atoms: changes}
}

// Update records the next update of the flow.
func (w *Worker) Update(state logbook.FlowState, changes ...logbook.AtomChange) {
	w.T.Helper()
	verdicts, err := w.Cluster.Update(w.T.Context(), w.Next(state, changes...))
	w.Must(err)
	w.Must(verdicts[0])
}

// Begin starts a step.
func (w *Worker) Begin(step string) logbook.AtomChange {
	return logbook.AtomChange{Name: step, Kind: logbook.KindTask, State: logbook.AtomRunning,
		Attempts: []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, Token: w.Claimed.Job.Token, StartedAt: w.started}}}
}

// Finish ends a step after 1.5 s.
func (w *Worker) Finish(step string, result string, failure *logbook.Failure) logbook.AtomChange {
	change := w.Begin(step)
	attempt := &change.Attempts[0]
	attempt.EndedAt = w.started.Add(1500 * time.Millisecond)
	change.State = logbook.AtomSuccess
	if result != "" {
		attempt.Result = json.RawMessage(result)
	}
	if failure != nil {
		change.State, attempt.Failure, attempt.Stderr = logbook.AtomFailure, failure, "connecting\nno such guest\x1b[31m\n"
	}
	return change
}

// Succeed runs the two steps of examples/hello.toml successfully.
func (w *Worker) Succeed() {
	w.T.Helper()
	w.Update(logbook.FlowRunning, w.Begin("make-greeting"))
	w.Update("", w.Finish("make-greeting", `{"greeting":"Hello"}`, nil), w.Begin("say-greeting"))
	last := w.Next(logbook.FlowSuccess, w.Finish("say-greeting", "", nil))
	w.Must(w.Cluster.Consume(w.T.Context(), jobs.Ending{Job: w.Claimed.Job.ID, Token: w.Claimed.Job.Token, Outcome: jobs.OutcomeSuccess, Update: &last}))
}

// Fail lets the second step fail, in a flow that cannot be undone.
func (w *Worker) Fail() { w.FailAs(nil) }

// FailAs is Fail with the definition of the flow.
func (w *Worker) FailAs(definition *logbook.Definition) {
	w.T.Helper()
	failure := &logbook.Failure{Kind: logbook.FailureExit, Message: "exit status 3", Step: "say-greeting", Code: 3,
		Causes: []logbook.Failure{{Kind: logbook.FailureError, Message: "status 3", // same as the failure itself
			Causes: []logbook.Failure{{Kind: logbook.FailureError, Message: "the guest has left"}}}}}
	first := w.Next(logbook.FlowRunning, w.Begin("make-greeting"))
	first.Definition = definition
	verdicts, err := w.Cluster.Update(w.T.Context(), first)
	w.Must(err)
	w.Must(verdicts[0])
	w.Update("", w.Finish("make-greeting", `{"greeting":"Hello"}`, nil), w.Begin("say-greeting"))
	last := w.Next(logbook.FlowFailure, w.Finish("say-greeting", "", failure))
	last.Cause = failure
	w.Must(w.Cluster.Consume(w.T.Context(), jobs.Ending{Job: w.Claimed.Job.ID, Token: w.Claimed.Job.Token, Outcome: jobs.OutcomeFailed, Update: &last, Failure: failure}))
}

// Post posts with the command line, and returns the job's id.
func Post(t *testing.T, cluster cli.Cluster, args ...string) jobs.JobID {
	t.Helper()
	got := Run(t, cluster, append([]string{"job", "post"}, args...)...)
	if got.Code != 0 {
		t.Fatalf("cannot post: %+v", got)
	}
	id, err := jobs.ParseJobID(strings.TrimSpace(got.Out))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// PostHello posts examples/hello.toml.
func PostHello(t *testing.T, cluster cli.Cluster, more ...string) jobs.JobID {
	t.Helper()
	return Post(t, cluster, append([]string{"--flow", Examples + "hello.toml", "--set", "guest=Ann"}, more...)...)
}

// Expect compares a command's output, in which ids and times are replaced.
func Expect(t *testing.T, got Said, code int, out, err string) {
	t.Helper()
	if got.Code != code || Steady(got.Out) != out || Steady(got.Err) != err {
		t.Errorf("code %d, want %d\nstdout\n%s\nwant\n%s\nstderr\n%s\nwant\n%s", got.Code, code, Steady(got.Out), out, Steady(got.Err), err)
	}
}

// CursorOf returns the "next" of a list.
func CursorOf(t *testing.T, text string) string {
	t.Helper()
	var document struct{ Next string }
	if err := json.Unmarshal([]byte(text), &document); err != nil || document.Next == "" {
		t.Fatalf("no cursor in %s: %v", text, err)
	}
	return document.Next
}

// JobDocument is the JSON of a job just posted from examples/hello.toml. Scripts rely on this
// form.
const JobDocument = `{
 "id": "ID",
 "board": "default",
 "name": "hello",
 "kind": "document",
 "sequence": "1",
 "state": "claimable",
 "book": "ID",
 "book_name": "hello",
 "flow": "ID",
 "store": {
 "guest": "Ann"
 },
 "posted_at": "TIME",
 "modified_at": "TIME",
 "claimable_at": "TIME",
 "size": BYTES
}
`

// Needy is a flow document with a required input "guest".
func Needy(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "needy.toml")
	text := "name = \"needy\"\ninputs = [\"guest\"]\n[[steps]]\nname = \"greet\"\nrequires = [\"guest\"]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Stick lets the second step of examples/hello.toml fail, and then the revert of the first.
func (w *Worker) Stick() {
	w.T.Helper()
	failure := &logbook.Failure{Kind: logbook.FailureExit, Message: "exit status 3", Step: "say-greeting"}
	stuck := &logbook.Failure{Kind: logbook.FailureExit, Message: "no way back", Step: "make-greeting"}
	packed, err := logbook.PackSteps([]logbook.DefinedStep{{Name: "make-greeting"}, {Name: "say-greeting"}, {Name: "wave"}})
	w.Must(err)
	first := w.Next(logbook.FlowRunning, w.Begin("make-greeting"))
	first.Definition = &logbook.Definition{Hash: "hash-of-hello", Packed: packed}
	verdicts, err := w.Cluster.Update(w.T.Context(), first)
	w.Must(err)
	w.Must(verdicts[0])
	w.Update("", w.Finish("make-greeting", `{"greeting":"Hello"}`, nil), w.Begin("say-greeting"))
	w.Update(logbook.FlowReverting, w.Finish("say-greeting", "", failure), w.undo("make-greeting", logbook.AtomReverting, nil))
	last := w.Next(logbook.FlowFailure, w.undo("make-greeting", logbook.AtomRevertFailure, stuck))
	stuck.Causes = []logbook.Failure{*failure}
	last.Cause = stuck
	w.Must(w.Cluster.Consume(w.T.Context(), jobs.Ending{Job: w.Claimed.Job.ID, Token: w.Claimed.Job.Token, Outcome: jobs.OutcomeFailed, Update: &last, Failure: stuck}))
}

// undo is a step whose revert starts or has ended.
func (w *Worker) undo(step string, state logbook.AtomState, failure *logbook.Failure) logbook.AtomChange {
	attempt := logbook.Attempt{Action: logbook.ActionRevert, Number: 1, Token: w.Claimed.Job.Token, Owner: "w1", StartedAt: w.started, Failure: failure}
	if state != logbook.AtomReverting {
		attempt.EndedAt = w.started.Add(2 * time.Second)
	}
	if failure != nil {
		attempt.Stderr = "no key\nfor the room"
	}
	return logbook.AtomChange{Name: step, State: state, Attempts: []logbook.Attempt{attempt}}
}

// StuckFlow posts examples/hello.toml and brings it into state failure.
func StuckFlow(t *testing.T, cluster cli.Cluster) (jobs.JobID, string) {
	t.Helper()
	id := PostHello(t, cluster)
	w := NewWorker(t, cluster, id)
	w.Stick()
	return id, w.Claimed.Job.Flow.String()
}

// EndAs performs an intervention like a conductor.
func (w *Worker) EndAs(outcome jobs.Outcome) {
	w.T.Helper()
	state := map[jobs.Outcome]logbook.FlowState{
		jobs.OutcomeSuccess: logbook.FlowSuccess, jobs.OutcomeReverted: logbook.FlowReverted, jobs.OutcomeFailed: logbook.FlowFailure,
	}[outcome]
	way := logbook.FlowReverting
	if outcome == jobs.OutcomeSuccess {
		way = logbook.FlowRunning
	}
	w.Update(way)
	last := w.Next(state)
	w.Must(w.Cluster.Consume(w.T.Context(), jobs.Ending{Job: w.Claimed.Job.ID, Token: w.Claimed.Job.Token, Outcome: outcome, Update: &last}))
}

// Examples is the directory of the examples, from a package of the command line.
var Examples = examples()

func examples() string {
	for up := ""; ; up += "../" {
		if _, err := os.Stat(up + "examples/hello.toml"); err == nil || len(up) > 20 {
			return up + "examples/"
		}
	}
}
