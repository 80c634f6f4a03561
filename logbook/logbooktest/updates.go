package logbooktest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/conductord/conductord/logbook"
)

var updateRows = []row{
	{"updates apply in order", updatesApplyInOrder},
	{"a repeated update changes nothing", repeatedUpdate},
	{"an update that skips a number is refused", skippedUpdate},
	{"an update without a number is refused", unnumberedUpdate},
	{"a token without a claim is refused", tokenWithoutClaim},
	{"a refused update changes nothing at all", refusedUpdate},
	{"each update has its own verdict", verdictsOfTheirOwn},
	{"the first change of an atom creates it", firstChangeCreates},
	{"an atom keeps what a change leaves out", changeLeavesOut},
	{"an atom keeps its kind", atomKeepsKind},
	{"attempts are begun once and ended once", attemptsBeginAndEnd},
	{"attempts must be of a known sort", attemptsOfKnownSort},
	{"the numbers of attempts skip none", attemptsSkipNone},
	{"the oldest of many attempts are folded", oldestFolded},
	{"a failure keeps its whole chain", failureChain},
	{"the cause of a flow stays until it is replaced", causeStays},
	{"a definition stays until it is replaced", definitionStays},
	{"progress is that of the last attempt", progressOfLastAttempt},
	{"an open attempt says how often it was asked", openAttemptIsAsked},
	{"a flow that has come to an end takes no other", finishedFlowStays},
	{"an unknown kind of atom is refused", unknownKindRefused},
	{"flows are updated side by side", flowsSideBySide},
	{"fifty first changes of one atom make one atom", fiftyFirstChanges},
}

// task is the first change of a step.
func task(name string) logbook.AtomChange {
	return logbook.AtomChange{Name: name, Kind: logbook.KindTask}
}

var someTime = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

func execution(number int) logbook.Attempt {
	return logbook.Attempt{Action: logbook.ActionExecute, Number: number, Owner: "conductor", StartedAt: someTime}
}

func reversal(number int) logbook.Attempt {
	return logbook.Attempt{Action: logbook.ActionRevert, Number: number, Owner: "conductor", StartedAt: someTime}
}

func ended(attempt logbook.Attempt, result json.RawMessage) logbook.Attempt {
	attempt.EndedAt = attempt.StartedAt.Add(time.Second)
	attempt.Result = result
	return attempt
}

func failed(attempt logbook.Attempt, failure logbook.Failure) logbook.Attempt {
	attempt = ended(attempt, nil)
	attempt.Failure = &failure
	return attempt
}

func (k *kit) standsAt(id logbook.FlowID, state logbook.FlowState, sequence uint64) {
	k.Helper()
	if flow := k.flow(id); flow.State != state || flow.Sequence != sequence {
		k.Errorf("flow is %s after update %d, want %s after %d", flow.State, flow.Sequence, state, sequence)
	}
}

func updatesApplyInOrder(k *kit) {
	id := k.begun()
	before := k.flow(id)
	verdicts, err := k.conn.Update(k.ctx,
		logbook.Update{Flow: id, Sequence: 1, State: logbook.FlowRunning},
		logbook.Update{Flow: id, Sequence: 2, Atoms: []logbook.AtomChange{task("pay")}},
		logbook.Update{Flow: id, Sequence: 3, State: logbook.FlowSuspended},
	)
	if err != nil || len(verdicts) != 3 {
		k.Fatalf("Update: %v, %v", verdicts, err)
	}
	for i, verdict := range verdicts {
		k.wants(fmt.Sprint("update ", i+1), verdict, nil)
	}
	k.standsAt(id, logbook.FlowSuspended, 3)
	k.update(logbook.Update{Flow: id, Sequence: 4, State: logbook.FlowRunning})
	k.standsAt(id, logbook.FlowRunning, 4)
	if after := k.flow(id); after.UpdatedAt.Before(before.UpdatedAt) || !after.CreatedAt.Equal(before.CreatedAt) {
		k.Errorf("times went from %v, %v to %v, %v", before.CreatedAt, before.UpdatedAt, after.CreatedAt, after.UpdatedAt)
	}
}

func repeatedUpdate(k *kit) {
	id := k.begun()
	first := logbook.Update{Flow: id, Sequence: 1, State: logbook.FlowRunning, Atoms: []logbook.AtomChange{task("pay")}}
	k.update(first)
	k.update(logbook.Update{Flow: id, Sequence: 2, State: logbook.FlowSuspended})
	before := k.flow(id)
	k.update(first)
	k.update(logbook.Update{Flow: id, Sequence: 2, State: logbook.FlowSuspended})
	k.update(logbook.Update{Flow: id, Sequence: 2, Atoms: []logbook.AtomChange{task("other")}})
	k.same("flow after repeats", k.flow(id), before)
}

func skippedUpdate(k *kit) {
	id := k.begun()
	k.wants("update 2 of none", k.verdict(logbook.Update{Flow: id, Sequence: 2, State: logbook.FlowRunning}), logbook.ErrConflict)
	k.update(logbook.Update{Flow: id, Sequence: 1, State: logbook.FlowRunning})
	k.wants("update 3 after 1", k.verdict(logbook.Update{Flow: id, Sequence: 3, State: logbook.FlowSuccess}), logbook.ErrConflict)
	k.standsAt(id, logbook.FlowRunning, 1)
}

func unnumberedUpdate(k *kit) {
	id := k.begun()
	k.wantsInvalid("update 0", k.verdict(logbook.Update{Flow: id, State: logbook.FlowRunning}))
	k.standsAt(id, logbook.FlowPending, 0)
}

func tokenWithoutClaim(k *kit) {
	id := k.begun()
	token := logbook.Token{Generation: 1, Index: 1}
	k.wants("update under a token", k.verdict(logbook.Update{Flow: id, Token: token, Sequence: 1, State: logbook.FlowRunning}), logbook.ErrFenced)
	k.standsAt(id, logbook.FlowPending, 0)
}

func refusedUpdate(k *kit) {
	id := k.begun()
	k.update(logbook.Update{Flow: id, Sequence: 1, State: logbook.FlowRunning, Atoms: []logbook.AtomChange{task("pay")}})
	before := k.flow(id)
	good := task("fly")
	good.Attempts = []logbook.Attempt{execution(1)}
	known := logbook.AtomChange{Name: "pay", State: logbook.AtomRunning, Attempts: []logbook.Attempt{execution(1)}}
	bad := task("stay")
	bad.State = logbook.AtomReverted
	for _, update := range []logbook.Update{
		{Flow: id, Sequence: 2, State: logbook.FlowSuspended, Cause: &logbook.Failure{Kind: "error"}, Atoms: []logbook.AtomChange{good, known, bad}},
		{Flow: id, Sequence: 2, State: logbook.FlowPending, Atoms: []logbook.AtomChange{good, known}},
	} {
		k.wants("the update", k.verdict(update), logbook.ErrConflict)
		k.same("flow", k.flow(id), before)
	}
	k.update(logbook.Update{Flow: id, Sequence: 2, Atoms: []logbook.AtomChange{good, known}})
	k.standsAt(id, logbook.FlowRunning, 2)
}

func verdictsOfTheirOwn(k *kit) {
	book := k.saved("a", "b", "c")
	a, b, c := book.Flows[0].ID, book.Flows[1].ID, book.Flows[2].ID
	updates := []logbook.Update{
		{Flow: a, Sequence: 1, State: logbook.FlowRunning},
		{Flow: logbook.NewFlowID(), Sequence: 1, State: logbook.FlowRunning},
		{Flow: b, Sequence: 1, State: logbook.FlowReverted},
		{Flow: c, Sequence: 1, State: logbook.FlowRunning},
		{Flow: b, Sequence: 2, State: logbook.FlowRunning},
		{Flow: a, Sequence: 1, State: logbook.FlowRunning},
		{Flow: c, Sequence: 2, State: logbook.FlowSuccess},
	}
	want := []error{nil, logbook.ErrNotFound, logbook.ErrConflict, nil, logbook.ErrConflict, nil, nil}
	verdicts, err := k.conn.Update(k.ctx, updates...)
	if err != nil || len(verdicts) != len(want) {
		k.Fatalf("Update: %v, %v", verdicts, err)
	}
	for i := range want {
		k.wants(fmt.Sprint("verdict ", i), verdicts[i], want[i])
	}
	k.standsAt(a, logbook.FlowRunning, 1)
	k.standsAt(b, logbook.FlowPending, 0)
	k.standsAt(c, logbook.FlowSuccess, 2)
}

func firstChangeCreates(k *kit) {
	id := k.begun()
	retry := logbook.AtomChange{Name: "again", Kind: logbook.KindRetry, Version: "2", Intention: logbook.IntendIgnore, State: logbook.AtomIgnored}
	k.update(logbook.Update{Flow: id, Sequence: 1, Atoms: []logbook.AtomChange{task("zebra"), retry}})
	k.update(logbook.Update{Flow: id, Sequence: 2, Atoms: []logbook.AtomChange{task("ape")}})
	k.same("atoms in the order of their first changes", k.flow(id).Atoms, []logbook.AtomDetail{
		{Name: "zebra", Kind: logbook.KindTask, State: logbook.AtomPending, Intention: logbook.IntendExecute},
		{Name: "again", Kind: logbook.KindRetry, Version: "2", State: logbook.AtomIgnored, Intention: logbook.IntendIgnore},
		{Name: "ape", Kind: logbook.KindTask, State: logbook.AtomPending, Intention: logbook.IntendExecute},
	})
}

func changeLeavesOut(k *kit) {
	id := k.begun()
	first := task("pay")
	first.Version, first.State, first.Intention, first.RetryAt = "1", logbook.AtomRunning, logbook.IntendRevert, someTime
	first.Attempts = []logbook.Attempt{execution(1)}
	k.update(logbook.Update{Flow: id, Sequence: 1, State: logbook.FlowRunning, Atoms: []logbook.AtomChange{first}})
	want := logbook.AtomDetail{
		Name: "pay", Kind: logbook.KindTask, Version: "1", State: logbook.AtomRunning,
		Intention: logbook.IntendRevert, RetryAt: someTime, Attempts: []logbook.Attempt{execution(1)},
	}
	k.same("atom", k.atom(id, "pay"), want)
	k.update(logbook.Update{Flow: id, Sequence: 2, Atoms: []logbook.AtomChange{{Name: "pay", RetryAt: someTime.Add(time.Hour)}}})
	want.RetryAt = someTime.Add(time.Hour)
	k.same("atom with another time", k.atom(id, "pay"), want)
	k.update(logbook.Update{Flow: id, Sequence: 3, Atoms: []logbook.AtomChange{{Name: "pay"}}})
	want.RetryAt = time.Time{}
	k.same("atom, its time taken away", k.atom(id, "pay"), want)
	k.standsAt(id, logbook.FlowRunning, 3)
}

func atomKeepsKind(k *kit) {
	id := k.begun()
	k.update(logbook.Update{Flow: id, Sequence: 1, Atoms: []logbook.AtomChange{task("pay")}})
	change := logbook.AtomChange{Name: "pay", Kind: logbook.KindRetry, State: logbook.AtomRunning}
	k.wants("another kind", k.verdict(logbook.Update{Flow: id, Sequence: 2, Atoms: []logbook.AtomChange{change}}), logbook.ErrConflict)
	if atom := k.atom(id, "pay"); atom.Kind != logbook.KindTask || atom.State != logbook.AtomPending {
		k.Errorf("got %s, want the task as it was", render(atom))
	}
}

func attemptsBeginAndEnd(k *kit) {
	id := k.begun()
	lost := failed(execution(1), logbook.Failure{Kind: logbook.FailureExit, Message: "exit status 3", Code: 3})
	lost.Stderr, lost.StderrTruncated = "no such flight\n", true
	done := ended(execution(2), json.RawMessage(`{"seat": "12A"}`))
	done.Failures = []logbook.Failure{{Kind: logbook.FailureTimeout, Message: "too late", Step: "fly"}, {Kind: "k", Message: "m", Step: "s"}}
	undone := ended(reversal(1), nil)
	steps := []struct {
		state   logbook.AtomState
		attempt logbook.Attempt
		want    []logbook.Attempt
	}{
		{logbook.AtomRunning, execution(1), []logbook.Attempt{execution(1)}},
		{logbook.AtomPending, lost, []logbook.Attempt{lost}},
		{logbook.AtomRunning, execution(2), []logbook.Attempt{lost, execution(2)}},
		{logbook.AtomSuccess, done, []logbook.Attempt{lost, done}},
		{logbook.AtomReverting, reversal(1), []logbook.Attempt{lost, done, reversal(1)}},
		{logbook.AtomReverted, undone, []logbook.Attempt{lost, done, undone}},
	}
	sequence := uint64(0)
	for _, step := range steps {
		change := task("fly")
		change.State, change.Attempts = step.state, []logbook.Attempt{step.attempt}
		sequence++
		k.update(logbook.Update{Flow: id, Sequence: sequence, Atoms: []logbook.AtomChange{change}})
		k.same("attempts", k.atom(id, "fly").Attempts, step.want)
	}
	for _, attempt := range []logbook.Attempt{execution(1), done, ended(reversal(1), json.RawMessage(`1`))} {
		change := task("fly")
		change.Attempts = []logbook.Attempt{attempt}
		update := logbook.Update{Flow: id, Sequence: sequence + 1, Atoms: []logbook.AtomChange{change}}
		k.wants("an attempt that has ended", k.verdict(update), logbook.ErrConflict)
		k.same("attempts after the refusal", k.atom(id, "fly").Attempts, steps[len(steps)-1].want)
	}
}

func attemptsOfKnownSort(k *kit) {
	id := k.begun()
	for _, attempt := range []logbook.Attempt{execution(0), {Action: "dance", Number: 1, StartedAt: someTime}, {Number: 1, StartedAt: someTime}} {
		change := task("pay")
		change.Attempts = []logbook.Attempt{attempt}
		err := k.verdict(logbook.Update{Flow: id, Sequence: 1, Atoms: []logbook.AtomChange{change}})
		k.wants(fmt.Sprintf("attempt %q %d", attempt.Action, attempt.Number), err, logbook.ErrInvalid)
		k.standsAt(id, logbook.FlowPending, 0)
	}
}

func attemptsSkipNone(k *kit) {
	id := k.begun()
	sequence := uint64(0)
	for _, row := range []struct {
		attempts []logbook.Attempt
		want     error
	}{
		{[]logbook.Attempt{execution(2)}, logbook.ErrInvalid},
		{[]logbook.Attempt{execution(1), execution(2)}, nil},
		{[]logbook.Attempt{execution(3), execution(5)}, logbook.ErrInvalid},
		{[]logbook.Attempt{reversal(2)}, logbook.ErrInvalid},
		{[]logbook.Attempt{reversal(1), execution(3)}, nil},
		{[]logbook.Attempt{reversal(2), ended(execution(2), nil)}, nil},
	} {
		change := task("pay")
		change.Attempts = row.attempts
		err := k.verdict(logbook.Update{Flow: id, Sequence: sequence + 1, Atoms: []logbook.AtomChange{change}})
		if row.want == nil && err == nil {
			sequence++
			continue
		}
		k.wants(fmt.Sprint(row.attempts[0].Action, row.attempts[0].Number), err, row.want)
	}
	if got := len(k.atom(id, "pay").Attempts); got != 5 {
		k.Errorf("%d attempts, want 5", got)
	}
}

// oldestFolded: an atom keeps the maximum number of attempts, and always its last execution,
// from which a conductor resumes.
func oldestFolded(k *kit) {
	const kept = logbook.KeptAttempts
	reset := func(number int) logbook.Attempt {
		return logbook.Attempt{Action: logbook.ActionReset, Number: number, StartedAt: someTime, EndedAt: someTime}
	}
	id := k.begun()
	numbers, sequence := map[logbook.Action]int{}, uint64(0)
	for _, step := range []struct {
		made    func(number int) logbook.Attempt
		times   int
		folded  logbook.Folded
		oldest  logbook.Action
		numbers [2]int // of the oldest two
	}{
		{execution, kept, logbook.Folded{}, logbook.ActionExecute, [2]int{1, 2}},
		{execution, 4, logbook.Folded{Executions: 4}, logbook.ActionExecute, [2]int{5, 6}},
		{reversal, kept, logbook.Folded{Executions: kept + 3, Reverts: 1}, logbook.ActionExecute, [2]int{kept + 4, 2}},
		{reversal, 7, logbook.Folded{Executions: kept + 3, Reverts: 8}, logbook.ActionExecute, [2]int{kept + 4, 9}},
		{execution, 2, logbook.Folded{Executions: kept + 4, Reverts: 9, Undone: true}, logbook.ActionRevert, [2]int{10, 11}},
		{reset, 1, logbook.Folded{Executions: kept + 4, Reverts: 10, Undone: true}, logbook.ActionRevert, [2]int{11, 12}},
		{reversal, kept, logbook.Folded{Executions: kept + 6, Reverts: kept + 7, Resets: 1, Rounds: 2}, logbook.ActionRevert, [2]int{kept + 8, kept + 9}},
		{execution, kept, logbook.Folded{Executions: kept + 6, Reverts: 2*kept + 7, Resets: 1, Rounds: 2, Undone: true}, logbook.ActionExecute, [2]int{kept + 7, kept + 8}},
		{execution, 1, logbook.Folded{Executions: kept + 7, Reverts: 2*kept + 7, Resets: 1, Rounds: 3}, logbook.ActionExecute, [2]int{kept + 8, kept + 9}},
	} {
		for left := step.times; left > 0; {
			change := task("pay")
			for ; left > 0 && len(change.Attempts) < logbook.MaxChangeAttempts; left-- {
				attempt := step.made(1)
				numbers[attempt.Action]++
				attempt.Number = numbers[attempt.Action]
				change.Attempts = append(change.Attempts, ended(attempt, nil))
			}
			sequence++
			k.update(logbook.Update{Flow: id, Sequence: sequence, Atoms: []logbook.AtomChange{change}})
		}
		atom := k.atom(id, "pay")
		k.same("folded", atom.Folded, step.folded)
		oldest := atom.Attempts[:2]
		if len(atom.Attempts) != kept || oldest[0].Action != step.oldest || [2]int{oldest[0].Number, oldest[1].Number} != step.numbers {
			k.Errorf("%d attempts are kept, from %s %d and %s %d; want %d, from %s %v", len(atom.Attempts),
				oldest[0].Action, oldest[0].Number, oldest[1].Action, oldest[1].Number, kept, step.oldest, step.numbers)
		}
	}
	change := task("pay")
	change.Attempts = []logbook.Attempt{execution(1)}
	k.wants("a folded attempt", k.verdict(logbook.Update{Flow: id, Sequence: sequence + 1, Atoms: []logbook.AtomChange{change}}), logbook.ErrConflict)
}

func failureChain(k *kit) {
	const depth = 40
	var chain logbook.Failure
	for i := depth; i > 0; i-- {
		next := logbook.Failure{Kind: fmt.Sprint("kind-", i), Message: fmt.Sprint("because of ", i), Step: "fly", Code: -i, Permanent: i%2 == 0, Stack: strings.Repeat("main.go\n", i),
			Details: logbook.Values{"z": json.RawMessage(fmt.Sprint(i)), "a": json.RawMessage(`{"b":[null]}`)}}
		if i < depth {
			next.Causes = []logbook.Failure{chain, {Kind: "beside", Message: "beside it"}}
		}
		chain = next
	}
	id := k.begun()
	change := task("fly")
	change.Attempts = []logbook.Attempt{failed(execution(1), chain)}
	k.update(logbook.Update{Flow: id, Sequence: 1, Cause: &chain, Atoms: []logbook.AtomChange{change}})
	flow := k.flow(id)
	k.same("cause of the flow", flow.Cause, chain)
	k.same("failure of the step", flow.Atoms[0].Attempts[0].Failure, chain)
	if !flow.Cause.Matches(fmt.Sprint("kind-", depth)) {
		k.Errorf("the cause does not match its deepest kind")
	}
}

func causeStays(k *kit) {
	id := k.begun()
	first, second := &logbook.Failure{Kind: "error", Message: "first"}, &logbook.Failure{Kind: "error", Message: "second"}
	for i, step := range []struct{ given, want *logbook.Failure }{{nil, nil}, {first, first}, {nil, first}, {second, second}} {
		k.update(logbook.Update{Flow: id, Sequence: uint64(i + 1), Cause: step.given})
		k.same("cause", k.flow(id).Cause, step.want)
	}
}

func flowsSideBySide(k *kit) {
	const updates = 10
	book := k.saved("a", "b", "c", "d", "e", "f", "g", "h")
	var group sync.WaitGroup
	for _, flow := range book.Flows {
		group.Go(func() {
			for i := uint64(1); i <= updates; i++ {
				change := task(fmt.Sprintf("%s %d", flow.Name, i))
				if err := k.verdict(logbook.Update{Flow: flow.ID, Sequence: i, Atoms: []logbook.AtomChange{change}}); err != nil {
					k.Errorf("update %d of %s: %v", i, flow.Name, err)
				}
			}
		})
	}
	group.Wait()
	for _, flow := range book.Flows {
		got := k.flow(flow.ID)
		if got.Sequence != updates || len(got.Atoms) != updates {
			k.Errorf("flow %s is at %d with %d atoms, want %d of each", flow.Name, got.Sequence, len(got.Atoms), updates)
		}
		for i, atom := range got.Atoms {
			k.same("atom", atom.Name, fmt.Sprintf("%s %d", flow.Name, i+1))
		}
	}
}

func fiftyFirstChanges(k *kit) {
	id := k.begun()
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			change := task("pay")
			change.Version = fmt.Sprint(i)
			if err := k.verdict(logbook.Update{Flow: id, Sequence: 1, Atoms: []logbook.AtomChange{change}}); err != nil {
				k.Errorf("change %d: %v", i, err)
			}
		})
	}
	group.Wait()
	if flow := k.flow(id); flow.Sequence != 1 || len(flow.Atoms) != 1 {
		k.Errorf("got %d atoms after update %d, want 1 after 1", len(flow.Atoms), flow.Sequence)
	}
}
