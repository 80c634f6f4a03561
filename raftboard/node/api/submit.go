package api

import (
	"context"
	"fmt"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
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
	index, applied, err := s.Proposer.Propose(ctx, passed...)
	if err != nil {
		return 0, nil, err
	}
	for i, place := range places {
		results[place] = applied[i]
	}
	return index, results, nil
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
