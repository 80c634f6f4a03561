package node

import (
	"context"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// CreateBoard implements conductordv1connect.BoardServiceHandler.
func (s *boardService) CreateBoard(ctx context.Context, request *connect.Request[conductordv1.CreateBoardRequest]) (*connect.Response[conductordv1.CreateBoardResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.CreateBoardRequest, conductordv1.CreateBoardResponse] {
			return c.board.CreateBoard
		},
		func(ctx context.Context, message *conductordv1.CreateBoardRequest) (*conductordv1.CreateBoardResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_CreateBoard{
				CreateBoard: &conductordv1.BoardCommand{Board: message.Board},
			}})
			return &conductordv1.CreateBoardResponse{}, index, err
		})
}

// GetBoard implements conductordv1connect.BoardServiceHandler.
func (s *boardService) GetBoard(ctx context.Context, request *connect.Request[conductordv1.GetBoardRequest]) (*connect.Response[conductordv1.GetBoardResponse], error) {
	return read(ctx, s.Node, request, request.Msg.Stale,
		func(c *clients) method[conductordv1.GetBoardRequest, conductordv1.GetBoardResponse] {
			return c.board.GetBoard
		},
		func(message *conductordv1.GetBoardRequest) (*conductordv1.GetBoardResponse, error) {
			board, err := s.machine.BoardStatus(message.Board, s.now())
			if err != nil {
				return nil, err
			}
			return &conductordv1.GetBoardResponse{Board: command.BoardToProto(&board)}, nil
		})
}

// ListBoards implements conductordv1connect.BoardServiceHandler.
func (s *boardService) ListBoards(ctx context.Context, request *connect.Request[conductordv1.ListBoardsRequest]) (*connect.Response[conductordv1.ListBoardsResponse], error) {
	return read(ctx, s.Node, request, request.Msg.Stale,
		func(c *clients) method[conductordv1.ListBoardsRequest, conductordv1.ListBoardsResponse] {
			return c.board.ListBoards
		},
		func(message *conductordv1.ListBoardsRequest) (*conductordv1.ListBoardsResponse, error) {
			boards, err := s.machine.BoardList(message.After, int(min(message.Limit, logbook.MaxPage)), s.now())
			if err != nil {
				return nil, err
			}
			answer := &conductordv1.ListBoardsResponse{}
			for i := range boards {
				answer.Boards = append(answer.Boards, command.BoardToProto(&boards[i]))
			}
			return answer, nil
		})
}

// LimitBoard implements conductordv1connect.BoardServiceHandler.
func (s *boardService) LimitBoard(ctx context.Context, request *connect.Request[conductordv1.LimitBoardRequest]) (*connect.Response[conductordv1.LimitBoardResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.LimitBoardRequest, conductordv1.LimitBoardResponse] {
			return c.board.LimitBoard
		},
		func(ctx context.Context, message *conductordv1.LimitBoardRequest) (*conductordv1.LimitBoardResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_LimitBoard{
				LimitBoard: &conductordv1.LimitBoardCommand{Board: message.Board, Limits: message.Limits},
			}})
			return &conductordv1.LimitBoardResponse{}, index, err
		})
}

// AgeBoard implements conductordv1connect.BoardServiceHandler.
func (s *boardService) AgeBoard(ctx context.Context, request *connect.Request[conductordv1.AgeBoardRequest]) (*connect.Response[conductordv1.AgeBoardResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.AgeBoardRequest, conductordv1.AgeBoardResponse] {
			return c.board.AgeBoard
		},
		func(ctx context.Context, message *conductordv1.AgeBoardRequest) (*conductordv1.AgeBoardResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_AgeBoard{
				AgeBoard: &conductordv1.AgeBoardCommand{Board: message.Board, Step: message.Step},
			}})
			return &conductordv1.AgeBoardResponse{}, index, err
		})
}

// PauseBoard implements conductordv1connect.BoardServiceHandler.
func (s *boardService) PauseBoard(ctx context.Context, request *connect.Request[conductordv1.PauseBoardRequest]) (*connect.Response[conductordv1.PauseBoardResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.PauseBoardRequest, conductordv1.PauseBoardResponse] {
			return c.board.PauseBoard
		},
		func(ctx context.Context, message *conductordv1.PauseBoardRequest) (*conductordv1.PauseBoardResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_PauseBoard{
				PauseBoard: &conductordv1.BoardCommand{Board: message.Board, By: message.By, Reason: message.Reason},
			}})
			return &conductordv1.PauseBoardResponse{}, index, err
		})
}

// ResumeBoard implements conductordv1connect.BoardServiceHandler.
func (s *boardService) ResumeBoard(ctx context.Context, request *connect.Request[conductordv1.ResumeBoardRequest]) (*connect.Response[conductordv1.ResumeBoardResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.ResumeBoardRequest, conductordv1.ResumeBoardResponse] {
			return c.board.ResumeBoard
		},
		func(ctx context.Context, message *conductordv1.ResumeBoardRequest) (*conductordv1.ResumeBoardResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_ResumeBoard{
				ResumeBoard: &conductordv1.BoardCommand{Board: message.Board, By: message.By, Reason: message.Reason},
			}})
			return &conductordv1.ResumeBoardResponse{}, index, err
		})
}

// DeleteBoard implements conductordv1connect.BoardServiceHandler.
func (s *boardService) DeleteBoard(ctx context.Context, request *connect.Request[conductordv1.DeleteBoardRequest]) (*connect.Response[conductordv1.DeleteBoardResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.DeleteBoardRequest, conductordv1.DeleteBoardResponse] {
			return c.board.DeleteBoard
		},
		func(ctx context.Context, message *conductordv1.DeleteBoardRequest) (*conductordv1.DeleteBoardResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_DeleteBoard{
				DeleteBoard: &conductordv1.BoardCommand{Board: message.Board},
			}})
			return &conductordv1.DeleteBoardResponse{}, index, err
		})
}
