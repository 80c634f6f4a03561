package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// hostileRow is a step of testdata/hostile.mjs or hostile.py, with its recorded failure.
type hostileRow struct {
	name, kind, message string // message is a regular expression; without a kind, it matches the result
}

// hostileScripts are the rows for TypeScript.
var hostileScripts = []hostileRow{
	{"message-object", "error", `^\{ code: 7 \}$`},
	{"message-getter", "error", `^Error$`},
	{"message-empty", "error", `^RangeError$`},
	{"message-symbol", "error", `^Symbol\(why\)$`},
	{"message-huge", "error", `^x{1000}x*$`},
	{"message-surrogate", "error", `^half \x{FFFD} of a pair$`},
	{"name-object", "error", `^\{ a: 1 \}$`},
	{"stack-number", "error", `^with a number$`},
	{"stack-getter", "error", `^with a getter$`},
	{"all-getters", "error", `^Error$`},
	{"no-prototype", "error", `thrown \[Object: null prototype\] \{ status: 503 \}$`},
	{"plain-object", "error", `thrown \{ status: 404, body: .*Circular`},
	{"to-string", "error", `thrown \{ toString: .*\}$`},
	{"function", "error", `thrown \[Function: fault\]$`},
	{"symbol", "error", `thrown Symbol\(s\)$`},
	{"null", "error", `thrown null$`},
	{"undefined", "error", `thrown undefined$`},
	{"revoked", "error", `thrown <Revoked Proxy>$`},
	{"proxy", "error", `thrown .`},
	{"kind-object", `{ a: 1 }`, `^odd$`},
	{"kind-symbol", "Symbol(k)", `^odd$`},
	{"kind-number", "404", `^odd$`},
	{"kind-getter", "error", `^odd$`},
	{"kind-lost", "error", `^odd$`},
	{"failure-getters", "error", `^Failure$`},
	{"failure-message", "mine", `^\{ code: 7 \}$`},
	{"details-cyclic", "mine", `^odd$`},
	{"details-getter", "mine", `^odd$`},
	{"details-revoked", "mine", `^odd$`},
	{"details-list", "mine", `^odd \(the node refuses the whole failure: `},
	{"details-huge", "mine", `^odd \(the node refuses the whole failure: `},
	{"details-deep", "mine", `^odd`},
	{"code-symbol", "mine", `^odd$`},
	{"code-huge", "mine", `^odd$`},
	{"permanent-object", "mine", `^odd$`},
	{"not-yet-symbol", "error", `^cannot report "not yet": the value is a symbol`},
	{"not-yet-nan", "error", `NaNs`},
	{"not-yet-after", "error", `^cannot report "not yet": Cannot convert a Symbol`},
	{"not-yet-cyclic", "error", `^cannot report "not yet": Converting circular`},
	{"not-yet-revoked", "error", `^cannot report "not yet": Cannot perform`},
	{"result-cyclic", "error", `^cannot report the result: Converting circular`},
	{"result-json", "error", `^cannot report the result: the step has thrown null`},
	{"result-getter", "error", `^cannot report the result: a trap`},
	{"result-revoked", "error", `^Cannot perform 'get' on a proxy`},
	{"result-deep", "", `nesting|call stack`},
	{"result-flaky", "", `^"once"$`},
	{"thenable", "error", `^a trap$`},
	{"progress-nan", "error", `^progress is NaN of 0`},
	{"progress-over", "error", `^progress is 3 of 2`},
	{"progress-symbol", "error", `Symbol`},
	{"progress-cyclic", "error", `^Converting circular`},
	{"progress-huge", "error", `^the details of progress are 20002 bytes of JSON, and the limit is 16384`},
	{"progress-changes", "", `^"kept"$`},
	{"log-object", "error", `not a function`},
}

// hostileSnakes are the rows for Python.
var hostileSnakes = []hostileRow{
	{"str-raises", "error", `^Odd: \(its text cannot be read\)$`},
	{"str-and-repr", "error", `^Odd: \(its text cannot be read\)$`},
	{"str-exits", "error", `^Odd: \(its text cannot be read\)$`},
	{"str-none", "error", `^Odd: \(its text cannot be read\)$`},
	{"str-bytes", "error", `^Odd: \(its text cannot be read\)$`},
	{"str-subclass", "error", `^Odd: mine$`},
	{"str-huge", "error", `^ValueError: x{1000}`},
	{"str-surrogate", "error", `^ValueError: half \? of a pair$`},
	{"args", "error", `^ValueError: \(its text cannot be read\)$`},
	{"args-property", "error", `^Odd: said$`},
	{"attribute", "error", `^Odd: said$`},
	{"class", "error", `^Odd: said$`},
	{"class-lie", "error", `^Odd: said$`},
	{"cause", "error", `^Odd: said$`},
	{"context", "error", `^Odd: said$`},
	{"traceback", "error", `^Odd: said$`},
	{"notes", "error", `^ValueError: noted$`},
	{"cause-loop", "error", `^ValueError: first$`},
	{"meta", "error", `: said$`},
	{"base", "error", `^Odd: \(its text cannot be read\)$`},
	{"exit", "error", `^SystemExit: 7$`},
	{"interrupt", "error", `^KeyboardInterrupt: $`},
	{"generator", "error", `^GeneratorExit: $`},
	{"group", "error", `^(ExceptionGroup: several \(2 sub-exceptions\)|NameError: .*)$`}, // from Python 3.11 on
	{"unicode", "error", `^UnicodeDecodeError: `},
	{"failure-lazy", "error", `^$`},
	{"failure-message", "mine", `^\{'code': 7\}$`},
	{"failure-text", "mine", `^text$`},
	{"failure-odd", "mine", `^\(its text cannot be read\)$`},
	{"failure-kind", "{'a': 1}", `^odd$`},
	{"failure-kind-odd", "(its text cannot be read)", `^odd$`},
	{"failure-permanent", "mine", `^odd$`},
	{"failure-code", "mine", `^odd$`},
	{"failure-code-huge", "mine", `^odd$`},
	{"failure-property", "error", `^said$`},
	{"details-cyclic", "mine", `^odd$`},
	{"details-list", "mine", `^odd$`},
	{"details-exit", "mine", `^odd$`},
	{"details-twice", "mine", `^odd$`},
	{"details-huge", "mine", `^odd \(the node refuses the whole failure: `},
	{"not-yet-seconds", "error", `^cannot report "not yet": `},
	{"not-yet-cyclic", "error", `^cannot report "not yet": `},
	{"not-yet-bytes", "error", `^cannot report "not yet": the details are no JSON`},
	{"result-cyclic", "error", `^the result is of the type list: `},
	{"result-dataclass", "error", `^the result is of the type Wide: a trap`},
	{"result-twice", "error", `two keys with the same text`},
	{"result-integer", "error", `^the result is of the type int: `},
	{"progress-nan", "error", `^ValueError: progress is nan of 0`},
	{"progress-cyclic", "error", `^RecursionError: `},
	{"progress-changes", "", `^"kept"$`},
	{"log-odd", "error", `^ValueError: a trap$`},
}

// TestHostileValues: no value that a step throws, returns or reports ends its worker. Each attempt
// has a failure that describes the value, and the worker ends cleanly.
func TestHostileValues(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	t.Run("TypeScript", func(t *testing.T) {
		t.Parallel()
		s := openScripts(t)
		startOne(t, s)
		text, err := os.ReadFile(filepath.Join("testdata", "hostile.mjs"))
		if err != nil {
			t.Fatal(err)
		}
		script := filepath.Join(s.dir, "dist", "hostile.mjs") // a place where it finds the client
		if err := os.WriteFile(script, text, 0o600); err != nil {
			t.Fatal(err)
		}
		worker := s.node(script)
		s.hostile(hostileScripts)
		schema := s.run("case = \"to-string\"", "name = \"s\"\nhandler = \"hostile.schema\"\nrequires = [\"case\"]")
		s.fails(schema, "s", "bad_argument", "the arguments do not fit the step: the step has thrown {", true)
		s.stops(worker)
	})
	t.Run("Python", func(t *testing.T) {
		t.Parallel()
		folder, s := needPython(t), &scripts{T: t}
		startOne(t, s)
		worker := &following{Cmd: exec.CommandContext(within(t), "python3", "-B", filepath.Join("testdata", "hostile.py"))}
		worker.Env = append(os.Environ(), "PYTHONPATH="+folder, "CONDUCTORD_SERVER="+s.servers)
		worker.Stdout, worker.Stderr = worker, worker
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		s.hostile(hostileSnakes)
		s.stops(worker)
	})
	t.Run("Go", func(t *testing.T) { // in this process, which a panic would end
		t.Parallel()
		s := &scripts{T: t}
		startOne(t, s)
		ctx, stop := context.WithCancel(within(t))
		ended := make(chan error, 1)
		go func() { // ends with ctx, and its last attempt
			ended <- conductor.RunWorker(ctx, conductor.WorkerOptions{Client: s.client, Name: "hostile", Slots: 3, Tasks: map[string]flow.Task{"hostile": hostileTask{}}})
		}()
		s.hostile(hostileGoRows)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The errors and values of hostileGo.
type (
	panics  struct{}
	unwraps struct{ panics }
	itself  struct{ x *int }
	double  struct{ err *error }
	ends    struct{}
)

func (panics) Error() string                { panic("a trap") }
func (panics) MarshalJSON() ([]byte, error) { panic("a trap") }
func (unwraps) Error() string               { return "unwraps" }
func (unwraps) Unwrap() error               { panic("a trap") }
func (e *itself) Error() string             { return fmt.Sprint("itself ", *e.x) }
func (e itself) Unwrap() error              { return &e }
func (double) Error() string                { return "double" }
func (e double) Unwrap() []error            { return []error{*e.err, *e.err} }
func (ends) MarshalJSON() ([]byte, error)   { runtime.Goexit(); return nil, nil }

// hostileGo has a step for each row of hostileGoRows.
func hostileGo(call *flow.Call, name string) (any, error) {
	switch name {
	case "error-panics":
		return nil, panics{}
	case "error-in-chain":
		return nil, flow.Fail("mine", fmt.Errorf("outer: %w", panics{}))
	case "unwrap-panics":
		return nil, unwraps{}
	case "nil-pointer":
		var none *itself
		return nil, none
	case "nil-failure":
		var none *logbook.Failure
		return nil, none
	case "wraps-itself":
		x := 7
		return nil, &itself{&x}
	case "wraps-itself-twice":
		var err error
		err = double{&err}
		return nil, err
	case "panic-nil":
		panic(nil) //nolint:govet
	case "panic-error":
		panic(panics{})
	case "panic-func":
		panic(func() {})
	case "goexit":
		runtime.Goexit()
	case "result-panics":
		return panics{}, nil
	case "result-goexit":
		return ends{}, nil
	case "result-func":
		return func() {}, nil
	case "result-cyclic":
		loop := map[string]any{}
		loop["self"] = loop
		return loop, nil
	case "result-cut":
		return json.RawMessage(`{"a":`), nil
	case "result-empty":
		return json.RawMessage{}, nil
	case "result-nil":
		return nil, nil
	case "progress-panics":
		return nil, call.Progress(1, 2, panics{})
	case "details-panic":
		return nil, flow.WithDetails(errors.New("odd"), map[string]any{"a": panics{}})
	case "not-yet-panics":
		return nil, flow.NotYet(time.Second, panics{})
	}
	return nil, flow.Permanent(fmt.Errorf("no row %s", name))
}

var hostileGoRows = []hostileRow{
	{"error-panics", "panic", `^panic: while reading an error of the type test.panics: a trap$`},
	{"error-in-chain", "panic", `while reading an error`},
	{"unwrap-panics", "panic", `while reading an error`},
	{"nil-pointer", "panic", `while reading an error of the type \*test.itself: .*nil \*itself pointer`},
	{"nil-failure", "error", `nil \*logbook.Failure`},
	{"wraps-itself", "error", `^itself 7$`},
	{"wraps-itself-twice", "error", `^double$`},
	{"panic-nil", "panic", `nil`},
	{"panic-error", "panic", `a trap`},
	{"panic-func", "panic", `^panic: 0x`},
	{"goexit", "panic", `^panic: the task has ended its goroutine$`},
	{"result-panics", "panic", `a trap`},
	{"result-goexit", "panic", `^panic: the task has ended its goroutine$`},
	{"result-func", "result", `unsupported type`},
	{"result-cyclic", "result", `cycle`},
	{"result-cut", "result", `not a JSON value`},
	{"result-empty", "", `^null$`},
	{"result-nil", "", `^null$`},
	{"progress-panics", "panic", `a trap`},
	{"details-panic", "panic", `a trap`},
	{"not-yet-panics", "panic", `a trap`},
}

// hostileTask is a type of step in Go.
type hostileTask struct{}

func (hostileTask) Execute(_ context.Context, call *flow.Call) (any, error) {
	var name string
	if err := call.Arguments.Decode("case", &name); err != nil {
		return nil, err
	}
	return hostileGo(call, name)
}

// TestUnclearValues: a value that programs read differently is refused at each entry point with the
// name of the field, not only in a handler's output.
func TestUnclearValues(t *testing.T) {
	t.Parallel()
	s := &scripts{T: t}
	startOne(t, s)
	node := s.cluster.Nodes[0]
	cli := func(args ...string) string {
		return command(t, "", append(args, "--server", s.servers)...).err
	}
	call := func(call, body string) string {
		_, answer := callHTTP(t, node, call, body)
		return answer
	}
	const id = "01890000-0000-7000-8000-000000000001"
	session := `"session":"` + id + `"`
	if got := call("SessionService/Open", `{"opening":{"id":"`+id+`","name":"s","ttl":"60s"}}`); strings.Contains(got, "code") {
		t.Fatal(got)
	}
	for name, value := range map[string]string{"key \"a\" twice": `{"a":1,"\u0061":2}`, "number 1e400": `[1e400]`, "half of a surrogate pair": `"\ud800"`} {
		for field, enter := range map[string]func() string{
			"--set.v":   func() string { return cli("job", "post", "--kind", "k", "--set", "v="+value) },
			"--details": func() string { return cli("job", "post", "--kind", "k", "--details", value) },
			"--result":  func() string { return cli("flow", "complete", id, "s", "--result", value) },
			"posting details": func() string {
				return call("BoardService/Post", `{"postings":[{"name":"a","kind":"k","details":`+value+`}]}`)
			},
			"posting store.v": func() string {
				return call("BoardService/Post", `{"postings":[{"name":"a","kind":"k","store":{"v":`+value+`}}]}`)
			},
			"book meta.v": func() string {
				return call("LogbookService/SaveBook", `{"id":"`+id+`","name":"b","meta":{"v":`+value+`}}`)
			},
			"entity metadata.v": func() string {
				return call("SessionService/Register", `{`+session+`,"entity":{"kind":"conductor","name":"n","metadata":{"v":`+value+`}}}`)
			},
			"result": func() string { return call("WorkerService/Report", reportOf(session, `"done":true,"result":`+value)) },
			"progress details": func() string {
				return call("WorkerService/Report", reportOf(session, `"progress":{"done":"1","details":`+value+`}`))
			},
			"failure details.v": func() string {
				return call("WorkerService/Report", reportOf(session, `"done":true,"failure":{"kind":"k","message":"m","details":{"v":`+value+`}}`))
			},
		} {
			got := strings.ReplaceAll(strings.ReplaceAll(enter(), `\\`, `\`), `\"`, `"`)
			if !strings.Contains(got, field+" is invalid: ") || !strings.Contains(got, name) {
				t.Errorf("%s with %s: %.400q", field, value, got)
			}
		}
	}
}

// reportOf is the report of a worker with this outcome.
func reportOf(session, outcome string) string {
	return `{` + session + `,"outcome":{"id":{"flow":"01890000-0000-7000-8000-000000000002","step":"s","action":"execute","attempt":1},` + outcome + `}}`
}

// startOne starts a cluster of one node for a test.
func startOne(t *testing.T, s *scripts) {
	t.Helper()
	s.cluster = newClusterOf(t, 1, func(*config.Config) {})
	if err := s.cluster.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.cluster.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.client, err = raftboard.Dial(within(t), s.cluster.Endpoints()...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.client.Close)
	s.servers = strings.Join(s.cluster.Endpoints(), ",")
}

// hostile runs each row in its own job, all in parallel, and compares the records.
func (s *scripts) hostile(rows []hostileRow) {
	s.Helper()
	const document = `{"name": "hostile", "pattern": "graph", "inputs": ["case"], "steps": [
		{"name": "s", "handler": "hostile", "worker": true, "requires": ["case"], "no_worker_timeout": "1m"}]}`
	postings := make([]jobs.Posting, len(rows))
	for i, row := range rows {
		postings[i] = jobs.NewPosting("document", json.RawMessage(document), map[string]string{"case": row.name})
	}
	posted, err := s.client.Post(within(s.T), postings...)
	if err != nil {
		s.Fatal(err)
	}
	for i, row := range rows {
		outcome := jobs.OutcomeReverted
		if row.kind == "" && row.name != "result-deep" {
			outcome = jobs.OutcomeSuccess
		}
		attempt := s.last(posted[i].Job.ID.String(), outcome, "s")
		kind, message := "", string(attempt.Result)
		if f := attempt.Failure; f != nil {
			kind, message = f.Kind, f.Message
		}
		if kind == logbook.FailureWorkerLost || kind == logbook.FailureNoWorker {
			s.Fatalf("%s: the worker is lost: %s", row.name, message)
		}
		if kind != row.kind && row.name != "result-deep" || !regexp.MustCompile(row.message).MatchString(message) {
			s.Errorf("%s: recorded is %s: %.200q; want %s: %s", row.name, kind, message, row.kind, row.message)
		}
	}
}
