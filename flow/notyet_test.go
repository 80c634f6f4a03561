package flow_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

type looped struct{}

func (looped) Error() string { return "looped" }
func (looped) Unwrap() error { panic("aargh") }

func TestWhatIsNotYet(t *testing.T) {
	later := flow.NotYet(time.Minute)
	for _, row := range []struct {
		name string
		err  error
		want bool
	}{
		{"by itself", later, true},
		{"wrapped", fmt.Errorf("the disk: %w", later), true},
		{"permanent", flow.Permanent(later), false},
		{"of a kind", flow.Fail("busy", later), false},
		{"beside a failure", errors.Join(later, errors.New("woot")), false},
		{"panicked", &flow.PanicError{Value: later}, false},
		{"a failure", errors.New("woot"), false},
		{"nothing", nil, false},
		{"an error that panics", looped{}, false},
	} {
		said, ok := flow.AsNotYet(row.err)
		if ok != row.want || ok && said.After != time.Minute {
			t.Errorf("%s: %v, %v", row.name, said, ok)
		}
	}
}

func TestBoundsOfNotYet(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{
		-time.Second: flow.MinAsk, 0: flow.MinAsk, flow.MinAsk: flow.MinAsk, time.Hour: time.Hour, flow.MaxAsk: flow.MaxAsk, 1 << 62: flow.MaxAsk,
	} {
		if said, ok := flow.AsNotYet(flow.NotYet(after)); !ok || said.After != want {
			t.Errorf("%s: %v, wanted %s", after, said, want)
		}
	}
	longest := strings.Repeat("x", flow.MaxDetails-len(`""`))
	for _, row := range []struct {
		name    string
		details []any
		want    string
		kind    string
	}{
		{"none", nil, "", ""},
		{"nil is none", []any{nil}, "", ""},
		{"one", []any{map[string]int{"a": 1}}, `{"a":1}`, ""},
		{"several are a list", []any{"a", 2}, `["a",2]`, ""},
		{"as large as may be", []any{longest}, `"` + longest + `"`, ""},
		{"too large", []any{longest + "x"}, "", logbook.FailureResult},
		{"no JSON", []any{func() {}}, "", logbook.FailureResult},
	} {
		err := flow.NotYet(time.Minute, row.details...)
		said, ok := flow.AsNotYet(err)
		if ok != (row.kind == "") || ok && string(said.Details) != row.want || !ok && flow.FailureOf(err).Kind != row.kind {
			t.Errorf("%s: %.100v", row.name, err)
		}
	}
}

func TestFaultsOfDeadlines(t *testing.T) {
	if _, err := flow.Compile(flow.NewStep("a", idle{}, flow.Deadline(-1))); !errors.Is(err, flow.ErrInvalid) || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("negative: %v", err)
	}
}

func TestFaultsOfWaiting(t *testing.T) {
	for name, step := range map[string]*flow.Step{
		"negative":     flow.NewStep("a", idle{}, flow.WaitAtMost(-1)),
		"at most once": flow.NewStep("a", idle{}, flow.WaitAtMost(time.Second), flow.AtMostOnce()),
	} {
		if _, err := flow.Compile(step); !errors.Is(err, flow.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
