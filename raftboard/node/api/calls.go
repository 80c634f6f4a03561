package api

import (
	"context"
	"net/http"
	"strconv"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/conductord/conductord/raftboard/wire"
)

// Call is a row of the table of calls.
type Call struct {
	Name       string // such as "BoardService/Post"
	Permission command.Permission
	handler    func(...connect.HandlerOption) http.Handler
	offer      *stream.Offer // its form on streams; nil: not carried by streams
}

// Calls is the table of the calls about jobs, conductors and workers, apart from Carry. A verb
// whose call only applies its command has its row in command.Verbs, and verbCall serves it.
// service.proto states the permissions.
func (a *API) Calls() []Call {
	r := a.Router
	rows := []Call{
		Streamed("BoardService/Post", r.Elsewhere.routed(Leading(r, a.posts.post, nameJobs))),
		Streamed("BoardService/GetJob", reading(r, a.board.getJob)),
		Streamed("BoardService/WaitJob", lasting(r, a.board.wait)),
		Plain("BoardService/WaitStep", lasting(r, a.board.waitStep)),
		Streamed("BoardService/Claim", Leading(r, a.claims.claim)),
		Streamed("BoardService/ClaimNext", Leading(r, a.claims.claimNext)),
		Streamed("BoardService/Execute", Leading(r, a.board.execute)),
		Plain("BoardService/ListJobs", readingFor(r, a.board.list)),
		Plain("BoardService/ReadLogs", a.logs.read),
		Plain("BoardService/Explain", readingFor(r, a.board.explain)),
		Plain("BoardService/ListClaims", readingFor(r, a.claims.listClaims)),
		Plain("BoardService/GetApproval", reading(r, a.board.getApproval)),
		Plain("BoardService/ListApprovals", readingFor(r, a.board.listApprovals)),
		Plain("BoardService/ListErrors", readingFor(r, a.board.listErrors)),
		Plain("BoardService/FindIDs", readingFor(r, a.board.findIDs)),
		Plain("BoardService/Bulk", Leading(r, a.board.bulk)),
		Plain("BoardService/GetBoard", reading(r, a.board.getBoard)),
		Plain("BoardService/ListBoards", readingFor(r, a.board.listBoards)),
		Streaming("BoardService/Watch", a.watches.Watch, a.watches.lines),
		Streamed("SessionService/KeepAlive", Leading(r, a.sessions.keepAlive)),
		Plain("SessionService/Open", Leading(r, a.sessions.open, func(ctx context.Context, _ http.Header, m *conductordv1.OpenRequest) error {
			return a.shares.Admit(ctx, m.GetOpening().GetId(), func() error { return r.Guard.Allow(ctx, "SessionService/Open", command.Work, m) })
		})),
		Plain("SessionService/ListSessions", readingFor(r, a.sessions.listSessions)),
		Plain("SessionService/ListEntities", readingFor(r, a.sessions.listEntities)),
		Plain("SessionService/ListDrains", readingFor(r, a.sessions.listDrains)),
		Streamed("LogbookService/GetFlow", reading(r, a.books.getFlow)),
		Plain("LogbookService/GetBook", reading(r, a.books.getBook)),
		Plain("LogbookService/ListBooks", readingFor(r, a.books.listBooks)),
		Plain("LogbookService/GetCheckpoints", reading(r, a.books.getCheckpoints)),
		Plain("LogbookService/UpdateFlows", Leading(r, a.books.updateFlows)),
		Streamed("WorkerService/Pull", lasting(r, a.workers.pull)),
		Streamed("WorkerService/Report", lasting(r, a.workers.report)),
		Streamed("WorkerService/Offer", lasting(r, a.workers.offer)),
		Plain("WorkerService/List", Leading(r, a.workers.list)),
		Plain("ScheduleService/Save", Leading(r, a.schedules.save)),
		Plain("ScheduleService/Get", reading(r, a.schedules.get)),
		Plain("ScheduleService/List", readingFor(r, a.schedules.list)),
		Plain("ScheduleService/Resume", Leading(r, a.schedules.resume)),
		Plain("ScheduleService/Run", Leading(r, a.schedules.run, nameRun)),
		Plain("ScheduleService/Backfill", Leading(r, a.schedules.backfill, nameBackfill)),
		Plain("AccessService/ListPrincipals", reading(r, a.access.listPrincipals)),
		Plain("AccessService/ListQuotas", reading(r, a.access.listQuotas)),
		Plain("AccessService/ListAudit", reading(r, a.access.listAudit)),
		Plain("AccessService/ListRefusals", Here(r, a.access.listRefusals)),
		Plain("AccessService/RecordAct", Leading(r, r.recordAct)),
		Plain("AccessService/WhoAmI", Here(r, a.access.whoAmI)),
	}
	for _, verb := range command.Verbs() {
		if verb.Call != "" {
			rows = append(rows, a.verbCall(verb))
		}
	}
	return rows
}

// unary is a handler in the form of connect.
type unary[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// Plain makes the row of a unary call: each call is a separate HTTP request.
func Plain[Req, Res any](name string, answers func(Call) unary[Req, Res]) Call {
	row := Call{Name: name, Permission: command.PermissionOf(name)}
	answer := answers(row)
	row.handler = func(options ...connect.HandlerOption) http.Handler {
		return connect.NewUnaryHandler(wire.Prefix+name, answer, options...)
	}
	return row
}

// Streamed makes the row of a call that streams also carry, because programs repeat it
// continuously. Other calls are so rare, or so large, that a separate HTTP request costs little.
func Streamed[Req, Res any](name string, answers func(Call) unary[Req, Res]) Call {
	row := Plain(name, answers)
	offer := stream.Offered(wire.Prefix+name, answers(row))
	row.offer = &offer
	return row
}

// Streaming makes the row of a call whose answer is a stream. lines answers clients without
// connect's protocol, and forwards other requests.
func Streaming[Req, Res any](name string, answer func(context.Context, *connect.Request[Req], *connect.ServerStream[Res]) error, lines func(http.Handler) http.Handler) Call {
	return Call{Name: name, Permission: command.PermissionOf(name), handler: func(options ...connect.HandlerOption) http.Handler {
		return lines(connect.NewServerStreamHandler(wire.Prefix+name, answer, options...))
	}}
}

// Leading answers a call at the leader: on this node, or by forwarding the call once. The called
// node first runs before. If before fails, its error is the answer.
func Leading[Req, Res any](
	r *Router, local func(context.Context, *Req) (*Res, uint64, error), before ...func(context.Context, http.Header, *Req) error,
) func(Call) unary[Req, Res] {
	return func(row Call) unary[Req, Res] {
		return func(ctx context.Context, request *connect.Request[Req]) (*connect.Response[Res], error) {
			for _, do := range before {
				if err := do(ctx, request.Header(), request.Msg); err != nil {
					return nil, wire.ErrorToConnect(err)
				}
			}
			return atLeader(ctx, r, row.Name, request, func(ctx context.Context, message *Req) (*Res, uint64, error) {
				if err := r.Guard.Allow(ctx, row.Name, row.Permission, message); err != nil {
					return nil, 0, err
				}
				return local(ctx, message)
			})
		}
	}
}

// lasting is Leading for a call that waits. Its caller also needs the permission at the time of the
// answer.
func lasting[Req, Res any](r *Router, local func(context.Context, *Req) (*Res, uint64, error)) func(Call) unary[Req, Res] {
	return func(row Call) unary[Req, Res] {
		return Leading(r, func(ctx context.Context, message *Req) (*Res, uint64, error) {
			still := func() error { return r.Guard.Allow(ctx, row.Name, row.Permission, message) }
			within, release := r.Guard.While(ctx, still)
			defer release()
			answer, index, err := local(within, message)
			if refusal := still(); refusal != nil {
				return nil, 0, refusal
			}
			return answer, index, err
		})(row)
	}
}

// Recorded is Leading for a call that is not a command. The audit log records the call before the
// call starts.
func Recorded[Req, Res any](r *Router, local func(context.Context, *Req) (*Res, uint64, error)) func(Call) unary[Req, Res] {
	return func(row Call) unary[Req, Res] {
		return Leading(r, func(ctx context.Context, message *Req) (*Res, uint64, error) {
			asked := any(message).(proto.Message)
			if err := r.record(ctx, row.Name, command.Target(asked), command.ChangeOf(asked)); err != nil {
				return nil, 0, err
			}
			return local(ctx, message)
		})(row)
	}
}

// reading answers a call that changes nothing: linearizably at the leader, or from this node's own
// state if the request allows a stale answer.
func reading[Req, Res any](r *Router, look func(*Req) (*Res, error)) func(Call) unary[Req, Res] {
	return readingFor(r, func(_ context.Context, message *Req) (*Res, error) { return look(message) })
}

// readingFor is reading, with an answer that depends on the caller.
func readingFor[Req, Res any](r *Router, look func(context.Context, *Req) (*Res, error)) func(Call) unary[Req, Res] {
	return func(row Call) unary[Req, Res] {
		return func(ctx context.Context, request *connect.Request[Req]) (*connect.Response[Res], error) {
			if _, list := any(request.Msg).(interface{ GetLimit() uint32 }); list {
				if err := r.Memory.MayGrow(); err != nil {
					return nil, wire.ErrorToConnect(err)
				}
			}
			if m, ok := any(request.Msg).(interface{ GetStale() bool }); ok && m.GetStale() {
				if err := r.Ready.AwaitMinIndex(ctx, request.Header()); err != nil {
					return nil, wire.ErrorToConnect(err)
				}
				index := r.Machine.AppliedIndex() // before the read, which may see more
				message, err := guarded(ctx, r.Guard, row, request.Msg, look)
				r.Guard.Hide(ctx, message)
				answer, err := reply(message, index, err)
				if ago, known := r.Leader.HeardAgo(); err == nil && known {
					answer.Header().Set(wire.HeaderAge, ago.String())
				}
				return answer, err
			}
			return atLeader(ctx, r, row.Name, request, func(ctx context.Context, message *Req) (*Res, uint64, error) {
				index, err := r.Reads.Wait(ctx)
				if err != nil {
					return nil, 0, err
				}
				answer, err := guarded(ctx, r.Guard, row, message, look)
				return answer, index, err
			})
		}
	}
}

// Here answers a call at the called node.
func Here[Req, Res any](r *Router, answer unary[Req, Res]) func(Call) unary[Req, Res] {
	return func(row Call) unary[Req, Res] {
		return func(ctx context.Context, request *connect.Request[Req]) (*connect.Response[Res], error) {
			if err := r.Guard.Allow(ctx, row.Name, row.Permission, request.Msg); err != nil {
				return nil, wire.ErrorToConnect(err)
			}
			return answer(ctx, request)
		}
	}
}

// guarded answers a caller that has the permission.
func guarded[Req, Res any](ctx context.Context, g *guard.Guard, row Call, message *Req, look func(context.Context, *Req) (*Res, error)) (*Res, error) {
	if err := g.Allow(ctx, row.Name, row.Permission, message); err != nil {
		return nil, err
	}
	return look(ctx, message)
}

// atLeader answers a call at the leader.
func atLeader[Req, Res any](
	ctx context.Context, r *Router, name string, request *connect.Request[Req],
	local func(ctx context.Context, message *Req) (*Res, uint64, error), options ...connect.ClientOption,
) (*connect.Response[Res], error) {
	if who := admission.CallerOf(ctx); who != nil {
		if _, err := r.Guard.Rights(who); err != nil { // on a stream, a token may have ended since the stream started
			return nil, wire.ErrorToConnect(err)
		}
	}
	where, err := r.Leader.Find(ctx)
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	if where.Here {
		message, index, err := local(ctx, request.Msg)
		if err == nil {
			r.Guard.Hide(ctx, message)
		}
		return reply(message, index, err)
	}
	hops, err := HopsOf(request.Header())
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	if hops >= wire.MaxHops {
		return nil, wire.ErrorToConnect(r.Leader.Refusal())
	}
	return Forward[Req, Res](ctx, r, where.There.API, name, request, hops, options...)
}

// Forward lets the node at an address answer a call.
func Forward[Req, Res any](
	ctx context.Context, r *Router, address, name string, request *connect.Request[Req], hops uint64, options ...connect.ClientOption,
) (*connect.Response[Res], error) {
	r.Peers.Forwarded()
	passed := connect.NewRequest(request.Msg)
	if index := request.Header().Get(wire.HeaderMinIndex); index != "" {
		passed.Header().Set(wire.HeaderMinIndex, index)
	}
	if digest := request.Header().Get(wire.HeaderTopology); digest != "" {
		passed.Header().Set(wire.HeaderTopology, digest)
	}
	passed.Header().Set(wire.HeaderHops, strconv.FormatUint(hops+1, 10))
	if r.Guard.Enforced {
		passed.Header().Set(wire.HeaderPrincipal, r.Guard.NameOf(ctx))
		if who := admission.CallerOf(ctx); who != nil {
			passed.Header().Set(wire.HeaderFrom, who.From)
			if who.Token.UUID != uuid.Nil {
				passed.Header().Set(wire.HeaderToken, who.Token.String())
			}
		}
	}
	response, err := CallerOf[Req, Res](&r.Peers, address, name, options...).CallUnary(ctx, passed)
	if err != nil {
		return nil, wire.ErrorToConnect(wire.ErrorFromConnect(err))
	}
	answer := connect.NewResponse(response.Msg)
	answer.Header().Set(wire.HeaderIndex, response.Header().Get(wire.HeaderIndex))
	return answer, nil
}

// boxed is a message whose type is known only at run time.
type boxed struct{ proto.Message }

// verbCall makes the row of a verb whose call only applies its command.
func (a *API) verbCall(verb command.Verb) Call {
	answered := connect.WithResponseInitializer(func(_ connect.Spec, message any) error {
		message.(*boxed).Message = verb.Answer()
		return nil
	})
	handle := func(ctx context.Context, request *connect.Request[boxed]) (*connect.Response[boxed], error) {
		return atLeader(ctx, a.Router, verb.Call, request, func(ctx context.Context, message *boxed) (*boxed, uint64, error) {
			index, result, err := a.Router.Submit.One(ctx, verb.Command(message.Message))
			if err != nil {
				return nil, 0, err
			}
			return &boxed{command.AnswerOf(result)}, index, nil
		}, answered)
	}
	return Call{Name: verb.Call, Permission: verb.Permission, handler: func(options ...connect.HandlerOption) http.Handler {
		empty := connect.WithRequestInitializer(func(_ connect.Spec, message any) error {
			message.(*boxed).Message = verb.Request()
			return nil
		})
		return connect.NewUnaryHandler(wire.Prefix+verb.Call, handle, append(options[:len(options):len(options)], empty)...)
	}}
}
