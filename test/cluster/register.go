package cluster

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/conductord/conductord/jobs"
)

// A call of the history, and its possible answers.
type (
	asked struct {
		what     string // post, claim, consume, abandon, change, read
		job      jobs.JobID
		token    jobs.Token    // of consume and abandon
		priority jobs.Priority // of change
	}
	answered struct {
		unknown bool // the outcome is unknown
		refused bool
		job     register // of claim and read
	}
	// register is a job as its callers see it. The zero register is no job.
	register struct {
		state    jobs.State
		token    jobs.Token
		priority jobs.Priority
	}
)

// tokenUnknown is the token of a claim without an answer.
var tokenUnknown = jobs.Token{Generation: math.MaxUint64}

// jobModel defines the valid answers about one job, for one order of all calls about it.
func jobModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byJob := map[jobs.JobID][]porcupine.Operation{}
			for _, operation := range history {
				id := operation.Input.(asked).job
				byJob[id] = append(byJob[id], operation)
			}
			return slices.Collect(maps.Values(byJob))
		},
		Init: func() []any { return []any{register{}} },
		Step: func(state, input, output any) []any {
			return step(state.(register), input.(asked), output.(answered))
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
	return model.ToModel()
}

// step returns the possible registers after a call: none if the answer was impossible. If the
// outcome is unknown, both results are possible.
func step(now register, in asked, out answered) []any {
	can, next := effect(now, in, out)
	switch {
	case out.unknown && can:
		return []any{now, next}
	case out.unknown, out.refused && !can:
		return []any{now}
	case can && !out.refused:
		return []any{next}
	}
	return nil
}

// effect reports whether a call can take effect, and returns the state after it.
func effect(now register, in asked, out answered) (can bool, next register) {
	next = now
	switch in.what {
	case "post":
		if can = true; now.state == "" { // otherwise it is a repeat
			next.state = jobs.StateClaimable
		}
	case "claim":
		can = now.state == jobs.StateClaimable && (out.job == register{} || out.job.priority == now.priority)
		if next.state, next.token = jobs.StateClaimed, out.job.token; next.token.IsZero() {
			next.token = tokenUnknown
		}
	case "consume":
		can = now.state == jobs.StateClaimed && now.token == in.token
		next.state = jobs.StateCompleted
	case "abandon":
		can = now.state == jobs.StateClaimed && now.token == in.token
		next.state = jobs.StateClaimable
	case "trash":
		can = now.state == jobs.StateClaimed && now.token == in.token
		next.state = jobs.StateTrashed
	case "change":
		can = now.state != "" && !now.state.Finished()
		next.priority = in.priority
	case "read":
		if now.token == tokenUnknown && out.job.token.Compare(jobs.Token{}) > 0 {
			now.token = out.job.token
		}
		can, next = out.job == now, now
	}
	return can, next
}
