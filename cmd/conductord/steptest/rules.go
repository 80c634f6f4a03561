package steptest

import (
	"fmt"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
)

// The types of steps that a tested worker must support. The documentation of workers defines them.
const (
	typeEcho     = "test.echo"
	typeFail     = "test.fail"
	typeSleep    = "test.sleep"
	typeProgress = "test.progress"
	typeLater    = "test.later"
	typeSave     = "test.checkpoint"
	typeSignal   = "test.signal"
	typeKeep     = "test.keep"
	typeUnkeep   = "test.unkeep"
	typeBig      = "test.big"
	typeGarbage  = "test.garbage"
	typeCrash    = "test.crash"
)

func types() []string {
	return []string{typeEcho, typeFail, typeSleep, typeProgress, typeLater, typeSave, typeSignal, typeKeep, typeUnkeep, typeBig, typeGarbage, typeCrash}
}

// rule is one requirement for a worker.
type rule struct {
	name    string
	handler bool   // holds for handlers too
	passage string // of docs/testing-workers.md
	test    func(*trial)
}

const (
	passageArguments = "Arguments reach a step exactly as the flow has them"
	ruleSigterm      = "sigterm"
	rulePromised     = "promised"
	// margin is for the JSON around a value near the limit.
	margin = 1 << 10
)

// rules are in the order of their tests. A rule whose test can leave an endless attempt running
// comes late.
func rules() []rule {
	return []rule{
		{"text", true, passageArguments, func(t *trial) {
			t.echoes(jsonOf(map[string]string{
				"unicode":  "ü é ß 日本語 עברית 🙂 👩‍👩‍👧 \u2028\u2029\ufeff\ufffd\U0010ffff e\u0301",
				"controls": controls() + "\u007f\u0085",
				"marks":    `"quotes" 'single' \ / <b>&amp;</b> $HOME {braces} %s`,
				"empty":    "",
				"spaces":   "  lead and trail \n",
			}))
		}},
		{"numbers", true, passageArguments, func(t *trial) {
			t.echoes(`{"zero": 0, "negative": -17, "fraction": 0.1, "small": 1e-7,
				"safe": 9007199254740991, "beyond": 9007199254740993, "largest": 9223372036854775807, "unsigned": 18446744073709551615,
				"least": -9223372036854775808, "within": {"list": [9007199254740993, 1, 2.5]}}`)
		}},
		{"shapes", true, passageArguments, func(t *trial) {
			const depth = 60
			t.echoes(`{"null": null, "yes": true, "no": false, "object": {}, "list": [], "text": "",
				"keys": {"": 1, " ": 2, "a.b": 3, "$ref": 4, "__proto__": 5, "ключ": 6},
				"nested": {"a": [{"b": null, "c": [[], {}, [null]]}, "d", 1.5, true]},
				"deep": ` + strings.Repeat(`{"in": [`, depth/2) + "1" + strings.Repeat("]}", depth/2) + "}")
		}},
		{"large", true, "Arguments and results of up to `limits.value` arrive complete", func(t *trial) {
			size := logbook.MaxLimits.Value - margin
			data := `{"data": "` + strings.Repeat("x", size) + `"}`
			t.echoes(data)
			t.result(t.do(typeBig, 1, fmt.Sprintf(`{"bytes": %d}`, size)), data)
		}},
		{"over-limit", true, "If the node refuses a result as too large, the worker reports a failure", func(t *trial) {
			f := t.failure(t.do(typeBig, 1, fmt.Sprintf(`{"bytes": %d}`, logbook.MaxLimits.Value+margin)))
			t.holds(f.Kind == "over_limit" || f.Kind == logbook.FailureResult,
				"a failure of the kind over_limit (of handlers and Go: result)", "the kind %q: %s", f.Kind, brief(f.Message))
			t.works()
		}},
		{"garbage", true, "If a result cannot be encoded as JSON, the worker reports a failure and continues", func(t *trial) {
			f := t.failure(t.do(typeGarbage, 1, "{}"))
			t.holds(f.Kind == logbook.FailureResult || f.Kind == logbook.FailureError && f.Permanent,
				"a permanent failure of the kind error (of handlers and Go: a failure of the kind result)",
				"the kind %q, permanent %t: %s", f.Kind, f.Permanent, brief(f.Message))
			t.works()
		}},
		{"crash", true, "If a step ends with an unhandled error, the worker reports a failure and continues", func(t *trial) {
			t.failure(t.do(typeCrash, 1, "{}"))
			t.works()
		}},
		{"failure", true, "A failure keeps its message, its kind and `permanent`", func(t *trial) {
			const message, kind, text = "no money left: 3 € für 🙂", "card.declined", "message %q, kind %q, permanent %t, %d attempts"
			for _, row := range []struct {
				permanent bool
				attempts  int
			}{{true, 1}, {false, 2}} {
				atom := t.do(typeFail, 2, jsonOf(map[string]any{"message": message, "kind": kind, "permanent": row.permanent}))
				f := t.failure(atom)
				want, got := fmt.Sprintf(text, message, kind, row.permanent, row.attempts), fmt.Sprintf(text, f.Message, f.Kind, f.Permanent, len(atom.Attempts))
				t.holds(got == want, want, "%s", got)
			}
		}},
		{"retry", true, "The next attempt has the next number and the same key", testRetry},
		{"progress", true, "The worker reports the last progress of a step before the step's end, or together with it", func(t *trial) {
			atom := t.do(typeProgress, 1, "{}")
			t.result(atom, `{"reported": 3}`)
			const want = `3 of 3 with the details {"at": 3}`
			p := atom.Progress
			t.holds(p != nil, want, "no progress")
			t.holds(p.Done == 3 && p.Total == 3 && difference(`{"at": 3}`, p.Details) == "", want, "%d of %d with the details %s", p.Done, p.Total, brief(string(p.Details)))
		}},
		{"logs", true, "The worker reports all log lines of a step, in order", testLogs},
		{"not-yet", true, "A step that answers \"not yet\" runs again in the same attempt", func(t *trial) {
			atom := t.do(typeLater, 1, `{"times": 3}`)
			t.result(atom, `{"asked": 3}`)
			asked := executed(atom).Asked
			t.holds(len(atom.Attempts) == 1 && asked == 3,
				"1 attempt that reports \"not yet\" 3 times", "%d attempts, and the last reports \"not yet\" %d times", len(atom.Attempts), asked)
		}},
		{"checkpoint", true, "The next attempt gets the checkpoints of the previous attempt", testCheckpoint},
		{"signal", false, "The cluster sends the signals of an execution with the record of its success", testSignal},
		{"revert", true, "A revert gets the result of the execution, and the arguments", testRevert},
		{"once", false, "A worker runs an attempt once. After the answer `recorded`, it does not report the attempt again", testOnce},
		{"slots", false, "A worker uses all its slots, and never runs more attempts in parallel", testSlots},
		{"adoption", false, "An attempt continues when its conductor ends, and each `Pull` names it in `holds`", testAdoption},
		{"session", false, "When its session has ended, a worker ends its attempts and continues with a new session", testSession},
		{"stop", true, "An attempt ends within 10 s after a stop request", func(t *trial) {
			job, attempt := t.sleeping(forEver, 0)
			told := time.Now()
			t.check(t.client.Cancel(t.ctx, jobs.JobCommand{Job: job.ID, Grace: 2 * stopTime}))
			t.stops(attempt, told)
		}},
		{"timeout", true, "An attempt ends within 10 s after its time limit", func(t *trial) {
			const limit = time.Second
			job, attempt := t.sleeping(forEver, limit)
			t.stops(attempt, attempt.given.Add(limit))
			t.failure(t.record(job))
		}},
		{ruleSigterm, false, "After SIGTERM, a worker takes no new attempts, finishes its attempts, closes its session and exits with 0", testSigterm},
		{rulePromised, false, "A worker cancels its `Pull` on SIGTERM. If this call has already assigned an attempt, the worker finishes the attempt", testPromised},
	}
}

// ends reports whether the test of a rule ends the worker.
func (r *rule) ends() bool { return r.name == ruleSigterm || r.name == rulePromised }

func controls() string {
	var all strings.Builder
	for r := range rune(0x20) {
		all.WriteRune(r)
	}
	return all.String()
}

func testLogs(t *trial) {
	job := t.post(only(typeProgress, 1, "{}"))
	t.record(job)
	page, _, err := t.node.Logs().Read(steplog.Query{Job: job.ID})
	t.check(err)
	var lines []string
	for i := range page.Lines {
		if strings.HasPrefix(page.Lines[i].Text, "line ") {
			lines = append(lines, strings.TrimRight(page.Lines[i].Text, "\n"))
		}
	}
	got := strings.Join(lines, ", ")
	t.holds(got == "line 1, line 2, line 3", "the lines: line 1, line 2, line 3", "%d lines: %s", len(page.Lines), brief(got))
}

// testCheckpoint also loses the answer to the first checkpoint.
func testCheckpoint(t *trial) {
	t.tap.loseCheckpoint(true)
	defer t.tap.loseCheckpoint(false)
	atom := t.do(typeSave, 3, `{"rows": 3}`)
	t.result(atom, `{"row": 3}`)
	t.holds(len(atom.Attempts) == 3, "3 attempts, each with a checkpoint", "%d attempts", len(atom.Attempts))
}

func testSignal(t *trial) {
	atom := t.do(typeSignal, 1, `{"name": "ready"}`)
	t.result(atom, `{"sent": "ready"}`)
	got := "none"
	for _, sent := range executed(atom).Sends {
		got = sent.Signal.Name + " with the answer " + sent.Answer
	}
	t.holds(got == "ready with the answer kept", "one signal: ready with the answer kept", "%s", got)
}

func testRevert(t *trial) {
	const value = `{"room": "17 ü", "list": [1, null]}`
	atom := t.record(t.post(plan{Steps: []step{
		{Name: "it", Type: typeKeep, Revert: typeUnkeep, arguments: `{"value": ` + value + `}`},
		{Name: "fails", Type: typeFail, arguments: `{"message": "undo", "kind": "test", "permanent": true}`},
	}}))
	t.result(atom, `{"kept": `+value+`}`)
	end := atom.Attempts[len(atom.Attempts)-1]
	t.holds(end.Action == logbook.ActionRevert, "a revert of the step", "none")
	if end.Failure != nil {
		t.fail("a revert that finds the result and the arguments", "its failure %q: %s", end.Failure.Kind, brief(end.Failure.Message))
	}
	result := strings.TrimSpace(string(end.Result))
	t.holds(result == "" || result == "null", "a revert without a result", "%s", brief(result))
}
