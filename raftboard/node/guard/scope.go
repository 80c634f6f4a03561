package guard

import (
	"cmp"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// scope is the object of a call.
type scope struct {
	parts    bool     // each part of the call is authorized separately, or the answer is filtered
	anywhere bool     // on objects of the caller: a role on any board is enough
	session  string   // the id of a session that the caller must also own
	boards   []string // all boards, the noun's board first; access.AllBoards: all boards, or objects that belong to none
	noun, id string   // the object on the board; empty: the board itself
	missing  bool     // no object has the id
	fresh    *scope   // for a call that creates an object that does not exist for the caller
	listing  bool     // another request could name a board
}

// allow returns the same error for an object that the principal may not read as for a missing
// object. The call starts only after allow, so nothing else can answer for such an object.
func (s *scope) allow(p *access.Principal, needed command.Permission) error {
	switch absent := s.missing || s.noun != "" && !may(p, command.Read, s.boards[0]); {
	case s.parts:
		return nil
	case s.anywhere:
		return refusal(p, needed, "any board", mayAnywhere(p, needed))
	case absent && s.fresh != nil:
		return s.fresh.allow(p, needed)
	case absent:
		return fmt.Errorf("%s %s: %w", s.noun, s.id, jobs.ErrNotFound)
	}
	for _, board := range s.boards {
		where := fmt.Sprintf("board %q", board)
		if board == access.AllBoards {
			where = "all boards"
			if s.listing {
				where += ": name one"
			}
		}
		if err := refusal(p, needed, where, may(p, needed, board)); err != nil {
			return err
		}
	}
	return nil
}

// scopeOf finds the scope of a message. A message without a stated scope is about the cluster.
func (g *Guard) scopeOf(message any) (scope, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return ofCluster(), nil
	}
	reflected := m.ProtoReflect()
	options := command.OptionsOf(reflected.Descriptor())
	s, err := g.scopeOn(options, reflected)
	s.session = options.Text(reflected, options.Scope.GetSession())
	if also := options.Text(reflected, options.Scope.GetAlso()); also != "" {
		s.boards = append(s.boards, also)
	}
	return s, err
}

func (g *Guard) scopeOn(options *command.Options, m protoreflect.Message) (scope, error) {
	stated := options.Scope
	if job := options.Text(m, stated.GetJob()); job != "" {
		return inState("job", job, jobs.ParseJobID, g.Machine.BoardOfJob)
	}
	text := options.Text(m, stated.GetField())
	switch stated.GetOn() {
	case conductordv1.On_PARTS:
		s := listing(text)
		s.parts = true
		return s, nil
	case conductordv1.On_OWN:
		return scope{anywhere: true}, nil
	case conductordv1.On_BOARD:
		return ofBoards(options.Texts(m, stated.GetField())), nil
	case conductordv1.On_LIST:
		return listing(text), nil
	case conductordv1.On_READABLE:
		s := listing(text)
		s.parts = text == ""
		return s, nil
	case conductordv1.On_SERVED:
		served := options.Texts(m, stated.GetField())
		if kind := m.Interface().(*conductordv1.RegisterCommand).GetEntity().GetKind(); len(served) == 0 && kind != jobs.EntityConductor {
			return scope{anywhere: true}, nil
		}
		return ofBoards(served), nil
	case conductordv1.On_JOB:
		return inState("job", text, jobs.ParseJobID, g.Machine.BoardOfJob)
	case conductordv1.On_WORK_ON:
		if m.Interface().(*conductordv1.Update).GetToken() != nil {
			return inState("flow", text, logbook.ParseFlowID, g.Machine.BoardOfWork)
		}
		return inState("flow", text, logbook.ParseFlowID, g.Machine.BoardOfFlow)
	case conductordv1.On_FLOW:
		return inState("flow", text, logbook.ParseFlowID, g.Machine.BoardOfFlow)
	case conductordv1.On_BOOK:
		s, err := inState("book", text, logbook.ParseBookID, g.Machine.BoardOfBook)
		if stated.GetFresh() != "" { // the state machine refuses the id of another tenant's book
			fresh := listing(options.Text(m, stated.GetFresh()))
			if s.fresh = &fresh; s.missing {
				s.boards = fresh.boards
			}
		}
		return s, err
	}
	return ofCluster(), nil
}

// ofCluster is the scope of objects that belong to no board.
func ofCluster() scope { return scope{boards: []string{access.AllBoards}} }

// ofBoards is the scope of named boards, which it keeps; none means the default board.
func ofBoards(names []string) scope {
	if len(names) == 0 {
		names = []string{""}
	}
	for i := range names {
		names[i] = cmp.Or(names[i], jobs.DefaultBoard)
	}
	return scope{boards: names}
}

// listing is the scope of a list: one board, or all.
func listing(board string) scope {
	return scope{boards: []string{cmp.Or(board, access.AllBoards)}, listing: true}
}

// inState returns the scope of an object with an id: the board of the object.
func inState[ID any](noun, id string, parse func(string) (ID, error), boardOf func(ID) (string, bool, error)) (scope, error) {
	parsed, err := parse(id)
	if err != nil {
		return scope{}, err
	}
	board, found, err := boardOf(parsed)
	s := listing(board)
	s.noun, s.id, s.missing = noun, id, !found
	return s, err
}
