package node

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

// call is a row of the table of calls.
type call struct {
	name       string // such as "BoardService/Post"
	permission command.Permission
	handler    func(...connect.HandlerOption) http.Handler
	offer      *stream.Offer // its form on streams; nil: it is not offered there
}

// services are what answers calls.
type services struct {
	router    *router
	submit    *submitter
	shares    *admission.SessionShares
	posts     *postService
	claims    *claimService
	board     *boardService
	watches   *watchService
	sessions  *sessionService
	books     *logbookService
	schedules *scheduleService
	cluster   *clusterService
	members   *memberService
	verify    *verifyService
	upgrades  *upgradeService
	backups   *backupService
	access    *accessService
	logs      *logService
	activity  *activity
	workers   *workerService
}

// calls is the table of all calls but Watch, Backup and Carry, whose answers are streams. A
// verb whose call only applies its command has its row in command.Verbs, and verbCall
// serves it. service.proto states the permissions.
func (s *services) calls() []call {
	r, posts, claims, board, sessions, books, schedules := s.router, s.posts, s.claims, s.board, s.sessions, s.books, s.schedules
	rows := []call{
		streamed("BoardService/Post", r.elsewhere.routed(leading(r, posts.post, nameJobs))),
		streamed("BoardService/GetJob", reading(r, board.getJob)),
		streamed("BoardService/WaitJob", lasting(r, board.wait)),
		streamed("BoardService/Claim", leading(r, claims.claim)),
		streamed("BoardService/ClaimNext", leading(r, claims.claimNext)),
		streamed("BoardService/Execute", leading(r, board.execute)),
		plain("BoardService/ListJobs", readingFor(r, board.list)),
		plain("BoardService/ReadLogs", s.logs.read),
		plain("BoardService/Explain", readingFor(r, board.explain)),
		plain("BoardService/ListClaims", readingFor(r, claims.listClaims)),
		plain("BoardService/ListErrors", readingFor(r, board.listErrors)),
		plain("BoardService/FindIDs", readingFor(r, board.findIDs)),
		plain("BoardService/Bulk", leading(r, board.bulk)),
		plain("BoardService/GetBoard", reading(r, board.getBoard)),
		plain("BoardService/ListBoards", readingFor(r, board.listBoards)),
		streamed("SessionService/KeepAlive", leading(r, sessions.keepAlive)),
		plain("SessionService/Open", leading(r, sessions.open, func(ctx context.Context, _ http.Header, m *conductordv1.OpenRequest) error {
			return s.shares.Admit(ctx, m.GetOpening().GetId(), func() error { return r.guard.Allow(ctx, "SessionService/Open", command.Work, m) })
		})),
		plain("SessionService/ListSessions", readingFor(r, sessions.listSessions)),
		plain("SessionService/ListEntities", readingFor(r, sessions.listEntities)),
		plain("SessionService/ListDrains", readingFor(r, sessions.listDrains)),
		streamed("LogbookService/GetFlow", reading(r, books.getFlow)),
		plain("LogbookService/GetBook", reading(r, books.getBook)),
		plain("LogbookService/ListBooks", readingFor(r, books.listBooks)),
		streamed("WorkerService/Pull", lasting(r, s.workers.pull)),
		streamed("WorkerService/Report", lasting(r, s.workers.report)),
		streamed("WorkerService/Offer", lasting(r, s.workers.offer)),
		plain("WorkerService/List", leading(r, s.workers.list)),
		plain("LogbookService/UpdateFlows", leading(r, books.updateFlows)),
		plain("ScheduleService/Save", leading(r, schedules.save)),
		plain("ScheduleService/Get", reading(r, schedules.get)),
		plain("ScheduleService/List", readingFor(r, schedules.list)),
		plain("ScheduleService/Resume", leading(r, schedules.resume)),
		plain("ScheduleService/Run", leading(r, schedules.run, nameRun)),
		plain("ScheduleService/Backfill", leading(r, schedules.backfill, nameBackfill)),
		plain("ClusterService/Status", here(r, s.cluster.status)),
		plain("ClusterService/Activity", here(r, s.activity.answer)),
		plain("ClusterService/TransferLeader", recorded(r, s.access, s.cluster.transferLeader)),
		plain("ClusterService/Upgrade", leading(r, s.upgrades.upgrade)),
		plain("ClusterService/Verify", recorded(r, s.access, s.verify.verify)),
		plain("ClusterService/TableSums", here(r, s.verify.tableSums)),
		plain("AccessService/ListPrincipals", reading(r, s.access.listPrincipals)),
		plain("AccessService/ListQuotas", reading(r, s.access.listQuotas)),
		plain("AccessService/ListAudit", reading(r, s.access.listAudit)),
		plain("AccessService/ListRefusals", here(r, s.access.listRefusals)),
		plain("AccessService/RecordAct", leading(r, s.access.recordAct)),
		plain("AccessService/WhoAmI", here(r, s.access.whoAmI)),
		plain("ClusterService/AddMember", recorded(r, s.access, s.members.add)),
		plain("ClusterService/RemoveMember", recorded(r, s.access, s.members.remove)),
		plain("ClusterService/SetVote", recorded(r, s.access, s.members.setVote)),
		plain("ClusterService/MoveMember", recorded(r, s.access, s.members.move)),
	}
	for _, verb := range command.Verbs() {
		if verb.Call != "" {
			rows = append(rows, s.verbCall(verb))
		}
	}
	return rows
}

// unary is a handler as connect takes it.
type unary[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// plain makes the row of a call that has an HTTP exchange of its own.
func plain[Req, Res any](name string, answers func(call) unary[Req, Res]) call {
	row := call{name: name, permission: command.PermissionOf(name)}
	answer := answers(row)
	row.handler = func(options ...connect.HandlerOption) http.Handler {
		return connect.NewUnaryHandler(wire.Prefix+name, answer, options...)
	}
	return row
}

// streamed makes the row of a call that streams carry too: one that programs repeat
// all the time. The others are so rare, or so large, that an exchange of their own
// costs little.
func streamed[Req, Res any](name string, answers func(call) unary[Req, Res]) call {
	row := plain(name, answers)
	offer := stream.Offered(wire.Prefix+name, answers(row))
	row.offer = &offer
	return row
}

// leading answers a call where the leader is: here, or by forwarding it once. The node
// that is called first does before; its error is the answer.
func leading[Req, Res any](
	r *router, local func(context.Context, *Req) (*Res, uint64, error), before ...func(context.Context, http.Header, *Req) error,
) func(call) unary[Req, Res] {
	return func(row call) unary[Req, Res] {
		return func(ctx context.Context, request *connect.Request[Req]) (*connect.Response[Res], error) {
			for _, do := range before {
				if err := do(ctx, request.Header(), request.Msg); err != nil {
					return nil, wire.ErrorToConnect(err)
				}
			}
			return atLeader(ctx, r, row.name, request, func(ctx context.Context, message *Req) (*Res, uint64, error) {
				if err := r.guard.Allow(ctx, row.name, row.permission, message); err != nil {
					return nil, 0, err
				}
				return local(ctx, message)
			})
		}
	}
}

// lasting is leading, for a call that waits: its caller must also have the right to it when it is answered.
func lasting[Req, Res any](r *router, local func(context.Context, *Req) (*Res, uint64, error)) func(call) unary[Req, Res] {
	return func(row call) unary[Req, Res] {
		return leading(r, func(ctx context.Context, message *Req) (*Res, uint64, error) {
			still := func() error { return r.guard.Allow(ctx, row.name, row.permission, message) }
			within, release := r.guard.While(ctx, still)
			defer release()
			answer, index, err := local(within, message)
			if refusal := still(); refusal != nil {
				return nil, 0, refusal
			}
			return answer, index, err
		})(row)
	}
}

// recorded is leading, for a call that is no command: it is on record before it begins.
func recorded[Req, Res any](r *router, a *accessService, local func(context.Context, *Req) (*Res, uint64, error)) func(call) unary[Req, Res] {
	return func(row call) unary[Req, Res] {
		return leading(r, func(ctx context.Context, message *Req) (*Res, uint64, error) {
			asked := any(message).(proto.Message)
			if err := a.record(ctx, row.name, command.Target(asked), command.ChangeOf(asked)); err != nil {
				return nil, 0, err
			}
			return local(ctx, message)
		})(row)
	}
}

// reading answers a call that changes nothing: linearizably where the leader is, or
// from this node's own state if the request allows a stale answer.
func reading[Req, Res any](r *router, look func(*Req) (*Res, error)) func(call) unary[Req, Res] {
	return readingFor(r, func(_ context.Context, message *Req) (*Res, error) { return look(message) })
}

// readingFor is reading, with an answer that depends on the caller.
func readingFor[Req, Res any](r *router, look func(context.Context, *Req) (*Res, error)) func(call) unary[Req, Res] {
	return func(row call) unary[Req, Res] {
		return func(ctx context.Context, request *connect.Request[Req]) (*connect.Response[Res], error) {
			if _, list := any(request.Msg).(interface{ GetLimit() uint32 }); list {
				if err := r.memory.MayGrow(); err != nil {
					return nil, wire.ErrorToConnect(err)
				}
			}
			if m, ok := any(request.Msg).(interface{ GetStale() bool }); ok && m.GetStale() {
				if err := r.ready.AwaitMinIndex(ctx, request.Header()); err != nil {
					return nil, wire.ErrorToConnect(err)
				}
				index := r.machine.AppliedIndex() // before the look, which may see more
				message, err := guarded(ctx, r.guard, row, request.Msg, look)
				r.guard.Hide(ctx, message)
				answer, err := reply(message, index, err)
				if ago, known := r.leader.HeardAgo(); err == nil && known {
					answer.Header().Set(wire.HeaderAge, ago.String())
				}
				return answer, err
			}
			return atLeader(ctx, r, row.name, request, func(ctx context.Context, message *Req) (*Res, uint64, error) {
				index, err := r.reads.Wait(ctx)
				if err != nil {
					return nil, 0, err
				}
				answer, err := guarded(ctx, r.guard, row, message, look)
				return answer, index, err
			})
		}
	}
}

// here answers a call at the node that is called.
func here[Req, Res any](r *router, answer unary[Req, Res]) func(call) unary[Req, Res] {
	return func(row call) unary[Req, Res] {
		return func(ctx context.Context, request *connect.Request[Req]) (*connect.Response[Res], error) {
			if err := r.guard.Allow(ctx, row.name, row.permission, request.Msg); err != nil {
				return nil, wire.ErrorToConnect(err)
			}
			return answer(ctx, request)
		}
	}
}

// guarded looks for a caller that may.
func guarded[Req, Res any](ctx context.Context, g *guard.Guard, row call, message *Req, look func(context.Context, *Req) (*Res, error)) (*Res, error) {
	if err := g.Allow(ctx, row.name, row.permission, message); err != nil {
		return nil, err
	}
	return look(ctx, message)
}

// atLeader answers a call where the leader is.
func atLeader[Req, Res any](
	ctx context.Context, r *router, name string, request *connect.Request[Req],
	local func(ctx context.Context, message *Req) (*Res, uint64, error), options ...connect.ClientOption,
) (*connect.Response[Res], error) {
	if who := admission.CallerOf(ctx); who != nil {
		if _, err := r.guard.Rights(who); err != nil { // on a stream, a token may have ended since it began
			return nil, wire.ErrorToConnect(err)
		}
	}
	where, err := r.leader.Find(ctx)
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	if where.Here {
		message, index, err := local(ctx, request.Msg)
		if err == nil {
			r.guard.Hide(ctx, message)
		}
		return reply(message, index, err)
	}
	hops, err := hopsOf(request.Header())
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	if hops >= wire.MaxHops {
		return nil, wire.ErrorToConnect(r.leader.Refusal())
	}
	return forward[Req, Res](ctx, r, where.There.API, name, request, hops, options...)
}

// forward has the node at an address answer a call.
func forward[Req, Res any](
	ctx context.Context, r *router, address, name string, request *connect.Request[Req], hops uint64, options ...connect.ClientOption,
) (*connect.Response[Res], error) {
	r.forwarded.Inc()
	passed := connect.NewRequest(request.Msg)
	if index := request.Header().Get(wire.HeaderMinIndex); index != "" {
		passed.Header().Set(wire.HeaderMinIndex, index)
	}
	if digest := request.Header().Get(wire.HeaderTopology); digest != "" {
		passed.Header().Set(wire.HeaderTopology, digest)
	}
	passed.Header().Set(wire.HeaderHops, strconv.FormatUint(hops+1, 10))
	if r.guard.Enforced {
		passed.Header().Set(wire.HeaderPrincipal, r.guard.NameOf(ctx))
		if who := admission.CallerOf(ctx); who != nil {
			passed.Header().Set(wire.HeaderFrom, who.From)
			if who.Token.UUID != uuid.Nil {
				passed.Header().Set(wire.HeaderToken, who.Token.String())
			}
		}
	}
	url := r.secure.url(address, wire.Prefix+name)
	response, err := connect.NewClient[Req, Res](r.client, url, append(wire.ClientOptions(), options...)...).CallUnary(ctx, passed)
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
func (s *services) verbCall(verb command.Verb) call {
	answered := connect.WithResponseInitializer(func(_ connect.Spec, message any) error {
		message.(*boxed).Message = verb.Answer()
		return nil
	})
	handle := func(ctx context.Context, request *connect.Request[boxed]) (*connect.Response[boxed], error) {
		return atLeader(ctx, s.router, verb.Call, request, func(ctx context.Context, message *boxed) (*boxed, uint64, error) {
			index, result, err := s.submit.one(ctx, verb.Command(message.Message))
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

// toProto converts the items of a list.
func toProto[T, Message any](items []T, convert func(*T) *Message) []*Message {
	var messages []*Message
	for i := range items {
		messages = append(messages, convert(&items[i]))
	}
	return messages
}

// Bounds of what one call reads while the caller may see nothing of it. Then the answer is empty, and says where the
// list continues. A list whose next would name an item reads as many rows as there can be boards or sessions.
const (
	maxHiddenPages = 20
	maxHiddenRows  = 10_000
)

// shown reads pages of a list until one has something that the caller may see, and leaves out
// the rest. Where the next of a page names its last item, cursor makes it of the shown items.
func shown[T any](after string, read func(after string) ([]T, string, error), shows func(*T) bool, cursor func([]T) string) ([]T, string, error) {
	rows := 0
	for pages := 1; ; pages++ {
		page, next, err := read(after)
		if err != nil {
			return nil, "", err
		}
		kept := page[:0]
		rows += len(page)
		for i := range page { // in place: shows may take something out of an item
			if shows(&page[i]) {
				kept = append(kept, page[i])
			}
		}
		switch {
		case len(kept) > 0 && next != "" && cursor != nil:
			return kept, cursor(kept), nil
		case len(kept) > 0 || next == "" || pages == maxHiddenPages && cursor == nil, rows >= maxHiddenRows, len(page) == 0:
			return kept, next, nil
		}
		after = next
	}
}
