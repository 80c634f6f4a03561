package engine_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into the scenario files instead of comparing")

// TestScenarios runs the scripts under testdata. A script is a list of
// blocks: a command, the lines that belong to it, "----", and what is
// expected, up to an empty line. The commands:
//
//	flow         an indented tree: "linear NAME", "unordered NAME", "graph NAME",
//	             or a step with its properties (see parseStep)
//	detail       the flow as it was left: a line for the flow, then one for each
//	             step: NAME STATE [INTENTION] attempts as E+ E- E? R+ R- R?
//	run          runs and prints each update; properties: workers=N suspend=STEP
//	             (suspends when the step starts), crash=N (before update N)
//
// A detail stays between runs, so that a second run is a resume.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("%s: run with -rewrite to see the difference; got:\n%s", file, got)
			}
		})
	}
}

func runScript(t *testing.T, text string) string {
	var out strings.Builder
	s := &scenario{detail: newDetail()}
	lines := bufio.NewScanner(strings.NewReader(text))
	var block []string
	for lines.Scan() {
		line := lines.Text()
		if line != "----" {
			if line != "" || len(block) > 0 || out.Len() == 0 {
				block = append(block, line)
			}
			out.WriteString(line + "\n")
			continue
		}
		out.WriteString("----\n")
		out.WriteString(s.command(t, block))
		for lines.Scan() && lines.Text() != "" {
			// What was expected is compared as a whole, by the caller.
		}
		out.WriteString("\n")
		block = nil
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

type scenario struct {
	plan   *flow.Plan
	detail logbook.FlowDetail
	steps  map[string]*scriptedTask
}

func (s *scenario) command(t *testing.T, block []string) string {
	for len(block) > 0 && (block[0] == "" || strings.HasPrefix(block[0], "#")) {
		block = block[1:]
	}
	if len(block) == 0 {
		t.Fatal("a block without a command")
	}
	words := strings.Fields(block[0])
	switch words[0] {
	case "flow":
		return s.build(block[1:])
	case "detail":
		s.load(t, block[1:])
		return "ok\n"
	case "run":
		var result string
		synctest.Test(t, func(t *testing.T) { result = s.run(t, words[1:]) })
		return result
	}
	t.Fatalf("there is no command %q", words[0])
	return ""
}

// build reads an indented tree.
func (s *scenario) build(lines []string) string {
	s.steps, s.detail = make(map[string]*scriptedTask), newDetail()
	type level struct {
		indent int
		flow   *flow.Flow
	}
	var stack []level
	var root flow.Node
	for _, line := range lines {
		trimmed := strings.TrimLeft(line, " ")
		indent := len(line) - len(trimmed)
		for len(stack) > 0 && stack[len(stack)-1].indent >= indent {
			stack = stack[:len(stack)-1]
		}
		node := s.node(strings.Fields(trimmed))
		if node == nil {
			words := strings.Fields(trimmed)
			stack[len(stack)-1].flow.Link(words[1], words[2])
			continue
		}
		if root == nil {
			root = node
		} else {
			stack[len(stack)-1].flow.Add(node)
		}
		if f, ok := node.(*flow.Flow); ok {
			stack = append(stack, level{indent: indent, flow: f})
		}
	}
	plan, err := flow.Compile(root, "input")
	if err != nil {
		return err.Error() + "\n"
	}
	s.plan = plan
	return "ok\n"
}

func (s *scenario) node(words []string) flow.Node {
	switch words[0] {
	case "linear":
		return flow.Linear(words[1])
	case "unordered":
		return flow.Unordered(words[1])
	case "graph":
		return flow.Graph(words[1])
	case "link":
		return nil
	}
	return s.parseStep(words)
}

// parseStep reads a step: its name, and
//
//	fail=N      its first N executions fail (fail=* all of them)
//	undofail=N  so do its reverts
//	retry=N,D   tried N times, a delay apart
//	noundo      it has no revert
//	once        at most once
//	permanent   its failures are permanent
//	takes=D     each execution takes so long
//	timeout=D   and may take so long
//	needs=A     requires A     gives=A  provides A
//	panics, garbage, bare      executions panic; return no JSON; return no object
func (s *scenario) parseStep(words []string) *flow.Step {
	// A moment that no other step and no sum of others takes, so that fake
	// time orders what happens at once.
	task := &scriptedTask{name: words[0], moment: time.Nanosecond << len(s.steps)}
	s.steps[words[0]] = task
	var options []flow.Option
	undo := true
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "fail":
			task.fail = count(value)
		case "undofail":
			task.undoFail = count(value)
		case "retry":
			attempts, delay, _ := strings.Cut(value, ",")
			options = append(options, flow.Retry(flow.RetryPolicy{Attempts: count(attempts), Delay: duration(delay)}))
		case "noundo":
			undo = false
		case "once":
			options = append(options, flow.AtMostOnce())
		case "timeout":
			options = append(options, flow.Timeout(duration(value)))
		case "takes":
			task.takes = duration(value)
		case "needs":
			options = append(options, flow.Requires(value))
		case "gives":
			options = append(options, flow.ProvidesFields(value))
		default:
			task.flaw = key
		}
	}
	if undo {
		return flow.NewStep(words[0], &undoableTask{task}, options...)
	}
	return flow.NewStep(words[0], task, options...)
}

func count(text string) int {
	if text == "*" {
		return 1 << 30
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

// load reads a detail as it was left by somebody else.
func (s *scenario) load(t *testing.T, lines []string) {
	t.Helper()
	s.detail = newDetail()
	words := strings.Fields(lines[0])
	s.detail.State = logbook.FlowState(words[0])
	if len(words) > 1 {
		s.detail.Cause = &logbook.Failure{Kind: "error", Message: "woot", Step: words[1]}
	}
	for _, line := range lines[1:] {
		words := strings.Fields(line)
		atom := logbook.NewAtom(words[0], logbook.KindTask)
		atom.State = logbook.AtomState(words[1])
		for _, word := range words[2:] {
			if word == "REVERT" || word == "EXECUTE" || word == "IGNORE" {
				atom.Intention = logbook.Intention(word)
				continue
			}
			attempt := logbook.Attempt{Action: logbook.ActionExecute, StartedAt: time.Unix(1, 0)}
			if word[0] == 'R' {
				attempt.Action = logbook.ActionRevert
			}
			attempt.Number = 1
			if last, ok := atom.Last(attempt.Action); ok {
				attempt.Number = last.Number + 1
			}
			switch word[1] {
			case '+':
				attempt.EndedAt, attempt.Result = time.Unix(2, 0), json.RawMessage(`{"step":"`+words[0]+`"}`)
			case '-':
				attempt.EndedAt, attempt.Failure = time.Unix(2, 0), &logbook.Failure{Kind: "error", Message: "woot"}
			}
			atom.Attempts = append(atom.Attempts, attempt)
		}
		s.detail.Atoms = append(s.detail.Atoms, atom)
	}
}

// run runs the flow in fake time and prints the updates and what was called.
func (s *scenario) run(t *testing.T, words []string) string {
	t.Helper()
	var out strings.Builder
	calls := &callLog{}
	j := newJournal(s.detail)
	suspend := make(chan struct{})
	// Each run is a claim of its own.
	token := logbook.Token{Index: s.detail.Fence.Index + 1}
	options := engine.Options{Plan: s.plan, Detail: s.detail, Store: logbook.Values{"input": json.RawMessage(`1`)},
		Job: "j", Token: token, Owner: "o", Journal: j, Workers: 1, Suspend: suspend}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "workers":
			options.Workers = count(value)
		case "crash":
			j.left = count(value) - 1
		case "suspend":
			calls.suspendAt, calls.suspend = value, suspend
		case "store":
			options.Store = nil
		}
	}
	for _, task := range s.steps {
		task.calls = calls
	}
	start := time.Now()
	end, err := engine.Run(context.Background(), options)
	if err == nil && end.Update != nil {
		err = j.apply(*end.Update)
	}
	for _, update := range j.trace() {
		fmt.Fprintf(&out, "%s\n", formatUpdate(&update))
	}
	if options.Workers > 1 {
		slices.Sort(calls.lines) // those that start together do so in any order
	}
	fmt.Fprintf(&out, "called: %s\n", strings.Join(calls.lines, " "))
	if took := time.Since(start).Round(time.Millisecond); took > 0 {
		fmt.Fprintf(&out, "took: %s\n", took)
	}
	if err != nil {
		fmt.Fprintf(&out, "error: %s\n", strings.ReplaceAll(err.Error(), s.detail.ID.String(), "ID"))
	} else {
		fmt.Fprintf(&out, "end: %s%s\n", end.State, formatFailure(end.Cause))
	}
	s.detail = j.snapshot()
	return out.String()
}

func formatUpdate(u *logbook.Update) string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d:", u.Sequence)
	if u.State != "" {
		fmt.Fprintf(&out, " flow %s%s", u.State, formatFailure(u.Cause))
	}
	for i, change := range u.Atoms {
		if i > 0 || u.State != "" {
			out.WriteString(",")
		}
		fmt.Fprintf(&out, " %s", change.Name)
		if change.State != "" {
			fmt.Fprintf(&out, " %s", change.State)
		}
		if change.Intention == logbook.IntendRevert {
			out.WriteString(" (to revert)")
		}
		for _, a := range change.Attempts {
			mark := "?"
			switch {
			case a.Ended() && a.Failure == nil:
				mark = "+"
			case a.Ended():
				mark = "-"
			}
			fmt.Fprintf(&out, " %s%d%s", strings.ToUpper(string(a.Action[:1])), a.Number, mark)
			if a.Failure != nil && a.Failure.Kind != "error" {
				fmt.Fprintf(&out, "[%s]", a.Failure.Kind)
			}
		}
		if !change.RetryAt.IsZero() {
			out.WriteString(" retry later")
		}
	}
	return out.String()
}

func formatFailure(f *logbook.Failure) string {
	if f == nil {
		return ""
	}
	text := fmt.Sprintf(" (%s: %s)", f.Step, f.Kind)
	for i := range f.Causes {
		if f.Causes[i].Step != "" {
			text += " after" + formatFailure(&f.Causes[i])
		}
	}
	return text
}

// callLog is what the tasks of one run were asked to do.
type callLog struct {
	mu        sync.Mutex
	lines     []string
	suspendAt string
	suspend   chan struct{}
}

func (l *callLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	if line == l.suspendAt {
		close(l.suspend)
	}
}

type scriptedTask struct {
	name           string
	fail, undoFail int
	takes, moment  time.Duration
	flaw           string
	calls          *callLog
}

func (s *scriptedTask) Execute(ctx context.Context, call *flow.Call) (any, error) {
	s.calls.add(s.name)
	select {
	case <-time.After(s.takes + s.moment):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if call.Attempt <= s.fail {
		if s.flaw == "permanent" {
			return nil, flow.Permanent(errors.New("woot"))
		}
		return nil, errors.New("woot")
	}
	switch s.flaw {
	case "panics":
		panic("aargh")
	case "garbage":
		return json.RawMessage(`{"a":`), nil
	case "bare":
		return 17, nil
	}
	return map[string]any{"step": s.name, "x": call.Attempt}, nil
}

type undoableTask struct{ *scriptedTask }

func (s *undoableTask) Revert(_ context.Context, call *flow.Call) error {
	known := "undo"
	switch {
	case call.Failure != nil:
		known = "undo-failed"
	case call.Result == nil:
		known = "undo-unknown"
	}
	s.calls.add(known + ":" + s.name)
	<-time.After(s.moment)
	if call.Attempt <= s.undoFail {
		return errors.New("nasty")
	}
	return nil
}
