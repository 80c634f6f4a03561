package engine_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into the scenario files instead of comparing")

// TestScenarios runs the scripts under testdata. A script is a list of blocks: a command, its
// lines, "----", and the expected output, up to an empty line. The commands:
//
//	flow         an indented tree: "linear NAME", "unordered NAME", "graph NAME",
//	             each with "undolast" if a takeover undoes its last steps, with
//	             "hold" or "revert" for its failure policy, "timeout=D" for its timeout, and
//	             with a retry if there is one (see parseRetry), or "each
//	             NAME" with its properties (see parseEach), or a step
//	             with its properties (see parseStep); after the command
//	             only=STEP,STEP for a targeted run
//	change       the same flow as it is built from now on; properties: its policy
//	intervene    KIND [STEP]: a person does that to the flow; properties: by=NAME
//	             result=JSON hold to=NAME
//	detail       the flow as it was left: a line for the flow, then one for each
//	             step: NAME STATE [INTENTION] attempts as E+ E- E? R+ R- R?
//	             (E+5: with the value 5, of a retry)
//	undo         prints what a revert would undo now, and in which order
//	run          runs and prints each update; properties: workers=N pool=N suspend=STEP
//	             (suspends when the step starts), cancel=STEP (reverts then; now:
//	             before anything starts), interrupt (ends what runs then), crash=N (before update N), list=JSON
//	             (what the store has under that name)
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
			// The caller compares the expected output as a whole.
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
	calls  *callLog      // of the present run
	spent  time.Duration // by the runs so far
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
		return s.build(words[1:], block[1:])
	case "change":
		detail := s.detail
		answer := s.build(nil, block[1:])
		s.detail = detail
		if len(words) > 1 {
			s.detail.OnChange = logbook.ChangePolicy(words[1])
		}
		return answer
	case "intervene":
		return s.intervene(words[1:])
	case "detail":
		s.load(t, block[1:])
		return "ok\n"
	case "undo":
		return s.planRevert()
	case "run":
		var result string
		synctest.Test(t, func(t *testing.T) { result = s.run(t, words[1:]) })
		return result
	}
	t.Fatalf("there is no command %q", words[0])
	return ""
}

// intervene records an intervention, if it is admitted.
func (s *scenario) intervene(words []string) string {
	i := logbook.Intervention{ID: uuid.New(), Flow: s.detail.ID, Kind: logbook.InterventionKind(words[0]), By: "ada",
		At: time.Unix(3, 0), Token: logbook.Token{Index: s.lastToken() + 1}}
	for _, word := range words[1:] {
		key, value, property := strings.Cut(word, "=")
		switch {
		case !property && word == "hold":
			i.Hold = true
		case !property:
			i.Step = word
		case key == "by":
			i.By = value
		case key == "result":
			i.Result = json.RawMessage(value)
		case key == "to":
			i.To = value
		}
	}
	err := logbook.MaxLimits.CheckIntervention(&i)
	if err == nil {
		_, err = s.detail.Admit(&i)
	}
	if err != nil {
		return strings.ReplaceAll(err.Error(), s.detail.ID.String(), "ID") + "\n"
	}
	s.detail.Interventions = append(s.detail.Interventions, i)
	renameAtoms(&s.detail, &i)
	return "ok\n"
}

// lastToken is the index of the latest claim or intervention.
func (s *scenario) lastToken() uint64 {
	last := s.detail.Fence.Index
	for _, i := range s.detail.Interventions {
		last = max(last, i.Token.Index)
	}
	return last
}

// build reads an indented tree.
func (s *scenario) build(properties, lines []string) string {
	s.steps, s.detail, s.spent = make(map[string]*scriptedTask), newDetail(), 0
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
			stack[len(stack)-1].flow.Link(words[1], words[2], s.parseLink(words[3:])...)
			continue
		}
		if step, isStep := node.(*flow.Step); isStep && strings.Contains(trimmed, " finally") {
			stack[len(stack)-1].flow.Finally(step)
			continue
		}
		if step, isStep := node.(*flow.Step); isStep && strings.Contains(trimmed, " onerror") {
			stack[len(stack)-1].flow.OnError(step)
			continue
		}
		if root == nil {
			root = node
		} else {
			stack[len(stack)-1].flow.Add(node)
		}
		if f, ok := node.(*flow.Flow); ok {
			if f.Pattern() == flow.PatternEach {
				f = f.Children()[0].(*flow.Flow)
			}
			stack = append(stack, level{indent: indent, flow: f})
		}
	}
	how := flow.Compilation{Inputs: []string{"input", "list", "none", "lists"}}
	for _, word := range properties {
		if targets, ok := strings.CutPrefix(word, "only="); ok {
			how.Targets = strings.Split(targets, ",")
		}
	}
	plan, err := how.Compile(root)
	if err != nil {
		return err.Error() + "\n"
	}
	s.plan = plan
	return "ok\n"
}

func (s *scenario) node(words []string) flow.Node {
	var f *flow.Flow
	switch words[0] {
	case "linear":
		f = flow.Linear(words[1])
	case "unordered":
		f = flow.Unordered(words[1])
	case "graph":
		f = flow.Graph(words[1])
	case "link":
		return nil
	case "each":
		return parseEach(words[1], words[2:])
	default:
		return s.parseStep(words)
	}
	if words = words[2:]; len(words) > 0 && words[0] == "undolast" {
		f.OnTakeover(flow.UndoLast)
		words = words[1:]
	}
	if len(words) > 0 && strings.HasPrefix(words[0], "enough=") {
		f.Enough(count(strings.TrimPrefix(words[0], "enough=")))
		words = words[1:]
	}
	if len(words) > 0 && (words[0] == "hold" || words[0] == "revert") {
		f.OnFailure(flow.FailurePolicy(words[0]))
		words = words[1:]
	}
	if len(words) > 0 && strings.HasPrefix(words[0], "timeout=") {
		f.Timeout(duration(strings.TrimPrefix(words[0], "timeout=")))
		words = words[1:]
	}
	if len(words) > 0 {
		f.WithRetry(parseRetry(words[0], words[1:]))
	}
	return f
}

// parseEach reads the properties after "each NAME". The body is a linear flow of the lines
// below it:
//
//	over=A      the list; "list" if not given
//	as=A        the name of an element; "x" if not given
//	place=A     that of its place
//	gather=A,B  provides the list of what is provided as A as B
//	most=N      so many elements may fail (percent=N: of all)
//	failures=A  provides the list of the failures as A
//	enough=N    so many elements must succeed
//	atonce=N    bounds the instances that run at once
//	a retry (see parseRetry) with its own words behind it
func parseEach(name string, words []string) *flow.Flow {
	over, as := "list", "x"
	var options []flow.EachOption
	var retry *flow.Retrier
	enough := ""
	for i, word := range words {
		if retry != nil {
			break // the other words are the retry's
		}
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "over":
			over = value
		case "as":
			as = value
		case "place":
			options = append(options, flow.Place(value))
		case "gather":
			symbol, list, _ := strings.Cut(value, ",")
			options = append(options, flow.Gather(symbol, list))
		case "most":
			options = append(options, flow.MaxFailures(count(value)))
		case "percent":
			options = append(options, flow.MaxFailurePercent(count(value)))
		case "failures":
			options = append(options, flow.Failures(value))
		case "enough":
			enough = value
		case "atonce":
			options = append(options, flow.AtOnce(count(value)))
		default:
			retry = parseRetry(word, words[i+1:])
		}
	}
	f := flow.Each(name, over, as, flow.Linear("body of "+name), options...)
	if enough != "" {
		f.Enough(count(enough))
	}
	if retry != nil {
		f.WithRetry(retry)
	}
	return f
}

// parseLink reads the properties after "link FROM TO":
//
//	if=no, if=panic     the answer of its decider; and otherwise yes
//	if=STEP             yes, if the step has run twice
//	otherwise           TO is the alternative to FROM
//	reach=DEPTH         how far a no reaches, by the number of the depth
func (s *scenario) parseLink(words []string) []flow.LinkOption {
	var options []flow.LinkOption
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "if":
			options = append(options, flow.Decide(value, func(results logbook.Values) (bool, error) {
				s.calls.add(fmt.Sprintf("if-%s%v", value, slices.Sorted(maps.Keys(results))))
				if value == "panic" {
					panic("aargh")
				}
				var result struct{ X int }
				if err := json.Unmarshal(results[value], &result); err == nil {
					return result.X > 1, nil
				}
				return value != "no", nil
			}))
		case "otherwise":
			options = append(options, flow.Otherwise())
		case "reach":
			options = append(options, flow.Reaching(flow.Depth(count(value))))
		}
	}
	return options
}

// parseRetry reads a retry: times=NAME,N  each=NAME,VALUE,VALUE ([1;2]: a list)  from=NAME,SYMBOL
// revert=NAME  revertall=NAME  answers=NAME,VERDICT,VERDICT (numbers, or
// panic), and then
//
//	gives=A     provides its value as A
//	pause=D     waits between rounds
//	all         reverts everything in the end
//	only=K;K    tries again only after these kinds and statuses (never=K;K: not after these)
//	permanent   tries again after permanent failures too
func parseRetry(word string, rest []string) *flow.Retrier {
	var options []flow.RetryOption
	for _, word := range rest {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "gives":
			options = append(options, flow.Provides(value))
		case "pause":
			options = append(options, flow.Pause(flow.Backoff{Delay: duration(value)}))
		case "all":
			options = append(options, flow.RevertingAll())
		case "only":
			options = append(options, flow.RetryOnly(strings.Split(value, ";")...))
		case "never":
			options = append(options, flow.RetryNever(strings.Split(value, ";")...))
		case "permanent":
			options = append(options, flow.RetryPermanent())
		}
	}
	key, value, _ := strings.Cut(word, "=")
	name, value, _ := strings.Cut(value, ",")
	switch key {
	case "times":
		return flow.Times(name, count(value), options...)
	case "each":
		values := strings.Split(value, ",")
		if strings.HasPrefix(value, "[") { // lists, whose elements stand between semicolons
			return flow.ForEach(name, listValues(values), options...)
		}
		return flow.ForEach(name, values, options...)
	case "from":
		return flow.ParameterizedForEach(name, value, options...)
	case "revert":
		return flow.AlwaysRevert(name, options...)
	case "revertall":
		return flow.AlwaysRevertAll(name, options...)
	case "answers":
		return flow.NewRetrier(name, &answers{list: strings.Split(value, ",")}, options...)
	}
	panic("there is no retry " + word)
}

func listValues(texts []string) []json.RawMessage {
	values := make([]json.RawMessage, len(texts))
	for i, text := range texts {
		values[i] = json.RawMessage(strings.ReplaceAll(text, ";", ","))
	}
	return values
}

// answers is a controller that gives one answer after the other.
type answers struct {
	list  []string
	asked int
}

func (a *answers) Next(h *flow.History) (any, error) { return len(h.Rounds), nil }

func (a *answers) OnFailure(*flow.History) flow.Decision {
	answer := a.list[a.asked]
	a.asked++
	if answer == "panic" {
		panic("aargh")
	}
	return flow.Decision{Verdict: flow.Verdict(count(answer))}
}

// parseStep reads a step: its name, and
//
//	fail=N      its first N executions fail (fail=* all of them)
//	undofail=N  so do its reverts
//	retry=N,D   tried N times, a delay apart
//	noundo      it has no revert
//	once        at most once
//	ignored     its failure is ignored (ignored=V: with that result)
//	repeatable  may run ahead of its record
//	noreturn    is a point of no return
//	permanent   its failures are permanent
//	fault=K,N   they are of a kind, with a status
//	only=K;K    tried again only after these kinds and statuses (never=K;K: not after these)
//	takes=D     each execution takes so long
//	timeout=D   and may take so long
//	deadline=D  and all of them together so long
//	says=N,D    tells its progress N times, and takes so long after each
//	asks=N,D    says "not yet" N times, a delay apart (undoasks: its reverts)
//	waits=D     and may for so long
//	prio=N      its priority
//	key=K,N     runs with so many others at most that have the key
//	version=V   its version
//	may=A       is given A where it is provided
//	needs=A     requires A     gives=A  provides A
//	finally     is a finally step of its flow, without a revert; the cause is printed with each call
//	onerror     the same for an on_error step
//	sees=A      may have A, and its value is printed with each call
//	shows=A     requires A, and its value is printed with each call
//	failon=V,V  fails for good while what it shows is one of these
//	panics, garbage, bare      executions panic; return no JSON; return no object
func (s *scenario) parseStep(words []string) *flow.Step {
	// A moment that no sum of those of other steps takes, with three calls of each at most, so that fake
	// time orders what happens at once.
	task, undo := &scriptedTask{name: words[0], moment: time.Nanosecond << (2 * len(s.steps))}, true
	s.steps[words[0]] = task
	var options []flow.StepOption
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "fail":
			task.fail = count(value)
		case "undofail":
			task.undoFail = count(value)
		case "retry":
			attempts, delay, _ := strings.Cut(value, ",")
			options = append(options, flow.Retry(flow.Backoff{Attempts: count(attempts), Delay: duration(delay)}))
		case "only", "never":
			option := map[string]func(...string) flow.Option{"only": flow.RetryOnly, "never": flow.RetryNever}[key]
			options = append(options, option(strings.Split(value, ";")...))
		case "fault":
			task.fault = value
		case "noundo", "finally", "onerror":
			undo = false
		case "steady", "repeatable", "noreturn", "once":
			options = append(options, map[string]flow.StepOption{"steady": flow.Uninterruptible(), "repeatable": flow.Repeatable(),
				"noreturn": flow.PointOfNoReturn(), "once": flow.AtMostOnce()}[key])
		case "ignored":
			options = append(options, ignored(value))
		case "version":
			options = append(options, flow.Version(value))
		case "timeout":
			options = append(options, flow.Timeout(duration(value)))
		case "deadline":
			options = append(options, flow.Deadline(duration(value)))
		case "says":
			task.says, task.sayFor = asking(value)
		case "asks":
			task.asks, task.again = asking(value)
		case "undoasks":
			task.undoAsks, task.undoAgain = asking(value)
		case "key":
			key, limit, _ := strings.Cut(value, ",")
			options = append(options, flow.Concurrency(key, count(limit)))
		case "prio":
			options = append(options, flow.Priority(count(value)))
		case "waits":
			options = append(options, flow.WaitAtMost(duration(value)))
		case "takes":
			task.takes = duration(value)
		case "needs":
			options = append(options, flow.Requires(value))
		case "gives":
			options = append(options, flow.ProvidesFields(value))
		case "may":
			options = append(options, flow.Optional(value))
		case "shows", "sees":
			task.shows = value
			options = append(options, map[string]flow.StepOption{"shows": flow.Requires(value), "sees": flow.Optional(value)}[key])
		case "failon":
			task.failOn = strings.Split(value, ",")
		default:
			task.flaw = key
		}
	}
	if undo {
		return flow.NewStep(words[0], &undoableTask{task}, options...)
	}
	return flow.NewStep(words[0], task, options...)
}

func ignored(result string) flow.StepOption {
	if result == "" {
		return flow.IgnoreFailure()
	}
	return flow.IgnoreFailure(json.RawMessage(result))
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

func asking(text string) (times int, apart time.Duration) {
	number, delay, _ := strings.Cut(text, ",")
	return count(number), duration(delay)
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

// load reads a detail as an earlier owner left it.
func (s *scenario) load(t *testing.T, lines []string) {
	t.Helper()
	s.detail = newDetail()
	words := strings.Fields(lines[0])
	s.detail.State, s.detail.Fence = logbook.FlowState(words[0]), logbook.Token{Index: 1}
	if len(words) > 1 {
		s.detail.Cause = &logbook.Failure{Kind: "error", Message: "woot", Step: words[1]}
	}
	for _, line := range lines[1:] {
		words := strings.Fields(line)
		kind := logbook.KindTask
		if number, ok := s.plan.Find(words[0]); ok {
			kind = s.plan.Step(number).Kind()
		}
		atom := logbook.NewAtom(words[0], kind)
		atom.State = logbook.AtomState(words[1])
		for _, word := range words[2:] {
			if word == "revert" || word == "execute" || word == "ignore" || word == "retry" {
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
				if kind == logbook.KindRetry {
					attempt.Result = json.RawMessage(cmp.Or(word[2:], strconv.Itoa(attempt.Number)))
				}
			case '-':
				attempt.EndedAt, attempt.Failure = time.Unix(2, 0), &logbook.Failure{Kind: "error", Message: "woot"}
			}
			atom.Attempts = append(atom.Attempts, attempt)
		}
		s.detail.Atoms = append(s.detail.Atoms, atom)
	}
}

// stored are the values that every flow here may require.
func stored() logbook.Values {
	return logbook.Values{
		"input": json.RawMessage(`1`), "list": json.RawMessage(`[3, 2, 5]`), "none": json.RawMessage(`[]`),
		"lists": json.RawMessage(`[[1,2],[],[3]]`)}
}

func (s *scenario) planRevert() string {
	undos, err := engine.PlanRevert(engine.Options{Plan: s.plan, Detail: s.detail, Store: stored()})
	if err != nil {
		return fmt.Sprintf("%v\n", err)
	}
	if len(undos) == 0 {
		return "nothing\n"
	}
	var out strings.Builder
	for _, undo := range undos {
		fmt.Fprintf(&out, "%s %s", undo.Step, undo.State)
		if undo.Uninterruptible {
			out.WriteString(", steady")
		}
		if undo.Finally {
			out.WriteString(", finally\n")
			continue
		}
		if !undo.Reverts {
			out.WriteString(", without a revert")
		}
		out.WriteString("\n")
	}
	return out.String()
}

// run runs the flow in fake time and prints the updates and the calls.
func (s *scenario) run(t *testing.T, words []string) string {
	t.Helper()
	var out strings.Builder
	calls := &callLog{}
	j := newJournal(s.detail)
	suspend, cancel := make(chan struct{}), make(chan struct{})
	// Each run is a separate claim.
	token := logbook.Token{Index: s.lastToken() + 1}
	options := engine.Options{Plan: s.plan, Detail: s.detail, Store: stored(),
		Job: "j", Token: token, Owner: "o", Journal: j, Workers: 1, Suspend: suspend, Revert: cancel}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "workers":
			options.Workers = count(value)
		case "pool":
			options.Pool = engine.NewPool(count(value))
		case "crash":
			j.left = count(value) - 1
		case "suspend":
			calls.suspendAt, calls.suspend = value, suspend
		case "cancel":
			if calls.cancelAt, calls.cancel = value, cancel; value == "now" {
				close(cancel)
			}
		case "interrupt":
			calls.interrupts, calls.interrupt = true, make(chan time.Duration, 1)
		case "store":
			options.Store = nil
		case "list":
			options.Store["list"] = json.RawMessage(value)
		}
	}
	if calls.interrupts {
		options.Interrupt = calls.interrupt
	}
	options.Observe = func(event engine.Event) {
		if event.Difference != nil {
			fmt.Fprintf(&out, "changed: %s\n", event.Difference)
		}
	}
	s.calls = calls
	for _, task := range s.steps {
		task.calls = calls
	}
	start := time.Now()
	options.TimeUp = s.timeUp(start)
	end, err := engine.Run(context.Background(), options)
	if err == nil && end.Update != nil {
		err = j.apply(*end.Update)
	}
	for _, update := range j.trace() {
		fmt.Fprintf(&out, "%s\n", formatUpdate(&update))
	}
	if options.Workers > 1 {
		slices.Sort(calls.lines) // steps that start together do so in any order
	}
	fmt.Fprintf(&out, "called: %s\n", strings.Join(calls.lines, " "))
	s.spent += time.Since(start)
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

// timeUp is when the flow's timeout is over, in a run that starts now.
func (s *scenario) timeUp(start time.Time) time.Time {
	if s.plan.Timeout() == 0 {
		return time.Time{}
	}
	return start.Add(s.plan.Timeout() - s.spent)
}

func formatUpdate(u *logbook.Update) string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d:", u.Sequence)
	if u.State != "" {
		fmt.Fprintf(&out, " flow %s%s", u.State, formatFailure(u.Cause))
	} else if u.Cause != nil {
		fmt.Fprintf(&out, " flow as it was%s", formatFailure(u.Cause))
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
		if change.Intention == logbook.IntendDrop {
			out.WriteString(" (to drop)")
		}
		if change.State == "" && change.Intention == logbook.IntendExecute {
			out.WriteString(" (to execute)")
		}
		if change.State == logbook.AtomFailure && change.Intention == logbook.IntendIgnore {
			out.WriteString(" (ignored)")
		}
		if change.Intention == logbook.IntendRetry {
			out.WriteString(" (to retry)")
		}
		for _, a := range change.Attempts {
			mark := "?"
			if a.Asked > 0 {
				mark += fmt.Sprintf("(%d)", a.Asked)
			}
			switch {
			case a.Ended() && a.Failure == nil:
				mark = "+"
			case a.Ended():
				mark = "-"
			}
			letter := map[logbook.Action]string{logbook.ActionExecute: "E", logbook.ActionRevert: "R", logbook.ActionReset: "X"}[a.Action]
			fmt.Fprintf(&out, " %s%d%s", letter, a.Number, mark)
			if a.Owner != "o" && a.Owner != "" {
				fmt.Fprintf(&out, "(by %s)", a.Owner)
			}
			if a.Failure != nil && a.Failure.Kind != "error" {
				fmt.Fprintf(&out, "[%s]", a.Failure.Kind)
			}
			if !bytes.Contains(a.Result, []byte(`"step"`)) { // of a retry
				out.Write(a.Result)
			}
			for i := range a.Failures {
				fmt.Fprintf(&out, " after %s", a.Failures[i].Step)
			}
		}
		if p := change.Progress; p != nil {
			fmt.Fprintf(&out, " at %d/%d%s", p.Done, p.Total, p.Details)
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

// callLog is the list of calls to the tasks of one run.
type callLog struct {
	mu        sync.Mutex
	lines     []string
	suspendAt string
	suspend   chan struct{}
	cancelAt  string
	cancel    chan struct{}

	interrupts bool
	interrupt  chan time.Duration // is sent a value after suspend or cancel
}

func (l *callLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	if line != l.suspendAt && line != l.cancelAt {
		return
	}
	if line == l.suspendAt {
		close(l.suspend)
		l.suspendAt = ""
	}
	if line == l.cancelAt {
		close(l.cancel)
		l.cancelAt = ""
	}
	if l.interrupts {
		l.interrupt <- 0
	}
}

type scriptedTask struct {
	name           string
	fail, undoFail int
	takes, moment  time.Duration
	flaw, fault    string
	says           int
	sayFor         time.Duration
	asks, undoAsks int
	again          time.Duration
	undoAgain      time.Duration
	shows          string
	failOn         []string
	calls          *callLog
}

// apart is a moment that no other instance of the step takes. The squares keep equal sums of places apart: the reverts
// of elements 2 and 1 do not end with the reverts of elements 3 and 0.
func apart(step string) time.Duration {
	moment, level := time.Duration(0), time.Microsecond
	for _, number := range regexp.MustCompile(`\[(\d+)\]`).FindAllStringSubmatch(step, -1) {
		place := time.Duration(count(number[1]))
		moment += level*(1+place) + 7*place*place
		level *= 10
	}
	return moment
}

func (s *scriptedTask) Execute(ctx context.Context, call *flow.Call) (any, error) {
	value := strings.Trim(string(call.Arguments[s.shows]), `"`)
	cause := ""
	if call.Final {
		cause = "<" + string(call.Cause.Kind) + ">"
	}
	s.calls.add(call.Step + value + cause)
	select {
	case <-time.After(s.takes + s.moment + apart(call.Step)):
	case <-ctx.Done():
		// Those that are interrupted together end one by one, at moments that no sum of the
		// moments of up to ten steps takes.
		time.Sleep(s.moment<<10 + apart(call.Step))
		return nil, ctx.Err()
	}
	for i := range s.says {
		_ = call.Progress(int64(i+1), int64(s.says), nil)
		<-time.After(s.sayFor)
	}
	if call.Asked < s.asks {
		return nil, flow.NotYet(s.again)
	}
	if slices.Contains(s.failOn, value) {
		return nil, s.failure("woot")
	}
	if call.Attempt <= s.fail {
		if s.flaw == "permanent" {
			return nil, flow.Permanent(s.failure("woot"))
		}
		return nil, s.failure("woot")
	}
	switch s.flaw {
	case "panics":
		panic("aargh")
	case "garbage":
		return json.RawMessage(`{"a":`), nil
	case "bare":
		return 17, nil
	}
	return map[string]any{"step": call.Step, "x": call.Attempt}, nil
}

// failure is of the kind and with the status that the script gives to the step, if any.
func (s *scriptedTask) failure(message string) error {
	if s.fault == "" {
		return errors.New(message)
	}
	kind, status, _ := strings.Cut(s.fault, ",")
	return &logbook.Failure{Kind: kind, Code: count(cmp.Or(status, "0")), Message: message}
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
	s.calls.add(known + ":" + call.Step)
	<-time.After(s.moment + apart(call.Step))
	if call.Asked < s.undoAsks {
		return flow.NotYet(s.undoAgain)
	}
	if call.Attempt <= s.undoFail {
		return s.failure("nasty")
	}
	return nil
}
