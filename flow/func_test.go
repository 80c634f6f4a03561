package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

type none = struct{}

type base struct {
	City    string `json:"city"`
	Comment int    `json:"comment"` // hidden by a field of that name
}

func TestTypesSayWhatAStepNeedsAndGives(t *testing.T) {
	type in struct {
		base
		Days    int
		Comment *string `json:"comment"`
		Budget  int     `json:"budget,omitempty"`
		Hidden  int     `json:"-"`
		private int
	}
	type out struct {
		Booking string    `json:"booking"`
		At      time.Time `json:"at"`
	}
	execute := func(context.Context, in) (out, error) { return out{}, nil }
	for _, row := range []struct {
		name string
		step *flow.Step
		want string
	}{
		{"structs", flow.Func("a", execute), "city Days comment? budget? -> booking=booking at=at"},
		{"options go over the result", flow.Func("a", execute, flow.Provides("all")), "city Days comment? budget? -> all="},
		{"rebound", flow.Func("a", execute, flow.Rebind(map[string]string{"city": "town"})), "city<town Days comment? budget? -> booking=booking at=at"},
		{"nothing", flow.Func("a", func(context.Context, none) (none, error) { return none{}, nil }), "->"},
		{"no struct", flow.Func("a", func(context.Context, none) (int, error) { return 1, nil }, flow.Provides("n")), "-> n="},
		{"a struct with a JSON form of its own", flow.Func("a", func(context.Context, none) (time.Time, error) { return time.Time{}, nil }), "->"},
		{"values", flow.Func("a", func(_ context.Context, v logbook.Values) (none, error) { return none{}, nil }, flow.Requires("x")), "x ->"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var words []string
			for _, argument := range row.step.Requires() {
				word := argument.Name
				if argument.Symbol != argument.Name {
					word += "<" + argument.Symbol
				}
				if argument.Optional {
					word += "?"
				}
				words = append(words, word)
			}
			words = append(words, "->")
			for _, provision := range row.step.Provides() {
				words = append(words, provision.Symbol+"="+provision.Field)
			}
			if got := strings.Join(words, " "); got != row.want {
				t.Errorf("got %s, wanted %s", got, row.want)
			}
		})
	}
	_ = in{private: 1}
}

func TestWrongFunctions(t *testing.T) {
	type hidden struct{ name string }
	_ = hidden{name: ""}
	for name, step := range map[string]*flow.Step{
		"an input that is no struct": flow.Func("a", func(context.Context, int) (none, error) { return none{}, nil }),
		"an input without a field":   flow.Func("a", func(context.Context, hidden) (none, error) { return none{}, nil }),
		"no function":                flow.Func[none, none]("a", nil),
		"no revert":                  flow.FuncRevert("a", func(context.Context, none) (none, error) { return none{}, nil }, nil),
	} {
		if _, err := flow.Compile(step); !errors.Is(err, flow.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFunctionsAreCalled(t *testing.T) {
	type in struct {
		A int    `json:"a"`
		B string `json:"b"`
	}
	var undone []string
	step := flow.FuncRevert("a",
		func(ctx context.Context, in in) (string, error) {
			return fmt.Sprintf("%d %s %d", in.A, in.B, flow.CallFrom(ctx).Attempt), nil
		},
		func(_ context.Context, in in, out *string) error {
			if out == nil {
				undone = append(undone, "unknown")
			} else {
				undone = append(undone, *out)
			}
			return nil
		})
	call := &flow.Call{Arguments: logbook.Values{"a": json.RawMessage("1"), "b": json.RawMessage(`"x"`)}, Attempt: 2}
	if result, err := step.Task().Execute(context.Background(), call); err != nil || result != "1 x 2" {
		t.Errorf("%v, %v", result, err)
	}
	reverter, ok := step.Reverter()
	if !ok {
		t.Fatal("the step has no revert")
	}
	for _, result := range []json.RawMessage{json.RawMessage(`"done"`), nil} {
		call.Result = result
		if err := reverter.Revert(context.Background(), call); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(undone, " "); got != "done unknown" {
		t.Errorf("undone: %s", got)
	}
	call.Arguments["a"] = json.RawMessage(`"text"`)
	_, err := step.Task().Execute(context.Background(), call)
	if failure := flow.FailureOf(err); failure == nil || failure.Kind != logbook.FailureArgument || !failure.Permanent {
		t.Errorf("arguments that do not fit came back as %+v", failure)
	}
	call.Result = nil
	if err := reverter.Revert(context.Background(), call); flow.FailureOf(err).Kind != logbook.FailureArgument {
		t.Errorf("the revert of a step that may have run, with such arguments: %v", err)
	}
	call.Failure = flow.FailureOf(err)
	if err := reverter.Revert(context.Background(), call); err != nil {
		t.Errorf("the revert of a step that such arguments kept from running: %v", err)
	}
	if flow.CallFrom(context.Background()) != nil {
		t.Error("a context without a call has one")
	}
}

type Selfish struct {
	*Selfish
	X int `json:"x"`
}

type ping struct {
	*pong
	A int `json:"a"`
}

type pong struct {
	ping
	B int `json:"b"`
}

// encoding/json takes types that embed themselves, and so does Func.
func TestTypesThatEmbedThemselves(t *testing.T) {
	step := flow.Func("s", func(context.Context, Selfish) (ping, error) { return ping{}, nil })
	if got := fmt.Sprint(step.Requires(), step.Provides()); got != "[{x x  false}] [{b b} {a a}]" {
		t.Errorf("the step requires and provides %s", got)
	}
}

// details returns a number of details.
func details(count int) map[string]any {
	made := map[string]any{}
	for i := range count {
		made[fmt.Sprint("detail-", i)] = i
	}
	return made
}

func encoded(details map[string]any) logbook.Values {
	values, err := logbook.ValuesOf(details)
	if err != nil {
		panic(err)
	}
	return values
}

func TestFailures(t *testing.T) {
	woot := errors.New("woot")
	recorded := &logbook.Failure{Kind: "handler.exit", Message: "exit 3", Code: 3, Permanent: true}
	for _, row := range []struct {
		name string
		err  error
		want logbook.Failure
	}{
		{"plain", woot, logbook.Failure{Kind: "error", Message: "woot"}},
		{"permanent", flow.Permanent(woot), logbook.Failure{Kind: "error", Message: "woot", Permanent: true}},
		{"of a kind", flow.Fail("k", woot), logbook.Failure{Kind: "k", Message: "woot"}},
		{"both", flow.Permanent(flow.Fail("k", woot)), logbook.Failure{Kind: "k", Message: "woot", Permanent: true}},
		{"both, the other way", flow.Fail("k", flow.Permanent(woot)), logbook.Failure{Kind: "k", Message: "woot", Permanent: true}},
		{"the outer kind", flow.Fail("k", fmt.Errorf("above: %w", flow.Fail("l", woot))), logbook.Failure{Kind: "k", Message: "above: woot",
			Causes: []logbook.Failure{{Kind: "l", Message: "woot"}}}},
		{"wrapped", fmt.Errorf("top: %w", fmt.Errorf("middle: %w", woot)), logbook.Failure{Kind: "error", Message: "top: middle: woot",
			Causes: []logbook.Failure{{Kind: "error", Message: "middle: woot"}, {Kind: "error", Message: "woot"}}}},
		{"joined", errors.Join(woot, flow.Fail("k", errors.New("ouch"))), logbook.Failure{Kind: "k", Message: "woot\nouch",
			Causes: []logbook.Failure{{Kind: "error", Message: "woot"}, {Kind: "k", Message: "ouch"}}}},
		{"recorded", recorded, *recorded},
		{"recorded and wrapped", fmt.Errorf("top: %w", recorded), logbook.Failure{Kind: "handler.exit", Message: "top: exit 3", Code: 3, Permanent: true,
			Causes: []logbook.Failure{*recorded}}},
		{"with details", fmt.Errorf("top: %w", flow.WithDetails(woot, map[string]any{"status": 402, "by": []string{"a"}})), logbook.Failure{Kind: "error", Message: "top: woot",
			Details: logbook.Values{"status": json.RawMessage("402"), "by": json.RawMessage(`["a"]`)}, Causes: []logbook.Failure{{Kind: "error", Message: "woot"}}}},
		{"the outer details", flow.WithDetails(flow.Fail("k", flow.WithDetails(woot, map[string]any{"a": 1, "b": 1})), map[string]any{"a": 2}),
			logbook.Failure{Kind: "k", Message: "woot", Details: logbook.Values{"a": json.RawMessage("2")}}},
		{"details of a recorded one", flow.Permanent(&logbook.Failure{Kind: "k", Message: "m", Details: logbook.Values{"a": json.RawMessage("1")}}),
			logbook.Failure{Kind: "k", Message: "m", Permanent: true, Details: logbook.Values{"a": json.RawMessage("1")},
				Causes: []logbook.Failure{{Kind: "k", Message: "m", Details: logbook.Values{"a": json.RawMessage("1")}}}}},
		{"details without JSON", flow.WithDetails(woot, map[string]any{"a": func() {}}), logbook.Failure{Kind: "error",
			Message: `woot; its details are omitted: cannot encode "a": json: unsupported type: func()`,
			Causes:  []logbook.Failure{{Kind: "error", Message: "woot"}, {Kind: "error", Message: "json: unsupported type: func()"}}}},
		{"most details", flow.WithDetails(woot, details(logbook.MaxDetails)), logbook.Failure{Kind: "error", Message: "woot", Details: encoded(details(logbook.MaxDetails))}},
		{"too many details", flow.WithDetails(woot, details(logbook.MaxDetails+1)), logbook.Failure{Kind: "error",
			Message: "woot; its details are omitted: failure details is too large: 17 values, and the limit is 16"}},
		{"longest details", flow.WithDetails(woot, map[string]any{"a": strings.Repeat("x", 8<<10-3)}), logbook.Failure{Kind: "error", Message: "woot",
			Details: logbook.Values{"a": json.RawMessage(`"` + strings.Repeat("x", 8<<10-3) + `"`)}}},
		{"too long details", flow.WithDetails(woot, map[string]any{"a": strings.Repeat("x", 8<<10-2)}), logbook.Failure{Kind: "error",
			Message: "woot; its details are omitted: failure details is too large: 8193 bytes, and the limit is 8192"}},
		{"a detail without a name", flow.WithDetails(woot, map[string]any{"": 1}), logbook.Failure{Kind: "error",
			Message: "woot; its details are omitted: failure details name is invalid: empty"}},
		{"a panic", &flow.PanicError{Value: 17, Stack: "here"}, logbook.Failure{Kind: "panic", Message: "panic: 17", Stack: "here"}},
		{"not UTF-8", errors.New("a\xffb"), logbook.Failure{Kind: "error", Message: "a\uFFFDb"}},
		{"a kind that is missing", &logbook.Failure{Message: "x"}, logbook.Failure{Kind: "error", Message: "x"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, _ := json.Marshal(flow.FailureOf(row.err))
			want, _ := json.Marshal(row.want)
			if string(got) != string(want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	if flow.FailureOf(nil) != nil || flow.Permanent(nil) != nil || flow.Fail("k", nil) != nil || flow.WithDetails(nil, details(1)) != nil {
		t.Error("no error has become one")
	}
}

func TestFailuresAreBounded(t *testing.T) {
	err := errors.New(strings.Repeat("ä", 1<<20))
	for range 100 {
		err = fmt.Errorf("and %w", err)
	}
	encoded, _ := json.Marshal(flow.FailureOf(err))
	const bound = 200 << 10
	if len(encoded) > bound {
		t.Errorf("the failure takes %d bytes", len(encoded))
	}
}

// Every error of a program or handler becomes a record that a logbook accepts,
// also a logbook with lower limits than the largest.
func TestFailuresFitTheLogbook(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var wide logbook.Failure
	for range 200 {
		wide.Causes = append(wide.Causes, logbook.Failure{Kind: "k", Message: long, Stack: long})
	}
	deep := logbook.Failure{Kind: "k", Message: long}
	for range 200 {
		deep = logbook.Failure{Kind: "k", Message: long, Stack: long, Causes: []logbook.Failure{deep, deep}}
	}
	lower := logbook.Limits{Name: 20, Value: 1 << 10, Command: 64 << 10, Steps: 10}
	for name, err := range map[string]error{
		"message":             errors.New(long),
		"panic":               &flow.PanicError{Value: long, Stack: long},
		"kind too long":       flow.Fail(long, errors.New("x")),
		"kind with controls":  flow.Fail("a\nb\x00", errors.New("x")),
		"kind is not UTF-8":   &logbook.Failure{Kind: "a\xffb", Message: "x"},
		"step too long":       &logbook.Failure{Kind: "k", Message: "x", Step: long},
		"step with controls":  &logbook.Failure{Kind: "k", Message: "x", Step: "a\nb"},
		"stack is not UTF-8":  &logbook.Failure{Kind: "k", Stack: "a\xffb"},
		"many causes":         &wide,
		"many causes wrapped": fmt.Errorf("top: %w", errors.Join(&wide, &wide)),
		"deep causes":         &deep,
		"bad details":         &logbook.Failure{Kind: "k", Message: long, Details: logbook.Values{"a\nb": nil}},
		"names over a limit":  flow.WithDetails(errors.New(long), map[string]any{strings.Repeat("n", 21): 1}),
	} {
		t.Run(name, func(t *testing.T) {
			failure := flow.FailureOf(err)
			if err := logbook.MaxLimits.CheckFailure("failure", failure); err != nil {
				t.Error(err)
			}
			if encoded, _ := json.Marshal(failure); !strings.Contains(string(encoded), `"kind":"`) || strings.Contains(string(encoded), `\ufffd\ufffd`) {
				t.Errorf("the failure is %.200s", encoded)
			}
			if err := lower.CheckFailure("failure", flow.FitFailure(failure, lower)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRegistry(t *testing.T) {
	r := flow.NewRegistry()
	fine := func(args json.RawMessage) (*flow.Flow, error) { return flow.Linear(string(args)), nil }
	for kind, factory := range map[string]flow.Factory{
		"b": fine,
		"a": func(json.RawMessage) (*flow.Flow, error) { panic("aargh") },
		"c": func(json.RawMessage) (*flow.Flow, error) { return nil, errors.New("woot") },
		"d": func(json.RawMessage) (*flow.Flow, error) { return nil, nil },
	} {
		if err := r.Register(kind, factory); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(r.Kinds(), " "); got != "a b c d" {
		t.Errorf("kinds: %s", got)
	}
	for _, row := range []struct {
		kind string
		want error
		says string
	}{
		{"a", flow.ErrFactory, "aargh"},
		{"b", nil, ""},
		{"c", flow.ErrFactory, "woot"},
		{"d", flow.ErrFactory, "returned no flow"},
		{"e", flow.ErrUnknownKind, `"e"`},
	} {
		built, err := r.Build(row.kind, json.RawMessage(`"x"`))
		if !errors.Is(err, row.want) || err != nil && !strings.Contains(err.Error(), row.says) || err == nil && built.Name() != `"x"` {
			t.Errorf("%s: %v, %v", row.kind, built, err)
		}
	}
	for name, err := range map[string]error{"twice": r.Register("b", fine), "no name": r.Register("", fine), "no factory": r.Register("x", nil)} {
		if err == nil {
			t.Errorf("registered: %s", name)
		}
	}
}

// TestRegisterTyped: a factory gets its arguments as a value, and no misspelled one.
func TestRegisterTyped(t *testing.T) {
	type args struct {
		City  string `json:"city"`
		Rooms int    `json:"rooms,omitempty"`
	}
	r := flow.NewRegistry()
	if err := flow.Register(r, "stay", func(a args) (*flow.Flow, error) { return flow.Linear(fmt.Sprint(a)), nil }); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ args, name, says string }{
		{`{"city":"Rome","rooms":2}`, "{Rome 2}", ""},
		{"", "{ 0}", ""},
		{"null", "{ 0}", ""},
		{`{"town":"Rome"}`, "", `cannot read its arguments (known are ["city" "rooms"]): json: unknown field "town"`},
		{`{"rooms":"two"}`, "", "rooms"},
		{`7`, "", "cannot read its arguments"},
	} {
		built, err := r.Build("stay", json.RawMessage(row.args))
		if err == nil && built.Name() != row.name || err != nil && !errors.Is(err, flow.ErrFactory) || (err == nil) != (row.says == "") || !strings.Contains(fmt.Sprint(err), row.says) {
			t.Errorf("%s: %v, %v", row.args, built, err)
		}
	}
	if err := flow.Register[args](r, "none", nil); !errors.Is(err, flow.ErrInvalid) {
		t.Errorf("without a function: %v", err)
	}
}

// TestRequiredAfterAll: an option can require an argument that the type marks as optional.
func TestRequiredAfterAll(t *testing.T) {
	type in struct {
		X int `json:"x"`
		Y int `json:"y,omitempty"`
	}
	step := func(options ...flow.StepOption) *flow.Step {
		return flow.Func("a", func(context.Context, in) (struct{}, error) { return struct{}{}, nil }, options...)
	}
	plan, err := flow.Compilation{Inputs: []string{"x", "y"}}.Compile(flow.Linear("f", step(flow.Requires("y"))))
	if err != nil {
		t.Fatal(err)
	}
	for _, argument := range plan.Step(0).Requires() {
		if argument.Optional {
			t.Errorf("%s is optional", argument.Name)
		}
	}
	for _, names := range [][]string{{"y", "y"}, {"x"}} {
		if _, err := flow.Compile(step(flow.Requires(names...))); !errors.Is(err, flow.ErrInvalid) || !strings.Contains(err.Error(), "twice") {
			t.Errorf("requiring %q: %v", names, err)
		}
	}
}
