package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	vocabulary "github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/wire"
)

// reasons is an operator at the command line of a server, who brings jobs into every situation in
// which they do not run.
type reasons struct {
	*desk
	client  *raftboard.Client
	gate    string // handler "guarded" waits until this file exists
	mended  string // handlers "broken" and "stuck" fail until this file exists
	fixed   string // handler "fixable" fails until this file exists
	settled string // handler "unsettled" fails until this file exists
}

// reason is one cause, with the way to produce it.
type reason struct {
	name    string
	cause   jobs.Cause
	arrange func(r *reasons) (job string)
	remedy  string // a regular expression; empty: no remedy
	// then checks the job after the remedy, with the remedy's output. Nil: the cause must have
	// changed.
	then func(r *reasons, job, out string)
}

// TestReasons brings a job of a server process into each situation in which it does not run, asks
// the command line for the reason, and follows its advice.
func TestReasons(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	dir := t.TempDir()
	r := &reasons{gate: filepath.Join(dir, "gate"), mended: filepath.Join(dir, "mended"), fixed: filepath.Join(dir, "fixed"), settled: filepath.Join(dir, "settled")}
	handlers := filepath.Join(dir, "handlers")
	writeHandler(t, handlers, "done", "echo 1")
	writeHandler(t, handlers, "guarded", "while [ ! -e '"+r.gate+"' ]; do sleep 0.05; done; echo 1")
	for _, name := range []string{"broken", "stuck"} {
		writeHandler(t, handlers, name, "[ -e '"+r.mended+"' ] || exit 65; echo 1")
	}
	writeHandler(t, handlers, "fixable", "[ -e '"+r.fixed+"' ] || exit 65; echo 1")
	writeHandler(t, handlers, "unsettled", "[ -e '"+r.settled+"' ] || exit 65; echo 1")
	writeHandler(t, handlers, "stopper", "exit 65")
	r.desk = atDesk(t, handlers)
	client, err := raftboard.Dial(within(t), r.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	r.client = client

	seen := map[jobs.Cause]bool{}
	for _, row := range allReasons() {
		seen[row.cause] = true
		t.Run(row.name, func(t *testing.T) { row.check(r.of(t)) })
	}
	for _, cause := range jobs.Causes {
		// Overdue lasts only until the job is cancelled, and reserved only until the conductor
		// claims the job: no command is quick enough to see them. `jobs/explain` TestExplain
		// has both.
		if !seen[cause] && cause != jobs.CauseOverdue && cause != jobs.CauseReserved {
			t.Errorf("no job is %s", cause)
		}
	}
}

// of returns the same reasons for a subtest.
func (r *reasons) of(t *testing.T) *reasons {
	again := *r
	again.desk = &desk{t, r.address}
	return &again
}

// cools posts a job that cools for a given time.
func (r *reasons) cools(delay string) (job string) {
	job = r.post()
	r.says("", "job", "abandon", job, "--delay", delay)
	return job
}

func (row *reason) check(r *reasons) {
	job := row.arrange(r)
	said, text := r.becomes(job, row.cause), ""
	// A pause of the leader defers the expiry of sessions, so a suspect job may be claimed for some seconds more.
	eventually(r.T, "the text names the job and the cause "+string(row.cause), func() bool {
		text = r.says("", "job", "explain", job)
		return strings.Contains(text, string(row.cause)) && strings.Contains(text, job)
	})
	_, remedy, _ := strings.Cut(text, "next step:")
	remedy, _, _ = strings.Cut(strings.TrimSpace(remedy), "\n") // the steps that it runs follow
	if !regexp.MustCompile("^"+strings.ReplaceAll(row.remedy, "ID", job)+"$").MatchString(remedy) || said.Text == "" || (remedy == "") != (said.Remedy == jobs.Remedy{}) {
		r.Fatalf("explained as %+v", said)
	}
	out := ""
	if strings.HasPrefix(remedy, "conductord ") {
		out = r.shell(remedy)
	}
	switch {
	case row.then != nil:
		row.then(r, job, out)
	case row.remedy != "":
		if now := r.explain(job); now.Cause == row.cause {
			r.Errorf("the remedy had no effect: %+v", now)
		}
	}
}

func (r *reasons) explain(job string) jobs.Explanation {
	r.Helper()
	message := &v1.ExplainResponse{}
	if err := (wire.JSONCodec{}).Unmarshal([]byte(r.says("", "job", "explain", job, "-o", "json")), message); err != nil {
		r.Fatal(err)
	}
	said, err := vocabulary.ExplanationFromProto(message)
	if err != nil {
		r.Fatal(err)
	}
	return said
}

// becomes waits until a job is in a situation.
func (r *reasons) becomes(job string, cause jobs.Cause) (said jobs.Explanation) {
	r.Helper()
	eventually(r.T, "the job is "+string(cause), func() bool {
		said = r.explain(job)
		return said.Cause == cause
	})
	return said
}

// shell runs a line like an operator who copies it.
func (r *reasons) shell(line string) string {
	r.Helper()
	run := exec.CommandContext(within(r.T), "sh", "-c", line)
	run.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "CONDUCTORD_SERVER="+r.address)
	out, err := run.CombinedOutput()
	if err != nil {
		r.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// post posts a job that has no flow.
func (r *reasons) post(args ...string) string {
	r.Helper()
	return r.says("", append([]string{"job", "post", "--kind", "work"}, args...)...)
}

// flow posts a job with a flow of one step, or of two.
func (r *reasons) flow(steps ...string) string {
	r.Helper()
	return r.says(document(steps...), "flow", "run", "-")
}

func document(steps ...string) string {
	document := "name = \"f\"\npattern = \"linear\"\n"
	for _, step := range steps {
		document += "[[steps]]\n" + step + "\n"
	}
	return document
}

// worker opens a session without keep-alives, and claims a job in it.
func (r *reasons) worker(ttl time.Duration, job string) jobs.SessionID {
	r.Helper()
	session := jobs.NewSessionID()
	if _, err := r.client.OpenSession(r.Context(), jobs.Opening{ID: session, Name: "worker", TTL: ttl}); err != nil {
		r.Fatal(err)
	}
	if job == "" {
		return session
	}
	id, err := jobs.ParseJobID(job)
	if err != nil {
		r.Fatal(err)
	}
	if _, err := r.client.Claim(r.Context(), session, id, jobs.NewNonce()); err != nil {
		r.Fatal(err)
	}
	return session
}

// conductor registers a conductor for a board. It claims nothing.
func (r *reasons) conductor(board string, most int, labels ...string) {
	r.Helper()
	r.conducts(r.worker(jobs.MaxTTL, ""), board, most, labels...)
}

func (r *reasons) conducts(session jobs.SessionID, board string, most int, labels ...string) {
	r.Helper()
	entity := jobs.Entity{Kind: jobs.EntityConductor, Name: "c", Boards: []string{board}, JobKinds: []string{"work"}, MaxJobs: most, Labels: labels}
	if err := r.client.Register(r.Context(), session, entity); err != nil {
		r.Fatal(err)
	}
}

// open creates the file that the handlers wait for.
func (r *reasons) open(path string) {
	r.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		r.Fatal(err)
	}
}

// outcome waits until a job is finished.
func (r *reasons) outcome(job string, want jobs.Outcome) {
	r.Helper()
	if got := r.waits(job); got.Outcome != want {
		r.Errorf("the job is %s, %s: %s", got.State, got.Outcome, got.Reason)
	}
}

func allReasons() []reason {
	return append(append(reasonsOfTheEnd(), reasonsOfTheJob()...), reasonsOfOthers()...)
}

// reasonsOfTheEnd are the reasons of finished and claimed jobs.
func reasonsOfTheEnd() []reason {
	return []reason{
		{"done", jobs.CauseFinished, func(r *reasons) string { return r.flow(`name = "done"`) }, "", nil},
		{"undone", jobs.CauseFinished, func(r *reasons) string { return r.flow(`name = "broken"`) },
			"conductord flow rerun .*", func(r *reasons, job, _ string) { r.outcome(job, jobs.OutcomeReverted) }},
		{"failed", jobs.CauseFinished, func(r *reasons) string {
			return r.flow("name = \"done\"\nrevert = \"stuck\"", `name = "broken"`)
		}, "conductord flow retry-revert .*", func(r *reasons, job, _ string) {
			r.outcome(job, jobs.OutcomeFailed) // again, because nothing was repaired
			flow := r.says("", "flow", "show", job)
			r.open(r.mended)
			for line := range strings.Lines(flow) {
				if strings.Contains(line, "conductord flow retry-revert") {
					_, line, _ = strings.Cut(line, "next steps: ")
					r.shell(line)
					r.outcome(job, jobs.OutcomeReverted)
					return
				}
			}
			r.Errorf("flow show does not list the repairs:\n%s", flow)
		}},
		{"failed by hand", jobs.CauseFinished, func(r *reasons) string {
			job := r.post()
			r.says("", "job", "consume", job, "--outcome", "failed")
			return job
		}, "conductord job retry ID", nil},
		{"put aside", jobs.CauseTrashed, func(r *reasons) string {
			job := r.post()
			r.says("", "job", "trash", job, "--reason", "nobody can do it")
			return job
		}, "conductord job retry ID", nil},
		{"of a kind that needs a flow", jobs.CauseTrashed, func(r *reasons) string {
			job := jobs.NewPlainPosting("document", nil)
			posted, err := jobs.PostOne(r.Context(), r.client, job)
			if err != nil {
				r.Fatal(err)
			}
			return posted.ID.String()
		}, "post the flow instead: `conductord flow run FILE`", func(r *reasons, _, _ string) {
			r.outcome(r.flow(`name = "done"`), jobs.OutcomeSuccess)
		}},
		{"running", jobs.CauseClaimed, func(r *reasons) string { return r.flow(`name = "guarded"`) },
			"conductord flow show .*", func(r *reasons, job, out string) {
				if !strings.Contains(out, "guarded") {
					r.Errorf("the flow is shown as\n%s", out)
				}
				r.open(r.gate)
				r.outcome(job, jobs.OutcomeSuccess)
			}},
		{"worked on", jobs.CauseClaimed, func(r *reasons) string {
			job := r.post()
			r.worker(jobs.MaxTTL, job)
			return job
		}, "", nil},
		{"with a silent worker", jobs.CauseSuspect, func(r *reasons) string {
			job := r.post()
			r.worker(5*jobs.DefaultTTL, job) // it is suspect long enough for two commands on a busy machine
			return job
		}, "", func(r *reasons, job, _ string) { r.becomes(job, jobs.CauseNoConductor) }},
	}
}

// reasonsOfTheJob are the reasons in the job itself.
func reasonsOfTheJob() []reason {
	return []reason{
		{"suspended", jobs.CauseSuspended, func(r *reasons) string {
			job := r.post()
			r.says("", "job", "suspend", job)
			return job
		}, "conductord job resume ID", nil},
		{"on hold", jobs.CauseHeld, func(r *reasons) string { return r.post("--hold") }, "conductord job release ID", nil},
		{"parked", jobs.CauseParked, func(r *reasons) string {
			return r.says(document(`name = "fixable"`), "job", "post", "--flow", "-", "--attempts", "2", "--on-failure", "park")
		}, "conductord job release ID", func(r *reasons, job, _ string) {
			r.becomes(job, jobs.CauseParked) // again, because nothing was repaired
			r.open(r.fixed)
			r.says("", "job", "release", job)
			r.outcome(job, jobs.OutcomeSuccess)
		}},
		{"parked, and not reverted", jobs.CauseParked, func(r *reasons) string {
			return r.says(document("name = \"done\"\nrevert = \"unsettled\"", `name = "stopper"`), "job", "post", "--flow", "-", "--on-failure", "park")
		}, "conductord flow retry-revert .*", func(r *reasons, job, _ string) {
			r.becomes(job, jobs.CauseParked) // again, because nothing was repaired
			r.open(r.settled)
			r.shell("conductord flow retry-revert " + job)
			eventually(r.T, "the remedy is to release the job", func() bool { return r.explain(job).Remedy.Verb == jobs.RemedyRelease })
		}},
		{"not due", jobs.CauseDelayed, func(r *reasons) string { return r.post("--not-before", "1h") }, "conductord job change ID --not-before 0s", nil},
		{"cooling", jobs.CauseCooling, func(r *reasons) string { return r.cools("10m") }, "conductord flow retry-now ID", nil},
		{"sleeping", jobs.CauseWaiting, func(r *reasons) string {
			return r.says(document("name = \"nap\"\nsleep = \"1h\"", `name = "done"`), "job", "post", "--flow", "-")
		}, "conductord flow retry-now ID", nil},
		{"waiting for a signal", jobs.CauseWaiting, func(r *reasons) string {
			return r.says(document("name = \"paid\"\nwait = {signal = \"paid\", timeout = \"1h\"}"), "job", "post", "--flow", "-")
		}, "", func(r *reasons, job, _ string) {
			if listed := r.says("", "job", "list", "--state", "waiting", "-o", "json"); !strings.Contains(listed, job) {
				r.Errorf("the waiting jobs are %s", listed)
			}
			if listed := r.says("", "job", "list", "--state", "cooling", "-o", "json"); strings.Contains(listed, job) {
				r.Errorf("the cooling jobs are %s", listed)
			}
			r.says("", "job", "signal", job, "paid")
			r.outcome(job, jobs.OutcomeSuccess)
		}},
		{"on a paused board", jobs.CauseBoardPaused, func(r *reasons) string {
			job := r.post("--board", "ann's night shift")
			r.says("", "board", "pause", "ann's night shift", "--reason", "stocktaking")
			return job
		}, `conductord board resume 'ann'\\''s night shift'`, nil},
	}
}

// reasonsOfOthers are the reasons in conductors and in other jobs.
func reasonsOfOthers() []reason {
	return []reason{
		{"of no conductor's kind", jobs.CauseNoConductor, func(r *reasons) string { return r.post("--board", "none") },
			"start a conductor; .*", func(r *reasons, job, _ string) {
				r.conductor("none", 1)
				r.becomes(job, jobs.CauseReady)
			}},
		{"of no conductor's labels", jobs.CauseLabels, func(r *reasons) string {
			r.conductor("labels", 1)
			return r.post("--board", "labels", "--label", "gpu")
		}, "start a conductor with these labels .*", func(r *reasons, job, _ string) {
			r.conductor("labels", 1, "gpu")
			r.becomes(job, jobs.CauseReady)
		}},
		{"all are busy", jobs.CauseFull, func(r *reasons) string {
			r.conducts(r.worker(jobs.MaxTTL, r.post("--board", "full")), "full", 1)
			return r.post("--board", "full")
		}, "start another conductor, or .*", func(r *reasons, job, _ string) {
			r.conductor("full", 1)
			r.becomes(job, jobs.CauseReady)
		}},
		{"all are busy, and others wait", jobs.CauseFull, func(r *reasons) string {
			r.conducts(r.worker(jobs.MaxTTL, r.post("--board", "fuller")), "fuller", 1)
			r.post("--board", "fuller", "--priority", "7000")
			return r.post("--board", "fuller")
		}, "conductord job change ID --priority 7001", func(r *reasons, job, _ string) {
			if now := r.explain(job); !strings.Contains(now.Text, "no job comes before this job") {
				r.Errorf("explained as %+v", now)
			}
		}},
		{"all are drained", jobs.CauseDrained, func(r *reasons) string {
			r.conductor("drained", 1)
			r.says("", "conductor", "drain", "c", "--reason", "a new disk")
			return r.post("--board", "drained")
		}, "conductord conductor undrain c", func(r *reasons, job, _ string) { r.becomes(job, jobs.CauseReady) }},
		{"behind others", jobs.CauseBehind, func(r *reasons) string {
			r.conductor("behind", 9)
			r.post("--board", "behind")
			return r.post("--board", "behind")
		}, "conductord job change ID --priority very-high", func(r *reasons, job, _ string) { r.becomes(job, jobs.CauseReady) }},
		{"next", jobs.CauseReady, func(r *reasons) string {
			r.conductor("ready", 9)
			return r.post("--board", "ready")
		}, "", nil},
	}
}
