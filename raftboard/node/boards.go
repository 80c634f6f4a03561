package node

import (
	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

func (s *boardService) getBoard(message *conductordv1.GetBoardRequest) (*conductordv1.GetBoardResponse, error) {
	board, err := s.machine.BoardStatus(message.Board, s.clock.answerTime())
	if err != nil {
		return nil, err
	}
	return &conductordv1.GetBoardResponse{Board: command.BoardToProto(&board)}, nil
}

func (s *boardService) listBoards(message *conductordv1.ListBoardsRequest) (*conductordv1.ListBoardsResponse, error) {
	boards, err := s.machine.BoardList(message.After, int(min(message.Limit, logbook.MaxPage)), s.clock.answerTime())
	if err != nil {
		return nil, err
	}
	answer := &conductordv1.ListBoardsResponse{}
	for i := range boards {
		answer.Boards = append(answer.Boards, command.BoardToProto(&boards[i]))
	}
	return answer, nil
}
