package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const (
	// waitKind is the factory of the flows that wait for signals.
	waitKind = "waits"
	// signalName is the name of all signals.
	signalName = "go"
	// timedOut is the result of a wait that ended without a signal.
	timedOut = `"timed out"`
	// longWait is a wait that only a signal ends within a round.
	longWait = time.Hour
)

// drawnWaits is a flow that waits for signals. It is the argument of its factory. Behind each wait, a step
// passes on the signal's data, so the record shows whether the step got the data of the right signal.
type drawnWaits struct {
	Waits  []time.Duration `json:"waits"`  // limits of the waits, one after the other
	Twice  bool            `json:"twice"`  // the first round of the flow fails after all waits, and a retry runs it again
	Doomed bool            `json:"doomed"` // the flow fails after all waits, and is reverted
}

// mostWaits limits the waits of one flow, in all rounds.
const mostWaits = 2 * 3

// drawWaits draws a flow. Half of its waits end by their timeout if no signal comes soon.
func drawWaits(draw *rand.Rand) drawnWaits {
	drawn := drawnWaits{Twice: draw.IntN(3) == 0, Doomed: draw.IntN(3) == 0}
	for range 1 + draw.IntN(mostWaits/2) {
		limit := longWait
		if draw.IntN(2) == 0 {
			limit = time.Duration(1+draw.IntN(3_000)) * time.Millisecond
		}
		drawn.Waits = append(drawn.Waits, limit)
	}
	return drawn
}

// waitPosting draws a job that waits. With documents, the nodes' own conductors run half of the jobs.
func waitPosting(draw *rand.Rand, key string, documents bool) (jobs.Posting, error) {
	drawn := drawWaits(draw)
	book := logbook.Book{ID: logbook.NewBookID(), Name: waitKind}
	detail := logbook.FlowDetail{ID: logbook.NewFlowID(), Book: book.ID, Name: waitKind, Factory: logbook.Factory{Name: waitKind}}
	var err error
	if documents && draw.IntN(2) == 0 {
		document, parsed := spec.Parse([]byte(drawn.document()), "waits.toml")
		if parsed != nil {
			return jobs.Posting{}, parsed
		}
		detail = document.Detail(detail.ID, book.ID, document.Store)
	} else {
		detail.Factory.Args, err = json.Marshal(drawn)
	}
	book.Flows = []logbook.FlowDetail{detail}
	return jobs.Posting{
		ID: jobs.NewJobID(), Name: waitKind, Key: key, Book: &book, Flow: detail.ID, MaxCrashes: jobs.MaxMaxCrashes,
	}, err
}

// document is a document with the waits alone, so it needs no handler.
func (d *drawnWaits) document() string {
	var text strings.Builder
	text.WriteString("name = \"waits\"\npattern = \"linear\"\n")
	for i, limit := range d.Waits {
		fmt.Fprintf(&text, "[[steps]]\nname = %q\nprovides = %[1]q\nwait = {signal = %q, timeout = %q, on_timeout = {value = %s}}\n",
			waitStep(i), signalName, limit, timedOut)
	}
	return text.String()
}

func waitStep(i int) string { return fmt.Sprintf("wait%d", i+1) }

// passStep is the step that passes on the data of a wait.
func passStep(wait string) string { return "pass-" + wait }

// buildWaits builds a flow that waits.
func buildWaits(drawn drawnWaits) (*flow.Flow, error) {
	part := flow.Linear("part")
	for i, limit := range drawn.Waits {
		name := waitStep(i)
		wait := &flow.Wait{Signals: []string{signalName}, For: limit, OnTimeout: json.RawMessage(timedOut)}
		part.Add(
			flow.NewStep(name, nil, flow.Waits(wait), flow.Provides(name)),
			flow.NewStep(passStep(name), passTask{name}, flow.Requires(name),
				flow.Retry(flow.Backoff{Attempts: 50, Delay: 200 * time.Millisecond, MaxDelay: 2 * time.Second})))
	}
	if drawn.Twice {
		const round = "round"
		part.Add(flow.NewStep("fail-first", failFirst{round}, flow.Requires(round)))
		part.WithRetry(flow.Times("twice", 2, flow.Provides(round)))
	}
	built := flow.Linear(waitKind, part)
	if drawn.Doomed {
		built.Add(flow.NewStep("fail", failTask{}))
	}
	return built, nil
}

// passTask returns its argument. One attempt in seven fails.
type passTask struct{ argument string }

// Execute returns the argument.
func (t passTask) Execute(_ context.Context, call *flow.Call) (any, error) {
	chance := fnv.New32()
	_, _ = fmt.Fprintf(chance, "%s %d", call.Key(), call.Attempt)
	if chance.Sum32()%7 == 0 {
		return nil, errFlaky
	}
	return call.Arguments[t.argument], nil
}

// failFirst fails in the first round of a retry.
type failFirst struct{ round string }

// Execute fails in the first round.
func (t failFirst) Execute(_ context.Context, call *flow.Call) (any, error) {
	if string(call.Arguments[t.round]) == "1" {
		return nil, errDoomed
	}
	return nil, nil
}

// failTask always fails.
type failTask struct{}

// Execute fails.
func (failTask) Execute(context.Context, *flow.Call) (any, error) { return nil, errDoomed }

// signalData are the data of a signal: its id.
func signalData(id string) json.RawMessage {
	data, _ := json.Marshal(id) // a text always has an encoding
	return data
}

// SignalCounts count the signals of a run.
type SignalCounts struct {
	Sent     int // with a positive answer
	Taken    int // by a wait
	Kept     int // unread when their job had ended
	Repeated int // repeats of calls with the answer repeated
	Refused  int // the job was over, or no job had the key
	Lost     int // with a positive answer, but neither taken nor kept
	Doubled  int // taken twice, taken by another job, or taken and kept
}

// String shows the counts in one line.
func (c SignalCounts) String() string {
	return fmt.Sprintf("signals: %d sent, %d taken, %d kept, %d repeats recognised, %d refused, lost %d, doubled %d",
		c.Sent, c.Taken, c.Kept, c.Repeated, c.Refused, c.Lost, c.Doubled)
}

func (c *SignalCounts) add(more SignalCounts) {
	c.Sent += more.Sent
	c.Taken += more.Taken
	c.Kept += more.Kept
	c.Repeated += more.Repeated
	c.Refused += more.Refused
	c.Lost += more.Lost
	c.Doubled += more.Doubled
}

// received is a signal that a job has received.
type received struct {
	answer   jobs.SignalAnswer // the first one
	called   time.Time         // start of the first call
	answered time.Time         // the first positive answer
}

// checkSignals compares the record of a finished job with the positive answers to its signals. Each signal was
// taken once, or is unread. A signal with the answer taken was taken. If a signal was taken, so was each signal
// that was answered before the first call of that signal.
func checkSignals(job *jobs.Job, detail *logbook.FlowDetail, signals map[string]received) (SignalCounts, error) {
	counts := SignalCounts{Sent: len(signals), Kept: job.UnreadSignals}
	var faults []error
	fault := func(count *int, format string, args ...any) {
		*count++
		faults = append(faults, fmt.Errorf(format, args...))
	}
	taken := map[string]int{}
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		for number := range atom.Attempts {
			if id := takenSignal(&atom.Attempts[number]); id != "" {
				taken[id]++
			}
		}
	}
	for id, times := range taken {
		if _, sent := signals[id]; !sent {
			fault(&counts.Doubled, "signal %s was taken, and the job has not received it", id)
		} else if counts.Taken++; times > 1 {
			fault(&counts.Doubled, "signal %s was taken %d times", id, times)
		}
	}
	for id, one := range signals {
		for other, later := range signals {
			if taken[id] == 0 && taken[other] > 0 && one.answered.Before(later.called) {
				fault(&counts.Lost, "signal %s was passed over: signal %s was sent later, and was taken", id, other)
				break
			}
		}
		if taken[id] == 0 && one.answer == jobs.SignalTaken {
			fault(&counts.Lost, "signal %s had the answer taken, and no step has it", id)
		}
	}
	for unread := len(signals) - counts.Taken; counts.Kept < unread; unread-- {
		fault(&counts.Lost, "of %d signals, %d were taken, and only %d are unread", len(signals), counts.Taken, counts.Kept)
	}
	for unread := len(signals) - counts.Taken; counts.Kept > unread; unread++ {
		fault(&counts.Doubled, "of %d signals, %d were taken, and %d are unread", len(signals), counts.Taken, counts.Kept)
	}
	return counts, errors.Join(errors.Join(faults...), checkPassed(detail))
}

// takenSignal is the id of the signal that an attempt took; empty: none.
func takenSignal(attempt *logbook.Attempt) string {
	if attempt.Wait == nil || attempt.Wait.Signal == nil {
		return ""
	}
	return attempt.Wait.Signal.ID
}

// checkPassed checks the results of waits, and of the steps that pass on the data.
func checkPassed(detail *logbook.FlowDetail) error {
	var faults []error
	results := map[string]string{}
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		last, ok := atom.Last(logbook.ActionExecute)
		if !ok {
			continue
		}
		results[atom.Name] = string(last.Result)
		if last.Wait == nil {
			continue
		}
		want := timedOut
		if id := takenSignal(last); id != "" {
			want = string(signalData(id))
		}
		if results[atom.Name] != want {
			faults = append(faults, fmt.Errorf("step %s has the result %s, not %s", atom.Name, last.Result, want))
		}
	}
	for step, result := range results {
		if passed, ok := results[passStep(step)]; ok && passed != result {
			faults = append(faults, fmt.Errorf("step %s has the result %s, and the step behind it got %s", step, result, passed))
		}
	}
	return errors.Join(faults...)
}
