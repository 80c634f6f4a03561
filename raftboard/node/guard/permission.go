package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/admission"
)

// may reports whether a principal has a permission on a board. access.AllBoards means all boards,
// and objects that belong to no board.
func may(p *access.Principal, needed command.Permission, board string) bool {
	for _, grant := range p.Grants {
		if !command.Allows(grant.Role, needed) {
			continue
		}
		if grant.Boards == access.AllBoards || board != access.AllBoards && grant.Covers(board) {
			return true
		}
	}
	return false
}

// mayAnywhere reports whether a principal has a permission on any board.
func mayAnywhere(p *access.Principal, needed command.Permission) bool {
	for _, grant := range p.Grants {
		if command.Allows(grant.Role, needed) {
			return true
		}
	}
	return false
}

// restricted finds the principal of a call, unless it has a permission on all boards: then it
// returns nil, and nothing more needs to be checked.
func (g *Guard) restricted(ctx context.Context, needed command.Permission) (*access.Principal, error) {
	who := admission.CallerOf(ctx)
	if who == nil {
		return nil, nil
	}
	p, err := g.Rights(who)
	if err != nil || p == nil || may(p, needed, access.AllBoards) {
		return nil, err
	}
	return p, nil
}

// Allow authorizes a call or a command. For objects that the caller may not read, its error is the
// same as for missing objects. It counts refusals.
func (g *Guard) Allow(ctx context.Context, verb string, needed command.Permission, message any) error {
	err := g.decide(ctx, needed, message)
	if err == nil {
		err = g.RefuseElsewhere(verb, message)
	}
	if errors.Is(err, jobs.ErrNotAllowed) {
		who := admission.CallerOf(ctx)
		g.Refused.note(access.Refusal{Principal: who.Name, From: who.From, Verb: verb, Error: err.Error()}, g.Now())
	}
	return err
}

// RefuseElsewhere returns an error for a call about a board of another cluster, if this node does
// not forward the call. Three calls pass: claims, because a conductor may wait for boards of other
// clusters; postings, because they are forwarded; and the creation of a board, because a moving
// board is created before the topology names its new cluster.
func (g *Guard) RefuseElsewhere(verb string, message any) error {
	if g.Elsewhere == nil || command.RuleOf(verb).GetElsewhere() {
		return nil
	}
	scope, err := g.scopeOf(message)
	for _, board := range scope.boards {
		if err == nil && board != access.AllBoards {
			err = g.Elsewhere(board)
		}
	}
	return err
}

// absentTime is the duration of an answer about a missing object, for a caller that may not read
// all boards. It hides the time of reading an object on another tenant's board.
const absentTime = 2 * time.Millisecond

func (g *Guard) decide(ctx context.Context, needed command.Permission, message any) error {
	p, err := g.restricted(ctx, needed)
	if err != nil || p == nil {
		return err
	}
	over := time.NewTimer(absentTime)
	scope, err := g.scopeOf(message)
	if err == nil {
		err = scope.allow(p, needed)
	}
	if err == nil && scope.session != "" {
		err = g.allowSession(ctx, scope.session)
	}
	if errors.Is(err, jobs.ErrNotFound) || errors.Is(err, jobs.ErrSessionExpired) {
		<-over.C
	}
	return err
}

// refusal is the error for a principal without the permission.
func refusal(p *access.Principal, needed command.Permission, where string, allowed bool) error {
	if allowed {
		return nil
	}
	return fmt.Errorf("%w: principal %q has no permission to %s on %s; its grants are %v", jobs.ErrNotAllowed, p.Name, needed, where, p.Grants)
}

// allowSession allows the use of a session only to the principal that opened it. For other
// principals, the session does not exist.
func (g *Guard) allowSession(ctx context.Context, text string) error {
	id, err := jobs.ParseSessionID(text)
	if err != nil {
		return err
	}
	session, err := g.Machine.Session(id)
	if err == nil && session.Principal != "" && session.Principal != admission.CallerOf(ctx).Name {
		return fmt.Errorf("session %s: %w", id, jobs.ErrSessionExpired)
	}
	return err
}

// Sign writes the caller's name into a command, and overwrites the name that the caller sent. It
// returns an error if the caller may not send the command to this cluster.
func (g *Guard) Sign(ctx context.Context, c *conductordv1.Command) error {
	c.Principal, c.From = "", ""
	who, verb := admission.CallerOf(ctx), command.VerbOf(c)
	switch {
	case verb == nil: // the check of the command refuses it
		return nil
	case who == nil && verb.Permission == command.Lead:
		return nil
	case who == nil:
		return g.RefuseElsewhere(verb.Name, verb.Message(c))
	}
	c.Principal, c.From = who.Name, who.From
	message := verb.Message(c)
	if by := message.ProtoReflect().Descriptor().Fields().ByName("by"); by != nil {
		message.ProtoReflect().Set(by, protoreflect.ValueOfString(who.Name))
	}
	if verb.Permission == command.Lead {
		return nil // made by the node for a permitted call
	}
	for _, posting := range c.GetPost().GetPostings() {
		if err := g.Allow(ctx, verb.Name, verb.Permission, posting); err != nil {
			return err
		}
	}
	if c.GetPost() != nil {
		return nil
	}
	if err := g.Allow(ctx, verb.Name, verb.Permission, message); err != nil {
		return err
	}
	update := updateOf(message)
	for _, atom := range update.GetAtoms() {
		for _, attempt := range atom.GetAttempts() {
			g.MarkSends(ctx, update.GetFlow(), attempt.GetSends())
		}
	}
	return nil
}

// updateOf is the update of a flow in a command; nil: none.
func updateOf(message proto.Message) *conductordv1.Update {
	switch m := message.(type) {
	case *conductordv1.Update:
		return m
	case *conductordv1.Ending:
		return m.GetUpdate()
	}
	return nil
}

// MarkSends marks the signals of a flow's step that the caller may not send. A step can signal jobs of its own board;
// for other boards, its worker and the owner of its job need the permission. The mark does not refuse the call: the
// work is done. A mark of the worker's report stays in the owner's update.
func (g *Guard) MarkSends(ctx context.Context, flow string, sends []*conductordv1.Sending) {
	for _, sent := range sends {
		if sent.Answer != logbook.SendRefused {
			sent.Answer = ""
		}
		if !g.maySend(ctx, flow, sent) {
			sent.Answer = logbook.SendRefused
		}
	}
}

func (g *Guard) maySend(ctx context.Context, flow string, sent *conductordv1.Sending) bool {
	board := sent.GetBoard()
	if sent.GetJob() != "" {
		s, err := inState("job", sent.GetJob(), jobs.ParseJobID, g.Machine.BoardOfJob)
		if err != nil || s.missing {
			return true // the state machine finds no job
		}
		board = s.boards[0]
	}
	if board == "" {
		return true
	}
	own, err := inState("flow", flow, logbook.ParseFlowID, g.Machine.BoardOfWork)
	return err == nil && !own.missing && own.boards[0] == board || g.MayOn(ctx, command.Signal, board)
}

// AllowWatch returns an error unless the caller may watch the boards and jobs in the request.
func (g *Guard) AllowWatch(ctx context.Context, wanted *jobs.Watch) error {
	p, err := g.restricted(ctx, command.Read)
	if err != nil || p == nil {
		return err
	}
	if !wanted.Job.IsZero() {
		job, err := inState("job", wanted.Job.String(), jobs.ParseJobID, g.Machine.BoardOfJob)
		if err == nil {
			err = job.allow(p, command.Read)
		}
		return err
	}
	var named []string
	if wanted.Board != "" {
		named = append(named, wanted.Board)
	}
	if named = append(named, wanted.Boards...); len(named) == 0 {
		return refusal(p, command.Read, "any board", mayAnywhere(p, command.Read))
	}
	boards := ofBoards(named)
	return boards.allow(p, command.Read)
}

// ShownEvents selects the events that the caller may see now: events of its boards, and for
// conductors, the events of their own drains.
func (g *Guard) ShownEvents(ctx context.Context, wanted *jobs.Watch) (func(*jobs.Event) bool, error) {
	p, err := g.restricted(ctx, command.Read)
	if err != nil {
		return nil, err
	}
	return func(event *jobs.Event) bool {
		switch {
		case p == nil:
			return true
		case event.Kind == jobs.EventDrained, event.Kind == jobs.EventUndrained:
			return wanted.Owner != "" && event.Owner == wanted.Owner
		}
		return event.Board != "" && may(p, command.Read, event.Board)
	}, nil
}

// MayShowSession reports whether the caller may see a session: its own, or any.
func (g *Guard) MayShowSession(ctx context.Context, session *jobs.Session) bool {
	return g.MayShow(ctx, access.AllBoards) || session.Principal == g.NameOf(ctx)
}

// ShowEntity reports whether the caller may see an entity: the entity must serve one of the
// caller's boards. ShowEntity removes other boards from the entity.
func (g *Guard) ShowEntity(ctx context.Context, entity *jobs.Entity) bool {
	if g.MayShow(ctx, access.AllBoards) {
		return true
	}
	shows := func(board string) bool { return g.MayShow(ctx, board) }
	entity.Boards = slices.DeleteFunc(slices.Clone(entity.Boards), func(board string) bool { return !shows(board) })
	held, err := g.Machine.HeldOn(entity.Session, shows)
	entity.Held = held
	return err == nil && len(entity.Boards) > 0
}

// ShownIDs selects the ids that the caller may see, like the lists.
func (g *Guard) ShownIDs(ctx context.Context) (shows func(board, principal string) bool, all bool, err error) {
	p, err := g.restricted(ctx, command.Read)
	name := g.NameOf(ctx)
	return func(board, principal string) bool {
		return p == nil || principal != "" && principal == name || may(p, command.Read, cmp.Or(board, access.AllBoards))
	}, p == nil, err
}

// ShownBoards selects the boards whose jobs, books and schedules appear in the caller's lists.
func (g *Guard) ShownBoards(ctx context.Context) (func(board string) bool, error) {
	p, err := g.restricted(ctx, command.Read)
	return func(board string) bool { return p == nil || may(p, command.Read, cmp.Or(board, access.AllBoards)) }, err
}

// MayShow reports whether the caller may read the objects of a board.
func (g *Guard) MayShow(ctx context.Context, board string) bool {
	return g.MayOn(ctx, command.Read, board)
}

// MayOn reports whether the caller has a permission on a board now.
func (g *Guard) MayOn(ctx context.Context, needed command.Permission, board string) bool {
	p, err := g.restricted(ctx, needed)
	return err == nil && (p == nil || may(p, needed, board))
}

// Hide removes the values from an answer to a principal that may not see them.
func (g *Guard) Hide(ctx context.Context, answer any) {
	if g.HidesValuesFrom(ctx) == "" {
		return
	}
	if message, ok := answer.(proto.Message); ok {
		withoutValues(message.ProtoReflect())
	}
}

// HidesValuesFrom is the caller's principal if it may not see values; empty: the caller may
// see values.
func (g *Guard) HidesValuesFrom(ctx context.Context) string {
	who := admission.CallerOf(ctx)
	if who == nil {
		return ""
	}
	if p, err := g.Rights(who); err != nil || p == nil || !p.HideValues {
		return ""
	}
	return who.Name
}

// withoutValues clears all values in a message.
func withoutValues(message protoreflect.Message) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case command.ClassOf(field) == conductordv1.Class_HIDDEN, command.HasValues(field):
			message.Clear(field)
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				withoutValues(value.List().Get(i).Message())
			}
		default:
			withoutValues(value.Message())
		}
		return true
	})
}
