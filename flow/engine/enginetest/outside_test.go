package enginetest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine/enginetest"
	"github.com/conductord/conductord/logbook"
)

var (
	yes     = logbook.Decision{By: "ann", Roles: []string{"dba"}, Answers: json.RawMessage(`{"ticket":"CHG-1"}`)}
	no      = logbook.Decision{Kind: logbook.Reject, By: "bob", Reason: "in use"}
	backoff = flow.Backoff{Attempts: 2, Delay: time.Minute}
)

// asked deletes after the approval of dbas.
func asked(count int, deadline time.Duration, atDeadline logbook.AtDeadline, options ...flow.StepOption) *flow.Flow {
	return flow.Linear("deletion", flow.Approve("ask", flow.Approval{
		Text: "Delete?", Need: []logbook.Need{{Role: "dba", Count: count}}, Deadline: deadline, AtDeadline: atDeadline,
		Fields: json.RawMessage(`{"required": ["ticket"], "properties": {"ticket": {"type": "string"}}}`),
	}, append(options, flow.Provides("answers"))...), stub("delete", enginetest.Succeed(nil)))
}

func paid(options ...flow.StepOption) *flow.Step {
	return flow.Signal[int]("paid", append(options, flow.Provides("amount"))...)
}

// TestMessages: signals and decisions reach the steps that wait, as in a cluster. All others are faults.
func TestMessages(t *testing.T) {
	by := func(name string, d logbook.Decision) logbook.Decision { d.By = name; return d }
	hourLater := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC) // an hour after the start of a synctest bubble
	for _, row := range []struct {
		name    string
		root    *flow.Flow
		options []enginetest.Option
		state   logbook.FlowState
		took    time.Duration
		fault   string // a part of it; empty: none
	}{
		{"a publication", flow.Linear("f", flow.Topic[int]("paid", "payments", "order-7", flow.Provides("amount")), flow.Sleep("rest", time.Hour)),
			[]enginetest.Option{enginetest.Publish("payments", "order-7", 7)}, logbook.FlowSuccess, time.Hour, ""},
		{"a publication with another key", flow.Linear("f", flow.Topic[int]("paid", "payments", "7", flow.WaitFor(time.Hour))),
			[]enginetest.Option{enginetest.Publish("payments", "8", 7)}, logbook.FlowReverted, time.Hour, "the publication to topic payments, key 8 was not taken: no step waited for it; the topics of the run were topic payments, key 7"},
		{"a signal", flow.Linear("f", paid(), flow.Sleep("rest", time.Hour)), []enginetest.Option{enginetest.Signal("paid", 7)}, logbook.FlowSuccess, time.Hour, ""},
		{"a late signal", flow.Linear("f", paid(flow.WaitFor(2*time.Hour))), []enginetest.Option{enginetest.After(time.Hour, enginetest.Signal("paid", 7))}, logbook.FlowSuccess, time.Hour, ""},
		{"a signal for the next attempt", flow.Linear("f", paid(flow.WaitFor(time.Hour), flow.Retry(backoff))), []enginetest.Option{enginetest.After(90*time.Minute, enginetest.Signal("paid", 7))}, logbook.FlowSuccess, 90 * time.Minute, ""},
		{"a signal too late", flow.Linear("f", paid(flow.WaitFor(time.Hour))), []enginetest.Option{enginetest.After(2*time.Hour, enginetest.Signal("paid", 7))}, logbook.FlowReverted, time.Hour,
			`signal "paid" was not taken: every wait for it took another one, or ended before`},
		{"a limit", flow.Linear("f", paid(flow.WaitFor(time.Hour))), nil, logbook.FlowReverted, time.Hour, ""},
		{"a limit that is a time", flow.Linear("f", paid(flow.WaitUntil(hourLater))), nil, logbook.FlowReverted, time.Hour, ""},
		{"a sleep until a time", flow.Linear("f", flow.SleepUntil("rest", hourLater)), nil, logbook.FlowSuccess, time.Hour, ""},
		{"a rejection", flow.Linear("f", paid()), []enginetest.Option{enginetest.RejectSignal("paid", "no money")}, logbook.FlowReverted, 0, ""},
		{"two waits for one name", flow.Linear("f", paid(), flow.Signal[int]("again", flow.ForSignals("paid"))), []enginetest.Option{enginetest.Signal("paid", 7), enginetest.After(time.Minute, enginetest.Signal("paid", 8))}, logbook.FlowSuccess, time.Minute, ""},
		{"two open waits", flow.Unordered("f", paid(), flow.Signal[int]("again", flow.ForSignals("paid"))), []enginetest.Option{enginetest.After(time.Hour, enginetest.Signal("paid", 7)), enginetest.After(time.Minute, enginetest.Signal("paid", 8))}, logbook.FlowSuccess, time.Hour, ""},
		{"a wrong name", flow.Linear("f", paid(flow.WaitFor(time.Hour))), []enginetest.Option{enginetest.Signal("payd", 7)}, logbook.FlowReverted, time.Hour,
			`signal "payd" was not taken: no step waited for it; the signals of the run were paid`},
		{"no wait", flow.Linear("f", stub("a", enginetest.Succeed(1))), []enginetest.Option{enginetest.Signal("paid", 7)}, logbook.FlowSuccess, 0, `no step waited for it; the run had no signals`},
		{"data without JSON", flow.Linear("f", paid(flow.WaitFor(time.Hour))), []enginetest.Option{enginetest.Signal("paid", func() {})}, logbook.FlowReverted, time.Hour, `signal "paid" was refused: json: unsupported type`},
		{"an approval", asked(2, 0, ""), []enginetest.Option{enginetest.Decide("ask", yes), enginetest.After(time.Hour, enginetest.Decide("ask", by("cid", yes)))}, logbook.FlowSuccess, time.Hour, ""},
		{"one person twice", asked(2, time.Hour, ""), []enginetest.Option{enginetest.Decide("ask", yes), enginetest.Decide("ask", yes)}, logbook.FlowReverted, time.Hour, ""},
		{"a disapproval", asked(2, 0, ""), []enginetest.Option{enginetest.Decide("ask", yes), enginetest.Decide("ask", no)}, logbook.FlowReverted, 0, ""},
		{"an override", asked(2, 0, ""), []enginetest.Option{enginetest.Decide("ask", logbook.Decision{By: "root", Override: true, Reason: "fire"})}, logbook.FlowSuccess, 0, ""},
		{"a deadline", asked(1, 72*time.Hour, logbook.ApproveAtDeadline), nil, logbook.FlowSuccess, 72 * time.Hour, ""},
		{"a withdrawal", asked(1, time.Hour, ""), []enginetest.Option{enginetest.Decide("ask", logbook.Decision{Kind: logbook.Withdraw, By: "ann"})}, logbook.FlowReverted, time.Hour, `the decision withdraw by ann of step "ask" was refused: conflict: ann has not approved it`},
		{"another role", asked(1, time.Hour, ""), []enginetest.Option{enginetest.Decide("ask", logbook.Decision{By: "eve", Roles: []string{"hr"}})}, logbook.FlowReverted, time.Hour, "eve has none of the needed roles dba"},
		{"a missing field", asked(1, time.Hour, ""), []enginetest.Option{enginetest.Decide("ask", logbook.Decision{By: "eve"})}, logbook.FlowReverted, time.Hour, "'ticket'"},
		{"nobody", asked(1, time.Hour, ""), []enginetest.Option{enginetest.Decide("ask", logbook.Decision{})}, logbook.FlowReverted, time.Hour, "name the person that decides"},
		{"no reason", asked(1, time.Hour, ""), []enginetest.Option{enginetest.Decide("ask", logbook.Decision{By: "eve", Kind: logbook.Reject})}, logbook.FlowReverted, time.Hour, "need a reason"},
		{"a wrong step", asked(1, time.Hour, ""), []enginetest.Option{enginetest.Decide("aks", yes)}, logbook.FlowReverted, time.Hour, `the decision approve by ann of step "aks" was not made: the step asked for no approval; the approvals of the run were ask`},
		{"after the end", asked(1, 0, ""), []enginetest.Option{enginetest.Decide("ask", yes), enginetest.Decide("ask", no)}, logbook.FlowSuccess, 0, "by bob of step \"ask\" was not made: every wait for it"},
		{"for the next round", asked(1, time.Hour, "", flow.Retry(backoff)), []enginetest.Option{enginetest.After(62*time.Minute, enginetest.Decide("ask", yes))}, logbook.FlowSuccess, 62 * time.Minute, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test := &judged{TB: t}
				trace := enginetest.Run(test, row.root, nil, row.options...)
				trace.WantState(t, row.state)
				if told := strings.Join(test.faults, "\n"); trace.Took != row.took || (told == "") != (row.fault == "") || !strings.Contains(told, row.fault) {
					t.Errorf("it took %s, and the faults are %q; want %s and %q", trace.Took, told, row.took, row.fault)
				}
			})
			if row.fault == "" {
				enginetest.CrashEverywhere(t, func() *flow.Flow { return row.root }, nil, append(row.options, enginetest.Check(func(trace *enginetest.Trace) error {
					if trace.Took != row.took {
						return fmt.Errorf("it took %s, want %s", trace.Took, row.took)
					}
					return nil
				}))...)
			}
		})
	}
}

// TestPublicationsWithArguments: the key of a topic contains an argument. The results are the same after each crash.
func TestPublicationsWithArguments(t *testing.T) {
	build := func() *flow.Flow {
		return flow.Linear("f", flow.Topic[int]("paid", "payments", "order-{order}", flow.Provides("amount"), flow.Requires("order")))
	}
	enginetest.CrashEverywhere(t, build, logbook.Values{"order": json.RawMessage("7")}, enginetest.Publish("payments", "order-7", 9))
}
