package node

import (
	"context"
	"net/http"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/conductord/conductord/raftboard/wire"
)

// call is a row of the table of calls.
type call struct {
	name       string // such as "BoardService/Post"
	permission command.Permission
	handler    func(...connect.HandlerOption) http.Handler
	offer      *stream.Offer // its form on streams; nil: it is not offered there
}

// calls is the table: all that the API takes, but for Watch and Carry, whose
// answers are streams. A verb whose call only applies its command has its row
// in command.Verbs, and is served by verbCall.
func (n *Node) calls() []call {
	board, sessions, books := &boardService{n}, &sessionService{n}, &logbookService{n}
	schedules, cluster := &scheduleService{n}, &clusterService{n}
	rows := []call{
		streamed("BoardService/Post", command.Post, leading(n, board.post, nameJobs)),
		streamed("BoardService/GetJob", command.Read, reading(n, board.getJob)),
		streamed("BoardService/WaitJob", command.Read, leading(n, board.wait)),
		streamed("BoardService/Claim", command.Work, leading(n, board.claim)),
		streamed("BoardService/ClaimNext", command.Work, leading(n, board.claimNext)),
		streamed("BoardService/Execute", command.Work, leading(n, board.execute)),
		plain("BoardService/ListJobs", command.Read, reading(n, board.list)),
		plain("BoardService/Explain", command.Read, reading(n, board.explain)),
		plain("BoardService/ListClaims", command.Read, reading(n, board.listClaims)),
		plain("BoardService/ListErrors", command.Read, reading(n, board.listErrors)),
		plain("BoardService/Bulk", command.Operate, leading(n, board.bulk)),
		plain("BoardService/GetBoard", command.Read, reading(n, board.getBoard)),
		plain("BoardService/ListBoards", command.Read, reading(n, board.listBoards)),
		streamed("SessionService/KeepAlive", command.Work, leading(n, sessions.keepAlive)),
		plain("SessionService/Open", command.Work, leading(n, sessions.open, n.shares.admit)),
		plain("SessionService/ListSessions", command.Read, reading(n, sessions.listSessions)),
		plain("SessionService/ListEntities", command.Read, reading(n, sessions.listEntities)),
		plain("SessionService/ListDrains", command.Read, reading(n, sessions.listDrains)),
		streamed("LogbookService/GetFlow", command.Read, reading(n, books.getFlow)),
		plain("LogbookService/GetBook", command.Read, reading(n, books.getBook)),
		plain("LogbookService/ListBooks", command.Read, reading(n, books.listBooks)),
		plain("LogbookService/UpdateFlows", command.Work, leading(n, books.updateFlows)),
		plain("ScheduleService/Save", command.Operate, leading(n, schedules.save)),
		plain("ScheduleService/Get", command.Read, reading(n, schedules.get)),
		plain("ScheduleService/List", command.Read, reading(n, schedules.list)),
		plain("ScheduleService/Resume", command.Operate, leading(n, schedules.resume)),
		plain("ScheduleService/Run", command.Operate, leading(n, schedules.run, nameRun)),
		plain("ScheduleService/Backfill", command.Operate, leading(n, schedules.backfill, nameBackfill)),
		plain("ClusterService/Status", command.Read, func(string) unary[conductordv1.StatusRequest, conductordv1.StatusResponse] { return cluster.status }),
	}
	for _, verb := range command.Verbs() {
		if verb.Call != "" {
			rows = append(rows, n.verbCall(verb))
		}
	}
	return rows
}

// unary is a handler as connect takes it.
type unary[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// plain makes the row of a call that has an HTTP exchange of its own.
func plain[Req, Res any](name string, permission command.Permission, answers func(name string) unary[Req, Res]) call {
	answer := answers(name)
	return call{name: name, permission: permission, handler: func(options ...connect.HandlerOption) http.Handler {
		return connect.NewUnaryHandler(wire.Prefix+name, answer, options...)
	}}
}

// streamed makes the row of a call that streams carry too: one that programs
// make without end. All others are so seldom, or so large, that an exchange of
// their own costs nothing that matters.
func streamed[Req, Res any](name string, permission command.Permission, answers func(name string) unary[Req, Res]) call {
	row := plain(name, permission, answers)
	offer := stream.Offered(wire.Prefix+name, answers(name))
	row.offer = &offer
	return row
}

// leading answers a call where the leader is: here, or by forwarding it once.
// Before is done on the node that is called first; its error is the answer.
func leading[Req, Res any](
	n *Node, local func(context.Context, *Req) (*Res, uint64, error), before ...func(context.Context, http.Header, *Req) error,
) func(string) unary[Req, Res] {
	return func(name string) unary[Req, Res] {
		return func(ctx context.Context, request *connect.Request[Req]) (*connect.Response[Res], error) {
			for _, do := range before {
				if err := do(ctx, request.Header(), request.Msg); err != nil {
					return nil, wire.ErrorToConnect(err)
				}
			}
			return lead(ctx, n, name, request, local)
		}
	}
}

// reading answers a call that changes nothing: linearizably where the leader
// is, or from this node's own state if the request says that it may be stale.
func reading[Req, Res any](n *Node, look func(*Req) (*Res, error)) func(string) unary[Req, Res] {
	return func(name string) unary[Req, Res] {
		return func(ctx context.Context, request *connect.Request[Req]) (*connect.Response[Res], error) {
			if m, ok := any(request.Msg).(interface{ GetStale() bool }); ok && m.GetStale() {
				if err := n.ready.awaitMinIndex(ctx, request.Header()); err != nil {
					return nil, wire.ErrorToConnect(err)
				}
				index := n.machine.AppliedIndex() // before the look, which may see more
				message, err := look(request.Msg)
				return reply(message, index, err)
			}
			return lead(ctx, n, name, request, func(ctx context.Context, message *Req) (*Res, uint64, error) {
				index, err := n.reads.wait(ctx)
				if err != nil {
					return nil, 0, err
				}
				answer, err := look(message)
				return answer, index, err
			})
		}
	}
}

// lead answers a call where the leader is.
func lead[Req, Res any](
	ctx context.Context, n *Node, name string, request *connect.Request[Req],
	local func(ctx context.Context, message *Req) (*Res, uint64, error), options ...connect.ClientOption,
) (*connect.Response[Res], error) {
	where, err := n.leader.find(ctx)
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	if where.here {
		return reply(local(ctx, request.Msg))
	}
	hops, err := hopsOf(request.Header())
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	if hops >= wire.MaxHops {
		return nil, wire.ErrorToConnect(n.leader.refusal())
	}
	n.metrics.forwarded.Inc()
	passed := connect.NewRequest(request.Msg)
	passed.Header().Set(wire.HeaderHops, strconv.FormatUint(hops+1, 10))
	url := "http://" + where.there.API + wire.Prefix + name
	response, err := connect.NewClient[Req, Res](n.forward, url, append(wire.ClientOptions(), options...)...).CallUnary(ctx, passed)
	if err != nil {
		return nil, wire.ErrorToConnect(wire.ErrorFromConnect(err))
	}
	answer := connect.NewResponse(response.Msg)
	answer.Header().Set(wire.HeaderIndex, response.Header().Get(wire.HeaderIndex))
	return answer, nil
}

// boxed is a message whose type is known when the program runs.
type boxed struct{ proto.Message }

// verbCall makes the row of a verb whose call only applies its command.
func (n *Node) verbCall(verb command.Verb) call {
	answered := connect.WithResponseInitializer(func(_ connect.Spec, message any) error {
		message.(*boxed).Message = verb.Answer()
		return nil
	})
	handle := func(ctx context.Context, request *connect.Request[boxed]) (*connect.Response[boxed], error) {
		return lead(ctx, n, verb.Call, request, func(ctx context.Context, message *boxed) (*boxed, uint64, error) {
			index, result, err := n.submitOne(ctx, verb.Command(message.Message))
			if err != nil {
				return nil, 0, err
			}
			return &boxed{command.AnswerOf(result)}, index, nil
		}, answered)
	}
	return call{name: verb.Call, permission: verb.Permission, handler: func(options ...connect.HandlerOption) http.Handler {
		empty := connect.WithRequestInitializer(func(_ connect.Spec, message any) error {
			message.(*boxed).Message = verb.Request()
			return nil
		})
		return connect.NewUnaryHandler(wire.Prefix+verb.Call, handle, append(options[:len(options):len(options)], empty)...)
	}}
}
