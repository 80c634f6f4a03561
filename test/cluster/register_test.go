package cluster

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conductord/conductord/jobs"
)

// TestHistoriesCanBeRefused checks that the model refuses impossible histories.
func TestHistoriesCanBeRefused(t *testing.T) {
	history := NewHistory("job", time.Second)
	job, one, two := history.numberedJob(1), jobs.Token{Generation: 1, Index: 1}, jobs.Token{Generation: 1, Index: 2}
	claimable := register{state: jobs.StateClaimable}
	post := porcupine.Operation{Input: asked{what: "post", job: job}, Output: answered{job: claimable}}
	claim := func(token jobs.Token) porcupine.Operation {
		return porcupine.Operation{Input: asked{what: "claim", job: job}, Output: answered{job: register{jobs.StateClaimed, token, 0}}}
	}
	end := func(what string, token jobs.Token, out answered) porcupine.Operation {
		return porcupine.Operation{Input: asked{what: what, job: job, token: token}, Output: out}
	}
	read := func(now register) porcupine.Operation {
		return porcupine.Operation{Input: asked{what: "read", job: job}, Output: answered{job: now}}
	}
	lost := porcupine.Operation{Input: asked{what: "claim", job: job}, Output: answered{unknown: true}}
	for _, row := range []struct {
		name    string
		history []porcupine.Operation
		fits    bool
	}{
		{"a life", []porcupine.Operation{post, claim(one), end("abandon", one, answered{}), claim(two), end("consume", two, answered{})}, true},
		{"two owners", []porcupine.Operation{post, claim(one), claim(two)}, false},
		{"an old token ends the claim", []porcupine.Operation{post, claim(one), end("abandon", one, answered{}), claim(two), end("consume", one, answered{})}, false},
		{"the owner is refused", []porcupine.Operation{post, claim(one), end("consume", one, answered{refused: true})}, false},
		{"a lost job", []porcupine.Operation{post, read(register{})}, false},
		{"a lost claim", []porcupine.Operation{post, claim(one), read(claimable)}, false},
		{"a claim nobody knows of did happen", []porcupine.Operation{post, lost, read(register{jobs.StateClaimed, one, 0})}, true},
		{"a claim nobody knows of did not", []porcupine.Operation{post, lost, claim(one)}, true},
		{"a change that is gone", []porcupine.Operation{post, {Input: asked{what: "change", job: job, priority: 7}, Output: answered{}}, read(claimable)}, false},
	} {
		for i := range row.history {
			row.history[i].Call, row.history[i].Return = int64(2*i), int64(2*i+1)
		}
		if fits := porcupine.CheckOperations(jobModel(), row.history); fits != row.fits {
			t.Errorf("%s: it fits: %t", row.name, fits)
		}
	}
}
