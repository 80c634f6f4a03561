package flow_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
)

func TestFlowRun(t *testing.T) {
	cluster := clitest.Open(t)
	clitest.Expect(t, clitest.Run(t, cluster, "flow", "run", clitest.Examples+"hello.toml", "--set", "guest=Ann"), 0, "ID\n", "")
	paths := filepath.Join(t.TempDir(), "paths.toml")
	write := func(requires string) {
		text := "name = \"paths\"\n[store]\norder = {id = \"o1\"}\n[[steps]]\nname = \"bill\"\nargv = [\"{id}\"]\nrequires = " + requires + "\n"
		if err := os.WriteFile(paths, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{id = "order.id"}`)
	clitest.Expect(t, clitest.Run(t, cluster, "flow", "run", paths), 0, "ID\n", "")
	write(`["order.id"]`)
	if listed := clitest.Run(t, cluster, "flow", "run", paths); listed.Code != cli.ExitUsage || !strings.Contains(listed.Err, "is not an argument") {
		t.Errorf("a path in the list form: %+v", listed)
	}
	write(`{id = "order.id"}` + "\nwhen = {any = [{input = \"order.id\", is = \"equals\", value = \"o1\"}, {not = {input = \"order.id\", is = \"exists\"}}]}")
	clitest.Expect(t, clitest.Run(t, cluster, "flow", "run", paths), 0, "ID\n", "")
	write(`{id = "order.id"}` + "\nwhen = {input = \"env\", is = \"equals\", value = \"prod\"}")
	if asked := clitest.Run(t, cluster, "flow", "run", paths); asked.Code != cli.ExitUsage || !strings.Contains(asked.Err, `step "bill" tests "env"`) {
		t.Errorf("a condition on a value that nobody has: %+v", asked)
	}
	missing := clitest.Run(t, cluster, "flow", "run", clitest.Needy(t))
	if missing.Code != cli.ExitUsage || !strings.Contains(missing.Err, "guest") {
		t.Errorf("without an input: %+v", missing)
	}
}

// TestFlowRunSeveral: several documents are one job of one flow.
func TestFlowRunSeveral(t *testing.T) {
	cluster := clitest.Open(t)
	id := jobs.NewJobID().String()
	clitest.Expect(t, clitest.Run(t, cluster, "flow", "run", clitest.Examples+"hello.toml", clitest.Needy(t), "--only", "needy.greet", "--set", "guest=Ann", "--id", id), 0, "ID\n", "")
	if got := clitest.Run(t, cluster, "flow", "show", id); !strings.Contains(got.Out, "hello+needy") || !strings.Contains(got.Out, "needy.greet") {
		t.Errorf("shown is %+v", got)
	}
	if twice := clitest.Run(t, cluster, "flow", "run", clitest.Examples+"hello.toml", clitest.Examples+"hello.toml"); twice.Code != cli.ExitUsage || !strings.Contains(twice.Err, "same name") {
		t.Errorf("one flow twice: %+v", twice)
	}
}

// TestPostedFailurePolicy: each command that posts a flow can replace the policies in its document.
func TestPostedFailurePolicy(t *testing.T) {
	cluster := clitest.Open(t)
	document := clitest.Examples + "hello.toml"
	for _, row := range []struct {
		args string
		code int
		says string
	}{
		{"flow run " + document + " --set guest=Ann --on-step-failure hold", 0, ""},
		{"job post --flow " + document + " --set guest=Ann --on-step-failure hold", 0, ""},
		{"schedule set daily --rule @daily --flow " + document + " --set guest=Ann --on-step-failure hold", 0, ""},
		{"schedule run daily", 0, ""},
		{"schedule set other --rule @daily --flow " + document + " --set guest=Ann --on-step-failure park", cli.ExitUsage, "flow on_failure is invalid: \"park\" is not one of [revert hold]"},
		{"flow run " + document + " --set guest=Ann --on-step-failure park", cli.ExitUsage, "flow on_failure is invalid: \"park\" is not one of [revert hold]"},
		{"job post --kind k --on-step-failure hold", cli.ExitUsage, "--on-step-failure needs --flow"},
	} {
		if got := clitest.Run(t, cluster, strings.Fields(row.args)...); got.Code != row.code || !strings.Contains(got.Err, row.says) {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
	posted := clitest.ReadJobs(t, clitest.Run(t, cluster, "job", "list", "-o", "json").Out)
	if len(posted) != 3 {
		t.Errorf("%d jobs are posted", len(posted))
	}
	for _, job := range posted {
		if shown := clitest.Run(t, cluster, "flow", "show", job.ID.String()); !strings.Contains(clitest.Steady(shown.Out), "\non failure: hold\n") {
			t.Errorf("shown is %+v", shown)
		}
	}
}

// TestFlowRunOnly: only what is named, and what that waits for, is posted,
// checked and shown.
func TestFlowRunOnly(t *testing.T) {
	cluster := clitest.Open(t)
	path := filepath.Join(t.TempDir(), "two.toml")
	text := "name = \"two\"\ninputs = [\"guest\"]\n[[steps]]\nname = \"air\"\n[[steps]]\nname = \"greet\"\nrequires = [\"guest\"]\nafter = [\"air\"]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	id := jobs.NewJobID().String()
	clitest.Expect(t, clitest.Run(t, cluster, "flow", "run", path, "--only", "air", "--id", id), 0, "ID\n", "")
	if got := clitest.Run(t, cluster, "flow", "show", id); !strings.Contains(got.Out, "air") || !strings.Contains(got.Out, "0/1 steps") || strings.Contains(got.Out, "greet") {
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
		if got := clitest.Run(t, cluster, append([]string{"flow", "run", path}, row.args...)...); got.Code != row.code || !strings.Contains(got.Err, row.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// runAndWork starts flow run --wait, and a worker for the job once it is posted.
func runAndWork(t *testing.T, cluster cli.Cluster, change func(*cli.Program), work func(*clitest.Worker)) (clitest.Said, jobs.JobID) {
	t.Helper()
	id := jobs.NewJobID()
	ended := make(chan clitest.Said, 1)
	go func() { // ends with the command
		ended <- clitest.RunWith(t, t.Context(), cluster, change, "flow", "run", "--wait", "--id", id.String(), "--set", "guest=Ann", clitest.Examples+"hello.toml")
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
	work(clitest.NewWorker(t, cluster, id))
	select {
	case got := <-ended:
		return got, id
	case <-deadline.C:
		t.Fatal("the command did not end with the job")
	}
	panic("unreachable")
}

func TestFlowRunWait(t *testing.T) {
	cluster := clitest.Open(t)
	got, _ := runAndWork(t, cluster, nil, (*clitest.Worker).Succeed)
	if got.Code != 0 || got.Out != "" || !strings.HasPrefix(clitest.Steady(got.Err), "conductord: job ID is posted\n") { // its worker records no definition
		t.Errorf("got %+v", got)
	}
	for _, want := range []string{"TIME make-greeting success TOOK\n", "TIME say-greeting success TOOK\n", "TIME flow hello success\n", "conductord: job ID: completed: success after TOOK\n"} {
		if !strings.Contains(clitest.Steady(got.Err), want) {
			t.Errorf("no %q in\n%s", want, got.Err)
		}
	}

	got, _ = runAndWork(t, cluster, nil, (*clitest.Worker).Fail)
	for _, want := range []string{
		"TIME say-greeting failure TOOK handler.exit: exit status 3\n", "TIME flow hello failure\n", "conductord: job ID: completed: failed after TOOK\n", "conductord: failed step: say-greeting\n",
		"conductord: failure: handler.exit: exit status 3\n", "conductord: stderr: connecting\nconductord: stderr: no such guest\\u001b[31m\n",
	} {
		if !strings.Contains(clitest.Steady(got.Err), want) {
			t.Errorf("no %q in\n%s", want, got.Err)
		}
	}
	if got.Code != cli.ExitFailed {
		t.Errorf("code %d", got.Code)
	}

	got, id := runAndWork(t, cluster, func(p *cli.Program) { p.Env = nil }, (*clitest.Worker).Succeed)
	if job := clitest.Run(t, cluster, "job", "get", "-o", "json", id.String()); got.Code != 0 || !strings.Contains(job.Out, `"outcome": "success"`) {
		t.Errorf("got %+v", job)
	}
}

// TestFlowRunOnTerminal looks at the last picture that was drawn.
func TestFlowRunOnTerminal(t *testing.T) {
	cluster := clitest.Open(t)
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
		got, _ := runAndWork(t, cluster, terminal, (*clitest.Worker).Succeed)
		pictures := strings.Split(got.Err, "\x1b[J")
		last := strings.ReplaceAll(pictures[len(pictures)-2], "\r\x1b[2K", "")
		last = regexp.MustCompile("\x1b\\[\\d+A").ReplaceAllString(last, "")
		if row.height > 0 && strings.Count(last, "\n") >= row.height {
			t.Errorf("%s: the picture scrolls the terminal, and then cannot be drawn over", row.name)
		}
		if clitest.Steady(last) != row.want || got.Code != 0 {
			t.Errorf("%s: drew\n%q\nwant\n%q\n%+v", row.name, clitest.Steady(last), row.want, got)
		}
	}
}

// writer is a function that receives the written bytes.
type writer func(string)

func (w writer) Write(text []byte) (int, error) {
	w(string(text))
	return len(text), nil
}

// TestFlowRunInterrupted: ctrl-C ends the command, and not the job.
func TestFlowRunInterrupted(t *testing.T) {
	cluster := clitest.Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	id := jobs.NewJobID()
	var said strings.Builder
	got := clitest.RunWith(t, ctx, cluster, func(p *cli.Program) {
		p.Err = writer(func(text string) { // as soon as the job's id is printed
			said.WriteString(text)
			cancel()
		})
	}, "flow", "run", "--wait", "--id", id.String(), "--set", "guest=Ann", clitest.Examples+"hello.toml")
	if got.Code != cli.ExitInterrupted || !strings.Contains(said.String(), "the job continues; see `conductord flow show "+id.String()) {
		t.Errorf("got %+v, said %s", got, said.String())
	}
	job, err := cluster.Job(t.Context(), id)
	if err != nil || job.State.Finished() {
		t.Errorf("the job: %+v, %v", job, err)
	}
}

// TestDefaultsOfTheJob: a document gives defaults to its job and to the jobs of a schedule, and flags override them.
func TestDefaultsOfTheJob(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nightly.toml")
	write := func(table string) {
		text := "name = \"nightly\"\ndeadline = \"2h\"\n[job]\n" + table + "\n[[steps]]\nname = \"load\"\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("key = \"n\"\nattempts = 3\non_failure = \"park\"\npriority = \"high\"\nlabels = [\"gpu\"]\nretention = \"48h\"")
	cluster := clitest.Open(t)
	post := func(args ...string) jobs.Job {
		t.Helper()
		posted := clitest.Run(t, cluster, args...)
		id, err := jobs.ParseJobID(strings.TrimSpace(posted.Out))
		if err != nil {
			t.Fatalf("%v: %+v", args, posted)
		}
		job, err := cluster.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	for _, args := range [][]string{{"flow", "run", path}, {"job", "post", "--flow", path, "--board", "default", "--key", "other"}} {
		job := post(args...)
		if job.Retry.Attempts != 3 || job.Retry.OnFailure != jobs.FailureParks || job.Priority != jobs.High || !slices.Equal(job.Labels, []string{"gpu"}) ||
			job.Retention != 48*time.Hour || !job.Deadline.Equal(job.PostedAt.Add(2*time.Hour)) || job.Key != map[bool]string{true: "n", false: "other"}[args[0] == "flow"] {
			t.Errorf("%v posts %+v", args, job)
		}
	}
	given := post("flow", "run", path, "--key", "mine", "--attempts", "1", "--priority", "normal", "--label", "cpu", "--retention", "1h", "--deadline", "3h")
	if given.Key != "mine" || given.Retry.Attempts != 1 || given.Retry.OnFailure != jobs.FailureParks || given.Priority != jobs.Normal || !slices.Equal(given.Labels, []string{"cpu"}) ||
		given.Retention != time.Hour || given.Deadline.Sub(given.PostedAt).Round(time.Minute) != 3*time.Hour || given.DeadlineAfter != 0 {
		t.Errorf("with flags, it posts %+v", given)
	}
	if saved := clitest.Run(t, cluster, "schedule", "set", "s", "--rule", "@yearly", "--flow", path); saved.Code != 0 {
		t.Errorf("schedule set: %+v", saved)
	}
	if shown := clitest.Run(t, cluster, "schedule", "show", "s"); !strings.Contains(shown.Out, "2h after the slot") || !strings.Contains(shown.Out, "priority high") {
		t.Errorf("schedule show: %+v", shown)
	}
	write("priority = \"urgent\"")
	if refused := clitest.Run(t, cluster, "flow", "check", path); refused.Code != cli.ExitUsage || !strings.Contains(refused.Err, "urgent") {
		t.Errorf("a priority that does not exist: %+v", refused)
	}
	if refused := clitest.Run(t, cluster, "flow", "run", path, clitest.Examples+"hello.toml"); refused.Code != cli.ExitUsage {
		t.Errorf("one of two documents has defaults: %+v", refused)
	}
}
