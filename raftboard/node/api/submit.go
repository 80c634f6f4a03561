package api

import (
	"context"
	"fmt"
	"iter"
	"slices"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/proposer"
)

// Submitter checks and replicates the commands of callers.
type Submitter struct{ *Parts }

// mayGrow returns an error while there is no room for new work of the given size.
func (s *Submitter) mayGrow(bytes int) error {
	if err := s.Memory.MayGrow(); err != nil {
		return err
	}
	return s.Disk.MayGrow(bytes)
}

// all checks commands, and replicates the commands that pass as a part of one log entry.
// Each has its own result; a command that is refused here never reaches the log.
func (s *Submitter) all(ctx context.Context, commands ...*conductordv1.Command) (uint64, []*conductordv1.Result, error) {
	results := make([]*conductordv1.Result, len(commands))
	var passed []*conductordv1.Command
	var places []int
	for i, c := range commands {
		err := s.Guard.Sign(ctx, c)
		if err == nil {
			err = command.Check(s.Limits, c)
		}
		if needs := command.Needs(c); err == nil && needs > s.Machine.Version() {
			err = fmt.Errorf("%w: %s requires cluster version %d, and the cluster uses version %d: upgrade all nodes, then run \"conductord cluster upgrade\"",
				jobs.ErrConflict, command.Name(c), needs, s.Machine.Version())
		}
		if err == nil {
			err = s.checkAnswers(c)
		}
		if err == nil && command.VerbOf(c).Rule.GetGrows() {
			err = s.mayGrow(command.Size(c))
		}
		if err != nil {
			results[i] = &conductordv1.Result{Error: command.ErrorToProto(err)}
			continue
		}
		passed = append(passed, c)
		places = append(places, i)
	}
	if len(passed) == 0 {
		return s.Machine.AppliedIndex(), results, nil
	}
	index, applied, err := s.proposeClaimed(ctx, slices.Values(s.released(passed)), passed...)
	if err != nil {
		return 0, nil, err
	}
	for i, place := range places {
		results[place] = applied[i]
	}
	return index, results, nil
}

// released returns the queues in which signals and decisions make jobs claimable.
func (s *Submitter) released(commands []*conductordv1.Command) (queues []fsm.Queue) {
	for _, c := range commands {
		var queue fsm.Queue
		claimable := false
		switch {
		case c.GetSignal() != nil:
			queue, claimable = s.Machine.QueueOfSignal(c.GetSignal())
		case c.GetDecide() != nil:
			queue, claimable = s.Machine.QueueOfDecision(c.GetDecide(), false)
		case c.GetOverride() != nil:
			queue, claimable = s.Machine.QueueOfDecision(c.GetOverride(), true)
		}
		if claimable {
			queues = append(queues, queue)
		}
	}
	return queues
}

// proposeClaimed replicates commands that make jobs claimable, with waiting claims for these jobs in the same entry.
func (s *Submitter) proposeClaimed(ctx context.Context, claimable iter.Seq[fsm.Queue], commands ...*conductordv1.Command) (uint64, []*conductordv1.Result, error) {
	claims := slices.DeleteFunc(s.Polls.Piggyback(claimable), func(claim *proposer.Piggybacked) bool {
		refusal := claim.Still()
		if refusal != nil {
			claim.Outcome <- proposer.Outcome{Err: refusal}
		}
		return refusal != nil
	})
	return s.Proposer.ProposeWith(ctx, claims, commands...)
}

// One replicates one command, and returns its refusal as an error.
func (s *Submitter) One(ctx context.Context, c *conductordv1.Command) (uint64, *conductordv1.Result, error) {
	index, results, err := s.all(ctx, c)
	if err != nil {
		return 0, nil, err
	}
	if err := command.ErrorFromProto(results[0].GetError()); err != nil {
		return index, nil, err
	}
	return index, results[0], nil
}
