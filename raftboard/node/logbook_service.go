package node

import (
	"context"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

// logbookService answers calls about books and flows.
type logbookService struct{ *Node }

// SaveBook implements conductordv1connect.LogbookServiceHandler.
func (s *logbookService) SaveBook(ctx context.Context, request *connect.Request[conductordv1.SaveBookRequest]) (*connect.Response[conductordv1.SaveBookResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.SaveBookRequest, conductordv1.SaveBookResponse] {
			return c.logbook.SaveBook
		},
		func(ctx context.Context, message *conductordv1.SaveBookRequest) (*conductordv1.SaveBookResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_SaveBook{SaveBook: message.Book}})
			return &conductordv1.SaveBookResponse{}, index, err
		})
}

// GetBook implements conductordv1connect.LogbookServiceHandler.
func (s *logbookService) GetBook(ctx context.Context, request *connect.Request[conductordv1.GetBookRequest]) (*connect.Response[conductordv1.GetBookResponse], error) {
	return read(ctx, s.Node, request, request.Msg.Stale,
		func(c *clients) method[conductordv1.GetBookRequest, conductordv1.GetBookResponse] {
			return c.logbook.GetBook
		},
		func(message *conductordv1.GetBookRequest) (*conductordv1.GetBookResponse, error) {
			id, err := logbook.ParseBookID(message.Id)
			if err != nil {
				return nil, err
			}
			book, more, err := s.machine.BookPart(id, int(message.Skip), wire.PageBytes)
			if err != nil {
				return nil, err
			}
			return &conductordv1.GetBookResponse{Book: command.BookToProto(&book), More: more}, nil
		})
}

// ListBooks implements conductordv1connect.LogbookServiceHandler.
func (s *logbookService) ListBooks(ctx context.Context, request *connect.Request[conductordv1.ListBooksRequest]) (*connect.Response[conductordv1.ListBooksResponse], error) {
	return read(ctx, s.Node, request, request.Msg.Stale,
		func(c *clients) method[conductordv1.ListBooksRequest, conductordv1.ListBooksResponse] {
			return c.logbook.ListBooks
		},
		func(message *conductordv1.ListBooksRequest) (*conductordv1.ListBooksResponse, error) {
			var after logbook.BookID
			if message.After != "" {
				var err error
				if after, err = logbook.ParseBookID(message.After); err != nil {
					return nil, err
				}
			}
			books, err := s.machine.Books(after, int(min(message.Limit, logbook.MaxPage)))
			answer := &conductordv1.ListBooksResponse{}
			for i := range books {
				answer.Books = append(answer.Books, command.BookToProto(&books[i]))
			}
			return answer, err
		})
}

// GetFlow implements conductordv1connect.LogbookServiceHandler.
func (s *logbookService) GetFlow(ctx context.Context, request *connect.Request[conductordv1.GetFlowRequest]) (*connect.Response[conductordv1.GetFlowResponse], error) {
	return read(ctx, s.Node, request, request.Msg.Stale,
		func(c *clients) method[conductordv1.GetFlowRequest, conductordv1.GetFlowResponse] {
			return c.logbook.GetFlow
		},
		func(message *conductordv1.GetFlowRequest) (*conductordv1.GetFlowResponse, error) {
			id, err := logbook.ParseFlowID(message.Id)
			if err != nil {
				return nil, err
			}
			part := fsm.Part{Skip: int(message.Skip), AtomsOnly: message.AtomsOnly, MaxBytes: wire.PageBytes}
			flow, more, err := s.machine.Flow(id, part)
			if err != nil {
				return nil, err
			}
			return &conductordv1.GetFlowResponse{Flow: command.FlowDetailToProto(&flow), More: more}, nil
		})
}

// UpdateFlows implements conductordv1connect.LogbookServiceHandler.
func (s *logbookService) UpdateFlows(ctx context.Context, request *connect.Request[conductordv1.UpdateFlowsRequest]) (*connect.Response[conductordv1.UpdateFlowsResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.UpdateFlowsRequest, conductordv1.UpdateFlowsResponse] {
			return c.logbook.UpdateFlows
		},
		func(ctx context.Context, message *conductordv1.UpdateFlowsRequest) (*conductordv1.UpdateFlowsResponse, uint64, error) {
			if n := len(message.Updates); n > maxEntryCommands {
				return nil, 0, &logbook.LimitError{Field: "updates", Limit: maxEntryCommands, Size: int64(n), Unit: "updates"}
			}
			commands := make([]*conductordv1.Command, len(message.Updates))
			for i, update := range message.Updates {
				commands[i] = &conductordv1.Command{Kind: &conductordv1.Command_UpdateFlow{UpdateFlow: update}}
			}
			index, results, err := s.submit(ctx, commands...)
			answer := &conductordv1.UpdateFlowsResponse{}
			for _, result := range results {
				answer.Verdicts = append(answer.Verdicts, &conductordv1.Verdict{Error: result.GetError()})
			}
			return answer, index, err
		})
}

// DestroyBook implements conductordv1connect.LogbookServiceHandler.
func (s *logbookService) DestroyBook(ctx context.Context, request *connect.Request[conductordv1.DestroyBookRequest]) (*connect.Response[conductordv1.DestroyBookResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.DestroyBookRequest, conductordv1.DestroyBookResponse] {
			return c.logbook.DestroyBook
		},
		func(ctx context.Context, message *conductordv1.DestroyBookRequest) (*conductordv1.DestroyBookResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_DestroyBook{
				DestroyBook: &conductordv1.DestroyBookCommand{Book: message.Id},
			}})
			return &conductordv1.DestroyBookResponse{}, index, err
		})
}
