package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
)

// wholeHandler is the handler of all steps of testdata/workflows/whole. It writes its call to a log, and then does what
// the script of its name says: the row of a test writes these scripts. Without a script, it succeeds.
const wholeHandler = `#!/bin/sh
read -r input
name=${CONDUCTORD_HANDLER##*/}
sign=
[ $CONDUCTORD_ACTION = revert ] && sign=-
echo "$CONDUCTORD_JOB $sign$CONDUCTORD_STEP" >> %[1]s/log
after() { until grep -qxF -- "$CONDUCTORD_JOB $1" %[1]s/log; do sleep 0.05; done; }
[ -e %[1]s/scripts/$name ] && . %[1]s/scripts/$name
case $name in
take-spare) echo "$input" | sed 's/.*"spare":\([^,}]*\).*/\1/' ;;
stage) echo '{"staged": 10}' ;;
best) echo '{"accuracy": 0.95}' ;;
charge-month) month=${input##*\"month\":}; echo "{\"following\": $((${month%%%%[,\}]*} + 1))}" ;;
*) echo "\"$name\"" ;;
esac
`

// wholes is a node for the workflows of testdata/workflows/whole, with step workers for three platforms.
type wholes struct{ address, dir string }

func startWholes(t *testing.T) *wholes {
	t.Helper()
	w := &wholes{address: freeAddress(t), dir: t.TempDir()}
	handlers := filepath.Join(w.dir, "handlers")
	files, err := filepath.Glob("testdata/workflows/whole/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal("no workflows", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^(?:name|revert) *= "(.*)"`).FindAllSubmatch(text, -1) {
			writeHandler(t, handlers, string(found[1]), strings.TrimPrefix(fmt.Sprintf(wholeHandler, w.dir), "#!/bin/sh\n"))
		}
	}
	runDev(t, w.address, "--data-dir", t.TempDir(), "--handlers", handlers)
	for _, platform := range []string{"linux", "macos", "windows"} {
		worker := exec.Command(binary, "worker", "--server", w.address, "--handlers", handlers, "--types", "compile", "--labels", platform)
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = worker.Process.Kill()
			_ = worker.Wait()
		})
	}
	return w
}

func (w *wholes) does(t *testing.T, args ...string) said {
	t.Helper()
	return command(t, "", append(args, "--server", w.address)...)
}

// script replaces the scripts of the handlers.
func (w *wholes) script(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := filepath.Join(w.dir, "scripts")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// calls are the calls of handlers for a job, in their order. A revert has a minus sign.
func (w *wholes) calls(t *testing.T, job string) (calls []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if call, ok := strings.CutPrefix(strings.TrimSpace(line), job+" "); ok {
			calls = append(calls, call)
		}
	}
	return calls
}

// ends waits for the end of a job, and compares its outcome and its calls. The calls are sorted, because steps run in
// parallel.
func (w *wholes) ends(t *testing.T, job string, before int, outcome jobs.Outcome, want string) {
	t.Helper()
	w.does(t, "job", "wait", job)
	var shown struct{ Outcome jobs.Outcome }
	if err := json.Unmarshal([]byte(w.does(t, "job", "get", job, "-o", "json").out), &shown); err != nil || shown.Outcome != outcome {
		t.Errorf("the outcome is %q, want %q: %v", shown.Outcome, outcome, err)
	}
	got := w.calls(t, job)[before:]
	slices.Sort(got)
	if sorted := strings.Fields(want); !slices.Equal(got, slices.Sorted(slices.Values(sorted))) {
		t.Errorf("called:\n%s\nwant:\n%s", strings.Join(got, " "), want)
	}
}

// repairs runs a repair, which calls exactly the steps that its dry run lists.
func (w *wholes) repairs(t *testing.T, job, repair string, outcome jobs.Outcome) {
	t.Helper()
	before := len(w.calls(t, job))
	args := append([]string{"flow"}, strings.Fields(strings.ReplaceAll(repair, "JOB", job))...)
	var dry struct {
		Runs      []string `json:"runs"`
		RunsAgain []string `json:"runs_again"`
		Reverts   []string `json:"reverts"`
	}
	if got := w.does(t, append(args, "--dry-run", "-o", "json")...); got.code != 0 || json.Unmarshal([]byte(got.out), &dry) != nil {
		t.Fatalf("%s --dry-run: %+v", repair, got)
	}
	want := slices.Concat(dry.Runs, dry.RunsAgain)
	for _, step := range dry.Reverts {
		want = append(want, "-"+step)
	}
	if got := w.does(t, append(args, "--reason", "mended")...); got.code != 0 {
		t.Fatalf("%s: %+v", repair, got)
	}
	w.ends(t, job, before, outcome, strings.Join(want, " "))
}

// wholeRow is a run of a workflow.
type wholeRow struct {
	name, document string
	set            []string          // values of the job
	scripts        map[string]string // of handlers
	approve        []string          // people who approve step ask
	signals        []string          // name and data of each
	outcome        jobs.Outcome
	calls          string
	repair         string // after the scripts are gone
	repaired       jobs.Outcome
}

const fails = "exit 1" // a script

var wholeRows = []wholeRow{
	{name: "all platforms", document: "release-matrix", outcome: jobs.OutcomeSuccess,
		calls: "lint compile[0] compile[1] compile[2] test-package[0] test-package[1] test-package[2] sign upload announce"},
	{name: "one platform", document: "release-matrix", scripts: map[string]string{"test-package": "case $CONDUCTORD_STEP in *1*) after test-package[0]; after test-package[2]; exit 1;; esac"}, outcome: jobs.OutcomeFailed,
		calls:  "lint compile[0] compile[1] compile[2] test-package[0] test-package[1] test-package[2]",
		repair: "rerun JOB --from test-package[1]", repaired: jobs.OutcomeSuccess},
	{name: "announced later", document: "release-matrix", scripts: map[string]string{"announce": fails}, outcome: jobs.OutcomeFailed,
		calls:  "lint compile[0] compile[1] compile[2] test-package[0] test-package[1] test-package[2] sign upload announce",
		repair: "complete JOB announce", repaired: jobs.OutcomeSuccess},
	{name: "one source fails", document: "nightly-load", scripts: map[string]string{"extract": "case $input in *crm*) exit 1;; esac"}, outcome: jobs.OutcomeSuccess,
		calls: "extract[0] extract[1] extract[1] extract[2] stage load warm-cache drop-stage report"},
	{name: "nothing to load", document: "nightly-load", scripts: map[string]string{"stage": `echo '{"staged": 0}'; exit 0`}, outcome: jobs.OutcomeSuccess,
		calls: "extract[0] extract[1] extract[2] stage drop-stage report"},
	{name: "the load fails", document: "nightly-load", scripts: map[string]string{"load": fails}, outcome: jobs.OutcomeReverted,
		calls: "extract[0] extract[1] extract[2] stage load alert -load -stage drop-stage report"},
	{name: "the revert fails too", document: "nightly-load", scripts: map[string]string{"load": fails, "unstage": fails}, outcome: jobs.OutcomeFailed,
		calls:  "extract[0] extract[1] extract[2] stage load alert -load -stage",
		repair: "rerun JOB --from load", repaired: jobs.OutcomeSuccess},
	{name: "a new machine", document: "failover", set: []string{"spare=null"}, outcome: jobs.OutcomeSuccess,
		calls: "isolate take-spare create move-volumes switch-address wipe-old"},
	{name: "volumes cannot move", document: "failover", set: []string{"spare=null"}, scripts: map[string]string{"move-volumes": fails, "delete": fails}, outcome: jobs.OutcomeFailed,
		calls:  "isolate take-spare create move-volumes -move-volumes -create -create -create",
		repair: "retry-revert JOB", repaired: jobs.OutcomeReverted},
	{name: "no money", document: "trip", set: []string{"customer=ann"}, scripts: map[string]string{"charge": "exit 65"}, outcome: jobs.OutcomeReverted,
		calls: "tell-customer book-hotel book-flight charge -charge -book-hotel -book-flight -tell-customer"},
	{name: "a hotel that cannot be cancelled", document: "trip", set: []string{"customer=ann"}, scripts: map[string]string{"send-tickets": fails, "cancel-hotel": "after -book-flight; exit 1"}, outcome: jobs.OutcomeFailed,
		calls:  "tell-customer book-hotel book-flight charge send-tickets send-tickets -charge -book-hotel -book-flight",
		repair: "skip JOB book-hotel", repaired: jobs.OutcomeReverted},
	{name: "one film of four", document: "films", scripts: map[string]string{"convert": "case $input in *f2*) exit 65;; esac", "thumbnail": "case $CONDUCTORD_STEP in *3*) exit 1;; esac"}, outcome: jobs.OutcomeSuccess,
		calls: "convert[0] convert[1] convert[2] convert[3] thumbnail[0] thumbnail[2] thumbnail[3] publish-index"},
	{name: "a bad model", document: "training", scripts: map[string]string{"best": `echo '{"accuracy": 0.5}'; exit 0`, "train": "[ $CONDUCTORD_TRY = 1 ] && exit 1"}, outcome: jobs.OutcomeSuccess,
		calls: "prepare train[0] train[0] train[1] train[1] evaluate[0] evaluate[1] best keep-old"},
	{name: "the third host", document: "instance", scripts: map[string]string{"boot": `case $input in *'"c"'*) ;; *) exit 1;; esac`}, outcome: jobs.OutcomeSuccess,
		calls: "check-quota create-volume boot -create-volume create-volume boot -create-volume create-volume boot register"},
	{name: "no host for the image", document: "instance", scripts: map[string]string{"boot": `echo '{"failure": {"kind": "image.unacceptable"}}'; exit 1`}, outcome: jobs.OutcomeReverted,
		calls: "check-quota create-volume boot -create-volume -check-quota"},
	{name: "before the switch", document: "migration", scripts: map[string]string{"verify": fails}, outcome: jobs.OutcomeReverted,
		calls: "copy verify -copy close-tunnel"},
	{name: "behind the switch", document: "migration", scripts: map[string]string{"tell-others": "after count; exit 1"}, outcome: jobs.OutcomeFailed,
		calls:  "copy verify switch tell-others count",
		repair: "rerun JOB --from tell-others", repaired: jobs.OutcomeSuccess},
	{name: "two owners approve", document: "rollout", approve: []string{"ann", "bob"}, outcome: jobs.OutcomeSuccess,
		calls: "build install[0] healthy[0] install[1] healthy[1] install[2] healthy[2] tell-channel"},
	{name: "no approval for tests", document: "rollout", set: []string{"env=test"}, scripts: map[string]string{"install": "case $input in *h3*) exit 1;; esac"}, outcome: jobs.OutcomeReverted,
		calls: "build install[0] healthy[0] install[1] healthy[1] install[2] -install[2] -install[1] -install[0]"},
	{name: "items of orders", document: "fulfilment", outcome: jobs.OutcomeSuccess,
		calls: "pick[0][0] pick[0][1] pick[1][0] wrap[0] pack[0] pack[1] load-van"},
	{name: "the nearer mirror", document: "mirrors", scripts: map[string]string{"near": "after far", "far": "sleep 20"}, outcome: jobs.OutcomeSuccess,
		calls: "near far verify-sum unpack"},
	{name: "a red suite", document: "integration", scripts: map[string]string{"web-suite": "after api-suite; after slow-suite; exit 1"}, outcome: jobs.OutcomeReverted,
		calls: "start-server api-suite web-suite slow-suite collect-logs -start-server stop-server report-status"},
	{name: "accepted", document: "repair-order", set: []string{"ticket=7"}, signals: []string{`answered {"accepted":true}`}, outcome: jobs.OutcomeSuccess,
		calls: "send-request schedule-visit"},
	{name: "not accepted", document: "repair-order", set: []string{"ticket=7"}, signals: []string{`answered {"accepted":false}`}, outcome: jobs.OutcomeSuccess,
		calls: "send-request close-ticket"},
	{name: "changed, and then cancelled", document: "subscription", set: []string{"customer=ann"},
		signals: []string{`change-plan {"plan":"pro","go_on":true}`, `cancel {"go_on":false}`}, outcome: jobs.OutcomeSuccess,
		calls: "charge-month charge-month say-goodbye"},
}

// TestWholeWorkflows: workflows that people run with other systems, with their failures, call exactly the expected
// steps. A repair calls exactly the steps that its dry run lists.
func TestWholeWorkflows(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	w := startWholes(t)
	for _, row := range wholeRows {
		t.Run(row.document+" "+row.name, func(t *testing.T) {
			w.script(t, row.scripts)
			args := []string{"flow", "run", filepath.Join("testdata", "workflows", "whole", row.document+".toml")}
			for _, value := range row.set {
				args = append(args, "--set", value)
			}
			posted := w.does(t, args...)
			if posted.code != 0 {
				t.Fatalf("got %+v", posted)
			}
			job := strings.TrimSpace(posted.out)
			for _, by := range row.approve {
				eventually(t, by+" approves", func() bool { return w.does(t, "approval", "approve", job, "ask", "--by", by).code == 0 })
			}
			for _, signal := range row.signals {
				name, data, _ := strings.Cut(signal, " ")
				if got := w.does(t, "job", "signal", job, name, "--data", data); got.code != 0 {
					t.Fatalf("signal %s: %+v", name, got)
				}
			}
			w.ends(t, job, 0, row.outcome, row.calls)
			if row.repair != "" && !t.Failed() {
				w.script(t, nil)
				w.repairs(t, job, row.repair, row.repaired)
			}
		})
	}
}
