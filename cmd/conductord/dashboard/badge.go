package dashboard

import (
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// badge shows a state by a text, and repeats it by a shape and a colour.
type badge struct {
	Text  string
	Shape string // a character that screen readers ignore
	Tone  string // of the style sheet: good, bad, busy, wait, stop or calm
}

// looks are the shapes and tones of the states and outcomes of jobs and flows. graph.States
// contains the shapes and tones of steps.
var looks = []struct {
	shape, tone string
	words       []string
}{
	{"○", "wait", []string{string(jobs.StateClaimable), string(logbook.FlowPending)}},
	{"◷", "wait", []string{string(jobs.StateDelayed), string(jobs.StateCooling), string(jobs.StateWaiting)}},
	{"▶", "busy", []string{string(jobs.StateClaimed), string(logbook.FlowRunning)}},
	{"◀", "busy", []string{string(logbook.FlowReverting)}},
	{"‖", "stop", []string{string(jobs.StateHeld), string(jobs.StateSuspended), string(logbook.FlowSuspended), parked}},
	{"✓", "good", []string{string(jobs.OutcomeSuccess), string(logbook.FlowSuccess)}},
	{"↶", "calm", []string{string(jobs.OutcomeReverted), string(logbook.FlowReverted)}},
	{"⊘", "calm", []string{string(jobs.OutcomeCancelled)}},
	{"✕", "bad", []string{
		string(jobs.StateTrashed), string(jobs.OutcomeFailed), string(logbook.FlowFailure), string(jobs.HowCrashed), string(jobs.HowAbandoned),
	}},
}

// parked is the word for a job that its retry policy holds for an operator.
const parked = "parked"

// badges are the looks by word.
var badges = func() map[string]badge {
	found := make(map[string]badge)
	for _, look := range looks {
		for _, word := range look.words {
			found[word] = badge{word, look.shape, look.tone}
		}
	}
	return found
}()

// stateOf is the badge of the last non-empty word, such as the outcome of a job.
func stateOf(words ...string) badge {
	last := "unknown"
	for _, word := range words {
		if word != "" {
			last = word
		}
	}
	if known, ok := badges[last]; ok {
		return known
	}
	return badge{last, "●", "calm"}
}
