package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// months is a flow that charges a month, and continues with the following one.
func months(t *testing.T, charged map[int]int, options ...flow.StepOption) *flow.Plan {
	type month struct {
		Month int `json:"month"`
	}
	type following struct {
		Following int `json:"following"`
	}
	root := flow.Linear("months",
		flow.Func("charge", func(_ context.Context, in month) (following, error) {
			charged[in.Month]++
			return following{in.Month + 1}, nil
		}),
		flow.Again("next", append([]flow.StepOption{flow.Requires("month"), flow.Rebind(map[string]string{"month": "following"})}, options...)...),
		act("last", func(context.Context) error { return nil }),
	)
	plan, err := flow.Compile(root, "month")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestCrashAtEveryWriteOfIterations: a flow continues alike after a crash at any write of an iteration or of its end.
// The board writes the last update of an iteration together with the next iteration.
func TestCrashAtEveryWriteOfIterations(t *testing.T) {
	const iterations = 4
	for crash := range 16 {
		charged := map[int]int{}
		plan := months(t, charged)
		store, detail, left, token := logbook.Values{"month": json.RawMessage("1")}, newDetail(), crash, uint64(0)
		for done := 0; done < iterations; {
			j := newJournal(detail)
			j.left = left
			token++
			end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: detail, Store: store, Journal: j, Token: logbook.Token{Index: token}})
			if err == nil {
				err = j.apply(*end.Update)
			}
			if left = j.left; errors.Is(err, errCrash) {
				left, detail = -1, j.snapshot()
				continue
			}
			if err != nil || end.State != logbook.FlowSuccess || end.Again == nil {
				t.Fatalf("crash at update %d, iteration %d: %+v, %v", crash, done+1, end, err)
			}
			store, detail = end.Again.Values, newDetail()
			done++
		}
		twice := 0
		for month, times := range charged {
			if twice += times - 1; times > 2 {
				t.Errorf("crash at update %d: month %d was charged %d times", crash, month, times)
			}
		}
		if len(charged) != iterations || twice > 1 || string(store["month"]) != "5" {
			t.Errorf("crash at update %d: charged %v, then month %s", crash, charged, store["month"])
		}
	}
}

// TestDelayOfIterations: the delay of the next iteration counts from the end of the present one.
func TestDelayOfIterations(t *testing.T) {
	for _, row := range []struct {
		option flow.StepOption
		want   time.Duration
	}{
		{flow.AgainAfter(0), 0},
		{flow.AgainAfter(36 * time.Hour), 36 * time.Hour},
		{flow.AgainAt("08:00"), 8 * time.Hour},
		{flow.AgainAt("01:30 Europe/Berlin"), 30 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) { // begins at midnight, 2000-01-01 UTC
			plan := months(t, map[int]int{}, row.option)
			end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: newDetail(), Journal: newJournal(newDetail()), Store: logbook.Values{"month": json.RawMessage("1")}, Token: logbook.Token{Index: 1}})
			if err != nil || end.Again == nil || end.Again.After != row.want {
				t.Errorf("%+v, %v; want a delay of %s", end.Again, err, row.want)
			}
		})
	}
}

// TestRefusedValues: a value that the next iteration cannot have fails the step, and reverts the iteration.
func TestRefusedValues(t *testing.T) {
	for _, row := range []struct {
		name, value, want string
	}{
		{"too large", `"` + strings.Repeat("x", 200<<10) + `"`, "the store of the next iteration"},
		{"a secret that a step names", `[{"secret": "bank"}]`, "a reference to a secret"},
		{"an escaped name", `{"\u0073ecret": "bank"}`, "a reference to a secret"},
		{"a field named secret", `{"secret": 1}`, ""},
	} {
		plan, err := flow.Compile(flow.Linear("f",
			flow.Func("a", func(context.Context, struct{}) (json.RawMessage, error) { return json.RawMessage(row.value), nil }, flow.Provides("v")),
			flow.Again("next", flow.Requires("v", "w"))), "w")
		if err != nil {
			t.Fatal(err)
		}
		store := logbook.Values{"w": json.RawMessage(`{"secret": "mine"}`)}
		for _, name := range []string{"1", "2", "3", "4"} {
			store[name] = json.RawMessage(`"` + strings.Repeat("y", 200<<10) + `"`)
		}
		end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: newDetail(), Journal: newJournal(newDetail()), Store: store, Token: logbook.Token{Index: 1}})
		switch {
		case err != nil:
			t.Errorf("%s: %v", row.name, err)
		case row.want == "" && (end.Again == nil || string(end.Again.Values["w"]) != `{"secret": "mine"}` && string(end.Again.Values["w"]) != `{"secret":"mine"}`):
			t.Errorf("%s: the next iteration has %+v, after %v", row.name, end.Again, end.Cause)
		case row.want != "" && (end.Again != nil || end.State != logbook.FlowReverted || end.Cause.Kind != logbook.FailureArgument || !strings.Contains(end.Cause.Message, row.want)):
			t.Errorf("%s: %s with %v", row.name, end.State, end.Cause)
		}
	}
}

// TestLocalIterations: a local run ends after one iteration, and gives the store of the next.
func TestLocalIterations(t *testing.T) {
	root := flow.Linear("f",
		flow.Func("add", func(_ context.Context, in struct {
			N int `json:"n"`
		}) (int, error) {
			return in.N + 1, nil
		}, flow.Provides("more")),
		flow.Again("next", flow.Requires("n"), flow.Rebind(map[string]string{"n": "more"})))
	store := logbook.Values{"n": json.RawMessage("1"), "other": json.RawMessage("7")}
	for range 3 {
		result, err := engine.RunLocal(t.Context(), root, store)
		if err != nil {
			t.Fatal(err)
		}
		store = result.Next()
	}
	if string(store["n"]) != "4" || string(store["other"]) != "7" {
		t.Errorf("after three iterations the store is %s", store)
	}
}
