package job_test

import (
	"context"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/valuekeys"
)

// logging is a cluster of one node, which runs a job itself or leaves it to a program elsewhere.
type logging struct {
	*clitest.Cluster
	logs *steplog.Buffer // nil: the job runs elsewhere
}

func (l logging) ReadLogs(ctx context.Context, query steplog.Query) (steplog.Page, error) {
	if l.logs == nil {
		return l.Cluster.ReadLogs(ctx, query)
	}
	page, _, err := l.logs.Read(query)
	return page, err
}

// TestJobLogs checks the printed lines of running attempts, and of attempts that are only in the
// logbook.
func TestJobLogs(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--flow", clitest.Examples+"hello.toml", "--set", "guest=x")
	w := clitest.NewWorker(t, cluster, id)
	w.Update(logbook.FlowRunning, w.Begin("hello"))
	ended := w.Finish("hello", "", nil)
	ended.Attempts[0].Stderr = "recorded one\nrecorded\ttwo\n"
	w.Update("", ended)

	logs := steplog.New("n1")
	stop := logs.Begin(id)
	say := func(step string, action logbook.Action, attempt int, text string, bytes int) {
		logs.Append(id, steplog.Line{Step: step, Action: action, Attempt: attempt, Text: text}, bytes)
	}
	say("b", logbook.ActionExecute, 1, "first\x1b[31m", 20) // the original text was longer: these bytes are missing
	say("b", logbook.ActionExecute, 1, "second", 6)
	say("b", logbook.ActionRevert, 2, "undone", 6)
	recorded := "hello | recorded one\nhello | recorded    two\n"
	lines := "b | first\\u001b[31m\nb | … 10 bytes dropped\nb | second\nb (revert) #2 | undone\n"
	for _, row := range []struct {
		name    string
		cluster cli.Cluster
		args    string
		out     string
		err     string // part of stderr
	}{
		{"all", logging{cluster, logs}, "", recorded + lines, ""},
		{"of a step", logging{cluster, logs}, "--step hello", recorded, ""},
		{"of a step that writes nothing", logging{cluster, logs}, "--step make-greeting", "", ""},
		{"of an instance", logging{cluster, logs}, "--step make-greeting[2]", "", ""},
		{"elsewhere", logging{cluster, nil}, "", recorded, "runs in the program w1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := clitest.Run(t, row.cluster, append([]string{"job", "logs", id.String()}, strings.Fields(row.args)...)...)
			if got.Code != 0 || got.Out != row.out || !strings.Contains(got.Err, row.err) || row.err == "" && got.Err != "" {
				t.Errorf("%+v, want %q", got, row.out)
			}
		})
	}
	for args, want := range map[string]string{
		id.String() + " --step make-greting":                           `has no step "make-greting"; did you mean "make-greeting"?: not found` + "\nconductord: its steps: make-greeting, say-greeting, hello\n",
		id.String() + " --step c":                                      `has no step "c": not found`,
		clitest.Post(t, cluster, "--kind", "k").String() + " --step c": "has no flow, and no step \"c\": not found",
	} {
		got := clitest.Run(t, logging{cluster, logs}, append([]string{"job", "logs"}, strings.Fields(args)...)...)
		if got.Code != cli.ExitNotFound || got.Out != "" || !strings.Contains(got.Err, want) {
			t.Errorf("%s: %+v", args, got)
		}
	}
	got := clitest.Run(t, logging{cluster, logs}, "job", "logs", id.String(), "--step", "b", "-o", "json")
	if first, _, _ := strings.Cut(got.Out, "\n"); first != `{"step":"b","action":"execute","attempt":1,"text":"first\u001b[31m"}` || strings.Count(got.Out, "\n") != 3 {
		t.Errorf("%+v", got)
	}

	stop()
	last := w.Next(logbook.FlowSuccess)
	w.Must(cluster.Consume(t.Context(), jobs.Ending{Job: id, Token: w.Claimed.Job.Token, Outcome: jobs.OutcomeSuccess, Update: &last}))
	got = clitest.Run(t, logging{cluster, logs}, "job", "logs", "-f", id.String())
	if got.Code != 0 || got.Out != recorded+lines || !strings.Contains(got.Err, "is completed: success") || strings.Contains(got.Err, "no node") {
		t.Errorf("of a finished job: %+v", got)
	}
	for args, want := range map[string]string{"": recorded, "--step make-greeting": ""} {
		got = clitest.Run(t, logging{cluster, steplog.New("n1")}, append([]string{"job", "logs", id.String()}, strings.Fields(args)...)...)
		if got.Code != 0 || got.Out != want || (want == "") != strings.Contains(got.Err, "job "+id.String()+" has no log lines") {
			t.Errorf("of a finished job, %q, whose lines are gone: %+v", args, got)
		}
	}
	if got := clitest.Run(t, logging{cluster, logs}, "job", "logs", jobs.NewJobID().String()); got.Code != cli.ExitNotFound {
		t.Errorf("of no job: %+v", got)
	}
}

// TestEncryptedJobLogs: without the key, the encrypted lines are all printed, although each is longer
// than its plain text. Only a gap in the plain text counts as dropped.
func TestEncryptedJobLogs(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k")
	keys, err := valuekeys.Add(t.TempDir()+"/keys", "2026-11")
	if err != nil {
		t.Fatal(err)
	}
	logs := steplog.New("n1")
	logs.Begin(id)
	for _, line := range []struct {
		plain string
		bytes int
	}{{"line one", 8}, {strings.Repeat("long", 100), 400}, {"abc", 3}, {"", 0}, {"cut", 13}, {"last", 4}} {
		text := keys.Encrypt(valuekeys.Place{Field: "text"}, []byte(line.plain))
		logs.Append(id, steplog.Line{Step: "s", Action: logbook.ActionExecute, Attempt: 1, Text: text}, line.bytes)
	}
	shown := "s | [encrypted with key 2026-11]\n"
	want := strings.Repeat(shown, 5) + "s | … 10 bytes dropped\n" + shown
	if got := clitest.Run(t, logging{cluster, logs}, "job", "logs", id.String()); got.Code != 0 || got.Out != want {
		t.Errorf("%+v, want %q", got, want)
	}
	if got := clitest.Run(t, logging{cluster, logs}, "job", "logs", id.String(), "-o", "json"); strings.Count(got.Out, "\n") != 6 {
		t.Errorf("%+v", got)
	}
}

// moving is a cluster whose job moves to the next buffer after each page.
type moving struct {
	*clitest.Cluster
	buffers []*steplog.Buffer
	pages   int
}

func (m *moving) ReadLogs(_ context.Context, query steplog.Query) (steplog.Page, error) {
	page, _, err := m.buffers[m.pages%len(m.buffers)].Read(query)
	m.pages++
	return page, err
}

// TestJobLogsOfMovingJobs: no line is printed twice when a job returns to a node. The command does
// not follow a step that writes constantly without end.
func TestJobLogsOfMovingJobs(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k")
	m := &moving{Cluster: cluster}
	for _, node := range []string{"n1", "n2"} {
		buffer := steplog.New(node)
		buffer.Begin(id)
		buffer.Append(id, steplog.Line{Step: "s", Action: logbook.ActionExecute, Attempt: 1, Text: "at " + node}, 5)
		m.buffers = append(m.buffers, buffer)
	}
	if got := clitest.Run(t, m, "job", "logs", id.String()); got.Code != 0 || got.Out != "s | at n1\ns | at n2\n" || m.pages != steplog.MaxPages {
		t.Errorf("%d pages: %+v", m.pages, got)
	}
}
