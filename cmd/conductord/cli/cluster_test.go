package cli_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/fsm/fsmtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node/backup"
)

// testCluster is a board over a bare state machine. It outlives the commands,
// each of which closes it.
type testCluster struct {
	*fsmtest.Board
	nodes    []raftboard.NodeStatus
	members  []raftboard.Member
	compared []raftboard.MemberCheck
	broken   error         // of Backup
	stale    int           // how often it was asked for stale answers
	age      time.Duration // of these; negative: unknown
}

func openCluster(t *testing.T) *testCluster {
	t.Helper()
	return &testCluster{Board: fsmtest.New(t, fsmtest.Options{})}
}

func (c *testCluster) Stale() cli.Cluster {
	c.stale++
	return c
}

func (c *testCluster) StaleAge() (time.Duration, bool) { return c.age, c.age >= 0 }

func (c *testCluster) Nodes(context.Context) ([]raftboard.NodeStatus, error) { return c.nodes, nil }

func (c *testCluster) TransferLeader(_ context.Context, to string) (string, error) {
	if to == "nobody" {
		return "", jobs.ErrNotFound
	}
	return cmp.Or(to, "n2"), nil
}

// The members are n1 to n3, and those that were added.
func (c *testCluster) AddMember(_ context.Context, member raftboard.NewMember) (raftboard.Admission, error) {
	if member.Name == "n2" && member.Replaces == "" {
		return raftboard.Admission{}, jobs.ErrConflict
	}
	c.members = append(c.members, raftboard.Member{Name: member.Name, ID: member.Name + ".new", RaftAddress: member.RaftAddress, APIAddress: member.APIAddress})
	return raftboard.Admission{Generation: 1, Founders: c.members[:1]}, nil
}

func (c *testCluster) RemoveMember(_ context.Context, name string) ([]raftboard.Member, error) {
	at, err := c.member(name)
	if err == nil {
		c.members = slices.Delete(c.members, at, at+1)
	}
	return c.members, err
}

func (c *testCluster) SetVote(_ context.Context, name string, vote bool) ([]raftboard.Member, error) {
	at, err := c.member(name)
	if err == nil {
		c.members[at].Voter = vote
	}
	return c.members, err
}

func (c *testCluster) MoveMember(_ context.Context, name, raftAddress, apiAddress string) ([]raftboard.Member, error) {
	at, err := c.member(name)
	if err == nil {
		c.members[at].RaftAddress, c.members[at].APIAddress = raftAddress, apiAddress
	}
	return c.members, err
}

func (c *testCluster) Upgrade(context.Context) (int, error) {
	if len(c.nodes) == 1 {
		return 0, jobs.ErrConflict
	}
	return 2, nil
}

func (c *testCluster) Verify(context.Context) (raftboard.Comparison, error) {
	return raftboard.Comparison{Index: 42, Members: c.compared}, nil
}

func (c *testCluster) member(name string) (int, error) {
	at := slices.IndexFunc(c.members, func(m raftboard.Member) bool { return m.Name == name })
	if at < 0 {
		return 0, jobs.ErrNotFound
	}
	return at, nil
}

// Backup gives a backup whose state is no state.
func (c *testCluster) Backup(context.Context, bool) (io.ReadCloser, error) {
	const state = "no state"
	var file bytes.Buffer
	manifest := backup.Manifest{Cluster: "test", Generation: 1, Index: 42, Term: 3, Node: "n1", StateBytes: int64(len(state)), Digest: "abc"}
	if err := backup.Write(&file, manifest, strings.NewReader(state)); err != nil {
		return nil, err
	}
	return io.NopCloser(&file), c.broken
}

func (c *testCluster) Close() error { return nil }

// worker does by hand what a conductor does, step by step, so that a test knows what
// the commands must show.
type worker struct {
	t        *testing.T
	cluster  cli.Cluster
	session  jobs.SessionID
	claimed  jobs.Claimed
	sequence uint64
	started  time.Time
}

// newWorker opens a session and claims a job.
func newWorker(t *testing.T, cluster cli.Cluster, id jobs.JobID) *worker {
	t.Helper()
	w := &worker{t: t, cluster: cluster, session: jobs.NewSessionID(), started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	_, err := cluster.OpenSession(t.Context(), jobs.Opening{ID: w.session, Name: "w1", Host: "h1", PID: 7, TTL: time.Hour})
	w.must(err)
	w.claimed, err = cluster.Claim(t.Context(), w.session, id, jobs.NewNonce())
	w.must(err)
	return w
}

func (w *worker) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

func (w *worker) next(state logbook.FlowState, changes ...logbook.AtomChange) logbook.Update {
	w.sequence++
	return logbook.Update{Flow: w.claimed.Job.Flow, Token: w.claimed.Job.Token, Sequence: w.sequence, State: state, Atoms: changes}
}

func (w *worker) update(state logbook.FlowState, changes ...logbook.AtomChange) {
	w.t.Helper()
	verdicts, err := w.cluster.Update(w.t.Context(), w.next(state, changes...))
	w.must(err)
	w.must(verdicts[0])
}

// begin is a step that starts, finish one that ends after 1.5 s.
func (w *worker) begin(step string) logbook.AtomChange {
	return logbook.AtomChange{Name: step, Kind: logbook.KindTask, State: logbook.AtomRunning,
		Attempts: []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, Token: w.claimed.Job.Token, StartedAt: w.started}}}
}

func (w *worker) finish(step string, result string, failure *logbook.Failure) logbook.AtomChange {
	change := w.begin(step)
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

// succeed runs the two steps of examples/hello.toml to their good end.
func (w *worker) succeed() {
	w.t.Helper()
	w.update(logbook.FlowRunning, w.begin("make-greeting"))
	w.update("", w.finish("make-greeting", `{"greeting":"Hello"}`, nil), w.begin("say-greeting"))
	last := w.next(logbook.FlowSuccess, w.finish("say-greeting", "", nil))
	w.must(w.cluster.Consume(w.t.Context(), jobs.Ending{Job: w.claimed.Job.ID, Token: w.claimed.Job.Token, Outcome: jobs.OutcomeSuccess, Update: &last}))
}

// fail lets the second step fail, in a flow that cannot be undone.
func (w *worker) fail() {
	w.t.Helper()
	failure := &logbook.Failure{Kind: logbook.FailureExit, Message: "exit status 3", Step: "say-greeting", Code: 3,
		Causes: []logbook.Failure{{Kind: logbook.FailureError, Message: "status 3", // as the failure itself says
			Causes: []logbook.Failure{{Kind: logbook.FailureError, Message: "the guest has left"}}}}}
	w.update(logbook.FlowRunning, w.begin("make-greeting"))
	w.update("", w.finish("make-greeting", `{"greeting":"Hello"}`, nil), w.begin("say-greeting"))
	last := w.next(logbook.FlowFailure, w.finish("say-greeting", "", failure))
	last.Cause = failure
	w.must(w.cluster.Consume(w.t.Context(), jobs.Ending{Job: w.claimed.Job.ID, Token: w.claimed.Job.Token, Outcome: jobs.OutcomeFailed, Update: &last, Failure: failure}))
}

// post posts by the command line, and gives the job's id.
func post(t *testing.T, cluster cli.Cluster, args ...string) jobs.JobID {
	t.Helper()
	got := run(t, cluster, append([]string{"job", "post"}, args...)...)
	if got.code != 0 {
		t.Fatalf("cannot post: %+v", got)
	}
	id, err := jobs.ParseJobID(strings.TrimSpace(got.out))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func postHello(t *testing.T, cluster cli.Cluster, more ...string) jobs.JobID {
	t.Helper()
	return post(t, cluster, append([]string{"--flow", examples + "hello.toml", "--set", "guest=Ann"}, more...)...)
}

// expect checks a command's output with ids and times made steady.
func expect(t *testing.T, got said, code int, out, err string) {
	t.Helper()
	if got.code != code || steady(got.out) != out || steady(got.err) != err {
		t.Errorf("code %d, want %d\nstdout\n%s\nwant\n%s\nstderr\n%s\nwant\n%s", got.code, code, steady(got.out), out, steady(got.err), err)
	}
}

func TestJobPost(t *testing.T) {
	cluster := openCluster(t)
	id := jobs.NewJobID().String()
	same := []string{"job", "post", "--id", id, "--flow", examples + "hello.toml", "--set", "guest=Ann", "--priority", "high"}
	expect(t, run(t, cluster, same...), 0, "ID\n", "")
	expect(t, run(t, cluster, same...), 0, "ID\n", "conductord: job ID was already posted: nothing changed\n")
	other := run(t, cluster, append(same, "--name", "other")...)
	if other.code != cli.ExitConflict {
		t.Errorf("the same id for another job: %+v", other)
	}
	missing := run(t, cluster, "job", "post", "--flow", needy(t))
	if missing.code != cli.ExitUsage || !strings.Contains(missing.err, "guest") {
		t.Errorf("without an input: %+v", missing)
	}
	unknown := run(t, cluster, "job", "post", "--book", jobs.NewJobID().String())
	if unknown.code != cli.ExitNotFound {
		t.Errorf("an unknown book: %+v", unknown)
	}

	job := readJob(t, run(t, cluster, "job", "get", "-o", "json", id).out)
	if job.Name != "hello" || job.Kind != "document" || job.Priority != jobs.High || string(job.Store["guest"]) != `"Ann"` {
		t.Errorf("posted %+v", job)
	}
}

func TestJobPostValues(t *testing.T) {
	cluster := openCluster(t)
	id := post(t, cluster, "--kind", "k", "--set", "n=3", "--set", "city=Wien", "--set", `list=["a", 1]`, "--set", "empty=",
		"--details", `{"ticket": 12345678901234567890}`, "--not-before", "1h", "--board", "b", "--name", "n")
	job, err := cluster.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"n": "3", "city": `"Wien"`, "list": `["a", 1]`, "empty": `""`} {
		if got := string(job.Store[name]); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if string(job.Details) != `{"ticket": 12345678901234567890}` || job.State != jobs.StateDelayed || job.Board != "b" {
		t.Errorf("posted %+v", job)
	}
}

func TestJobGet(t *testing.T) {
	cluster := openCluster(t)
	idle := "conductord: the job waits: no live conductor builds flows of kind \"document\" from board \"default\"\n"
	waiting := postHello(t, cluster)
	expect(t, run(t, cluster, "job", "get", waiting.String()), 0,
		"id: ID\nname: hello\nboard: default\nkind: document\npriority: normal\nstate: claimable\n"+
			"book: ID hello\nflow: ID\nstore: guest = \"Ann\"\nposted: TIME\nclaims: 0\n", idle)

	failed := postHello(t, cluster)
	newWorker(t, cluster, failed).fail()
	got := run(t, cluster, "job", "get", failed.String())
	for _, want := range []string{
		"state: completed\n", "outcome: failed\n", "failed step: say-greeting\n", "failure: handler.exit: exit status 3\n",
		"caused by: error: the guest has left\n", "stderr: connecting\n no such guest\\u001b[31m\n",
	} {
		if !strings.Contains(steady(got.out), want) {
			t.Errorf("no %q in\n%s", want, got.out)
		}
	}
	if got.code != 0 || got.err != "" || strings.Count(got.out, "status 3") != 1 {
		t.Errorf("got %+v", got)
	}

	unknown := run(t, cluster, "job", "get", jobs.NewJobID().String())
	expect(t, unknown, cli.ExitNotFound, "", unknownText(unknown))
}

func unknownText(got said) string {
	if !strings.HasPrefix(got.err, "conductord: cannot get job ") {
		return "an error that says what could not be done"
	}
	return steady(got.err)
}

func TestJobList(t *testing.T) {
	cluster := openCluster(t)
	expect(t, run(t, cluster, "job", "list"), 0, "ID STATE OUTCOME NAME STARTED TOOK KIND BOARD PRIORITY OWNER POSTED\n", "")
	expect(t, run(t, cluster, "job", "list", "-o", "json"), 0, "{\n \"jobs\": []\n}\n", "")

	post(t, cluster, "--kind", "k", "--name", "right\u202eleft")
	claimed := post(t, cluster, "--kind", "k", "--priority", "7", "--board", "b")
	newWorker(t, cluster, claimed)
	expect(t, run(t, cluster, "job", "list"), 0, "ID STATE OUTCOME NAME STARTED TOOK KIND BOARD PRIORITY OWNER POSTED\n"+
		"ID claimed - k AGO TOOK k b 7 w1 AGO\n"+
		"ID claimable - right\\u202eleft - - k default normal - AGO\n", "")
	expect(t, run(t, cluster, "job", "list", "--state", "claimed"), 0, "ID STATE OUTCOME NAME STARTED TOOK KIND BOARD PRIORITY OWNER POSTED\n"+
		"ID claimed - k AGO TOOK k b 7 w1 AGO\n", "")
	got := run(t, cluster, "job", "list", "-o", "json", "--limit", "1", "--reverse")
	if listed := readJobs(t, got.out); len(listed) != 1 || listed[0].Name != "right\u202eleft" {
		t.Errorf("got %+v", got)
	}
	if rest := run(t, cluster, "job", "list", "--reverse", "--after", cursorOf(t, got.out)); strings.Count(rest.out, "\n") != 2 || !strings.Contains(rest.out, claimed.String()) {
		t.Errorf("after the first: %+v", rest)
	}
	if strings.Contains(got.out, "\u202e") || !strings.Contains(got.err, "first 1 items; --limit 0 lists all") {
		t.Errorf("got %+v", got)
	}
}

// cursorOf is the "next" of a list.
func cursorOf(t *testing.T, text string) string {
	t.Helper()
	var document struct{ Next string }
	if err := json.Unmarshal([]byte(text), &document); err != nil || document.Next == "" {
		t.Fatalf("no cursor in %s: %v", text, err)
	}
	return document.Next
}

func TestJobWait(t *testing.T) {
	cluster := openCluster(t)
	good, bad := postHello(t, cluster), postHello(t, cluster)
	newWorker(t, cluster, good).succeed()
	newWorker(t, cluster, bad).fail()
	for _, row := range []struct {
		name string
		ids  []string
		code int
	}{
		{"a success", []string{good.String()}, cli.ExitOK},
		{"a failure", []string{bad.String()}, cli.ExitFailed},
		{"both", []string{good.String(), bad.String()}, cli.ExitFailed},
		{"an unknown one", []string{jobs.NewJobID().String()}, cli.ExitNotFound},
	} {
		if got := run(t, cluster, append([]string{"job", "wait"}, row.ids...)...); got.code != row.code {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
	waiting := post(t, cluster, "--kind", "k")
	if got := run(t, cluster, "job", "wait", "--timeout", "1ms", waiting.String()); got.code != cli.ExitTimeout {
		t.Errorf("a job that is not finished in time: %+v", got)
	}
}

func TestJobEnds(t *testing.T) {
	cluster := openCluster(t)
	for _, row := range []struct {
		name string
		args string
		held bool // by a worker whose token is given for TOKEN
		code int
		out  string
		err  string // part of it
	}{
		{"consume", "consume ID", false, 0, "ID completed\n", ""},
		{"consume as failed", "consume --outcome failed ID", false, 0, "ID completed\n", ""},
		{"consume under a claim", "consume --token TOKEN ID", true, 0, "ID completed\n", ""},
		{"abandon under a claim", "abandon --token TOKEN --reason tired ID", true, 0, "ID claimable\n", ""},
		{"abandon for a while", "abandon --delay 1h ID", false, 0, "ID cooling\n", ""},
		{"trash", "trash ID", false, 0, "ID trashed\n", ""},
		{"trash with a reason", "trash --reason broken ID", false, 0, "ID trashed\n", ""},
		{"trash under another claim", "trash --token 0-1 ID", true, cli.ExitConflict, "", "w1 holds job"},
		{"consume what another has", "consume ID", true, cli.ExitConflict, "", `"w1" has held it since`},
		{"trash what another has", "trash ID", true, cli.ExitConflict, "", "; --token TOKEN ends it under that claim"},
	} {
		t.Run(row.name, func(t *testing.T) {
			id := post(t, cluster, "--kind", "k")
			args := strings.ReplaceAll(row.args, "ID", id.String())
			if row.held {
				token := newWorker(t, cluster, id).claimed.Job.Token.String()
				args, row.err = strings.ReplaceAll(args, "TOKEN", token), strings.ReplaceAll(row.err, "TOKEN", token)
			}
			got := run(t, cluster, append([]string{"job"}, strings.Fields(args)...)...)
			if got.code != row.code || steady(got.out) != row.out || !strings.Contains(got.err, row.err) {
				t.Errorf("got %+v", got)
			}
			sessions, err := cluster.Sessions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, session := range sessions {
				if session.Name != "w1" {
					t.Errorf("the command has left its session %q open", session.Name)
				}
			}
		})
	}
	id := post(t, cluster, "--kind", "k")
	run(t, cluster, "job", "trash", "--reason", "broken", id.String())
	got := run(t, cluster, "job", "get", id.String())
	if !strings.Contains(steady(got.out), "reason: broken\n") || !strings.Contains(steady(got.out), "failure: operator: broken\n") {
		t.Errorf("the evidence: %+v", got)
	}
	again := run(t, cluster, "job", "trash", id.String())
	expect(t, again, cli.ExitConflict, "", "conductord: cannot trash job ID: the job cannot be claimed now: it is trashed\n")
	unknown := run(t, cluster, "job", "consume", jobs.NewJobID().String())
	if unknown.code != cli.ExitNotFound || !strings.HasPrefix(unknown.err, "conductord: cannot consume job ") {
		t.Errorf("an unknown job: %+v", unknown)
	}
}

func TestJobWatch(t *testing.T) {
	cluster := openCluster(t)
	id := postHello(t, cluster, "--name", "a b")
	newWorker(t, cluster, id).succeed()
	got := run(t, cluster, "job", "watch", "--after", "0-0", "--flows", id.String())
	text := regexp.MustCompile(`(?m)^\d+-\d+ `).ReplaceAllString(got.out, "POSITION ")
	expect(t, said{text, got.err, got.code}, 0,
		"POSITION TIME posted ID \"a b\" claimable\n"+
			"POSITION TIME claimed ID \"a b\" claimed owner=w1\n"+
			"POSITION TIME flow ID \"a b\" flow=running make-greeting=running\n"+
			"POSITION TIME flow ID \"a b\" make-greeting=success say-greeting=running\n"+
			"POSITION TIME flow ID \"a b\" flow=success say-greeting=success\n"+
			"POSITION TIME completed ID \"a b\" completed outcome=success owner=w1\n", "")

	got = run(t, cluster, "job", "watch", "--after", "0-0", "-o", "json", id.String())
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	for _, line := range lines {
		if event := readJSON(t, line, &v1.Event{}, command.EventFromProto); event.Job != id {
			t.Errorf("an event of another job on the line %s", line)
		}
	}
	if len(lines) != 3 || got.code != 0 {
		t.Errorf("%d lines: %+v", len(lines), got)
	}
}

// TestJobWatchEnds: the watch of a job that is finished already ends too.
func TestJobWatchEnds(t *testing.T) {
	cluster := openCluster(t)
	id := postHello(t, cluster)
	newWorker(t, cluster, id).succeed()
	got := run(t, cluster, "job", "watch", id.String())
	expect(t, got, 0, "", "conductord: job ID is already completed: success\n")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := runWith(t, ctx, cluster, nil, "job", "watch"); got.code != 0 {
		t.Errorf("ended from the keyboard: %+v", got)
	}
}

func TestBooks(t *testing.T) {
	cluster := openCluster(t)
	expect(t, run(t, cluster, "book", "list", "-o", "json"), 0, "{\n \"books\": []\n}\n", "")
	id := postHello(t, cluster)
	job, err := cluster.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, run(t, cluster, "book", "list"), 0, "ID NAME CREATED\nID hello AGO\n", "")
	expect(t, run(t, cluster, "book", "get", job.Book.String()), 0,
		"id: ID\nname: hello\ncreated: TIME\nupdated: TIME\nflows: 1\n\nFLOW NAME FACTORY STATE UPDATED\nID hello document pending AGO\n", "")
	if got := run(t, cluster, "book", "get", jobs.NewJobID().String()); got.code != cli.ExitNotFound {
		t.Errorf("an unknown book: %+v", got)
	}
	if err := cluster.SaveBook(t.Context(), logbook.Book{ID: logbook.NewBookID(), Name: "later"}); err != nil {
		t.Fatal(err)
	}
	expect(t, run(t, cluster, "book", "list"), 0, "ID NAME CREATED\nID later AGO\nID hello AGO\n", "")
}

func TestPresence(t *testing.T) {
	cluster := openCluster(t)
	session := jobs.NewSessionID()
	if _, err := cluster.OpenSession(t.Context(), jobs.Opening{ID: session, Name: "c1", Host: "h1", PID: 7, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	err := cluster.Register(t.Context(), session, jobs.Entity{Kind: jobs.EntityConductor, Name: "c1",
		Boards: []string{"default"}, JobKinds: []string{"document"}, MaxJobs: 4, Host: "h1", PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, run(t, cluster, "session", "list"), 0, "ID NAME HOST PID TTL CLAIMS OPENED\nID c1 h1 7 1h0m0s 0 AGO\n", "")
	if got := run(t, cluster, "session", "list", "-o", "json"); !strings.Contains(got.out, `"ttl": "3600s"`) || strings.Count(got.out, "ttl") != 1 {
		t.Errorf("sessions as JSON: %+v", got)
	}
	expect(t, run(t, cluster, "conductor", "list"), 0,
		"NAME STATE HOST PID BOARDS KINDS LABELS HOLDS MAX JOBS SINCE\nc1 claiming h1 7 default document - 0 4 AGO\n", "")
	// With a conductor that can do it, nothing is said about the waiting job.
	expect(t, run(t, cluster, "job", "get", postHello(t, cluster).String(), "-o", "json"), 0,
		jobDocument, "")
}

func TestClusterStatus(t *testing.T) {
	offset := -time.Second / 4
	leader := raftboard.NodeStatus{Endpoint: "a:1", Status: raftboard.Status{Node: "n1", Cluster: "c", State: "leader", Leader: "n1", Term: 3, AppliedIndex: 17,
		Ready: true, Sessions: 2, LogStore: "wal", ClockOffset: &offset, Jobs: map[jobs.State]uint64{"completed": 5, "claimable": 1}}}
	down := raftboard.NodeStatus{Endpoint: "b:1", Err: errors.New("connection refused")}
	lone := raftboard.NodeStatus{Endpoint: "c:1", Status: raftboard.Status{Node: "n3", Cluster: "c", State: "candidate", NotReady: "no leader"}}
	free := raftboard.NodeStatus{Endpoint: "d:1", Status: raftboard.Status{Node: "n4", Cluster: "c", State: "leader", Leader: "n4", Ready: true, LogBytes: 600 << 20, LogFreeBytes: 300 << 20}}
	busy := raftboard.NodeStatus{Endpoint: "e:1", Status: raftboard.Status{Node: "n5", Cluster: "c", State: "leader", Leader: "n5", Ready: true, LogBytes: 800 << 20, LogFreeBytes: 300 << 20}}
	header := "ENDPOINT NODE CLUSTER STATE LEADER TERM APPLIED SESSIONS LOG CLOCK JOBS READY\n"
	for _, row := range []struct {
		name  string
		nodes []raftboard.NodeStatus
		code  int
		out   string
	}{
		{"led", []raftboard.NodeStatus{leader, down}, 0, header + "a:1 n1 c leader n1 3 17 2 wal -TOOK 1 claimable, 5 completed yes\nb:1 - - - - 0 0 0 - - - no answer\nb:1 does not answer: connection refused\n"},
		{"a log that is mostly free", []raftboard.NodeStatus{free}, 0, header + "d:1 n4 c leader n4 0 0 0 - - - yes\n" +
			"300 of 600 MiB of n4's raft log are free; to shrink it, stop the node: conductord log-store compact --data-dir DIR\n"},
		{"a log in use", []raftboard.NodeStatus{busy}, 0, header + "e:1 n5 c leader n5 0 0 0 - - - yes\n"},
		{"not led", []raftboard.NodeStatus{lone}, cli.ExitUnavailable, header + "c:1 n3 c candidate - 0 0 0 - - - no: no leader\n"},
	} {
		cluster := openCluster(t)
		cluster.nodes = row.nodes
		got := run(t, cluster, "cluster", "status")
		if got.code != row.code || steady(got.out) != row.out || strings.Contains(got.out, "n1") && !strings.Contains(got.out, " -0.250s ") {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
}

// jobDocument is the JSON of a job just posted from examples/hello.toml: what
// scripts rely on.
const jobDocument = `{
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

// needy is a flow document that a job must bring a guest to.
func needy(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "needy.toml")
	text := "name = \"needy\"\ninputs = [\"guest\"]\n[[steps]]\nname = \"greet\"\nrequires = [\"guest\"]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlowRun(t *testing.T) {
	cluster := openCluster(t)
	expect(t, run(t, cluster, "flow", "run", examples+"hello.toml", "--set", "guest=Ann"), 0, "ID\n", "")
	missing := run(t, cluster, "flow", "run", needy(t))
	if missing.code != cli.ExitUsage || !strings.Contains(missing.err, "guest") {
		t.Errorf("without an input: %+v", missing)
	}
}

// TestFlowRunSeveral: several documents are one job of one flow.
func TestFlowRunSeveral(t *testing.T) {
	cluster := openCluster(t)
	id := jobs.NewJobID().String()
	expect(t, run(t, cluster, "flow", "run", examples+"hello.toml", needy(t), "--only", "needy.greet", "--set", "guest=Ann", "--id", id), 0, "ID\n", "")
	if got := run(t, cluster, "flow", "show", id); !strings.Contains(got.out, "hello+needy") || !strings.Contains(got.out, "needy.greet") {
		t.Errorf("shown is %+v", got)
	}
	if twice := run(t, cluster, "flow", "run", examples+"hello.toml", examples+"hello.toml"); twice.code != cli.ExitUsage || !strings.Contains(twice.err, "same name") {
		t.Errorf("one flow twice: %+v", twice)
	}
}

// TestFlowRunOnly: only what is named, and what that waits for, is posted,
// checked and shown.
func TestFlowRunOnly(t *testing.T) {
	cluster := openCluster(t)
	path := filepath.Join(t.TempDir(), "two.toml")
	text := "name = \"two\"\ninputs = [\"guest\"]\n[[steps]]\nname = \"air\"\n[[steps]]\nname = \"greet\"\nrequires = [\"guest\"]\nafter = [\"air\"]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	id := jobs.NewJobID().String()
	expect(t, run(t, cluster, "flow", "run", path, "--only", "air", "--id", id), 0, "ID\n", "")
	if got := run(t, cluster, "flow", "show", id); !strings.Contains(got.out, "air") || !strings.Contains(got.out, "0/1 steps") || strings.Contains(got.out, "greet") {
		t.Errorf("shown is %+v", got)
	}
	for name, row := range map[string]struct {
		args []string
		code int
		says string
	}{
		"another target under one id": {[]string{"--only", "greet", "--set", "guest=Ann", "--id", id}, cli.ExitConflict, "conflict"},
		"a step that is not there":    {[]string{"--only", "sing"}, cli.ExitUsage, "\"sing\""},
		"an input of its own":         {[]string{"--only", "greet"}, cli.ExitUsage, "guest"},
	} {
		if got := run(t, cluster, append([]string{"flow", "run", path}, row.args...)...); got.code != row.code || !strings.Contains(got.err, row.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// runAndWork starts flow run --wait, and a worker for the job once it is posted.
func runAndWork(t *testing.T, cluster cli.Cluster, change func(*cli.Program), work func(*worker)) (said, jobs.JobID) {
	t.Helper()
	id := jobs.NewJobID()
	ended := make(chan said, 1)
	go func() { // ends with the command
		ended <- runWith(t, t.Context(), cluster, change, "flow", "run", "--wait", "--id", id.String(), "--set", "guest=Ann", examples+"hello.toml")
	}()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for posted := false; !posted; {
		select {
		case <-deadline.C:
			t.Fatal("the job was not posted")
		case got := <-ended:
			t.Fatalf("ended before the job had: %+v", got)
		case <-look.C:
			_, err := cluster.Job(t.Context(), id)
			posted = err == nil
		}
	}
	work(newWorker(t, cluster, id))
	select {
	case got := <-ended:
		return got, id
	case <-deadline.C:
		t.Fatal("the command did not end with the job")
	}
	panic("unreachable")
}

func TestFlowRunWait(t *testing.T) {
	cluster := openCluster(t)
	got, _ := runAndWork(t, cluster, nil, (*worker).succeed)
	if got.code != 0 || got.out != "" || !strings.HasPrefix(steady(got.err), "conductord: job ID is posted\n") { // its worker records no definition
		t.Errorf("got %+v", got)
	}
	for _, want := range []string{"TIME make-greeting success TOOK\n", "TIME say-greeting success TOOK\n", "TIME flow hello success\n", "conductord: job ID: completed: success after TOOK\n"} {
		if !strings.Contains(steady(got.err), want) {
			t.Errorf("no %q in\n%s", want, got.err)
		}
	}

	got, _ = runAndWork(t, cluster, nil, (*worker).fail)
	for _, want := range []string{
		"TIME say-greeting failure TOOK handler.exit: exit status 3\n", "TIME flow hello failure\n", "conductord: job ID: completed: failed after TOOK\n", "conductord: failed step: say-greeting\n",
		"conductord: failure: handler.exit: exit status 3\n", "conductord: stderr: connecting\nconductord: stderr: no such guest\\u001b[31m\n",
	} {
		if !strings.Contains(steady(got.err), want) {
			t.Errorf("no %q in\n%s", want, got.err)
		}
	}
	if got.code != cli.ExitFailed {
		t.Errorf("code %d", got.code)
	}

	got, id := runAndWork(t, cluster, func(p *cli.Program) { p.Env = nil }, (*worker).succeed)
	if job := run(t, cluster, "job", "get", "-o", "json", id.String()); got.code != 0 || !strings.Contains(job.out, `"outcome": "success"`) {
		t.Errorf("got %+v", job)
	}
}

// TestFlowRunOnTerminal looks at the last picture that was drawn.
func TestFlowRunOnTerminal(t *testing.T) {
	cluster := openCluster(t)
	for _, row := range []struct {
		name          string
		env           []string
		width, height int
		want          string
	}{
		{"all of it", []string{"NO_COLOR=1"}, 60, 20,
			"hello success [████████████████████] 2/2 steps\n ✓ make-greeting success TOOK\n ✓ say-greeting success TOOK\n"},
		{"a size that is not known", []string{"NO_COLOR=1"}, 0, 0,
			"hello success [████████████████████] 2/2 steps\n ✓ make-greeting success TOOK\n ✓ say-greeting success TOOK\n"},
		{"narrow", []string{"NO_COLOR=1"}, 20, 20, "hello success [██\n ✓ make-greeting \n ✓ say-greeting \n"},
		{"low", []string{"NO_COLOR=1"}, 60, 4, "hello success [████████████████████] 2/2 steps\n ✓ make-greeting success TOOK\n … and 1 more\n"},
		{"coloured", nil, 60, 20, "hello success [████████████████████] 2/2 steps\n" +
			"\x1b[32m ✓ make-greeting success TOOK\x1b[0m\n\x1b[32m ✓ say-greeting success TOOK\x1b[0m\n"},
	} {
		terminal := func(p *cli.Program) {
			p.Terminal, p.Env = true, row.env
			p.Size = func() (int, int) { return row.width, row.height }
		}
		got, _ := runAndWork(t, cluster, terminal, (*worker).succeed)
		pictures := strings.Split(got.err, "\x1b[J")
		last := strings.ReplaceAll(pictures[len(pictures)-2], "\r\x1b[2K", "")
		last = regexp.MustCompile("\x1b\\[\\d+A").ReplaceAllString(last, "")
		if row.height > 0 && strings.Count(last, "\n") >= row.height {
			t.Errorf("%s: the picture scrolls the terminal, and then cannot be drawn over", row.name)
		}
		if steady(last) != row.want || got.code != 0 {
			t.Errorf("%s: drew\n%q\nwant\n%q\n%+v", row.name, steady(last), row.want, got)
		}
	}
}

// writer is a function that is told what is written.
type writer func(string)

func (w writer) Write(text []byte) (int, error) {
	w(string(text))
	return len(text), nil
}

// TestFlowRunInterrupted: ctrl-C ends the command, and not the job.
func TestFlowRunInterrupted(t *testing.T) {
	cluster := openCluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	id := jobs.NewJobID()
	var said strings.Builder
	got := runWith(t, ctx, cluster, func(p *cli.Program) {
		p.Err = writer(func(text string) { // as soon as the job's id is printed
			said.WriteString(text)
			cancel()
		})
	}, "flow", "run", "--wait", "--id", id.String(), "--set", "guest=Ann", examples+"hello.toml")
	if got.code != cli.ExitInterrupted || !strings.Contains(said.String(), "the job continues; see `conductord flow show "+id.String()) {
		t.Errorf("got %+v, said %s", got, said.String())
	}
	job, err := cluster.Job(t.Context(), id)
	if err != nil || job.State.Finished() {
		t.Errorf("the job: %+v, %v", job, err)
	}
}

func TestFlowShow(t *testing.T) {
	cluster := openCluster(t)
	id := postHello(t, cluster)
	tree := func(state string, steps ...string) string {
		return fmt.Sprintf("flow: ID\nname: hello\nbook: ID\nfactory: document\nstate: %s\nSTOREupdated: TIME\n\n%s\n", state, strings.Join(steps, "\n"))
	}
	show := func(id string) said {
		got := run(t, cluster, "flow", "show", id)
		got.out = regexp.MustCompile(`(?m)^store: (.*\n)(?:  +.*\n)*`).ReplaceAllString(got.out, "STORE")
		if !strings.Contains(got.out, "STORE") {
			got.out = strings.Replace(got.out, "updated:", "STOREupdated:", 1)
		}
		return got
	}
	expect(t, show(id.String()), 0, tree("pending",
		"hello pending [░░░░░░░░░░░░░░░░░░░░] 0/2 steps", " · make-greeting pending", " · say-greeting pending"), "")
	newWorker(t, cluster, id).succeed()
	done := tree("success", "hello success [████████████████████] 2/2 steps",
		" ✓ make-greeting success TOOK → {\"greeting\":\"Hello\"}", " ✓ say-greeting success TOOK")
	expect(t, show(id.String()), 0, done, "")
	job, err := cluster.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, show(job.Flow.String()), 0, done, "")

	got := run(t, cluster, "flow", "show", "-o", "json", id.String())
	if detail := readJSON(t, got.out, &v1.FlowDetail{}, command.FlowDetailFromProto); detail.ID != job.Flow || len(detail.Atoms) != 2 || !strings.Contains(got.out, `"ended_token": "`) {
		t.Errorf("got %+v", got)
	}
	if got := run(t, cluster, "flow", "show", jobs.NewJobID().String()); got.code != cli.ExitNotFound {
		t.Errorf("unknown: %+v", got)
	}
	if got := run(t, cluster, "flow", "show", post(t, cluster, "--kind", "k").String()); got.code != cli.ExitNotFound || !strings.Contains(got.err, "has no flow") {
		t.Errorf("a job without a flow: %+v", got)
	}
}

func TestTransferLeader(t *testing.T) {
	cluster := openCluster(t)
	for _, row := range []struct {
		line string
		want said
	}{
		{"cluster transfer-leader", said{"n2 leads\n", "", 0}},
		{"cluster transfer-leader n3", said{"n3 leads\n", "", 0}},
		{"cluster transfer-leader n3 -o json", said{"{\n  \"leader\": \"n3\"\n}\n", "", 0}},
		{"cluster transfer-leader nobody", said{"", "conductord: cannot transfer the leadership: not found\n", cli.ExitNotFound}},
	} {
		if got := run(t, cluster, strings.Fields(row.line)...); got != row.want {
			t.Errorf("%s: %+v", row.line, got)
		}
	}
}

func threeMembers() []raftboard.Member {
	return []raftboard.Member{
		{Name: "n1", ID: "n1.1", RaftAddress: "h1:7071", APIAddress: "h1:7070", Voter: true},
		{Name: "n2", ID: "n2.1", RaftAddress: "h2:7071", APIAddress: "h2:7070", Voter: true},
		{Name: "n3", ID: "n3.1", RaftAddress: "h3:7071", APIAddress: "h3:7070"},
	}
}

func TestMembers(t *testing.T) {
	cluster := openCluster(t)
	cluster.members = threeMembers()
	cluster.nodes = []raftboard.NodeStatus{{Endpoint: "h1:7070", Status: raftboard.Status{Node: "n1", AppliedIndex: 7, Members: threeMembers()}}}
	for _, row := range []struct {
		line string
		want said
	}{
		{"cluster members", said{"NAME  ROLE       RAFT     API      ID\nn1    voter      h1:7071  h1:7070  n1.1\nn2    voter      h2:7071  h2:7070  n2.1\nn3    non-voter  h3:7071  h3:7070  n3.1\n", "", 0}},
		{"cluster promote n3", said{"NAME  ROLE   RAFT     API      ID\nn1    voter  h1:7071  h1:7070  n1.1\nn2    voter  h2:7071  h2:7070  n2.1\nn3    voter  h3:7071  h3:7070  n3.1\n", "", 0}},
		{"cluster demote n2", said{"NAME  ROLE       RAFT     API      ID\nn1    voter      h1:7071  h1:7070  n1.1\nn2    non-voter  h2:7071  h2:7070  n2.1\nn3    voter      h3:7071  h3:7070  n3.1\n", "", 0}},
		{"cluster move n1 --raft h9:1 --api h9:2", said{"NAME  ROLE       RAFT     API      ID\nn1    voter      h9:1     h9:2     n1.1\nn2    non-voter  h2:7071  h2:7070  n2.1\nn3    voter      h3:7071  h3:7070  n3.1\n", "", 0}},
		{"cluster remove n2", said{"NAME  ROLE   RAFT     API      ID\nn1    voter  h9:1     h9:2     n1.1\nn3    voter  h3:7071  h3:7070  n3.1\n", "", 0}},
		{"cluster remove n3 -o json", said{"{\n  \"members\": [\n    {\n      \"name\": \"n1\",\n      \"id\": \"n1.1\",\n      \"raft_address\": \"h9:1\",\n      \"api_address\": \"h9:2\",\n      \"voter\": true\n    }\n  ]\n}\n", "", 0}},
		{"cluster remove n3", said{"", "conductord: cannot remove the member: not found\n", cli.ExitNotFound}},
	} {
		if got := run(t, cluster, strings.Fields(row.line)...); got != row.want {
			t.Errorf("%s: %+v", row.line, got)
		}
	}
}

// Health names what needs a person, and counts the voters that can be lost.
func TestClusterHealth(t *testing.T) {
	cluster := openCluster(t)
	offset := 2 * time.Second
	healthy := func() []raftboard.NodeStatus {
		var nodes []raftboard.NodeStatus
		members := threeMembers()
		members[2].Voter = true
		for _, m := range members {
			nodes = append(nodes, raftboard.NodeStatus{Endpoint: m.APIAddress, Status: raftboard.Status{
				Node: m.Name, Leader: "n1", AppliedIndex: 50_000, CommitIndex: 50_000, Members: members, Version: "v1", Ready: true,
			}})
		}
		return nodes
	}
	for _, row := range []struct {
		name   string
		change func([]raftboard.NodeStatus)
		want   said
	}{
		{"healthy", func([]raftboard.NodeStatus) {}, said{"1 more voter can be lost\n", "", 0}},
		{"one is away", func(n []raftboard.NodeStatus) { n[1].Err = jobs.ErrUnavailable }, said{
			"no further voter can be lost\n", "conductord: the cluster needs attention: n2 does not answer at h2:7070\n", cli.ExitFailed}},
		{"two are away", func(n []raftboard.NodeStatus) {
			n[1], n[2] = raftboard.NodeStatus{Err: jobs.ErrUnavailable}, raftboard.NodeStatus{Err: jobs.ErrUnavailable}
			n[0].Status.Leader, n[0].Status.Ready, n[0].Status.NotReady = "", false, "no leader"
		}, said{
			"no majority: 2 more voters must answer\n", "conductord: the cluster needs attention: no node knows a leader; n1 is not ready: no leader; n2 does not answer at h2:7070; n3 does not answer at h3:7070\n", cli.ExitFailed}},
		{"one is behind", func(n []raftboard.NodeStatus) { n[2].Status.AppliedIndex = 10 }, said{
			"1 more voter can be lost\n", "conductord: the cluster needs attention: n3 is 49990 entries behind\n", cli.ExitFailed}},
		{"a wrong clock", func(n []raftboard.NodeStatus) { n[2].Status.ClockOffset = &offset }, said{
			"1 more voter can be lost\n", "conductord: the cluster needs attention: the clock of n3 is off by +2.000s: check its time service\n", cli.ExitFailed}},
		{"an old backup", func(n []raftboard.NodeStatus) {
			n[1].Status.BackupInterval, n[1].Status.BackupAge = 24*time.Hour, 24*time.Hour
			n[2].Status.BackupInterval, n[2].Status.BackupAge = time.Hour, 3*time.Hour
			n[2].Status.Backups = []raftboard.ScheduledBackup{{File: "c-n3.tar", Fault: "it is cut off"}}
		}, said{
			"1 more voter can be lost\n", "conductord: the cluster needs attention: the newest scheduled backup of n3 is overdue: none for 3h0m0s, and one is due every 1h0m0s: see its log; " +
				"the newest scheduled backup of n3 cannot be used: it is cut off\n", cli.ExitFailed}},
		{"notes", func(n []raftboard.NodeStatus) { n[2].Status.Version, n[2].Status.MembersDiffer = "v2", "they differ" }, said{
			"1 more voter can be lost\nnote: the file of n3 is out of date: they differ\nnote: the nodes run different versions: v1, v2\n", "", 0}},
	} {
		cluster.nodes = healthy()
		row.change(cluster.nodes)
		if got := run(t, cluster, "cluster", "health"); got != row.want {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
}

// Joining makes a data directory, or leaves nothing behind if the cluster refuses the node.
func TestClusterJoin(t *testing.T) {
	cluster := openCluster(t)
	cluster.members = threeMembers()
	dir := t.TempDir()
	file := filepath.Join(dir, "n2.toml")
	text := "node = \"n2\"\ninsecure = true\ndata_dir = \"" + filepath.Join(dir, "data") + "\"\n[cluster]\nid = \"test\"\n" +
		"[[cluster.members]]\nname = \"n1\"\nraft = \"h1:7071\"\napi = \"h1:7070\"\n[[cluster.members]]\nname = \"n2\"\nraft = \"h2:7071\"\napi = \"h2:7070\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(t, cluster, "cluster", "join", "--config", file); got.code != cli.ExitConflict {
		t.Errorf("a name in use: %+v", got)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "data", "*.*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	got := run(t, cluster, "cluster", "replace", "n2", "n2", "--config", file)
	if got != (said{"node n2 is a member of cluster test: start it now, without --init\n", "", 0}) {
		t.Errorf("replaced: %+v", got)
	}
	if got := run(t, cluster, "cluster", "replace", "n2", "n2", "--config", file); got.code != cli.ExitFailed || !strings.Contains(got.err, "it holds a node") {
		t.Errorf("again: %+v", got)
	}
	if got := run(t, cluster, "cluster", "replace", "n2", "n7", "--config", file); got.code != cli.ExitUsage {
		t.Errorf("on another machine: %+v", got)
	}
}

func TestClusterVerify(t *testing.T) {
	cluster := openCluster(t)
	cluster.compared = []raftboard.MemberCheck{{Name: "n1", Same: true}, {Name: "n2", Error: "it is away"}}
	want := said{"NODE  ENTRY  STATE\nn1    42     same\nn2    42     not compared: it is away\n", "", 0}
	if got := run(t, cluster, "cluster", "verify"); got != want {
		t.Errorf("one is away: %+v", got)
	}
	cluster.compared[1] = raftboard.MemberCheck{Name: "n2", Differs: "table job"}
	want = said{"NODE  ENTRY  STATE\nn1    42     same\nn2    42     differs in table job\n",
		"conductord: a member differs from the majority: n2 stops; see \"A member differs\" in docs/repair.md\n", cli.ExitFailed}
	if got := run(t, cluster, "cluster", "verify"); got != want {
		t.Errorf("one differs: %+v", got)
	}
	if got := run(t, cluster, "cluster", "verify", "-o", "json"); !strings.Contains(got.out, `"differs": "table job"`) {
		t.Errorf("as JSON: %+v", got)
	}
}

func TestClusterUpgrade(t *testing.T) {
	cluster := openCluster(t)
	members := threeMembers()[:2]
	node := func(name, version string, can int) raftboard.NodeStatus {
		return raftboard.NodeStatus{Status: raftboard.Status{Node: name, Members: members, Version: version, ClusterVersion: 1, ProgramVersion: can}}
	}
	cluster.nodes = []raftboard.NodeStatus{node("n1", "v1.1", 2), node("n2", "v1.0", 1)}
	for _, row := range []struct {
		second raftboard.NodeStatus
		want   string
	}{
		{node("n2", "v1.0", 1), "n2    v1.0     1        -\nthe cluster uses version 1; next: nothing to do, or upgrade the programs of the nodes\n"},
		{node("n2", "v1.1", 2), "n2    v1.1     2        -\nthe cluster uses version 1; next: conductord cluster upgrade\n"},
		{raftboard.NodeStatus{Err: jobs.ErrUnavailable}, "n2    -        -        does not answer\nthe cluster uses version 1; next: start the nodes that do not answer\n"},
	} {
		cluster.nodes[1] = row.second
		if got := run(t, cluster, "cluster", "upgrade-status"); got.code != 0 || !strings.HasSuffix(got.out, row.want) {
			t.Errorf("got %+v, want %s", got, row.want)
		}
	}
	if got := run(t, cluster, "cluster", "upgrade"); got != (said{"the cluster uses version 2\n", "", 0}) {
		t.Errorf("upgraded: %+v", got)
	}
	cluster.nodes = cluster.nodes[:1]
	if got := run(t, cluster, "cluster", "upgrade"); got.code != cli.ExitConflict {
		t.Errorf("refused: %+v", got)
	}
}

func TestSelftestClock(t *testing.T) {
	cluster := openCluster(t)
	small, large := 100*time.Millisecond, -3*time.Second
	cluster.nodes = []raftboard.NodeStatus{{Status: raftboard.Status{Node: "n1", ClockOffset: &small}}, {Status: raftboard.Status{Node: "n2"}}}
	if got := run(t, cluster, "selftest", "clock"); got != (said{"largest clock offset of 1 nodes: +0.100s on n1 (limit 1s)\n", "", 0}) {
		t.Errorf("good clocks: %+v", got)
	}
	cluster.nodes[1].Status.ClockOffset = &large
	if got := run(t, cluster, "selftest", "clock"); got.code != cli.ExitFailed || !strings.Contains(got.out, "-3.000s on n2 (limit 1s)") {
		t.Errorf("a bad clock: %+v", got)
	}
	cluster.nodes = []raftboard.NodeStatus{{Status: raftboard.Status{Node: "n1", NotReady: "waits for n2"}}}
	if got := run(t, cluster, "selftest", "clock"); got.code != cli.ExitUnavailable || !strings.Contains(got.err, "no node knows the cluster's time: unavailable: it did not happen: n1 waits for n2\n") {
		t.Errorf("no clock: %+v", got)
	}
}
