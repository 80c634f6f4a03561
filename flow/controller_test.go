package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// retryStep is the step of a retry in a plan.
func retryStep(t *testing.T, r *flow.Retrier, inputs ...string) *flow.Step {
	t.Helper()
	plan, err := flow.Compile(flow.Linear("f").WithRetry(r), inputs...)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Step(0)
}

// TestControllers plays failing rounds until the controller gives up, and prints
// their values and the last verdict.
func TestControllers(t *testing.T) {
	list := logbook.Values{"values": json.RawMessage(`[3, 2, {"a": 1}]`)}
	for _, row := range []struct {
		name  string
		retry *flow.Retrier
		want  string
	}{
		{"once", flow.Times("r", 1), "1 revert"},
		{"no times is once", flow.Times("r", 0), "1 revert"},
		{"three times in all", flow.Times("r", 3), "1 2 3 revert"},
		{"and everything then", flow.Times("r", 2, flow.RevertingAll()), "1 2 revert all"},
		{"values in their order", flow.ForEach("r", []int{3, 2, 3, 5}), "3 2 3 5 revert"},
		{"other values", flow.ForEach("r", []string{"a", "b"}), `"a" "b" revert`},
		{"no values", flow.ForEach[int]("r", nil), "error"},
		{"values from an argument", flow.ParameterizedForEach("r", "list"), `3 2 {"a":1} revert`},
		{"never", flow.AlwaysRevert("r"), "null revert"},
		{"a wall", flow.AlwaysRevertAll("r"), "null revert all"},
	} {
		if got := play(retryStep(t, row.retry, "list"), list); got != row.want {
			t.Errorf("%s: got %s, want %s", row.name, got, row.want)
		}
	}
}

func play(retry *flow.Step, arguments logbook.Values) string {
	const most = 10
	history := &flow.History{Retry: "r", Arguments: arguments}
	var words []string
	for range most {
		value, err := retry.Next(history)
		if err != nil {
			return strings.Join(append(words, "error"), " ")
		}
		text, _ := json.Marshal(value)
		words = append(words, string(text))
		history.Rounds = append(history.Rounds, flow.Round{Value: text, Failures: []logbook.Failure{{Kind: "error", Step: "s"}}})
		decision, err := retry.Decide(history)
		if err != nil {
			return strings.Join(append(words, "error"), " ")
		}
		if decision.Verdict != flow.VerdictRetry {
			verdict := map[flow.Verdict]string{flow.VerdictRevert: "revert", flow.VerdictRevertAll: "revert all"}[decision.Verdict]
			return strings.Join(append(words, verdict), " ")
		}
	}
	return "no end"
}

// TestFailuresEndRounds: which failures allow another round.
func TestFailuresEndRounds(t *testing.T) {
	woot, spoilt := &logbook.Failure{Kind: "error"}, &logbook.Failure{Kind: "spoilt", Code: 7}
	permanent := &logbook.Failure{Kind: "spoilt", Permanent: true}
	stubborn := badController{flow.Decision{Verdict: flow.VerdictRetry}}
	const again, revert, all = flow.VerdictRetry, flow.VerdictRevert, flow.VerdictRevertAll
	for _, row := range []struct {
		name    string
		retry   *flow.Retrier
		failure *logbook.Failure
		want    flow.Verdict
	}{
		{"any", flow.Times("r", 2), woot, again},
		{"permanent", flow.Times("r", 2), permanent, revert},
		{"permanent, of values", flow.ForEach("r", []int{1, 2}), permanent, revert},
		{"permanent, of a list", flow.ParameterizedForEach("r", "list"), permanent, revert},
		{"permanent, and another round", flow.Times("r", 2, flow.RetryPermanent()), permanent, again},
		{"permanent, and a kind that ends", flow.Times("r", 2, flow.RetryPermanent(), flow.RetryNever("spoilt")), permanent, revert},
		{"permanent, reverting all", flow.Times("r", 2, flow.RevertingAll()), permanent, all},
		{"permanent, for a controller", flow.NewRetrier("r", stubborn), permanent, again},
		{"never, for a controller", flow.NewRetrier("r", stubborn, flow.RetryNever("spoilt")), spoilt, revert},
		{"never, another kind", flow.Times("r", 2, flow.RetryNever("spoil", "8")), spoilt, again},
		{"never, a status", flow.Times("r", 2, flow.RetryNever("spoil"), flow.RetryNever("7")), spoilt, revert},
		{"only", flow.Times("r", 2, flow.RetryOnly("spoilt")), spoilt, again},
		{"only, another kind", flow.Times("r", 2, flow.RetryOnly("spoilt")), woot, revert},
		{"revert, whatever fails", flow.AlwaysRevert("r", flow.RetryOnly("spoilt")), spoilt, revert},
		{"revert all, whatever fails", flow.AlwaysRevertAll("r", flow.RetryNever("spoilt")), spoilt, all},
	} {
		history := &flow.History{Arguments: logbook.Values{"list": json.RawMessage("[1, 2]")}, Rounds: []flow.Round{{Value: json.RawMessage("1")}}, Failure: row.failure}
		if got, err := retryStep(t, row.retry, "list").Decide(history); err != nil || got.Verdict != row.want {
			t.Errorf("%s: %v, %v, want %v", row.name, got.Verdict, err, row.want)
		}
	}
}

// TestForEachGoesByValue: a list that has changed since the flow began still
// has its untried values, and nothing is tried once more.
func TestForEachGoesByValue(t *testing.T) {
	retry := retryStep(t, flow.ForEach("r", []int{9, 3, 7}))
	history := &flow.History{Rounds: []flow.Round{{Value: json.RawMessage(" 3")}, {Value: json.RawMessage("9")}}}
	if value, err := retry.Next(history); fmt.Sprintf("%s", value) != "7" || err != nil {
		t.Errorf("got %s and %v", value, err)
	}
}

type badController struct{ decision flow.Decision }

func (badController) Next(*flow.History) (any, error) { panic("aargh") }

func (b badController) OnFailure(*flow.History) flow.Decision {
	if b.decision.Verdict == 99 {
		panic("aargh")
	}
	return b.decision
}

func TestBadControllersAreErrors(t *testing.T) {
	for _, decision := range []flow.Decision{{}, {Verdict: 99}, {Verdict: 4}, {Verdict: -1}, {Verdict: flow.VerdictRetry, Delay: -1}} {
		retry := retryStep(t, flow.NewRetrier("r", badController{decision}))
		if got, err := retry.Decide(&flow.History{}); err == nil || got != (flow.Decision{}) {
			t.Errorf("%v: got %v and %v", decision, got, err)
		}
		var caught *flow.PanicError
		if _, err := retry.Next(&flow.History{}); !errors.As(err, &caught) {
			t.Errorf("a panic gave %v", err)
		}
	}
}

func TestPausesGrowAndAreLeftToChance(t *testing.T) {
	retry := retryStep(t, flow.Times("r", 100, flow.Pause(flow.Backoff{Delay: 10 * time.Second, BackoffPercent: 200, MaxDelay: time.Minute, JitterPercent: 20})))
	seen := make(map[time.Duration]bool)
	for rounds, most := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 3: 40 * time.Second, 4: time.Minute, 99: time.Minute} {
		for range 50 {
			decision, err := retry.Decide(&flow.History{Rounds: make([]flow.Round, rounds)})
			if err != nil {
				t.Fatal(err)
			}
			got := decision.Delay
			if seen[got] = true; got > most || got < most*8/10 {
				t.Errorf("after %d rounds: %s", rounds, got)
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("250 delays are only %d different ones", len(seen))
	}
	retry = retryStep(t, flow.Times("r", 3, flow.Pause(flow.Backoff{Delay: time.Hour})))
	decision, err := retry.Decide(&flow.History{Rounds: make([]flow.Round, 1)})
	if err != nil || decision != (flow.Decision{Verdict: flow.VerdictRetry, Delay: time.Hour}) {
		t.Errorf("got %v, %v", decision, err)
	}
	longest := badController{flow.Decision{Verdict: flow.VerdictRetry, Delay: 1 << 62}}
	if decision, _ := retryStep(t, flow.NewRetrier("r", longest)).Decide(&flow.History{}); decision.Delay != flow.MaxPause {
		t.Errorf("got a delay of %s", decision.Delay)
	}
}

func TestFaultsOfRetries(t *testing.T) {
	shared := flow.Times("r", 2)
	step := func(name string, options ...flow.StepOption) *flow.Step {
		return flow.NewStep(name, idle{}, options...)
	}
	for _, row := range []struct {
		name string
		root *flow.Flow
		kind error
		text string
	}{
		{"too often", flow.Linear("f").WithRetry(flow.Times("r", 101)), flow.ErrInvalid, "must be 0 to 100"},
		{"less than never", flow.Linear("f").WithRetry(flow.Times("r", -1)), flow.ErrInvalid, "must be 0 to 100"},
		{"too many values", flow.Linear("f").WithRetry(flow.ForEach("r", make([]int, 101))), flow.ErrInvalid, "101 values"},
		{"no JSON", flow.Linear("f").WithRetry(flow.ForEach("r", []func(){nil})), flow.ErrInvalid, "value 1"},
		{"nil", flow.Linear("f").WithRetry(nil), flow.ErrInvalid, "a nil retry"},
		{"no controller", flow.Linear("f").WithRetry(flow.NewRetrier("r", nil)), flow.ErrInvalid, "has no controller"},
		{"no name, and a step has that of its flow", flow.Linear("f", step("f-retry")).WithRetry(flow.Times("", 2)), flow.ErrDuplicate, `two steps are named "f-retry"`},
		{"an option that is nil", flow.Linear("f").WithRetry(flow.Times("r", 2, nil)), flow.ErrInvalid, `step "r": its option 1 is nil`},
		{"an option of a step that is nil", flow.Linear("f", step("a", flow.Timeout(1), nil)), flow.ErrInvalid, `step "a": its option 2 is nil`},
		{"an option of an each that is nil", flow.Each("e", "list", "x", step("a"), nil), flow.ErrInvalid, `flow "e": its option 1 is nil`},
		{"an option of a link that is nil", flow.Graph("f", step("a"), step("b")).Link("a", "b", nil), flow.ErrInvalid, "decider"},
		{"two over one", flow.Linear("f").WithRetry(flow.Times("r", 2)).WithRetry(flow.Times("q", 2)), flow.ErrDuplicate, "2 retries"},
		{"one over two", flow.Linear("f", flow.Linear("g").WithRetry(shared)).WithRetry(shared), flow.ErrDuplicate, "belongs to two flows"},
		{"named as a step", flow.Linear("f", step("r")).WithRetry(flow.Times("r", 2)), flow.ErrDuplicate, `two steps are named "r"`},
		{"jitter", flow.Linear("f").WithRetry(flow.Times("r", 2, flow.Pause(flow.Backoff{JitterPercent: 101}))), flow.ErrInvalid, "jitter"},
		{"too many failures", flow.Linear("f").WithRetry(flow.Times("r", 2, flow.RetryOnly(strings.Split("abcdefghijklmnopq", "")...))), logbook.ErrLimit, "retry only is too large: 17 entries, and the limit is 16"},
		{"a pattern", flow.Linear("f").WithRetry(flow.Times("r", 2, flow.RetryNever("card.*"))), flow.ErrInvalid, `step "r": retry never is invalid: "card.*" is neither a kind nor an exit status`},
		{"no failures", flow.Linear("f").WithRetry(flow.Times("r", 2, flow.RetryOnly())), flow.ErrInvalid, "list of failures for retries is empty"},
		{"of a step: no exit status", flow.Linear("f", step("a", flow.RetryNever("0"))), flow.ErrInvalid, `step "a": retry never is invalid: 0 is not an exit status`},
		{"of a step: no failures", flow.Linear("f", step("a", flow.RetryNever())), flow.ErrInvalid, "list of failures for retries is empty"},
		{"at most once", flow.Linear("f", flow.Linear("g", step("a", flow.AtMostOnce()))).WithRetry(flow.Times("r", 2)), flow.ErrInvalid, "is in a flow with retry"},
		{"missing values", flow.Linear("f").WithRetry(flow.ParameterizedForEach("r", "list")), flow.ErrMissing, `"list"`},
		{"value from inside", flow.Linear("f", step("a", flow.Provides("list"))).WithRetry(flow.ParameterizedForEach("r", "list")), flow.ErrMissing, `"list"`},
	} {
		_, err := flow.Compile(row.root)
		if !errors.Is(err, row.kind) || err != nil && !strings.Contains(err.Error(), row.text) {
			t.Errorf("%s: got %v, want %v: …%s…", row.name, err, row.kind, row.text)
		}
	}
}

// TestRetriesInGraphs: the value of a retry is not looked for outside of its
// flow, and what its controller requires is.
func TestRetriesInGraphs(t *testing.T) {
	user := flow.NewStep("user", idle{}, flow.Requires("x"))
	plan, err := flow.Compile(flow.Graph("f",
		flow.Graph("g", user, flow.NewStep("beside", idle{})).WithRetry(flow.ParameterizedForEach("r", "list", flow.Provides("x"))),
		flow.NewStep("lister", idle{}, flow.Provides("list")),
		flow.NewStep("after", idle{}, flow.Requires("x")),
	))
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, step := range plan.Steps() {
		order = append(order, step.Name())
	}
	if got := strings.Join(order, " "); got != "lister r user beside after" {
		t.Errorf("the order is %s", got)
	}
	scope := plan.Scopes()[0]
	if scope.Retry != 1 || scope.End != 4 || scope.Parent != -1 || plan.Governor(1) != -1 || plan.Governor(3) != 0 || plan.Governor(4) != -1 {
		t.Errorf("got %+v", scope)
	}
	if outline := plan.Outline(); !strings.Contains(outline, "2. r: decides about failures here; values ← lister; provides x") {
		t.Errorf("the outline is:\n%s", outline)
	}
	if drawn := plan.Mermaid() + plan.Graphviz(); !strings.Contains(drawn, `n1{"r"}`) || !strings.Contains(drawn, `n1 [label="r", shape=diamond]`) {
		t.Errorf("drawn:\n%s", drawn)
	}
}

// TestOptionsFit: an option of steps is none of retries, and the other way round, for the compiler.
func TestOptionsFit(t *testing.T) {
	for name, option := range map[string]flow.StepOption{
		"Timeout": flow.Timeout(1), "Retry": flow.Retry(flow.Backoff{}), "AtMostOnce": flow.AtMostOnce(), "PointOfNoReturn": flow.PointOfNoReturn(), "Uninterruptible": flow.Uninterruptible(),
		"RevertRequires": flow.RevertRequires("x"), "WaitAtMost": flow.WaitAtMost(1), "Concurrency": flow.Concurrency("k", 1), "Priority": flow.Priority(1),
	} {
		if _, both := option.(flow.RetryOption); both {
			t.Errorf("a retry takes %s", name)
		}
	}
	for name, option := range map[string]flow.RetryOption{"Pause": flow.Pause(flow.Backoff{}), "RevertingAll": flow.RevertingAll(), "RetryPermanent": flow.RetryPermanent()} {
		if _, both := option.(flow.StepOption); both {
			t.Errorf("a step takes %s", name)
		}
	}
}
