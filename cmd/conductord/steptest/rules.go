package steptest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
)

// The types of steps that a worker under test does. The page of workers defines them.
const (
	typeEcho     = "test.echo"
	typeFail     = "test.fail"
	typeSleep    = "test.sleep"
	typeProgress = "test.progress"
	typeLater    = "test.later"
	typeKeep     = "test.keep"
	typeUnkeep   = "test.unkeep"
	typeBig      = "test.big"
	typeGarbage  = "test.garbage"
	typeCrash    = "test.crash"
)

func types() []string {
	return []string{typeEcho, typeFail, typeSleep, typeProgress, typeLater, typeKeep, typeUnkeep, typeBig, typeGarbage, typeCrash}
}

// rule is what a worker must do. The order of the table is that of the tests: what may leave an
// attempt behind that does not end comes late.
type rule struct {
	name    string
	handler bool   // holds for handlers too
	passage string // of the page of workers
	test    func(context.Context, *trial) error
}

// trial is one test of one worker.
type trial struct {
	*cluster
	worker *worker
	entity jobs.Entity
}

func rules() []rule {
	return []rule{
		{"text", true, passageArguments, testText},
		{"numbers", true, passageArguments, testNumbers},
		{"shapes", true, passageArguments, testShapes},
		{"large", true, "Arguments and results up to `limits.value` pass whole.", testLarge},
		{"over-limit", true, "A result that the node refuses as too large is reported as a failure.", testOverLimit},
		{"garbage", true, "A result that is no JSON is reported as a failure, and the worker goes on.", testGarbage},
		{"crash", true, "An unforeseen error of a step is reported as a failure, and the worker goes on.", testCrash},
		{"failure", true, "A failure keeps its message, its kind and `permanent`.", testFailure},
		{"retry", true, "The next attempt has the next number and the same key.", testRetry},
		{"progress", true, "The last progress that a step reports is reported with its end, or before.", testProgress},
		{"logs", true, "All lines that a step writes for the logs are reported, in order.", testLogs},
		{"not-yet", true, "A step that says \"not yet\" is asked again in the same attempt.", testNotYet},
		{"revert", true, "A revert gets the result of the execution, and the arguments.", testRevert},
		{"once", false, "An attempt is made once, and not reported again when the answer was `recorded`.", testOnce},
		{"slots", false, "A worker makes as many attempts at once as it has slots, and never more.", testSlots},
		{"adoption", false, "An attempt goes on when its conductor ends, and each `Pull` names it in `holds`.", testAdoption},
		{"session", false, "When its session is over, a worker ends its attempts and works under a new session.", testSession},
		{"stop", true, "An attempt that is told to stop ends within 10 s.", testStop},
		{"timeout", true, "An attempt ends within 10 s after its time is up.", testTimeout},
		{ruleSigterm, false, "On SIGTERM a worker takes no more, finishes its attempts, closes its session and exits with 0.", testSigterm},
	}
}

// ruleSigterm is the one rule that ends the worker.
const ruleSigterm = "sigterm"

const passageArguments = "Arguments reach a step exactly as the flow has them."

// broken is a rule that does not hold.
type broken struct{ expected, got string }

func (b *broken) Error() string { return fmt.Sprintf("expected %s, got %s", b.expected, b.got) }

func isnt(expected, format string, args ...any) error {
	return &broken{expected, fmt.Sprintf(format, args...)}
}

// only is the plan of one step.
func only(kind string, attempts int, arguments map[string]string) plan {
	return plan{Steps: []step{{Name: "it", Type: kind, Attempts: attempts, Arguments: slices.Sorted(maps.Keys(arguments))}}}
}

// do runs a plan whose step is named it, and returns its record.
func (t *trial) do(ctx context.Context, p plan, arguments map[string]string) (*logbook.AtomDetail, error) {
	job, err := t.post(ctx, p, arguments)
	if err != nil {
		return nil, err
	}
	return t.record(ctx, job.ID)
}

func (t *trial) record(ctx context.Context, job jobs.JobID) (*logbook.AtomDetail, error) {
	_, detail, err := t.ended(ctx, job)
	if err != nil {
		return nil, err
	}
	atom, found := detail.Atom("it")
	if !found || len(atom.Attempts) == 0 {
		return nil, errors.New("the step was not begun")
	}
	return atom, nil
}

// last is the last execution of a step.
func last(atom *logbook.AtomDetail) *logbook.Attempt {
	for i := len(atom.Attempts) - 1; ; i-- {
		if i == 0 || atom.Attempts[i].Action == logbook.ActionExecute {
			return &atom.Attempts[i]
		}
	}
}

// succeeds runs one step, and checks its result.
func (t *trial) succeeds(ctx context.Context, kind string, arguments map[string]string, want string) error {
	atom, err := t.do(ctx, only(kind, 1, arguments), arguments)
	if err != nil {
		return err
	}
	return resultIs(atom, want)
}

func resultIs(atom *logbook.AtomDetail, want string) error {
	attempt := last(atom)
	if attempt.Failure != nil {
		return isnt("the result "+brief(want), "the failure %q: %s", attempt.Failure.Kind, brief(attempt.Failure.Message))
	}
	if difference, same := sameJSON(want, string(attempt.Result)); !same {
		return isnt("the result "+brief(want), "a difference at %s", difference)
	}
	return nil
}

// fails runs one step, and returns its failure.
func (t *trial) fails(ctx context.Context, kind string, attempts int, arguments map[string]string) (*logbook.Failure, *logbook.AtomDetail, error) {
	atom, err := t.do(ctx, only(kind, attempts, arguments), arguments)
	if err != nil {
		return nil, nil, err
	}
	attempt := last(atom)
	if attempt.Failure == nil {
		return nil, nil, isnt("a failure", "the result %s", brief(string(attempt.Result)))
	}
	return attempt.Failure, atom, nil
}

// echoes checks that what a step is given comes back, as the first attempt.
func (t *trial) echoes(ctx context.Context, arguments map[string]string) error {
	atom, err := t.do(ctx, only(typeEcho, 1, arguments), arguments)
	if err != nil {
		return err
	}
	var result struct{ Arguments json.RawMessage }
	attempt := last(atom)
	if attempt.Failure != nil {
		return isnt("a result", "the failure %q: %s", attempt.Failure.Kind, brief(attempt.Failure.Message))
	}
	if json.Unmarshal(attempt.Result, &result) != nil || result.Arguments == nil {
		return isnt("a result with `arguments`", "%s", brief(string(attempt.Result)))
	}
	if difference, same := sameJSON(objectOf(arguments), string(result.Arguments)); !same {
		return isnt("the arguments as they are in the flow", "a difference at %s", difference)
	}
	return nil
}

func objectOf(values map[string]string) string {
	var members []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		members = append(members, jsonOf(name)+":"+values[name])
	}
	return "{" + strings.Join(members, ",") + "}"
}

func brief(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + fmt.Sprintf("… (%d bytes)", len(text))
}

// sameJSON compares two texts as JSON: numbers by their exact value, and objects whatever the order
// of their keys. If they differ, it says where, and how.
func sameJSON(want, got string) (difference string, same bool) {
	var values [2]any
	for i, text := range []string{want, got} {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&values[i]); err != nil {
			return fmt.Sprintf("no JSON: %v", err), false
		}
	}
	difference = differ("", values[0], values[1])
	return difference, difference == ""
}

// differ returns the first difference; empty: there is none.
func differ(at string, want, got any) string {
	same := want == nil && got == nil
	switch want := want.(type) {
	case map[string]any:
		object, is := got.(map[string]any)
		if same = is && len(object) == len(want); !same {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			member, has := object[key]
			if !has {
				return fmt.Sprintf("%s: no key %q", at, key)
			}
			if difference := differ(at+"."+key, want[key], member); difference != "" {
				return difference
			}
		}
	case []any:
		list, is := got.([]any)
		if same = is && len(list) == len(want); !same {
			break
		}
		for i := range want {
			if difference := differ(fmt.Sprintf("%s[%d]", at, i), want[i], list[i]); difference != "" {
				return difference
			}
		}
	case json.Number:
		if number, is := got.(json.Number); is {
			a, readable := new(big.Rat).SetString(want.String())
			b, readableToo := new(big.Rat).SetString(number.String())
			same = readable && readableToo && a.Cmp(b) == 0
		}
	case string:
		text, is := got.(string)
		same = is && want == text
	case bool:
		truth, is := got.(bool)
		same = is && want == truth
	}
	if same {
		return ""
	}
	return fmt.Sprintf("%s: %s became %s", at, brief(jsonOf(want)), brief(jsonOf(got)))
}

func jsonOf(value any) string {
	encoded, _ := json.Marshal(value) // it was decoded from JSON
	return string(encoded)
}

func testText(ctx context.Context, t *trial) error {
	var controls strings.Builder
	for r := range rune(0x20) {
		controls.WriteRune(r)
	}
	return t.echoes(ctx, map[string]string{
		"unicode":  jsonOf("ü é ß 日本語 עברית 🙂 👩‍👩‍👧 \u2028\u2029\ufeff\ufffd\U0010ffff e\u0301"),
		"controls": jsonOf(controls.String() + "\u007f\u0085"),
		"marks":    jsonOf(`"quotes" 'single' \ / <b>&amp;</b> $HOME {braces} %s`),
		"empty":    `""`,
		"spaces":   `"  lead and trail \n"`,
	})
}

func testNumbers(ctx context.Context, t *trial) error {
	return t.echoes(ctx, map[string]string{
		"zero": "0", "negative": "-17", "fraction": "0.1", "small": "1e-7",
		"safe": "9007199254740991", "beyond": "9007199254740993", "largest": "9223372036854775807", "unsigned": "18446744073709551615",
		"least": "-9223372036854775808", "within": `{"list": [9007199254740993, 1, 2.5]}`,
	})
}

func testShapes(ctx context.Context, t *trial) error {
	const depth = 60
	return t.echoes(ctx, map[string]string{
		"null": "null", "yes": "true", "no": "false", "object": "{}", "list": "[]", "text": `""`,
		"keys":   `{"": 1, " ": 2, "a.b": 3, "$ref": 4, "__proto__": 5, "ключ": 6}`,
		"nested": `{"a": [{"b": null, "c": [[], {}, [null]]}, "d", 1.5, true]}`,
		"deep":   strings.Repeat(`{"in": [`, depth/2) + "1" + strings.Repeat("]}", depth/2),
	})
}

// margin is for what stands around a value near the limit.
const margin = 1 << 10

func testLarge(ctx context.Context, t *trial) error {
	size := logbook.MaxLimits.Value - margin
	data := jsonOf(strings.Repeat("x", size))
	if err := t.echoes(ctx, map[string]string{"data": data}); err != nil {
		return err
	}
	return t.succeeds(ctx, typeBig, map[string]string{"bytes": fmt.Sprint(size)}, `{"data": `+data+`}`)
}

// kinds of failures of results: that of a client library, and that of handlers and of Go.
const (
	kindLimit   = "over_limit"
	ifTooLarge  = "a failure of the kind over_limit (of handlers and Go: result)"
	ifNoJSON    = "a permanent failure of the kind error (of handlers and Go: a failure of the kind result)"
	wellMessage = "ok"
)

func testOverLimit(ctx context.Context, t *trial) error {
	failure, _, err := t.fails(ctx, typeBig, 1, map[string]string{"bytes": fmt.Sprint(logbook.MaxLimits.Value + margin)})
	if err != nil {
		return err
	}
	if failure.Kind != kindLimit && failure.Kind != logbook.FailureResult {
		return isnt(ifTooLarge, "the kind %q: %s", failure.Kind, brief(failure.Message))
	}
	return t.well(ctx)
}

func testGarbage(ctx context.Context, t *trial) error {
	failure, _, err := t.fails(ctx, typeGarbage, 1, nil)
	if err != nil {
		return err
	}
	if failure.Kind != logbook.FailureResult && (failure.Kind != logbook.FailureError || !failure.Permanent) {
		return isnt(ifNoJSON, "the kind %q, permanent %t: %s", failure.Kind, failure.Permanent, brief(failure.Message))
	}
	return t.well(ctx)
}

func testCrash(ctx context.Context, t *trial) error {
	if _, _, err := t.fails(ctx, typeCrash, 1, nil); err != nil {
		return err
	}
	return t.well(ctx)
}

// well checks that the worker still does steps.
func (t *trial) well(ctx context.Context) error {
	return t.echoes(ctx, map[string]string{"is": jsonOf(wellMessage)})
}

func testFailure(ctx context.Context, t *trial) error {
	for _, permanent := range []bool{true, false} {
		const message, kind, tries = "no money left: 3 € für 🙂", "card.declined", 2
		failure, atom, err := t.fails(ctx, typeFail, tries, map[string]string{
			"message": jsonOf(message), "kind": jsonOf(kind), "permanent": fmt.Sprint(permanent),
		})
		if err != nil {
			return err
		}
		attempts := tries
		if permanent {
			attempts = 1
		}
		want := fmt.Sprintf("message %q, kind %q, permanent %t, %d attempts", message, kind, permanent, attempts)
		if got := fmt.Sprintf("message %q, kind %q, permanent %t, %d attempts", failure.Message, failure.Kind, failure.Permanent, len(atom.Attempts)); got != want {
			return isnt(want, "%s", got)
		}
	}
	return nil
}

func testProgress(ctx context.Context, t *trial) error {
	atom, err := t.do(ctx, only(typeProgress, 1, nil), nil)
	if err != nil {
		return err
	}
	if err := resultIs(atom, `{"reported": 3}`); err != nil {
		return err
	}
	const want = `3 of 3 with the details {"at": 3}`
	p := atom.Progress
	if p == nil {
		return isnt(want, "no progress")
	}
	if _, same := sameJSON(`{"at": 3}`, string(p.Details)); p.Done != 3 || p.Total != 3 || !same {
		return isnt(want, "%d of %d with the details %s", p.Done, p.Total, brief(string(p.Details)))
	}
	return nil
}

func testLogs(ctx context.Context, t *trial) error {
	job, err := t.post(ctx, only(typeProgress, 1, nil), nil)
	if err == nil {
		_, err = t.record(ctx, job.ID)
	}
	if err != nil {
		return err
	}
	page, _, err := t.node.Logs().Read(steplog.Query{Job: job.ID})
	if err != nil {
		return err
	}
	var lines []string
	for i := range page.Lines {
		if strings.HasPrefix(page.Lines[i].Text, "line ") {
			lines = append(lines, strings.TrimRight(page.Lines[i].Text, "\n"))
		}
	}
	if got := strings.Join(lines, ", "); got != "line 1, line 2, line 3" {
		return isnt("the lines: line 1, line 2, line 3", "%d lines: %s", len(page.Lines), brief(got))
	}
	return nil
}

func testNotYet(ctx context.Context, t *trial) error {
	arguments := map[string]string{"times": "3"}
	atom, err := t.do(ctx, only(typeLater, 1, arguments), arguments)
	if err != nil {
		return err
	}
	if err := resultIs(atom, `{"asked": 3}`); err != nil {
		return err
	}
	if asked := last(atom).Asked; len(atom.Attempts) != 1 || asked != 3 {
		return isnt("1 attempt that says \"not yet\" 3 times", "%d attempts, and the last says it %d times", len(atom.Attempts), asked)
	}
	return nil
}

func testRevert(ctx context.Context, t *trial) error {
	value := `{"room": "17 ü", "list": [1, null]}`
	arguments := map[string]string{"value": value, "message": `"undo"`, "kind": `"test"`, "permanent": "true"}
	job, err := t.post(ctx, plan{Steps: []step{
		{Name: "it", Type: typeKeep, Revert: typeUnkeep, Arguments: []string{"value"}},
		{Name: "fails", Type: typeFail, Arguments: []string{"kind", "message", "permanent"}},
	}}, arguments)
	if err != nil {
		return err
	}
	atom, err := t.record(ctx, job.ID)
	if err != nil {
		return err
	}
	if err := resultIs(atom, `{"kept": `+value+`}`); err != nil {
		return err
	}
	end := atom.Attempts[len(atom.Attempts)-1]
	switch {
	case end.Action != logbook.ActionRevert:
		return isnt("a revert of the step", "none")
	case end.Failure != nil:
		return isnt("a revert that finds the result and the arguments", "its failure %q: %s", end.Failure.Kind, brief(end.Failure.Message))
	case !bytes.Equal(bytes.TrimSpace(end.Result), nil) && string(end.Result) != "null":
		return isnt("a revert without a result", "%s", brief(string(end.Result)))
	}
	return nil
}
