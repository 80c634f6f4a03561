package job_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/logbook"
)

const twoSteps = `name = "trip"
[[steps]]
name = "fly"
[[steps]]
name = "stay"
after = ["fly"]
[[steps]]
name = "send"
after = ["stay"]
`

// TestStepsAreShownAndAwaited: the commands read one step by its job and name, with a short id too. The exit
// code of a wait depends on the outcome of the step.
func TestStepsAreShownAndAwaited(t *testing.T) {
	cluster := clitest.Open(t)
	document := filepath.Join(t.TempDir(), "flow.toml")
	if err := os.WriteFile(document, []byte(twoSteps), 0o600); err != nil {
		t.Fatal(err)
	}
	posted := clitest.Post(t, cluster, "--flow", document)
	id := posted.String()
	said := func(code int, out, err string, args ...string) {
		t.Helper()
		got := clitest.Run(t, cluster, append([]string{"step"}, args...)...)
		if got.Code != code || !regexp.MustCompile(out).MatchString(got.Out) || !regexp.MustCompile(err).MatchString(got.Err) {
			t.Errorf("%v: %+v, want code %d, out %s, err %s", args, got, code, out, err)
		}
	}
	said(0, `^step: +fly\njob: +\S+ claimable\nflow: +\S+ pending\nwaits for: +the start of this step`, `^$`, "get", id+"/fly")
	w := clitest.NewWorker(t, cluster, posted)
	w.Update(logbook.FlowRunning, w.Begin("fly"))
	said(0, `\nstate: +running\nattempts: +1\nlast attempt: +execute 1\n`, `^$`, "get", id[:13]+"/fly")
	said(cli.ExitTimeout, `^$`, `step fly of job \S+ has not ended`, "wait", id+"/fly", "--timeout", "50ms")
	w.Update("", w.Finish("fly", `{"flight": "LH1"}`, nil))
	said(0, `^\{"flight": ?"LH1"\}\n$`, `^$`, "wait", id+"/fly")
	said(0, `"outcome": *"success"`, `^$`, "wait", id+"/fly", "-o", "json")
	said(0, `\noutcome: +success\n`, `^$`, "get", id+"/fly")
	w.Update("", w.Begin("stay"))
	failed := w.Finish("stay", "", &logbook.Failure{Kind: logbook.FailureExit, Message: "no room", Step: "stay"})
	reverting := w.Next(logbook.FlowReverting, failed)
	reverting.Cause = &logbook.Failure{Kind: logbook.FailureExit, Message: "no room", Step: "stay"}
	verdicts, err := cluster.Update(t.Context(), reverting)
	if err != nil || verdicts[0] != nil {
		t.Fatal(verdicts, err)
	}
	said(1, `^$`, `step stay of job \S+ ended: failure: handler.exit: no room`, "wait", id+"/stay")
	said(0, `(?s)\noutcome: +failure\n.*\nfailure: +handler.exit: no room\n`, `^$`, "get", id+"/stay")
	said(0, `^step: +stay\n`, `^$`, "get", id[:13], "stay")
	said(2, `^$`, `both name a step: write JOB/STEP or JOB STEP`, "get", id+"/fly", "stay")
	said(2, `^$`, `names no step: write JOB/STEP`, "get", id)
	said(2, `^$`, `names no step: write JOB/STEP`, "wait", id+"/")
	if got := clitest.Run(t, cluster, "step", "logs", id+"/swim"); got.Code != 3 || !strings.Contains(got.Err, "no step") {
		t.Errorf("logs of an unknown step: %+v", got)
	}
}
