package steptest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// trial is one test of one worker. Its methods end the test's goroutine, as methods of testing.T
// do, when a rule is broken or an error prevents the test.
type trial struct {
	*cluster
	worker *worker
	entity jobs.Entity
	ctx    context.Context
	err    error // a broken rule, or an error that prevents the test
}

// broken is a rule that was broken.
type broken struct{ expected, got string }

func (b *broken) Error() string { return fmt.Sprintf("expected %s, got %s", b.expected, b.got) }

func (t *trial) fail(expected, format string, args ...any) {
	t.check(&broken{expected, fmt.Sprintf(format, args...)})
}

func (t *trial) holds(what bool, expected, format string, args ...any) {
	if !what {
		t.fail(expected, format, args...)
	}
}

func (t *trial) check(err error) {
	if err != nil {
		t.err = err
		runtime.Goexit()
	}
}

// until waits for a condition; expected describes it.
func (t *trial) until(ctx context.Context, what string, holds func() bool) {
	for !holds() {
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			t.fail(what, "nothing: %v", context.Cause(ctx))
		}
	}
}

func (t *trial) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.check(context.Cause(t.ctx))
	}
}

// only is the plan of a single step, with the name "it".
func only(kind string, attempts int, arguments string) plan {
	return plan{Steps: []step{{Name: "it", Type: kind, Attempts: attempts, arguments: arguments}}}
}

func (t *trial) post(p plan) jobs.Job {
	posting, err := p.posting()
	t.check(err)
	job, err := jobs.PostOne(t.ctx, t.client, posting)
	t.check(err)
	return job
}

// ended waits for the end of a job, and returns its flow.
func (t *trial) ended(job jobs.Job) (jobs.Job, logbook.FlowDetail) {
	ended, err := t.client.Wait(t.ctx, job.ID)
	t.check(err)
	detail, err := t.client.FlowDetail(t.ctx, ended.Flow)
	t.check(err)
	return ended, detail
}

// record waits for the end of a job, and returns the record of its step "it".
func (t *trial) record(job jobs.Job) *logbook.AtomDetail {
	_, detail := t.ended(job)
	atom, found := detail.Atom("it")
	if found {
		_, found = atom.Last(logbook.ActionExecute)
	}
	if !found {
		t.check(errors.New("the step did not start"))
	}
	return atom
}

// do runs one step.
func (t *trial) do(kind string, attempts int, arguments string) *logbook.AtomDetail {
	return t.record(t.post(only(kind, attempts, arguments)))
}

// executed is the last execution of a step; its record has one.
func executed(atom *logbook.AtomDetail) *logbook.Attempt {
	last, _ := atom.Last(logbook.ActionExecute)
	return last
}

// success returns the result of a step.
func (t *trial) success(atom *logbook.AtomDetail, expected string) json.RawMessage {
	attempt := executed(atom)
	if attempt.Failure != nil {
		t.fail(expected, "the failure %q: %s", attempt.Failure.Kind, brief(attempt.Failure.Message))
	}
	return attempt.Result
}

// failure returns the failure of a step.
func (t *trial) failure(atom *logbook.AtomDetail) *logbook.Failure {
	attempt := executed(atom)
	t.holds(attempt.Failure != nil, "a failure", "the result %s", brief(string(attempt.Result)))
	return attempt.Failure
}

func (t *trial) result(atom *logbook.AtomDetail, want string) {
	expected := "the result " + brief(want)
	t.same(expected, want, t.success(atom, expected))
}

func (t *trial) same(expected, want string, got json.RawMessage) {
	where := difference(want, got)
	t.holds(where == "", expected, "a difference at %s", where)
}

// echoes checks that a step returns its arguments unchanged.
func (t *trial) echoes(arguments string) {
	said := t.success(t.do(typeEcho, 1, arguments), "a result")
	var result struct{ Arguments json.RawMessage }
	t.holds(json.Unmarshal(said, &result) == nil && result.Arguments != nil, "a result with `arguments`", "%s", brief(string(said)))
	t.same("the arguments as they are in the flow", arguments, result.Arguments)
}

// works checks that the worker still runs steps.
func (t *trial) works() { t.echoes(`{"is": "ok"}`) }

func brief(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + fmt.Sprintf("… (%d bytes)", len(text))
}

func jsonOf(value any) string {
	encoded, _ := json.Marshal(value) // all values here can be encoded
	return string(encoded)
}

// difference describes where and how two texts differ as JSON; empty: they are equal. Numbers are
// compared by exact value, and the order of an object's keys is ignored.
func difference(want string, got json.RawMessage) string {
	var leaves [2]map[string]string
	for i, text := range [][]byte{[]byte(want), got} {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		var value any
		if err := decoder.Decode(&value); err != nil {
			return fmt.Sprintf("no JSON: %v", err)
		}
		leaves[i] = map[string]string{}
		flatten("", value, leaves[i])
	}
	for _, at := range slices.Sorted(maps.Keys(leaves[0])) { // an object or a list before its content
		if want, got := leaves[0][at], leaves[1][at]; want != got {
			return fmt.Sprintf("%s: %s became %s", at, brief(want), brief(got))
		}
	}
	return ""
}

// flatten records each value under its path. An object is recorded as its keys, and a list as its
// length.
func flatten(at string, value any, leaves map[string]string) {
	leaves[at] = jsonOf(value)
	switch value := value.(type) {
	case map[string]any:
		leaves[at] = "an object with the keys " + jsonOf(slices.Sorted(maps.Keys(value)))
		for key, member := range value {
			flatten(at+"."+jsonOf(key), member, leaves)
		}
	case []any:
		leaves[at] = fmt.Sprintf("a list of %d", len(value))
		for i, element := range value {
			flatten(fmt.Sprintf("%s[%d]", at, i), element, leaves)
		}
	case json.Number:
		if number, readable := new(big.Rat).SetString(value.String()); readable {
			digits, _ := number.FloatPrec()
			leaves[at] = number.FloatString(digits)
		}
	}
}
