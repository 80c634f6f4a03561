// Package conductor has the commands about conductors, workers and sessions.
package conductor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	jobcmd "github.com/conductord/conductord/cmd/conductord/cli/job"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/duration"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
)

// Command makes the noun of conductors, with additional verbs of another package.
func Command(p *cli.Program, more ...*cobra.Command) *cobra.Command {
	return cli.Noun("conductor", "Run, list and drain conductors", append(more,
		listCommand(p), getCommand(p), drainNamedCommand(p), undrainCommand(p))...)
}

// liveConductor is a conductor as conductor list and get show it.
type liveConductor struct {
	jobs.Entity
	Drain *jobs.Drain // the drain of its name
	holds int         // number of claims
	held  []jobs.HeldClaim
}

// MarshalJSON writes the API's messages: entity, drain and held claims.
func (c liveConductor) MarshalJSON() ([]byte, error) {
	shown := struct {
		Entity cli.Part   `json:"entity"`
		Drain  *cli.Part  `json:"drain,omitempty"`
		Held   []cli.Part `json:"held,omitempty"`
	}{Entity: cli.Part{Message: command.EntityToProto(&c.Entity)}}
	if c.Drain != nil {
		shown.Drain = &cli.Part{Message: command.DrainToProto(c.Drain)}
	}
	for i := range c.held {
		shown.Held = append(shown.Held, cli.Part{Message: command.HeldClaimToProto(&c.held[i])})
	}
	return cli.Document(shown)
}

// conductorList is the document of conductor list and get.
type conductorList struct {
	Conductors []liveConductor `json:"conductors"`
}

// state is the state of a conductor, for display.
func (c *liveConductor) state() string {
	switch {
	case c.Drain == nil && c.MaxJobs > 0 && c.holds >= c.MaxJobs:
		return "full"
	case c.Drain == nil:
		return "claiming"
	case c.holds == 0:
		return "drained"
	case c.Drain.Finish:
		return "finishing"
	}
	return "handing over"
}

// liveReader reads the live conductors, their claims and their drains.
type liveReader interface {
	jobs.Attendant
	Drains(ctx context.Context) ([]jobs.Drain, error)
}

// conductors reads the live conductors, and the drains of names without a live conductor.
func conductors(ctx context.Context, cluster liveReader) (live []liveConductor, absent []jobs.Drain, err error) {
	entities, err := cluster.Entities(ctx, jobs.EntityConductor)
	if err != nil {
		return nil, nil, err
	}
	sessions, err := cluster.Sessions(ctx)
	if err != nil {
		return nil, nil, err
	}
	drains, err := cluster.Drains(ctx)
	if err != nil {
		return nil, nil, err
	}
	live = make([]liveConductor, 0, len(entities))
	for _, entity := range entities {
		shown := liveConductor{Entity: entity}
		for i := range sessions {
			if sessions[i].ID == entity.Session {
				shown.holds = sessions[i].Claims
			}
		}
		for i := range drains {
			if drains[i].Conductor == entity.Name {
				shown.Drain = &drains[i]
			}
		}
		live = append(live, shown)
	}
	for _, drain := range drains {
		if !slices.ContainsFunc(entities, func(e jobs.Entity) bool { return e.Name == drain.Conductor }) {
			absent = append(absent, drain)
		}
	}
	return live, absent, nil
}

func listCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List live conductors and their capabilities", Args: cobra.NoArgs,
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, _ []string) error {
			live, absent, err := conductors(ctx, cluster)
			if err != nil {
				return cli.Because(err, "list conductors")
			}
			for _, drain := range absent {
				p.Note("no live conductor is named %q; a new one %s", cli.Clean(drain.Conductor), drainText(p, &drain))
			}
			return writeConductors(p, live)
		}),
	}
}

func writeConductors(p *cli.Program, live []liveConductor) error {
	if p.JSON() {
		return p.WriteJSON(conductorList{live})
	}
	rows := make([][]string, 0, len(live))
	for i := range live {
		c := &live[i]
		rows = append(rows, []string{
			c.Name, c.state(), cli.OrDash(c.Host), strconv.Itoa(c.PID), cli.OrDash(strings.Join(c.Boards, ",")),
			cli.OrDash(strings.Join(c.JobKinds, ",")), cli.OrDash(strings.Join(c.Labels, ",")), strconv.Itoa(c.holds), strconv.Itoa(c.MaxJobs), cli.AgoText(c.RegisteredAt),
		})
	}
	return p.WriteTable([]string{"name", "state", "host", "pid", "boards", "kinds", "labels", "holds", "max jobs", "since"}, rows)
}

// drainText describes a drain: operator, kind, reason and start.
func drainText(p *cli.Program, drain *jobs.Drain) string {
	said := "is drained since " + p.TimeText(drain.At)
	if drain.By != "" {
		said += " by " + cli.Clean(drain.By)
	}
	if drain.Finish {
		said += ", and completes its jobs first"
	}
	if drain.Reason != "" {
		said += ": " + cli.Clean(drain.Reason)
	}
	return said
}

func getCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show conductors by name: state, capabilities and claimed jobs", Args: cobra.ExactArgs(1),
		RunE: cli.About(p, cli.Name, func(ctx context.Context, cluster cli.Cluster, name string) error {
			return showConductor(ctx, p, cluster, name, true)
		}),
	}
}

// showConductor shows the conductors of a name. A name without a live conductor is an
// error, unless it is drained: then it shows the drain. Details are metadata and claims.
func showConductor(ctx context.Context, p *cli.Program, cluster liveReader, name string, details bool) error {
	live, absent, err := conductors(ctx, cluster)
	if err != nil {
		return cli.Because(err, "get conductor %s", name)
	}
	live = slices.DeleteFunc(live, func(c liveConductor) bool { return c.Name != name })
	drained := slices.IndexFunc(absent, func(d jobs.Drain) bool { return d.Conductor == name })
	if len(live) == 0 && drained < 0 {
		return cli.Because(fmt.Errorf("%w: no live conductor has this name; list them with conductord conductor list", jobs.ErrNotFound), "get conductor %s", name)
	}
	for i := range live {
		c := &live[i]
		for held, err := range jobs.AllClaims(ctx, cluster, jobs.ClaimQuery{Session: c.Session}) {
			if err != nil {
				return cli.Because(err, "get conductor %s", name)
			}
			c.held = append(c.held, held)
		}
		c.holds = len(c.held)
	}
	if p.JSON() {
		return p.WriteJSON(conductorList{live})
	}
	if drained >= 0 {
		p.Note("no live conductor is named %q; a new one %s", cli.Clean(name), drainText(p, &absent[drained]))
	}
	for i := range live {
		if err := writeConductor(p, &live[i], details); err != nil {
			return err
		}
	}
	return nil
}

func writeConductor(p *cli.Program, c *liveConductor, details bool) error {
	fields := []cli.Field{
		{"conductor", c.Name}, {"state", c.state()}, {"host", fmt.Sprintf("%s, process %d", cli.OrDash(c.Host), c.PID)},
		{"session", c.Session.String()}, {"since", p.TimeText(c.RegisteredAt)},
		{"boards", strings.Join(c.Boards, ", ")}, {"kinds", strings.Join(c.JobKinds, ", ")}, {"labels", strings.Join(c.Labels, ", ")},
		{"holds", fmt.Sprintf("%d of at most %d jobs", c.holds, c.MaxJobs)},
	}
	if c.Drain != nil {
		fields = append(fields, cli.Field{"drain", drainText(p, c.Drain)})
	}
	if !details {
		return p.WriteFields(fields)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Metadata)) {
		fields = append(fields, cli.Field{"metadata " + cli.Clean(key), string(c.Metadata[key])})
	}
	if err := p.WriteFields(fields); err != nil || c.holds == 0 {
		return err
	}
	return jobcmd.HeldClaims.Show(p, c.held, "")
}

func drainNamedCommand(p *cli.Program) *cobra.Command {
	var request jobs.DrainCommand
	var wait bool
	cmd := &cobra.Command{
		Use:   "drain NAME",
		Short: "Drain conductors by name: claim no more jobs, and hand over current jobs",
		Long: "Drain conductors by name: they claim no more jobs until you undrain them, even after a restart. Drained conductors\n" +
			"hand over their jobs within a second, as on SIGTERM; with --finish, they complete their jobs instead. Repeat\n" +
			"the command to add or remove --finish.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Conductor, request.By = args[0], cli.OperatorName()
			return p.Waiting(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				if err := cluster.DrainConductor(ctx, request); err != nil {
					err = cli.Because(err, "drain conductor %s", args[0])
					if errors.Is(err, jobs.ErrNotFound) {
						err = cli.Advised(err, fmt.Sprintf("`conductord conductor drain --absent %s` drains the name in advance", cli.Operand(args[0])))
					}
					return err
				}
				if wait {
					if err := jobs.AwaitIdle(ctx, cluster, args[0], noteHeld(p)); err != nil {
						return err
					}
				}
				return showConductor(ctx, p, cluster, args[0], false)
			})
		},
	}
	cmd.Flags().StringVar(&request.Reason, "reason", "", "reason, in one sentence")
	flags := cmd.Flags()
	flags.BoolVar(&request.Finish, "finish", false, "complete current jobs instead of handing them over")
	flags.BoolVar(&request.Absent, "absent", false, "drain the name even if no live conductor has it")
	flags.BoolVar(&wait, "wait", false, "wait until the conductors have no jobs")
	return cmd
}

// DrainCommand is conductor drain as one command.
func DrainCommand(p *cli.Program) *cobra.Command {
	cmd := drainNamedCommand(p)
	cmd.Short, cmd.Long = "Drain conductors by name: the same as conductor drain", "Same as `conductord conductor drain`.\n\n"+cmd.Long
	return cmd
}

// noteHeld shows at a terminal how many jobs drained conductors still hold.
func noteHeld(p *cli.Program) func(held int) {
	said := -1
	return func(held int) {
		if p.Terminal && held != said && held > 0 {
			p.Note("%d jobs still held", held)
		}
		said = held
	}
}

func undrainCommand(p *cli.Program) *cobra.Command {
	var request jobs.DrainCommand
	cmd := &cobra.Command{
		Use: "undrain NAME", Short: "Undrain conductors by name: they claim jobs again", Args: cobra.ExactArgs(1),
		RunE: cli.About(p, cli.Name, func(ctx context.Context, cluster cli.Cluster, conductor string) error {
			request.Conductor, request.By = conductor, cli.OperatorName()
			if err := cluster.UndrainConductor(ctx, request); err != nil {
				return cli.Because(err, "undrain conductor %s", conductor)
			}
			p.Note("conductor %s is no longer drained", cli.Clean(conductor))
			return nil
		}),
	}
	cmd.Flags().StringVar(&request.Reason, "reason", "", "reason, in one sentence")
	return cmd
}

// SessionCommand makes the noun of sessions.
func SessionCommand(p *cli.Program) *cobra.Command {
	sessions := cli.List[jobs.Session]{
		What:  "sessions",
		Whole: true,
		Read: func(ctx context.Context, cluster cli.Cluster, _ string, _ int) ([]jobs.Session, string, error) {
			open, err := cluster.Sessions(ctx)
			return open, "", err
		},
		Answer: func(sessions []jobs.Session, _ string) proto.Message {
			return &v1.ListSessionsResponse{Sessions: cli.Messages(sessions, command.SessionToProto)}
		},
		Header: []string{"id", "name", "host", "pid", "ttl", "claims", "opened"},
		Row: func(s *jobs.Session) []string {
			return []string{
				s.ID.String(), s.Name, cli.OrDash(s.Host), strconv.Itoa(s.PID), duration.Text(s.TTL), strconv.Itoa(s.Claims), cli.AgoText(s.OpenedAt),
			}
		},
	}
	return cli.Noun("session", "List sessions", sessions.Command(p, &cobra.Command{
		Use:   "list",
		Short: "List open sessions, and the number of claims of each",
	}, nil))
}

// workerLister is a cluster that lists its workers.
type workerLister interface {
	Workers(ctx context.Context, board string) ([]steps.Live, error)
}

// WorkerListCommand is the command that lists workers.
func WorkerListCommand(p *cli.Program) *cobra.Command {
	var board string
	cmd := &cobra.Command{
		Use: "list", Short: "List live workers: handlers, running steps, and whether the worker is set aside", Args: cobra.NoArgs,
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, _ []string) error {
			lister, can := cluster.(workerLister)
			if !can {
				return errors.New("cannot list workers: this cluster does not support it")
			}
			workers, err := lister.Workers(ctx, board)
			if err != nil {
				return cli.Because(err, "list workers")
			}
			return writeWorkers(p, workers)
		}),
	}
	cmd.Flags().StringVar(&board, "board", "", "only workers for jobs on this board")
	return cmd
}

func writeWorkers(p *cli.Program, workers []steps.Live) error {
	if p.JSON() {
		return p.WriteJSON(&v1.ListWorkersResponse{Workers: cli.Messages(workers, command.LiveWorkerToProto)})
	}
	rows := make([][]string, 0, len(workers))
	for i := range workers {
		w := &workers[i]
		rows = append(rows, []string{
			w.Name, workerState(w), w.Session.String(), cli.OrDash(strings.Join(w.Boards, ",")), strings.Join(w.JobKinds, ","),
			cli.OrDash(strings.Join(w.Labels, ",")), fmt.Sprintf("%d of %d", w.Holds, w.MaxJobs), cli.AgoText(w.RegisteredAt), cli.AgoText(w.Heard),
		})
	}
	return p.WriteTable([]string{"name", "state", "session", "boards", "types", "labels", "holds", "since", "heard"}, rows)
}

// workerState describes whether a worker gets steps; if not, it gives the reason.
func workerState(w *steps.Live) string {
	switch {
	case !w.Aside.IsZero():
		return fmt.Sprintf("aside %s: %d steps failed", cli.AgoText(w.Aside), w.Failed)
	case w.Heard.IsZero():
		return "silent"
	case w.MaxJobs > 0 && w.Holds >= w.MaxJobs:
		return "full"
	}
	return "ready"
}
