package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// drawnWait is a step that waits. Its wait ends in the same way in every series of runs: with a message that comes
// before the limit, or at the limit. The record decides how often the wait fails first.
type drawnWait struct {
	name    string
	kind    string        // what ends the wait
	fails   int           // so often it fails before, in all rounds together
	flaw    string        // the kind of end with which it fails
	after   time.Duration // until the message; 0: it came before the wait
	learns  time.Duration // until the engine knows of the message
	approve bool
}

// drawnLimit limits the waits of a drawn flow, behind all messages.
const drawnLimit = 2 * time.Hour

func (a *drawnWait) String() string {
	text := fmt.Sprintf("%s: waits for %s", a.name, a.kind)
	if a.fails > 0 {
		text += fmt.Sprintf(", after %d ends by %s", a.fails, a.flaw)
	}
	return text + fmt.Sprintf(", after %s, known after %s more", a.after, a.learns)
}

// wait draws a step that waits for a signal, an approval or a time.
func (d *drawing) wait() *flow.Step {
	d.steps++
	a := &drawnWait{name: fmt.Sprintf("s%d", d.steps)}
	options := []flow.StepOption{flow.Requires("input")}
	for _, retry := range d.retries {
		options = append(options, flow.Requires(retry.symbol))
	}
	options = append(options, d.taken()...)
	if d.oneIn(3, "sleeps") {
		d.has("sleep")
		a.kind = "a time"
		d.notes = append(d.notes, a.String())
		return flow.NewStep(a.name, nil, append(options, flow.Waits(&flow.Wait{For: time.Duration(rapid.IntRange(0, 2).Draw(d.rt, "sleep"))*time.Hour + time.Second}))...)
	}
	a.after = rapid.SampledFrom([]time.Duration{0, time.Nanosecond, time.Minute, drawnLimit - time.Second}).Draw(d.rt, "after")
	a.learns = rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Minute}).Draw(d.rt, "known after")
	a.approve = d.oneIn(3, "approval")
	kinds := []string{"a message", "a message", "the limit", "the limit", "no message", "a rejection"}
	a.kind = rapid.SampledFrom(kinds).Draw(d.rt, "ends with")
	ignores := !d.member && d.oneIn(3, "failure is ignored")
	if a.kind == "the limit" || a.kind == "a message" {
		if a.fails = rapid.IntRange(0, 1).Draw(d.rt, "fails"); a.fails > 0 && a.kind == "a message" {
			// Which failures come first is a matter of chance if other steps fail beside this one.
			a.flaw = rapid.SampledFrom([]string{"no message", "a rejection"}).Draw(d.rt, "flaw")
			d.uneven = true
			options = append(options, flow.Retry(flow.Backoff{Attempts: 2, Delay: time.Minute}))
		} else {
			a.fails = 0
		}
	}
	options = append(options, d.waits(a)...)
	switch {
	case ignores && a.approve:
		d.has("failure is ignored")
		options = append(options, flow.IgnoreFailure())
	case ignores:
		d.has("failure is ignored")
		options = append(options, flow.IgnoreFailure(map[string]any{"r" + a.name: a.name + "@default"}))
	case !d.tolerant && d.oneIn(8, "point of no return"):
		d.holds = true
		options = append(options, flow.PointOfNoReturn())
	}
	d.notes = append(d.notes, a.String())
	d.world.waits[a.name] = a
	return flow.NewStep(a.name, nil, options...)
}

// taken lets a wait depend on a step before it.
func (d *drawing) taken() []flow.StepOption {
	if len(d.gives) == 0 || !d.oneIn(3, "requires") {
		return nil
	}
	return []flow.StepOption{flow.Requires(rapid.SampledFrom(d.gives).Draw(d.rt, "required"))}
}

// waits is the wait of a step. The result of an approval is no value of other steps.
func (d *drawing) waits(a *drawnWait) []flow.StepOption {
	if a.approve {
		d.has("approval")
		approval := &flow.Approval{Text: "Continue?", Need: []logbook.Need{{Role: "any", Count: 1}}}
		if a.kind == "the limit" {
			approval.AtDeadline = logbook.ApproveAtDeadline
		}
		return []flow.StepOption{flow.Waits(&flow.Wait{For: drawnLimit, Approval: approval})}
	}
	d.has("signal")
	wait := &flow.Wait{Signals: []string{a.name}, For: drawnLimit}
	if a.kind == "the limit" {
		wait.OnTimeout = json.RawMessage(fmt.Sprintf(`{"r%s":"%s@limit"}`, a.name, a.name))
	}
	d.gives = append(d.gives, "r"+a.name)
	return []flow.StepOption{flow.Waits(wait), flow.ProvidesFields("r" + a.name)}
}

// opens plans the message for a wait that has begun.
func (w *actors) opens(atom *logbook.AtomDetail) {
	name, _, _ := strings.Cut(atom.Name, "[")
	a, series, step := w.waits[name], w.series, atom.Name
	end, failed := a.kind, 0
	for i := range atom.Attempts {
		if failure := atom.Attempts[i].Failure; failure != nil && failure.Kind != logbook.FailureInterrupted {
			failed++
		}
	}
	if failed < a.fails {
		end = a.flaw
	}
	if end == "the limit" || end == "no message" {
		return
	}
	number := atom.OpenWait().Number
	if a.after == 0 {
		w.give(a, atom, end == "a rejection")
		time.AfterFunc(a.learns, func() { w.tell(series, step) })
		return
	}
	time.AfterFunc(a.after, func() { w.message(series, step, number, a, end == "a rejection") })
}

// give ends the wait of a step in the record, as the board does. The job of the flow is then due.
func (w *actors) give(a *drawnWait, atom *logbook.AtomDetail, rejects bool) {
	select {
	case w.hurry <- struct{}{}:
	default:
	}
	switch decision := (logbook.Decision{Kind: logbook.Approve, ID: "1", By: "ann", Roles: []string{"any"}}); {
	case a.approve:
		if rejects {
			decision.Kind = logbook.Reject
		}
		atom.Decide(&decision)
	case rejects:
		atom.Take(&logbook.Signal{Name: a.name, ID: "1", Reject: "no"})
	default:
		atom.Take(&logbook.Signal{Name: a.name, ID: "1", Data: json.RawMessage(fmt.Sprintf(`{"r%s":"%s@signal"}`, a.name, a.name))})
	}
}

// message gives a message to a wait that still takes it.
func (w *actors) message(series int, step string, number uint64, a *drawnWait, rejects bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if series != w.series {
		return
	}
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	at, ok := w.journal.index[step]
	if !ok || !w.journal.detail.Atoms[at].OpenWait().Open() || w.journal.detail.Atoms[at].OpenWait().Number != number {
		return
	}
	w.give(a, &w.journal.detail.Atoms[at], rejects)
	time.AfterFunc(a.learns, func() { w.tell(series, step) })
}

// tell gives the signal in the record to the present run, as a conductor does.
func (w *actors) tell(series int, step string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if series != w.series || w.signals == nil {
		return
	}
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	if at, ok := w.journal.index[step]; ok {
		if wait := w.journal.detail.Atoms[at].OpenWait(); wait != nil && wait.Signal != nil {
			select {
			case w.signals <- engine.TakenSignal{Step: step, Signal: *wait.Signal}:
			default:
			}
		}
	}
}

// untilDue passes the time until a released flow is due: its time has come, or a wait has taken a signal since its run
// began.
func (w *actors) untilDue(end *engine.End) {
	timer := time.NewTimer(time.Until(end.WaitUntil))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.hurry:
	}
}

// next replaces the journal for the next claim, so that no message is lost meanwhile.
func (w *actors) next(claim logbook.Token, begins bool) logbook.FlowDetail {
	w.mu.Lock()
	defer w.mu.Unlock()
	detail := w.journal.snapshot()
	if begins {
		detail = w.journal.lost(claim, true)
	}
	w.journal, w.signals = w.journal.next(detail), nil
	select {
	case <-w.hurry: // the next run finds the signal
	default:
	}
	return detail
}

// isSignalled reports whether a run has ended because it did not know a signal that the record has.
func isSignalled(err error) bool { return errors.Is(err, logbook.ErrSignalled) }

// waited counts the ends of waits.
func (c *trial) waited(attempt *logbook.Attempt) {
	switch wait := attempt.Wait; {
	case wait == nil || !attempt.Ended():
	case attempt.Failure != nil:
		c.has("wait fails: " + attempt.Failure.Kind)
	case wait.Signal != nil && wait.Approval != nil:
		c.has("wait ends with an approval")
	case wait.Signal != nil:
		c.has("wait ends with a signal")
	default:
		c.has("wait ends at its limit")
	}
}
