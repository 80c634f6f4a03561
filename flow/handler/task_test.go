//go:build unix

package handler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/logbook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is the limit for short operations on a busy machine.
const soon = time.Minute

func call(arguments logbook.Values) *flow.Call {
	id, err := logbook.ParseFlowID("01890a5d-ac96-774b-bcce-b302099a8057")
	if err != nil {
		panic(err)
	}
	return &flow.Call{
		Arguments: arguments,
		Action:    logbook.ActionExecute,
		Job:       "the-job",
		Flow:      id,
		Step:      "the step",
		Attempt:   3,
		Try:       2,
		Tries:     5,
		Token:     logbook.Token{Generation: 1, Index: 42},
	}
}

// TestOutcomes: the possible behaviours of a handler, and their outcomes.
func TestOutcomes(t *testing.T) {
	full := strings.Repeat("x", logbook.MaxLimits.Value-2)
	rows := []struct {
		name, script string
		result       string // of a success
		kind         string // of a failure
		code         int
		permanent    bool
		message      string // a regular expression
		whole        string // the record; empty: not checked
	}{
		{name: "echoes", script: `cat`, result: `{"a":1,"b":"<x> & ü"}`},
		{name: "number", script: `echo ' 42 '`, result: `42`},
		{name: "nothing", script: `:`, result: `null`},
		{name: "blank", script: `echo; echo`, result: `null`},
		{name: "never-reads", script: `exec 0<&-; echo true`, result: `true`},
		{name: "largest", script: `printf '"'; head -c ` + strconv.Itoa(len(full)) + ` /dev/zero | tr '\0' x; echo '"'`, result: `"` + full + `"`},
		{name: "too-large", script: `head -c 300000 /dev/zero | tr '\0' 1`, kind: logbook.FailureResult, message: `more than 262144 bytes`},
		{name: "gibibyte", script: `yes | head -c 1073741824`, kind: logbook.FailureResult, message: `wrote more than 262144 bytes .* killed`},
		{name: "garbage", script: `echo hello world`, kind: logbook.FailureResult, message: `not a JSON value.*starts with "hello world"`},
		{name: "trailing", script: `echo '{"a":1} extra'`, kind: logbook.FailureResult, message: `not a JSON value`},
		{name: "two-values", script: `echo 1; echo 2`, kind: logbook.FailureResult, message: `not a JSON value`},
		{name: "half", script: `printf '{"a":'`, kind: logbook.FailureResult, message: `not a JSON value`},
		{name: "not-utf8", script: `printf '"\377"'`, kind: logbook.FailureResult, message: `not UTF-8`},
		{name: "deep", script: `printf '%065d' 0 | tr 0 '['; printf '%065d' 0 | tr 0 ']'`, kind: logbook.FailureResult, message: `levels of nesting`},
		{name: "duplicate-key", script: `printf '%s' '{"a":1,"b":2,"\u0061":3}'`, kind: logbook.FailureResult, message: `^stdout of handler duplicate-key is invalid.*the key "a" twice.*: stdout starts with "{`},
		{name: "duplicate-key-within", script: `echo '[{"a":{"b":1,"b":1}}]'`, kind: logbook.FailureResult, message: `the key "b" twice`},
		{name: "same-key-side-by-side", script: `echo '[{"a":{"a":1}},{"a":2}]'`, result: `[{"a":{"a":1}},{"a":2}]`},
		{name: "number-too-large", script: `echo '[1e999]'`, kind: logbook.FailureResult, message: `1e999`},
		{name: "largest-number", script: `echo '[-1.7976931348623157e308,1e-400,123456789012345678901234567890]'`, result: `[-1.7976931348623157e308,1e-400,123456789012345678901234567890]`},
		{name: "half-a-surrogate-pair", script: `printf '%s' '"x\ud800"'`, kind: logbook.FailureResult, message: `half of a surrogate pair`},
		{name: "half-a-surrogate-pair-in-a-key", script: `printf '%s' '{"\udc00":1}'`, kind: logbook.FailureResult, message: `half of a surrogate pair`},
		{name: "surrogate-pair", script: `printf '%s' '"\ud83d\ude00\u0000"'`, result: `"\ud83d\ude00\u0000"`},
		{name: "not-yet-twice", script: `echo '{"not_yet":"30s","not_yet":"1s"}'; exit 75`, kind: logbook.FailureResult, code: handler.ExitTryAgain, message: `the key "not_yet" twice`},
		{name: "not-yet-details", script: `echo '{"not_yet":"30s","details":1e999}'; exit 75`, kind: logbook.FailureResult, code: handler.ExitTryAgain, message: `1e999`},
		{name: "exit-1", script: `echo '{"a":1}'; echo first >&2; echo the reason >&2; exit 1`, kind: logbook.FailureExit, code: 1, message: `^handler exit-1 ended with status 1: the reason$`},
		{name: "says-more", script: `echo '{"failure":{"kind":"card.declined","message":"no money","details":{"limit":40},"stack":"pay.py:7","causes":[{"message":"403"}]}}'; echo oops >&2; exit 65`,
			kind: "card.declined", code: handler.ExitPermanent, permanent: true, message: `^no money$`,
			whole: `{"kind":"card.declined","message":"no money","code":65,"permanent":true,"details":{"limit":40},"stack":"pay.py:7","causes":[{"kind":"handler.exit","message":"403"}]}`},
		{name: "says-details", script: `echo '{"failure":{"details":{"limit":40}}}'; echo oops >&2; exit 75`, kind: logbook.FailureExit, code: handler.ExitTryAgain, message: `asks for another attempt: oops$`,
			whole: `{"kind":"handler.exit","message":"handler says-details ended with status 75, which asks for another attempt: oops","code":75,"details":{"limit":40}}`},
		{name: "says-nothing", script: `echo '{"failure":null}'; exit 1`, kind: logbook.FailureExit, code: 1, message: `^handler says-nothing ended with status 1$`},
		{name: "says-code", script: `echo '{"failure":{"code":7}}'; exit 1`, kind: logbook.FailureExit, code: 1,
			message: `^handler says-code ended with status 1; the failure that handler says-code has printed is ignored: json: unknown field "code"$`},
		{name: "says-text", script: `echo '{"failure":"text"}'; exit 1`, kind: logbook.FailureExit, code: 1, message: `status 1; .* is ignored: json: cannot unmarshal string`},
		{name: "says-twice", script: `echo '{"failure":{"details":{"a":1,"a":2}}}'; exit 1`, kind: logbook.FailureExit, code: 1, message: `is ignored: .*the key "a" twice`},
		{name: "says-too-much", script: `printf '{"failure":{"details":{'; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do printf '"%s":1,' $i; done; echo '"17":1}}}'; exit 1`,
			kind: logbook.FailureExit, code: 1, message: `status 1; its details are omitted: failure details is too large: 17 values, and the limit is 16$`},
		{name: "says-and-succeeds", script: `echo '{"failure":{}}'`, result: `{"failure":{}}`},
		{name: "exit-65", script: `exit 65`, kind: logbook.FailureExit, code: handler.ExitPermanent, permanent: true, message: `forbids another attempt`},
		{name: "exit-75", script: `exit 75`, kind: logbook.FailureExit, code: handler.ExitTryAgain, message: `asks for another attempt`},
		{name: "exit-75-other", script: `echo '{"a":1}'; exit 75`, kind: logbook.FailureExit, code: handler.ExitTryAgain, message: `asks for another attempt`},
		{name: "exit-75-garbage", script: `echo '{"not_yet"'; exit 75`, kind: logbook.FailureExit, code: handler.ExitTryAgain, message: `asks for another attempt`},
		{name: "not-yet-no-time", script: `echo '{"not_yet":30}'; exit 75`, kind: logbook.FailureResult, code: handler.ExitTryAgain, message: `not a duration such as "30s": 30`},
		{name: "not-yet-done", script: `echo '{"not_yet":"30s"}'`, result: `{"not_yet":"30s"}`},
		{name: "not-yet-failed", script: `echo '{"not_yet":"30s"}'; exit 1`, kind: logbook.FailureExit, code: 1},
		{name: "signal", script: `kill -9 $$`, kind: logbook.FailureSignal, code: 9, message: `killed by signal 9`},
		{name: "no-such-handler", kind: logbook.FailureHandler, message: `handler "no-such-handler": not found in `},
		{name: "../escape", kind: logbook.FailureHandler, permanent: true, message: `handler name is invalid`},
	}
	directory := t.TempDir()
	for _, row := range rows {
		if row.script != "" {
			install(t, directory, row.name, row.script)
		}
	}
	set, scratch := open(t, directory), t.TempDir()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			c := call(logbook.Values{"a": json.RawMessage("1"), "b": json.RawMessage(`"<x> & ü"`)})
			result, err := set.Task(row.name, "", handler.Scratch(scratch)).Execute(t.Context(), c)
			if row.kind == "" {
				if raw, _ := result.(json.RawMessage); err != nil || string(raw) != row.result {
					t.Errorf("result %.100s, error %v, want %.100s", raw, err, row.result)
				}
				return
			}
			var failure *logbook.Failure
			if !errors.As(err, &failure) || result != nil {
				t.Fatalf("result %v, error %v, want a failure", result, err)
			}
			failure = flow.FailureOf(failure)
			if whole, _ := json.Marshal(failure); row.whole != "" && string(whole) != row.whole {
				t.Errorf("the record is %s, want %s", whole, row.whole)
			}
			if failure.Kind != row.kind || failure.Code != row.code || failure.Permanent != row.permanent {
				t.Errorf("failure %+v", failure)
			}
			if !regexp.MustCompile(row.message).MatchString(failure.Message) {
				t.Errorf("message %q does not match %q", failure.Message, row.message)
			}
		})
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("working directories are left: %v, %v", left, err)
	}
}

// TestMemoryIsBounded: an endless answer needs no more memory than a large one.
func TestMemoryIsBounded(t *testing.T) {
	directory := t.TempDir()
	install(t, directory, "flood", `yes >&2 & yes`)
	install(t, directory, "complain", `yes | head -c 50000000 >&2`)
	set := open(t, directory)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, name := range []string{"flood", "complain"} {
		_, _ = set.Task(name, "").Execute(t.Context(), call(nil))
	}
	runtime.ReadMemStats(&after)
	const bound = 16 << 20
	if used := after.TotalAlloc - before.TotalAlloc; used > bound {
		t.Errorf("%d bytes were allocated, want at most %d", used, bound)
	}
}

func TestStderr(t *testing.T) {
	rows := []struct {
		name, script string
		first, last  string
		length       int
		truncated    bool
	}{
		{name: "little", script: `echo hello >&2`, first: "hello\n", last: "hello\n", length: 6},
		{name: "failing", script: `echo oh >&2; exit 3`, first: "oh\n", last: "oh\n", length: 3},
		{name: "broken", script: `printf 'a\377b' >&2`, first: "a\uFFFDb", last: "b", length: 5},
		{name: "exact", script: `head -c 65536 /dev/zero | tr '\0' x >&2`, first: "xx", last: "xx", length: logbook.MaxStderr},
		{name: "much", script: `echo first >&2; yes middle | head -c 700000 >&2; printf last >&2`, first: "", last: "last", length: logbook.MaxStderr, truncated: true},
		{name: "runes", script: `yes ü | tr -d '\n' | head -c 200001 >&2`, first: "ü", last: "ü\uFFFD", length: -1, truncated: true},
		{name: "three-bytes-left", script: `{ yes 😀 | tr -d '\n' | head -c 200000; printf x; } >&2`, first: "😀", last: "😀x", length: -1, truncated: true},
		{name: "all-broken", script: `yes "$(printf 'a\377')" | head -c 65536 >&2`, first: "", last: "a", length: -1, truncated: true},
	}
	directory := t.TempDir()
	for _, row := range rows {
		install(t, directory, row.name, row.script)
	}
	set := open(t, directory)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			c := call(nil)
			_, _ = set.Task(row.name, "").Execute(t.Context(), c)
			text, truncated := c.Stderr()
			if !utf8.ValidString(text) || len(text) > logbook.MaxStderr {
				t.Errorf("%d bytes, valid UTF-8: %v", len(text), utf8.ValidString(text))
			}
			if row.length >= 0 && len(text) != row.length {
				t.Errorf("%d bytes, want %d", len(text), row.length)
			}
			if !strings.HasPrefix(text, row.first) || !strings.HasSuffix(text, row.last) || truncated != row.truncated {
				t.Errorf("%.20q … %q, truncated %v", text, text[max(0, len(text)-20):], truncated)
			}
		})
	}
}

// TestEnvironment: a handler gets the documented variables, and no variable of the daemon.
func TestEnvironment(t *testing.T) {
	t.Setenv("SECRET_OF_THE_DAEMON", "hunter2")
	directory := t.TempDir()
	path := install(t, directory, "env", `env >&2; pwd >&2; ls -A >&2; echo "args $#" >&2; touch "$TMPDIR/left"; mkdir -p locked/in; chmod 0 locked`)
	c := call(nil)
	c.LastFailure = &logbook.Failure{Kind: "card.declined", Message: "no\x00money"}
	if _, err := open(t, directory).Task("env", "").Execute(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	text, _ := c.Stderr()
	found := regexp.MustCompile(`(?m)^HOME=(.*)$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no HOME in:\n%s", text)
	}
	home := found[1]
	want := []string{
		"CONDUCTORD_ACTION=execute",
		"CONDUCTORD_ATTEMPT=3",
		"CONDUCTORD_ASKED=0",
		"CONDUCTORD_FLOW=01890a5d-ac96-774b-bcce-b302099a8057",
		"CONDUCTORD_HANDLER=" + path,
		"CONDUCTORD_JOB=the-job",
		"CONDUCTORD_KEY=" + c.Key(),
		"CONDUCTORD_LAST_FAILURE=no money",
		"CONDUCTORD_LAST_FAILURE_KIND=card.declined",
		"CONDUCTORD_STEP=the step",
		"CONDUCTORD_FENCE=1-42",
		"CONDUCTORD_TRIES=5",
		"CONDUCTORD_TRY=2",
		"HOME=" + home,
		"LANG=C.UTF-8",
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"PWD=" + home, // dash and bash set it themselves
		"TMPDIR=" + home,
		"TZ=UTC",
		home, // output of pwd; ls then prints nothing
		"args 0",
	}
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if !strings.HasPrefix(line, "OLDPWD=") && !strings.HasPrefix(line, "SHLVL=") && !strings.HasPrefix(line, "_=") {
			got = append(got, line)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the handler saw\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := os.Stat(home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the working directory is left: %v", err)
	}
}

func TestRevert(t *testing.T) {
	directory := t.TempDir()
	install(t, directory, "do", `echo 1`)
	install(t, directory, "undo", `cat >&2; echo "$CONDUCTORD_ACTION${CONDUCTORD_CAUSE+ because of $CONDUCTORD_CAUSE}${CONDUCTORD_CAUSE_BY+ by $CONDUCTORD_CAUSE_BY}${CONDUCTORD_CAUSE_REASON+: $CONDUCTORD_CAUSE_REASON}" >&2`)
	install(t, directory, "undo-fails", `exit 4`)
	set := open(t, directory)
	if _, ok := set.Task("do", "").(flow.Reverter); ok {
		t.Error("a task without a handler for it can revert")
	}
	cancel := logbook.RevertCause{Kind: logbook.CauseCancel, By: "ann", Reason: "the customer called"}
	rows := []struct {
		name string
		call flow.Call
		want string
	}{
		{"a result", flow.Call{Cause: cancel, Result: json.RawMessage(`{"id":7}`)},
			`{"$cause":{"kind":"cancel","by":"ann","reason":"the customer called"},"$failure":null,"$failures":null,"$result":{"id":7},"room":"12"}`},
		{"nobody knows", flow.Call{Cause: cancel, FlowFailures: map[string]*logbook.Failure{"pay": {Kind: "error", Message: "declined"}}},
			`{"$cause":{"kind":"cancel","by":"ann","reason":"the customer called"},"$failure":null,"$failures":{"pay":{"kind":"error","message":"declined"}},"$result":null,"room":"12"}`},
		{"a failure", flow.Call{Cause: cancel, Failure: &logbook.Failure{Kind: "handler.exit", Message: "no", Code: 3}},
			`{"$cause":{"kind":"cancel","by":"ann","reason":"the customer called"},"$failure":{"kind":"handler.exit","message":"no","code":3},"$failures":null,"$result":null,"room":"12"}`},
	}
	for _, row := range rows {
		c := row.call
		c.Action, c.Arguments = logbook.ActionRevert, logbook.Values{"room": json.RawMessage(`"12"`)}
		if err := set.Task("do", "undo").(flow.Reverter).Revert(t.Context(), &c); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if text, _ := c.Stderr(); text != row.want+"\nrevert because of cancel by ann: the customer called\n" {
			t.Errorf("%s: the revert was given\n%swant\n%s", row.name, text, row.want)
		}
	}
	var failure *logbook.Failure
	err := set.Task("do", "undo-fails").(flow.Reverter).Revert(t.Context(), call(nil))
	if !errors.As(err, &failure) || failure.Code != 4 {
		t.Errorf("a failing revert: %v", err)
	}
}

// TestStops checks how handlers that do not end are killed. A handler writes the ids of its
// processes into pids, so that the test can check their end.
func TestStops(t *testing.T) {
	const announce = `echo $$ >>"$pids"; `
	rows := []struct {
		name, script string
		ignores      bool // SIGTERM
	}{
		{name: "hangs", script: announce + `exec sleep 600`},
		{name: "ends-on-term", script: `trap 'echo bye >&2; exit 0' TERM; ` + announce + `while :; do sleep 0.05; done`},
		{name: "ignores-term", script: `trap '' TERM; ` + announce + `while :; do sleep 0.05; done`, ignores: true},
		{name: "children", script: `sleep 600 & echo $! >>"$pids"; (trap '' TERM; exec sleep 600) & echo $! >>"$pids"; ` + announce + `wait`},
		{name: "stopped", script: announce + `kill -STOP $$`, ignores: true},
	}
	directory, scratch := t.TempDir(), t.TempDir()
	for _, row := range rows {
		pids := filepath.Join(scratch, row.name)
		install(t, directory, row.name, "pids="+pids+"\n"+row.script)
	}
	set := open(t, directory)
	for _, row := range rows {
		for _, reason := range []string{"timeout", "cancelled"} {
			t.Run(row.name+" "+reason, func(t *testing.T) {
				pids := filepath.Join(scratch, row.name)
				_ = os.Remove(pids)
				ctx, stop := stopper(reason)
				defer stop()
				grace := soon
				if row.ignores {
					grace = 50 * time.Millisecond
				}
				done := make(chan error, 1)
				go func() {
					_, err := set.Task(row.name, "", handler.Grace(grace)).Execute(ctx, call(nil))
					done <- err
				}()
				if reason == "cancelled" {
					waitFor(t, "the handler has begun", func() bool { return len(numbers(pids)) > 0 })
					stop()
				}
				checkStopped(t, reason, within(t, done))
				for _, pid := range numbers(pids) {
					waitFor(t, fmt.Sprintf("process %d is dead", pid), func() bool { return dead(pid) })
				}
			})
		}
	}
}

// TestInterruptedHandlers: an interrupted handler has the grace of its interruption; after the
// end of the claim, it has only its own grace.
func TestInterruptedHandlers(t *testing.T) {
	directory, scratch := t.TempDir(), t.TempDir()
	for name, script := range map[string]string{
		"obeys":   `trap 'echo stopping >&2; exit 0' TERM; echo $$ > "$FILE"; while :; do sleep 0.01; done`,
		"fails":   `trap 'echo stopping >&2; exit 3' TERM; echo $$ > "$FILE"; while :; do sleep 0.01; done`,
		"ignores": `trap '' TERM; echo $$ > "$FILE"; while :; do sleep 0.01; done`,
	} {
		install(t, directory, name, "FILE="+filepath.Join(scratch, name)+"\n"+script)
	}
	set := open(t, directory)
	for _, row := range []struct {
		name, handler     string
		grace, own        time.Duration
		claimEnds, killed bool
	}{
		{"it ends well in the grace", "obeys", soon, time.Millisecond, false, false},
		{"it ends badly in the grace", "fails", soon, time.Millisecond, false, false},
		{"the grace is over", "ignores", 50 * time.Millisecond, soon, false, true},
		{"another grace", "ignores", soon, soon, false, true},
		{"the claim ends", "ignores", soon, 50 * time.Millisecond, true, true},
		{"the claim ends, and it obeys", "obeys", soon, soon, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			pids := filepath.Join(scratch, row.handler)
			_ = os.Remove(pids)
			claim, endClaim := context.WithCancel(t.Context())
			ctx, interrupt := context.WithCancelCause(claim)
			step := call(nil)
			done := make(chan error, 1)
			go func() {
				_, err := set.Task(row.handler, "", handler.Grace(row.own)).Execute(ctx, step)
				done <- err
			}()
			waitFor(t, "the handler has begun", func() bool { return len(numbers(pids)) > 0 })
			began := time.Now()
			interrupt(flow.Interrupt(claim, "the flow is undone", row.grace))
			if row.claimEnds {
				endClaim()
			}
			if row.name == "another grace" {
				flow.InterruptionOf(ctx).SetGrace(50 * time.Millisecond)
			}
			err := within(t, done)
			endClaim()
			// The answer of a handler that ends by itself counts.
			var i *flow.Interruption
			var failure *logbook.Failure
			switch {
			case row.killed && (!errors.As(err, &i) || i.Reason != "the flow is undone"):
				t.Errorf("error %v", err)
			case row.handler == "obeys" && err != nil:
				t.Errorf("it has ended well, and the error is %v", err)
			case row.handler == "fails" && (!errors.As(err, &failure) || failure.Code != 3):
				t.Errorf("it has ended with status 3, and the error is %v", err)
			}
			if stderr, _ := step.Stderr(); (stderr == "") != row.killed {
				t.Errorf("it said %q", stderr)
			}
			if took := time.Since(began); row.killed && took < 50*time.Millisecond {
				t.Errorf("it was killed after %s", took)
			}
		})
	}
}

var errClaimLost = errors.New("the claim is lost")

func stopper(reason string) (context.Context, func()) {
	if reason == "timeout" {
		return context.WithTimeout(context.Background(), 300*time.Millisecond)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	return ctx, func() { cancel(errClaimLost) }
}

func checkStopped(t *testing.T, reason string, err error) {
	t.Helper()
	if reason == "cancelled" {
		if !errors.Is(err, errClaimLost) {
			t.Errorf("error %v, want the cause of the cancellation", err)
		}
		return
	}
	var failure *logbook.Failure
	if !errors.As(err, &failure) || failure.Kind != logbook.FailureTimeout {
		t.Errorf("error %v, want a timeout", err)
	}
}

// TestOrphans: leftover processes in a handler's group die with it. A process outside the
// group that holds the pipes does not delay the step.
func TestOrphans(t *testing.T) {
	directory, scratch := t.TempDir(), t.TempDir()
	left, escaped := filepath.Join(scratch, "left"), filepath.Join(scratch, "escaped")
	install(t, directory, "leaves-children", `sleep 600 & echo $! >`+left+`; echo '"done"'`)
	install(t, directory, "closes-stdout", `sleep 600 >&- 2>&- & echo $! >`+left+`; echo '"done"'`)
	install(t, directory, "escapes", `setsid sh -c 'echo $$ >`+escaped+`; exec sleep 600' & while [ ! -s `+escaped+` ]; do sleep 0.02; done; echo '"done"'`)
	set := open(t, directory)
	for _, name := range []string{"leaves-children", "closes-stdout", "escapes"} {
		t.Run(name, func(t *testing.T) {
			if name == "escapes" && !canSetsid() {
				t.Skip("no setsid here")
			}
			done := make(chan error, 1)
			go func() {
				result, err := set.Task(name, "").Execute(t.Context(), call(nil))
				if raw, _ := result.(json.RawMessage); err == nil && string(raw) != `"done"` {
					err = fmt.Errorf("the result is %s", raw)
				}
				done <- err
			}()
			if err := within(t, done); err != nil {
				t.Error(err)
			}
			if name == "escapes" {
				for _, pid := range numbers(escaped) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				return
			}
			for _, pid := range numbers(left) {
				waitFor(t, "the child is dead", func() bool { return dead(pid) })
			}
		})
	}
}

// TestCannotStart: errors of the kernel get an explanation, because it reports "no such file" for
// an existing file.
func TestCannotStart(t *testing.T) {
	directory := t.TempDir()
	for _, row := range []struct{ name, text, message string }{
		{"no-first-line", "echo 1\n", "a script whose first line names an interpreter, such as #!/bin/sh"},
		{"no-interpreter", "#!/no/such/interpreter\n", "the interpreter in its first line, .* does not exist"},
	} {
		if err := os.WriteFile(filepath.Join(directory, row.name), []byte(row.text), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := open(t, directory).Task(row.name, "").Execute(t.Context(), call(nil))
		var failure *logbook.Failure
		if !errors.As(err, &failure) || failure.Kind != logbook.FailureHandler || !regexp.MustCompile(row.message).MatchString(failure.Message) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// TestBusy: a start waits briefly for a handler that is being written.
func TestBusy(t *testing.T) {
	directory := t.TempDir()
	path := install(t, directory, "busy", "echo 1")
	set := open(t, directory)
	for _, row := range []struct {
		name     string
		released bool
	}{{"released", true}, {"held", false}} {
		t.Run(row.name, func(t *testing.T) {
			writer, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer writer.Close()
			if row.released {
				time.AfterFunc(30*time.Millisecond, func() { writer.Close() })
			}
			_, err = set.Task("busy", "").Execute(t.Context(), call(nil))
			var failure *logbook.Failure
			if row.released && err != nil || !row.released && (!errors.As(err, &failure) || failure.Kind != logbook.FailureHandler || failure.Permanent) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestBinary runs an executable that is not a script.
func TestBinary(t *testing.T) {
	directory := t.TempDir()
	binary, err := os.ReadFile("/bin/cat")
	if err != nil {
		t.Skip("no /bin/cat here")
	}
	if err := os.WriteFile(filepath.Join(directory, "cat"), binary, 0o755); err != nil {
		t.Fatal(err)
	}
	result, err := open(t, directory).Task("cat", "").Execute(t.Context(), call(logbook.Values{"a": json.RawMessage("[1]")}))
	if raw, _ := result.(json.RawMessage); err != nil || string(raw) != `{"a":[1]}` {
		t.Errorf("%s, %v", raw, err)
	}
}

func canSetsid() bool {
	_, err := os.Stat("/usr/bin/setsid")
	return err == nil
}

func within(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(soon):
		t.Fatal("the handler is not stopped")
		return nil
	}
}

func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(soon), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("it never came true that %s", what)
		case <-tick.C:
		}
	}
}

// dead reports whether a process has ended, including a zombie: its new parent can be slow to reap
// it.
func dead(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func numbers(path string) []int {
	text, _ := os.ReadFile(path)
	var pids []int
	for _, field := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}
