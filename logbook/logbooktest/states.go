package logbooktest

import (
	"fmt"

	"github.com/conductord/conductord/logbook"
)

var stateRows = []row{
	{"a flow moves as the table of its states says", flowMoves},
	{"an atom moves as the table of its states says", atomMoves},
	{"an unknown state is refused", unknownStates},
}

// flowPaths lead from pending to every state of a flow.
var flowPaths = map[logbook.FlowState][]logbook.FlowState{
	logbook.FlowPending:   {},
	logbook.FlowRunning:   {logbook.FlowRunning},
	logbook.FlowSuspended: {logbook.FlowSuspended},
	logbook.FlowSuccess:   {logbook.FlowRunning, logbook.FlowSuccess},
	logbook.FlowReverting: {logbook.FlowRunning, logbook.FlowReverting},
	logbook.FlowReverted:  {logbook.FlowRunning, logbook.FlowReverting, logbook.FlowReverted},
	logbook.FlowFailure:   {logbook.FlowRunning, logbook.FlowFailure},
}

// atomPaths lead from pending to every state of an atom.
var atomPaths = map[logbook.AtomState][]logbook.AtomState{
	logbook.AtomPending:       {},
	logbook.AtomRunning:       {logbook.AtomRunning},
	logbook.AtomSuccess:       {logbook.AtomRunning, logbook.AtomSuccess},
	logbook.AtomFailure:       {logbook.AtomRunning, logbook.AtomFailure},
	logbook.AtomReverting:     {logbook.AtomRunning, logbook.AtomReverting},
	logbook.AtomReverted:      {logbook.AtomRunning, logbook.AtomReverting, logbook.AtomReverted},
	logbook.AtomRevertFailure: {logbook.AtomRunning, logbook.AtomReverting, logbook.AtomRevertFailure},
	logbook.AtomRetrying:      {logbook.AtomRunning, logbook.AtomSuccess, logbook.AtomRetrying},
	logbook.AtomIgnored:       {logbook.AtomIgnored},
}

// trial brings a flow into a state and then makes one move.
type trial struct {
	name    string
	updates []logbook.Update // the last update is the move
	want    error
	check   func(logbook.FlowDetail) string // the state of the flow or its atom
	stands  string
}

// try runs all trials in one call, so that the table costs few writes. want is the decision of
// package logbook, which the store must share.
func (k *kit) try(trials []trial) {
	k.Helper()
	var all []logbook.Update
	for _, trial := range trials {
		all = append(all, trial.updates...)
	}
	verdicts, err := k.conn.Update(k.ctx, all...)
	if err != nil || len(verdicts) != len(all) {
		k.Fatalf("Update of %d: %d verdicts, %v", len(all), len(verdicts), err)
	}
	for _, trial := range trials {
		move := len(trial.updates) - 1
		for i, verdict := range verdicts[:move] {
			k.wants(fmt.Sprintf("%s, step %d there", trial.name, i+1), verdict, nil)
		}
		k.wants(trial.name, verdicts[move], trial.want)
		verdicts = verdicts[move+1:]
		if got := trial.check(k.flow(trial.updates[0].Flow)); got != trial.stands {
			k.Errorf("%s: stands at %s, want %s", trial.name, got, trial.stands)
		}
	}
}

// expected is the result of a move: the new state, and the verdict.
func expected[S ~string](from, to S, refusal error) (string, error) {
	if refusal != nil {
		return string(from), logbook.ErrConflict
	}
	return string(to), nil
}

func flowMoves(k *kit) {
	var trials []trial
	book := bound()
	for from, road := range flowPaths {
		for to := range flowPaths {
			flow := planned("one")
			book.Flows = append(book.Flows, flow)
			made := trial{name: fmt.Sprintf("%s to %s", from, to)}
			made.stands, made.want = expected(from, to, from.Move(to))
			if from.Finished() && from != to { // only an intervention restarts it
				made.stands, made.want = string(from), logbook.ErrConflict
			}
			made.check = func(f logbook.FlowDetail) string { return string(f.State) }
			for i, state := range append(append([]logbook.FlowState{}, road...), to) {
				made.updates = append(made.updates, logbook.Update{Flow: flow.ID, Sequence: uint64(i + 1), State: state})
			}
			trials = append(trials, made)
		}
	}
	k.save(book)
	k.try(trials)
}

func atomMoves(k *kit) {
	var trials []trial
	book := bound()
	for from, road := range atomPaths {
		for to := range atomPaths {
			flow := planned("one")
			book.Flows = append(book.Flows, flow)
			made := trial{name: fmt.Sprintf("%s to %s", from, to)}
			made.stands, made.want = expected(from, to, from.Move(to))
			made.check = func(f logbook.FlowDetail) string {
				if len(f.Atoms) == 0 {
					return string(logbook.AtomPending)
				}
				return string(f.Atoms[0].State)
			}
			for i, state := range append(append([]logbook.AtomState{}, road...), to) {
				change := logbook.AtomChange{Name: "again", Kind: logbook.KindRetry, State: state}
				made.updates = append(made.updates, logbook.Update{Flow: flow.ID, Sequence: uint64(i + 1), Atoms: []logbook.AtomChange{change}})
			}
			trials = append(trials, made)
		}
	}
	k.save(book)
	k.try(trials)
}

// unknownStates accepts two kinds of refusal: a remote store checks the name of the
// state before it looks up the flow.
func unknownStates(k *kit) {
	id := k.begun()
	odd := task("pay")
	odd.State = "LOST"
	strange := task("pay")
	strange.Kind = "dance"
	for what, update := range map[string]logbook.Update{
		"state of a flow":  {Flow: id, Sequence: 1, State: "LOST"},
		"state of an atom": {Flow: id, Sequence: 1, Atoms: []logbook.AtomChange{odd}},
		"kind of an atom":  {Flow: id, Sequence: 1, Atoms: []logbook.AtomChange{strange}},
	} {
		k.refused("an unknown "+what, k.verdict(update))
		if flow := k.flow(id); flow.Sequence != 0 || len(flow.Atoms) != 0 {
			k.Errorf("an unknown %s has changed the flow: %s", what, render(flow))
		}
	}
}
