package node

import (
	"context"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
)

// Restore implements conductordv1connect.BoardServiceHandler.
func (s *boardService) Restore(ctx context.Context, request *connect.Request[conductordv1.OrderRequest]) (*connect.Response[conductordv1.OrderResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.OrderRequest, conductordv1.OrderResponse] { return c.board.Restore },
		func(ctx context.Context, message *conductordv1.OrderRequest) (*conductordv1.OrderResponse, uint64, error) {
			return s.order(ctx, &conductordv1.Command{Kind: &conductordv1.Command_Restore{Restore: orderOf(message)}})
		})
}

// Purge implements conductordv1connect.BoardServiceHandler.
func (s *boardService) Purge(ctx context.Context, request *connect.Request[conductordv1.OrderRequest]) (*connect.Response[conductordv1.OrderResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.OrderRequest, conductordv1.OrderResponse] { return c.board.Purge },
		func(ctx context.Context, message *conductordv1.OrderRequest) (*conductordv1.OrderResponse, uint64, error) {
			return s.order(ctx, &conductordv1.Command{Kind: &conductordv1.Command_Purge{Purge: orderOf(message)}})
		})
}

// ListErrors implements conductordv1connect.BoardServiceHandler.
func (s *boardService) ListErrors(ctx context.Context, request *connect.Request[conductordv1.ListErrorsRequest]) (*connect.Response[conductordv1.ListErrorsResponse], error) {
	return read(ctx, s.Node, request, request.Msg.Stale,
		func(c *clients) method[conductordv1.ListErrorsRequest, conductordv1.ListErrorsResponse] {
			return c.board.ListErrors
		},
		s.listErrors)
}

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
