package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestSignalsCanBeLostAndDoubled checks that the check of signals finds violations. The signals are a, b and c, in
// the order of their calls.
func TestSignalsCanBeLostAndDoubled(t *testing.T) {
	start := time.Now()
	signals := func(answers ...jobs.SignalAnswer) map[string]received {
		sent := map[string]received{}
		for i, answer := range answers {
			called := start.Add(time.Duration(i) * time.Minute)
			sent[string(rune('a'+i))] = received{answer: answer, called: called, answered: called.Add(time.Second)}
		}
		return sent
	}
	atoms := func(taken ...string) []logbook.AtomDetail {
		var all []logbook.AtomDetail
		for i, id := range taken {
			wait, result := &logbook.Wait{Signal: &logbook.Signal{ID: id}}, signalData(id)
			if id == "" {
				wait.Signal, result = nil, []byte(timedOut)
			}
			attempt := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, EndedAt: start, Result: result}
			passed := attempt
			attempt.Wait = wait
			all = append(all, logbook.AtomDetail{Name: waitStep(i), Attempts: []logbook.Attempt{attempt}},
				logbook.AtomDetail{Name: passStep(waitStep(i)), Attempts: []logbook.Attempt{passed}})
		}
		return all
	}
	swapped := atoms("a", "b")
	swapped[1].Attempts, swapped[3].Attempts = swapped[3].Attempts, swapped[1].Attempts
	const taken, kept = jobs.SignalTaken, jobs.SignalKept
	for _, row := range []struct {
		name          string
		sent          map[string]received
		atoms         []logbook.AtomDetail
		unread        int
		lost, doubled int
		fits          bool
	}{
		{"all taken", signals(taken, kept), atoms("a", "b"), 0, 0, 0, true},
		{"one kept", signals(taken, kept), atoms("a"), 1, 0, 0, true},
		{"a timeout", signals(kept), atoms("", "a"), 0, 0, 0, true},
		{"one dropped", signals(taken, kept), atoms("a"), 0, 1, 0, false},
		{"taken by its answer, unread in the record", signals(taken), atoms(), 1, 1, 0, false},
		{"one taken twice", signals(taken, kept), atoms("a", "a"), 1, 0, 1, false},
		{"one taken and still kept", signals(taken), atoms("a"), 1, 0, 1, false},
		{"one of another job", signals(taken), atoms("a", "z"), 0, 0, 1, false},
		{"one passed over", signals(kept, kept), atoms("b"), 1, 1, 0, false},
		{"the data of another signal", signals(taken, taken), swapped, 0, 0, 0, false},
	} {
		detail := logbook.FlowDetail{Atoms: row.atoms}
		counts, err := checkSignals(&jobs.Job{UnreadSignals: row.unread}, &detail, row.sent)
		if (err == nil) != row.fits || counts.Lost != row.lost || counts.Doubled != row.doubled {
			t.Errorf("%s: %v: %v", row.name, counts, err)
		}
	}
}

// TestAnswersToSignalsCanDisagree checks that a repeat of a signal must have the first answer.
func TestAnswersToSignalsCanDisagree(t *testing.T) {
	job, other := jobs.NewJobID(), jobs.NewJobID()
	for _, row := range []struct {
		repeat jobs.SignalReceipt
		fits   bool
	}{
		{jobs.SignalReceipt{Answer: jobs.SignalRepeated, First: jobs.SignalKept, Job: job}, true},
		{jobs.SignalReceipt{Answer: jobs.SignalRepeated, First: jobs.SignalTaken, Job: job}, false},
		{jobs.SignalReceipt{Answer: jobs.SignalRepeated, First: jobs.SignalKept, Job: other}, false},
		{jobs.SignalReceipt{Answer: jobs.SignalKept, Job: job}, false},
	} {
		s := (&Runner{}).newSignalling(0)
		call := &signalCall{signal: logbook.Signal{ID: "a"}}
		s.answered(call, jobs.SignalReceipt{Answer: jobs.SignalKept, Job: job})
		if s.answered(call, row.repeat); (len(s.faults) == 0) != row.fits {
			t.Errorf("%s: %v", fmt.Sprint(row.repeat), s.faults)
		}
	}
}
