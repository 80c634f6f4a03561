package node

import (
	"time"

	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/raftboard/stream"
)

// streams answers calls that come on streams, by the handlers that answer the
// plain ones. It takes those that programs make without end; all others are so
// seldom, or so large, that a call of their own costs nothing that matters.
func (n *Node) streams(board *boardService) *stream.Server {
	sessions, logbook := &sessionService{n}, &logbookService{n}
	return stream.NewServer(stream.ServerOptions{
		Offers: []stream.Offer{
			stream.Offered(conductordv1connect.BoardServicePostProcedure, board.Post),
			stream.Offered(conductordv1connect.BoardServiceGetJobProcedure, board.GetJob),
			stream.Offered(conductordv1connect.BoardServiceWaitJobProcedure, board.WaitJob),
			stream.Offered(conductordv1connect.BoardServiceClaimProcedure, board.Claim),
			stream.Offered(conductordv1connect.BoardServiceClaimNextProcedure, board.ClaimNext),
			stream.Offered(conductordv1connect.BoardServiceExtendProcedure, board.Extend),
			stream.Offered(conductordv1connect.BoardServiceConsumeProcedure, board.Consume),
			stream.Offered(conductordv1connect.BoardServiceAbandonProcedure, board.Abandon),
			stream.Offered(conductordv1connect.BoardServiceExecuteProcedure, board.Execute),
			stream.Offered(conductordv1connect.SessionServiceKeepAliveProcedure, sessions.KeepAlive),
			stream.Offered(conductordv1connect.LogbookServiceGetFlowProcedure, logbook.GetFlow),
			stream.Offered(conductordv1connect.LogbookServiceUpdateFlowsProcedure, logbook.UpdateFlows),
		},
		Leader: func() string {
			leader, _ := n.leader()
			return leader.API
		},
		Called: func(procedure string, took time.Duration, err error) { n.metrics.called(procedure, took, err) },
		Panicked: func(procedure string, cause any, stack []byte) {
			n.logger.Error("a call has panicked", "call", procedureName(procedure), "cause", cause, "stack", string(stack))
		},
		Patience: clientPatience,
	})
}
