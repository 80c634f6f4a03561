package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/logbook"
)

// reservedKinds are the kinds that only a conductor records.
var reservedKinds = []string{logbook.FailureBuild, logbook.FailureChanged, logbook.FailureInterrupted, logbook.FailureWorkerLost, logbook.FailureNoWorker,
	logbook.FailureCrash, logbook.FailureOperator, logbook.FailureIntervention, logbook.FailureAtMostOnce}

// TestReservedKindsCannotBeSaid: a step that reports a reserved kind is tried by its normal policy, and its
// failure is recorded under another kind.
func TestReservedKindsCannotBeSaid(t *testing.T) {
	woot := errors.New("woot")
	for _, kind := range reservedKinds {
		for _, row := range []struct {
			name string
			err  error
			runs int
		}{
			{"by flow.Fail", flow.Fail(kind, woot), 3},
			{"permanent", flow.Permanent(flow.Fail(kind, woot)), 1},
			{"as a failure", &logbook.Failure{Kind: kind, Message: "woot"}, 3},
			{"passed on", fmt.Errorf("the other flow: %w", &logbook.Failure{Kind: "other", Message: "woot", Causes: []logbook.Failure{{Kind: kind, Message: "woot", Step: "theirs"}}}), 3},
		} {
			for _, once := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s, once %t", kind, row.name, once), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						want, options := row.runs, []flow.StepOption{flow.Retry(flow.Backoff{Attempts: 3})}
						if once {
							want, options = 1, []flow.StepOption{flow.AtMostOnce()}
						}
						runs, undos := 0, 0
						result, _ := engine.Local{}.Run(t.Context(), flow.Linear("f", flow.FuncRevert("a",
							func(context.Context, none) (none, error) { runs++; return none{}, row.err },
							func(context.Context, none, *none) error { undos++; return row.err }, options...)), nil)
						atom, _ := result.Detail.Atom("a")
						if runs != want || undos != want || result.State != logbook.FlowFailure {
							t.Errorf("%s after %d executions and %d reverts, and %d are right\n%s", result.State, runs, undos, want, dump(result.Detail))
						}
						for i := range atom.Attempts {
							if atom.Attempts[i].Failure.Matches(kind) {
								t.Errorf("the record has %+v", atom.Attempts[i].Failure)
							}
						}
					})
				})
			}
		}
	}
}

// TestHandlersCannotSayReservedKinds is the same for handlers, with other kinds that they may say.
func TestHandlersCannotSayReservedKinds(t *testing.T) {
	for _, kind := range append(slices.Clone(reservedKinds), "card.declined") {
		for status, runs := range map[int]int{handler.ExitPermanent: 1, 1: 2} {
			set, count := handlerThatFails(t, kind, status)
			result, _ := engine.Local{}.Run(t.Context(), flow.Linear("f", flow.NewStep("a", set.Task("fails", ""), flow.Retry(flow.Backoff{Attempts: 2}))), nil)
			atom, _ := result.Detail.Atom("a")
			if failure := atom.Failure(); count() != runs || failure == nil || failure.Matches(kind) == logbook.IsReserved(kind) || failure.Message != "m" {
				t.Errorf("%s with status %d has run %d times, and %d are right: %+v", kind, status, count(), runs, failure)
			}
		}
	}
}

// TestKindsOfOurs compares the list of kinds with the reserved kinds.
func TestKindsOfOurs(t *testing.T) {
	for _, kind := range reservedKinds {
		if !logbook.IsReserved(kind) {
			t.Errorf("%s is not reserved", kind)
		}
	}
	for _, kind := range []string{logbook.FailureError, logbook.FailurePanic, logbook.FailureTimeout, logbook.FailureResult, logbook.FailureExit,
		logbook.FailureSignal, logbook.FailureHandler, logbook.FailureArgument, logbook.FailureSecret, "card.declined"} {
		if logbook.IsReserved(kind) {
			t.Errorf("a step cannot say %s", kind)
		}
	}
}

// handlerThatFails makes a handler that prints a failure of a kind, and counts its runs.
func handlerThatFails(t *testing.T, kind string, status int) (*handler.Set, func() int) {
	t.Helper()
	dir, handlers := t.TempDir(), t.TempDir()
	ledger := filepath.Join(dir, "runs")
	script := fmt.Sprintf("#!/bin/sh\necho run >> '%s'\necho '{\"failure\": {\"kind\": \"%s\", \"message\": \"m\"}}'\nexit %d\n", ledger, kind, status)
	if err := errors.Join(os.Chmod(handlers, 0o755), os.WriteFile(filepath.Join(handlers, "fails"), []byte(script), 0o755)); err != nil {
		t.Fatal(err)
	}
	set, err := handler.Open(handlers)
	if err != nil {
		t.Fatal(err)
	}
	return set, func() int {
		runs, _ := os.ReadFile(ledger)
		return strings.Count(string(runs), "run\n")
	}
}
