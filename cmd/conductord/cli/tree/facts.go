package tree

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// WaitsForWorker is shown as the state of a step whose open attempt no worker has taken.
const WaitsForWorker logbook.AtomState = "waits for a worker"

// nothingToUndo is shown as the state of a step that counts as reverted without a revert.
const nothingToUndo logbook.AtomState = "nothing to undo"

// notNeeded is shown as the state of a step whose member was dropped, because enough others have succeeded.
const notNeeded logbook.AtomState = "not needed"

// failureIgnored is shown as the state of a step that has failed, and whose flow continues.
const failureIgnored logbook.AtomState = "failure ignored"

func shownState(atom *logbook.AtomDetail) logbook.AtomState {
	switch {
	case atom == nil:
		return logbook.AtomPending
	case atom.AwaitsWorker():
		return WaitsForWorker
	case atom.IsDropped() && atom.State == logbook.AtomReverted:
		return notNeeded
	case atom.NothingUndone():
		return nothingToUndo
	case atom.FailureIgnored():
		return failureIgnored
	}
	return atom.State
}

// WantedWorker is the type and the labels that a worker must have for an action of a step.
func WantedWorker(work flow.WorkerStep, action logbook.Action) string {
	does := work.Type
	if action == logbook.ActionRevert {
		does = work.Revert
	}
	return strings.Join(append([]string{does}, work.Labels...), " + ")
}

// facts are the number of a step's attempts, the duration of the last one, its reported
// progress, and the time of the next one.
func (t *tree) facts(row *treeRow, atom *logbook.AtomDetail) string {
	if atom == nil {
		return t.keyText(row)
	}
	if atom.State == logbook.AtomIgnored {
		return ignored(row)
	}
	if atom.Kind == logbook.KindRetry {
		return t.round(atom)
	}
	if len(atom.Attempts) == 0 {
		return ""
	}
	last := &atom.Attempts[len(atom.Attempts)-1]
	end := last.EndedAt
	if !last.Ended() {
		end = t.now
	}
	var facts []string
	if shownState(atom) != nothingToUndo { // the duration would be the duration of an execution or a round
		facts = append(facts, cli.DurationText(max(0, end.Sub(last.StartedAt))))
	}
	if work := row.work; shownState(atom) == WaitsForWorker && work.Type != "" {
		facts = append(facts, cli.Clean(WantedWorker(WorkerLabels(work, row.plan, t.detail, atom.Name), last.Action)))
	}
	if last.Number > 1 {
		facts = append(facts, fmt.Sprintf("attempt %d", last.Number))
	}
	if again := t.again(atom, last); again != "" {
		facts = append(facts, again)
	}
	for i := range t.places {
		if t.places[i].Opening == atom.Name {
			facts = append(facts, placesText(&t.places[i]))
		}
	}
	if atom.Intention == logbook.IntendRetry {
		facts = append(facts, "reverted at a takeover, then executed again")
	}
	if !settled(atom) && atom.Progress != nil {
		facts = append(facts, progressText(atom.Progress))
	}
	if saved := atom.Checkpoints; saved != nil {
		facts = append(facts, CheckpointsText(saved))
	}
	return strings.Join(facts, "  ")
}

// keyText is the concurrency key for which a step can wait: all steps before it have ended, and it has not
// started. Only the conductor knows whether the key or a step slot is missing.
func (t *tree) keyText(row *treeRow) string {
	if row.plan == nil || row.group != "" || t.detail.State != logbook.FlowRunning {
		return ""
	}
	number, ok := row.plan.Find(row.name)
	if !ok {
		return ""
	}
	key, limit := row.plan.Step(number).Concurrency()
	if limit == 0 {
		return ""
	}
	for _, before := range row.plan.Predecessors(number) {
		if atom, begun := t.detail.Atom(row.plan.Step(before).Name()); !begun || !settled(atom) {
			return ""
		}
	}
	return fmt.Sprintf("waits for key %s (limit %d) or a step slot", cli.Clean(key), limit)
}

// again shows when a waiting step is due; empty if it does not wait.
func (t *tree) again(atom *logbook.AtomDetail, last *logbook.Attempt) string {
	if atom.RetryAt.IsZero() || settled(atom) {
		return ""
	}
	if last.Ended() {
		return "tries again " + t.in(atom.RetryAt)
	}
	if wait := atom.OpenWait(); wait != nil {
		return cli.Clean(wait.Text())
	}
	if last.Asked > 1 {
		return fmt.Sprintf("not yet (%d×), again %s", last.Asked, t.in(atom.RetryAt))
	}
	return "not yet, again " + t.in(atom.RetryAt)
}

// in is the time until a moment.
func (t *tree) in(when time.Time) string {
	ahead := when.Sub(t.now)
	switch {
	case ahead <= 0:
		return "now"
	case ahead < time.Second:
		return fmt.Sprintf("in %d ms", (ahead+time.Millisecond-1)/time.Millisecond)
	case ahead < time.Minute:
		return fmt.Sprintf("in %d s", (ahead+time.Second-1)/time.Second)
	}
	return "in " + ahead.Round(time.Second).String()
}

// round describes a retry: the number and value of the current round, and the failure that ended
// the previous round.
func (t *tree) round(atom *logbook.AtomDetail) string {
	last, begun := atom.Last(logbook.ActionExecute)
	if !begun {
		return ""
	}
	text := fmt.Sprintf("round %d", last.Number)
	if atom.Intention == logbook.IntendRetry && atom.State != logbook.AtomReverted {
		if atom.RetryAt.IsZero() {
			return text + " is reverted; the next is due"
		}
		return text + " is reverted; the next is " + t.in(atom.RetryAt)
	}
	if value := string(last.Result); value != "" && value != "null" && value != fmt.Sprint(last.Number) {
		text += ": " + cli.ShortenTo(value, maxRoundText)
	}
	if len(last.Failures) > 0 {
		text += ", after " + cli.ShortenTo(last.Failures[0].Step+": "+last.Failures[0].Message, maxRoundText)
	}
	return text
}

// maxRoundText leaves room for both the value of a round and the failure of the previous
// round.
const maxRoundText = 40

func ignored(row *treeRow) string {
	if row.only != "" {
		return "not run: only if " + cli.Clean(row.only)
	}
	return "not run"
}

// outcome is the result of a step, or the reason of its failure. If results are not requested,
// outcome shows a failure only while it matters.
func (t *tree) outcome(atom *logbook.AtomDetail) string {
	if atom == nil || len(atom.Attempts) == 0 {
		return ""
	}
	last := &atom.Attempts[len(atom.Attempts)-1]
	failure := last.Failure
	if failure == nil && t.results && (atom.State == logbook.AtomReverting || atom.State == logbook.AtomReverted) {
		failure = atom.Failure() // the reason for the revert, or one of several
	}
	switch {
	case failure != nil && (t.results || atom.State != logbook.AtomReverted):
		return cli.Shorten(failure.Kind + ": " + failure.Message)
	case !t.results || atom.Kind == logbook.KindRetry:
		return ""
	}
	if result, ok := atom.Result(); ok && len(result) > 0 {
		return "→ " + cli.Shorten(string(result))
	}
	return ""
}

// CheckpointsText tells the number of checkpoints of a step, and the name of the latest.
func CheckpointsText(saved *logbook.Checkpoints) string {
	const maxName = 40
	noun := "checkpoints"
	if saved.Count == 1 {
		noun = "checkpoint"
	}
	return fmt.Sprintf("%d %s, last: %s", saved.Count, noun, cli.ShortenTo(cli.Clean(saved.Last), maxName))
}

// progressText draws the reported progress of an attempt.
func progressText(p *logbook.Progress) string {
	const width, maxDetails = 10, 40
	var parts []string
	switch {
	case p.Total > 0:
		// Floating point, because done and total are any numbers from the step.
		share := min(1, max(0, float64(p.Done)/float64(p.Total)))
		parts = append(parts, fmt.Sprintf("%s %d/%d", barOf(int(share*width), width, width), p.Done, p.Total))
	case p.Done > 0:
		parts = append(parts, fmt.Sprint(p.Done))
	}
	if len(p.Details) > 0 && string(p.Details) != "null" {
		parts = append(parts, cli.ShortenTo(string(p.Details), maxDetails))
	}
	return strings.Join(parts, " ")
}

// shownInstances is the number of a step's instances with their own rows: the most urgent
// ones.
const shownInstances = 3

// folded makes one row for all instances of a step, "ship[0]" to "ship[99]", and a row each
// for the most urgent ones, such as failed instances. If a step has only a few instances, all
// are shown.
func folded(rows []treeRow, atoms []logbook.AtomDetail, known map[string]*logbook.AtomDetail) []treeRow {
	instances := map[string][]*logbook.AtomDetail{}
	for i := range atoms {
		if base, is := baseOf(atoms[i].Name); is {
			instances[base] = append(instances[base], &atoms[i])
		}
	}
	if len(instances) == 0 {
		return rows
	}
	for _, list := range instances {
		slices.SortFunc(list, func(a, b *logbook.AtomDetail) int { return slices.Compare(placesOf(a.Name), placesOf(b.Name)) })
	}
	var made []treeRow
	told := map[string]bool{}
	for _, row := range rows {
		base, isInstance := baseOf(row.name)
		if !isInstance {
			base = row.name
		}
		_, itself := known[base]
		if row.group != "" || len(instances[base]) == 0 || !isInstance && itself {
			made = append(made, row)
			continue
		}
		if told[base] {
			continue
		}
		told[base] = true
		kind := instances[base][0].Kind
		made = append(made, treeRow{name: base, depth: row.depth, only: row.only, instances: instances[base], mark: row.mark,
			retry: kind == logbook.KindRetry, list: kind == logbook.KindEach})
		for _, atom := range foremost(instances[base]) {
			made = append(made, treeRow{name: atom.Name, depth: row.depth + 1, only: row.only, work: row.work, plan: row.plan, mark: row.mark,
				retry: kind == logbook.KindRetry, list: kind == logbook.KindEach})
		}
	}
	return made
}

// placesOf are the indexes in the name of an instance, outermost first.
func placesOf(name string) (places []int) {
	for {
		base, ok := logbook.CutInstance(name)
		if !ok {
			return places
		}
		place, _ := strconv.Atoi(name[len(base)+1 : len(name)-1]) // CutInstance has checked the number
		places = slices.Insert(places, 0, place)
		name = base
	}
}

// baseOf is the name of the step that an instance was made of.
func baseOf(name string) (string, bool) {
	base, ok := logbook.CutInstance(name)
	for more := ok; more; {
		base, more = logbook.CutInstance(base)
	}
	return base, ok && base != ""
}

// stepOf is the name of an atom's step, without the indexes of an instance.
func stepOf(name string) string {
	if base, ok := baseOf(name); ok {
		return base
	}
	return name
}

// foremost returns the instances to show: failed before running, running before waiting. If all
// instances have the same state, it returns none, unless there are few.
func foremost(instances []*logbook.AtomDetail) []*logbook.AtomDetail {
	if len(instances) <= shownInstances {
		return instances
	}
	urgency := func(atom *logbook.AtomDetail) int {
		order := []logbook.AtomState{
			logbook.AtomRevertFailure, logbook.AtomFailure, logbook.AtomReverting, logbook.AtomRetrying, logbook.AtomRunning,
		}
		if place := slices.Index(order, atom.State); place >= 0 {
			return place
		}
		return len(order)
	}
	var urgent []*logbook.AtomDetail
	for _, atom := range instances {
		if urgency(atom) <= urgency(&logbook.AtomDetail{State: logbook.AtomRunning}) {
			urgent = append(urgent, atom)
		}
	}
	slices.SortStableFunc(urgent, func(a, b *logbook.AtomDetail) int { return urgency(a) - urgency(b) })
	return urgent[:min(len(urgent), shownInstances)]
}

// countsOf counts the instances by state.
func countsOf(instances []*logbook.AtomDetail) string {
	order := []logbook.AtomState{
		logbook.AtomSuccess, logbook.AtomRunning, WaitsForWorker, logbook.AtomPending, logbook.AtomRetrying, failureIgnored, logbook.AtomFailure,
		logbook.AtomReverting, logbook.AtomReverted, nothingToUndo, notNeeded, logbook.AtomRevertFailure, logbook.AtomIgnored,
	}
	counts := map[logbook.AtomState]int{}
	for _, atom := range instances {
		counts[shownState(atom)]++
	}
	var parts []string
	for _, state := range order {
		if counts[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
		}
	}
	return strings.Join(parts, ", ")
}

// counts reports whether a row counts as a step. The rows of retries, of lists of an each, and of flows do not. All
// instances of a step count in one row.
func (r *treeRow) counts() bool {
	if r.group != "" || r.retry || r.list {
		return false
	}
	_, isInstance := baseOf(r.name)
	return !isInstance || len(r.instances) > 0
}

func (r *treeRow) done() int {
	done := 0
	for _, atom := range r.instances {
		if settled(atom) {
			done++
		}
	}
	return done
}

func (r *treeRow) settled(atoms map[string]*logbook.AtomDetail) bool {
	if len(r.instances) > 0 {
		return r.done() == len(r.instances)
	}
	return settled(atoms[r.name])
}
