package node

import (
	"context"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
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
