package api

import (
	"context"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/proposer"
	"github.com/conductord/conductord/raftboard/wire"
)

// logbookService answers calls about books and flows.
type logbookService struct {
	machine *fsm.Machine
	submit  *Submitter
}

func (s *logbookService) getBook(message *conductordv1.GetBookRequest) (*conductordv1.GetBookResponse, error) {
	id, err := logbook.ParseBookID(message.Id)
	if err != nil {
		return nil, err
	}
	book, more, err := s.machine.BookPart(id, int(message.Skip), wire.PageBytes)
	if err != nil {
		return nil, err
	}
	return &conductordv1.GetBookResponse{Book: command.BookToProto(&book), More: more}, nil
}

func (s *logbookService) listBooks(ctx context.Context, message *conductordv1.ListBooksRequest) (*conductordv1.ListBooksResponse, error) {
	shows, err := s.submit.Guard.ShownBoards(ctx)
	if err != nil {
		return nil, err
	}
	found, next, err := shown(message.After, func(after string) ([]logbook.Book, string, error) {
		page, err := s.machine.Books(after, int(min(message.Limit, logbook.MaxPage)))
		return page.Items, page.Next, err
	}, func(book *logbook.Book) bool { return shows(book.Board) }, func(kept []logbook.Book) string { return kept[len(kept)-1].ID.String() })
	return &conductordv1.ListBooksResponse{Books: ToProto(found, command.BookToProto), Next: next}, err
}

func (s *logbookService) getFlow(message *conductordv1.GetFlowRequest) (*conductordv1.GetFlowResponse, error) {
	id, err := logbook.ParseFlowID(message.Id)
	if err != nil {
		return nil, err
	}
	part := fsm.Part{Skip: int(message.Skip), AtomsOnly: message.AtomsOnly, MaxBytes: wire.PageBytes}
	flow, more, err := s.machine.Flow(id, part)
	if err != nil {
		return nil, err
	}
	answer := &conductordv1.GetFlowResponse{Flow: command.FlowDetailToProto(&flow), More: more}
	if job, err := s.machine.JobOfFlow(id); err == nil && !message.AtomsOnly && !job.IsZero() {
		answer.Job = job.String()
	}
	return answer, nil
}

func (s *logbookService) getCheckpoints(message *conductordv1.GetCheckpointsRequest) (*conductordv1.GetCheckpointsResponse, error) {
	id, err := logbook.ParseFlowID(message.Flow)
	if err != nil {
		return nil, err
	}
	checkpoints, err := s.machine.Checkpoints(id, message.Step)
	return &conductordv1.GetCheckpointsResponse{Flow: message.Flow, Step: message.Step, Checkpoints: checkpoints}, err
}

func (s *logbookService) updateFlows(ctx context.Context, message *conductordv1.UpdateFlowsRequest) (*conductordv1.UpdateFlowsResponse, uint64, error) {
	if n := len(message.Updates); n > proposer.MaxEntryCommands {
		return nil, 0, &logbook.LimitError{Field: "updates", Limit: proposer.MaxEntryCommands, Size: int64(n), Unit: "updates"}
	}
	commands := make([]*conductordv1.Command, len(message.Updates))
	for i, update := range message.Updates {
		commands[i] = &conductordv1.Command{Kind: &conductordv1.Command_UpdateFlow{UpdateFlow: update}}
	}
	index, results, err := s.submit.all(ctx, commands...)
	answer := &conductordv1.UpdateFlowsResponse{}
	for _, result := range results {
		answer.Verdicts = append(answer.Verdicts, &conductordv1.Verdict{Error: result.GetError()})
	}
	return answer, index, err
}
