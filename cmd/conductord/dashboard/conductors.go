package dashboard

import (
	"context"
	"encoding/json"
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/node"
)

// conductorsData is the data of the pages of conductors.
type conductorsData struct {
	Name       string // the name of the shown conductors; empty: all
	Live       []conductorRow
	Drains     []*v1.Drain
	Operations []operation
	More       pager
}

// conductorRow is a live conductor.
type conductorRow struct {
	*v1.Entity
	Node     string
	Handlers []string
	State    badge
}

// conductorStates are the shown states of a conductor.
var conductorStates = struct{ claiming, full, drained, finishing, handing badge }{
	badge{"claims", "▶", "good"}, badge{"full", "●", "busy"}, badge{"drained", "‖", "stop"}, badge{"drained, finishing", "‖", "stop"}, badge{"drained, handing over", "‖", "stop"},
}

func conductorOf(e *v1.Entity, drains []*v1.Drain) conductorRow {
	row := conductorRow{Entity: e, State: conductorStates.claiming}
	for _, of := range e.GetMetadata() {
		switch value := command.ValueFromProto(of.GetValue()); of.GetName() { // values of another form are unknown to the page
		case node.NodeKey:
			_ = json.Unmarshal(value, &row.Node)
		case cli.HandlersKey:
			_ = json.Unmarshal(value, &row.Handlers)
		}
	}
	i := slices.IndexFunc(drains, func(d *v1.Drain) bool { return d.GetConductor() == e.GetName() })
	switch {
	case i < 0 && e.GetMaxJobs() > 0 && e.GetClaims() >= e.GetMaxJobs():
		row.State = conductorStates.full
	case i < 0:
	case e.GetClaims() == 0:
		row.State = conductorStates.drained
	case drains[i].GetFinish():
		row.State = conductorStates.finishing
	default:
		row.State = conductorStates.handing
	}
	return row
}

// conductors reads a page of the live conductors, of a name or of all, and the drains.
func (v *visit) conductors(ctx context.Context, name string) (data conductorsData, err error) {
	data.Name = name
	live, err := ask(ctx, v.api.sessions.ListEntities, &v1.ListEntitiesRequest{Kind: jobs.EntityConductor, Name: name, After: v.query("after"), Limit: v.rows(), Stale: true})
	if err != nil {
		return data, err
	}
	drains, err := ask(ctx, v.api.sessions.ListDrains, &v1.ListDrainsRequest{Stale: true})
	if err != nil {
		return data, err
	}
	for _, e := range live.GetEntities() {
		data.Live = append(data.Live, conductorOf(e, drains.GetDrains()))
	}
	data.More, data.Drains = v.more(live.GetNext()), drains.GetDrains()
	return data, nil
}

// loadConductors lists the live conductors and the active drains.
func loadConductors(ctx context.Context, v *visit) (view, error) {
	data, err := v.conductors(ctx, "")
	data.Drains = most(v, data.Drains, pageRows)
	return view{Title: "Conductors", Command: "conductord conductor list", Data: data, Watch: &v1.WatchRequest{Sessions: true}}, err
}

// loadConductor shows the conductors of a name. A name without a live conductor can still have
// a drain.
func loadConductor(ctx context.Context, v *visit) (view, error) {
	name := v.part("name")
	data, err := v.conductors(ctx, name)
	if err != nil {
		return view{}, err
	}
	data.Drains = slices.DeleteFunc(data.Drains, func(d *v1.Drain) bool { return d.GetConductor() != name })
	var drain *v1.Drain
	if len(data.Drains) > 0 {
		drain = data.Drains[0]
	}
	data.Operations = v.offered(conductorOperations(name, drain), access.AllBoards, "conductors", name)
	return view{Title: "Conductor " + name, Command: "conductord conductor get " + cli.Operand(name), Data: data, Watch: &v1.WatchRequest{Sessions: true}}, nil
}

// conductorOperations is the table of operations on the conductors of a name; drain is nil when an
// operation is performed.
func conductorOperations(name string, drain *v1.Drain) []operation {
	request := func(v *visit) *v1.DrainCommand {
		return &v1.DrainCommand{Conductor: name, By: dashboardName, Reason: v.form("reason"), Finish: v.form("finish") != "", Absent: v.form("absent") != ""}
	}
	shown, operand := addressBelow("conductors", name), cli.Operand(name)
	return []operation{
		{
			Verb: "drain", Text: "Drain", Command: "conductord conductor drain " + operand, Help: "The conductor claims no more jobs, even after a restart, and hands over its jobs.", Danger: true,
			Inputs:     []input{{Name: "finish", Label: "complete its jobs instead", Kind: "check"}, {Name: "absent", Label: "even if no live conductor has this name", Kind: "check"}, why},
			permission: command.Operate, unfit: drain != nil, do: func(ctx context.Context, v *visit) (string, error) {
				_, err := ask(ctx, v.api.sessions.DrainConductor, request(v))
				return shown, err
			},
		},
		{
			Verb: "undrain", Text: "Undrain", Command: "conductord conductor undrain " + operand, Help: "The conductor claims jobs again.", Inputs: []input{why},
			permission: command.Operate, unfit: drain == nil, do: func(ctx context.Context, v *visit) (string, error) {
				_, err := ask(ctx, v.api.sessions.UndrainConductor, request(v))
				return shown, err
			},
		},
	}
}

// loadSessions lists the open sessions that the user may see.
func loadSessions(ctx context.Context, v *visit) (view, error) {
	answer, err := ask(ctx, v.api.sessions.ListSessions, &v1.ListSessionsRequest{After: v.query("after"), Limit: v.rows(), Stale: true})
	data := struct {
		Sessions []*v1.Session
		More     pager
	}{answer.GetSessions(), v.more(answer.GetNext())}
	return view{Title: "Sessions", Command: "conductord session list", Data: data, Watch: &v1.WatchRequest{Sessions: true}}, err
}

// loadClaims lists claims of a session, an owner or a board. Only the leader knows their times.
func loadClaims(ctx context.Context, v *visit) (view, error) {
	request := &v1.ListClaimsRequest{Session: v.query("session"), Owner: v.query("owner"), Board: v.query("board"), After: v.query("after"), Limit: v.rows()}
	var err error
	if request.Board, err = v.listedBoard(ctx, request.Board); err != nil {
		return view{}, err
	}
	said := "conductord claim list" + flags("session", request.Session, "owner", request.Owner, "board", request.Board)
	answer, err := ask(ctx, v.api.board.ListClaims, request)
	data := struct {
		Query  *v1.ListClaimsRequest
		Claims []*v1.HeldClaim
		More   pager
	}{request, answer.GetClaims(), v.more(answer.GetNext())}
	return view{Title: "Claims", Command: said, Data: data}, err
}
