package node

import (
	"context"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
)

func (s *boardService) listErrors(message *conductordv1.ListErrorsRequest) (*conductordv1.ListErrorsResponse, error) {
	query, err := command.ErrorQueryFromProto(message)
	if err != nil {
		return nil, err
	}
	page, err := s.machine.Errors(query)
	if err != nil {
		return nil, err
	}
	answer := &conductordv1.ListErrorsResponse{Scans: page.Scans}
	if page.Next != nil {
		answer.Next = command.PositionToProto(*page.Next)
	}
	for i := range page.Errors {
		answer.Errors = append(answer.Errors, command.JobErrorToProto(&page.Errors[i]))
	}
	return answer, nil
}

// bulk lists a page, and has the same done to each of its jobs in one entry.
// Whatever has become of a job since it was listed, its command is refused or
// harmless.
func (s *boardService) bulk(ctx context.Context, message *conductordv1.BulkRequest) (*conductordv1.BulkResponse, uint64, error) {
	bulk, err := command.BulkFromProto(message)
	if err != nil {
		return nil, 0, err
	}
	query, err := bulk.Narrowed()
	if err != nil {
		return nil, 0, err
	}
	index, err := s.reads.wait(ctx)
	if err != nil {
		return nil, 0, err
	}
	page, err := s.machine.Jobs(query)
	if err != nil {
		return nil, 0, err
	}
	answer := &conductordv1.BulkResponse{Matched: uint32(len(page.Jobs)), Next: page.Next, Scans: page.Scans}
	if bulk.DryRun || len(page.Jobs) == 0 {
		return answer, index, nil
	}
	commands := make([]*conductordv1.Command, len(page.Jobs))
	for i := range page.Jobs {
		commands[i] = command.BulkCommand(&bulk, &page.Jobs[i])
	}
	index, results, err := s.submit(ctx, commands...)
	if err != nil {
		return nil, 0, err
	}
	for i, result := range results {
		if result.GetError() == nil {
			answer.Done++
			continue
		}
		answer.Refused = append(answer.Refused, &conductordv1.BulkRefusal{Job: page.Jobs[i].ID.String(), Error: result.GetError()})
	}
	return answer, index, nil
}
