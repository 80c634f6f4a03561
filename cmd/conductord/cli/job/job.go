// Package job has the commands about jobs: post, list, wait, watch, control and end them, one by one or
// in bulk, with their claims, their events and the trash.
package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/document"
	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Command makes the noun of jobs.
func Command(p *cli.Program) *cobra.Command {
	commands := []*cobra.Command{
		postCommand(p), getCommand(p), listCommand(p), waitCommand(p), watchCommand(p),
		retryCommand(p), repostCommand(p), endCommand(p, consume), endCommand(p, abandon), endCommand(p, trash),
	}
	for _, how := range stopCommands() {
		commands = append(commands, orderCommand(p, how))
	}
	commands = append(commands, signalCommand(p), explainCommand(p), logsCommand(p), errorsCommand(p), releaseCommand(p), alterCommand(p), moveCommand(p))
	return cli.Noun("job", "Post, show, control and end jobs", commands...)
}

func getCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show a job: state, reason and details",
		Args:  cobra.ExactArgs(1),
		RunE: cli.Get(p, "job", jobs.ParseJobID, cli.Cluster.Job, func(ctx context.Context, cluster cli.Cluster, job jobs.Job) error {
			return showJob(ctx, p, cluster, job)
		}),
	}
}

func listCommand(p *cli.Program) *cobra.Command {
	var filter jobFilter
	var query jobs.Query
	var order listOrder
	attend := false
	listed := jobList(&query)
	selected := listed.Read
	var attended attention
	listed.Read = func(ctx context.Context, cluster cli.Cluster, after string, limit int) ([]jobs.Job, string, error) {
		if !attend {
			return selected(ctx, cluster, after, limit)
		}
		if err := attended.look(ctx, cluster, query); err != nil {
			return nil, "", err
		}
		return attended.page(ctx, cluster, after, limit)
	}
	cmd := listed.Command(p, &cobra.Command{Use: "list", Short: "List jobs, newest first",
		Long: "List jobs, newest first. The list omits the store and the details of jobs; see job get. --needs-attention lists\n" +
			"failed, trashed and parked jobs, then jobs that have waited for a minute on a board without claims.",
	}, func([]string) (err error) {
		if query, err = filter.read(time.Now()); err == nil {
			query.Order, err = order.read()
		}
		return err
	})
	filter.flags(cmd)
	cmd.Flags().BoolVar(&attend, "needs-attention", false, "only jobs that need an operator")
	cmd.Flags().StringVar(&order.by, "order", "posted", "order: posted, or claim, which lists the claimable jobs of one board (--board or default) in claim order")
	order.flag(cmd)
	for _, other := range []string{"state", "outcome", "order"} {
		cmd.MarkFlagsMutuallyExclusive("needs-attention", other)
	}
	return cmd
}

// jobList lists the jobs that a query selects.
func jobList(query *jobs.Query) cli.List[jobs.Job] {
	scans := false
	return cli.List[jobs.Job]{
		What: "jobs",
		Read: func(ctx context.Context, cluster cli.Cluster, after string, limit int) ([]jobs.Job, string, error) {
			query.After, query.Limit = after, limit
			page, err := cluster.Jobs(ctx, *query)
			scans = scans || page.Scans
			return page.Items, page.Next, err
		},
		Answer: func(listed []jobs.Job, next string) proto.Message {
			return &v1.ListJobsResponse{Jobs: cli.Messages(listed, command.JobToProto), Next: next, Scans: scans}
		},
		Header: []string{"id", "state", "outcome", "name", "started", "took", "kind", "board", "priority", "owner", "posted"},
		Row: func(job *jobs.Job) []string {
			return []string{
				job.ID.String(), string(job.State), cli.OrDash(string(job.Outcome)), cli.OrDash(job.Name),
				cli.OrDash(cli.AgoText(job.StartedAt)), cli.OrDash(tookText(job, time.Now())), cli.OrDash(job.Kind), job.Board, job.Priority.String(), cli.OrDash(OwnerOf(job)), cli.AgoText(job.PostedAt),
			}
		},
	}
}

// ParseStates reads the names of states. Errors for some unknown names contain advice.
func ParseStates(names []string) ([]jobs.State, error) {
	states := make([]jobs.State, 0, len(names))
	for _, name := range names {
		state := jobs.State(strings.ToLower(name))
		if !slices.Contains(jobs.States, state) {
			err := cli.UsageError(fmt.Errorf("--state must be one of %s, not %.64q%s", strings.Join(cli.Texts(jobs.States), ", "), name, meant.Hint(name, cli.Texts(jobs.States))))
			return nil, cli.Advised(err, stateAdvice[string(state)])
		}
		states = append(states, state)
	}
	return states, nil
}

// tookText is the working time of a job: up to its end, or up to now while it is claimed. It
// is empty while a started job is unclaimed.
func tookText(job *jobs.Job, now time.Time) string {
	end := job.FinishedAt
	if job.Claim != nil {
		end = now
	}
	if job.StartedAt.IsZero() || end.IsZero() {
		return ""
	}
	return cli.DurationText(max(end.Sub(job.StartedAt), 0))
}

// OwnerOf names the owner of a job's claim; empty: the job is not claimed.
func OwnerOf(job *jobs.Job) string {
	if job.Claim == nil {
		return ""
	}
	return job.Claim.Owner
}

// jobReader reads one job.
type jobReader interface {
	Job(ctx context.Context, id jobs.JobID) (jobs.Job, error)
}

// Work reads jobs, their flows, and the conductors that can run them.
type Work interface {
	cli.FlowReader
	document.Conductors
}

// readJob reads a job and shows it.
func readJob(ctx context.Context, p *cli.Program, cluster Work, id jobs.JobID) error {
	job, err := cluster.Job(ctx, id)
	if err != nil {
		return cli.Because(err, "get job %s", id)
	}
	return showJob(ctx, p, cluster, job)
}

// showChanged reads a job after a change and shows it: as JSON, or in a line.
func showChanged(ctx context.Context, p *cli.Program, reader jobReader, id jobs.JobID, line func(*jobs.Job) string) error {
	job, err := reader.Job(ctx, id)
	if err != nil {
		return cli.Because(err, "read job %s (the change was made)", id)
	}
	return p.Show(command.JobToProto(&job), "%s %s", job.ID, line(&job))
}

// showJob shows a job with its evidence, and notes when no conductor can run
// it.
func showJob(ctx context.Context, p *cli.Program, cluster Work, job jobs.Job) error {
	if err := NoteIdle(ctx, p, cluster, &job); err != nil {
		return err
	}
	if p.JSON() {
		return p.WriteJSON(command.JobToProto(&job))
	}
	fields := jobFields(p, &job)
	evidence, err := tree.EvidenceOf(ctx, cluster, &job)
	if err != nil {
		return err
	}
	return p.WriteFields(append(fields, evidence...))
}

func jobFields(p *cli.Program, job *jobs.Job) []cli.Field {
	fields := []cli.Field{
		{"id", job.ID.String()},
		{"name", job.Name},
		{"board", job.Board},
		{"kind", job.Kind},
		{"priority", job.Priority.String()},
		{"effective", effectiveText(job)},
		{"front", frontText(job)},
		{"key", job.Key},
		{"tags", strings.Join(job.Tags, ", ")},
		{"labels", strings.Join(job.Labels, ", ")},
		{"max crashes", cli.CountText(job.MaxCrashes)},
		{"state", string(job.State)},
		{"outcome", string(job.Outcome)},
		{"owner", OwnerOf(job)},
		{"last owner", job.LastOwner},
	}
	if !job.Token.IsZero() {
		fields = append(fields, cli.Field{"token", job.Token.String()})
	}
	if job.Claim != nil {
		fields = append(fields, cli.Field{"expiry", cli.SpanText(job.Claim.Expiry)})
	}
	if !job.Book.IsZero() {
		fields = append(fields, cli.Field{"book", strings.TrimSpace(job.Book.String() + " " + cli.Clean(job.BookName))})
	}
	if !job.Flow.IsZero() {
		fields = append(fields, cli.Field{"flow", job.Flow.String()})
	}
	return append(fields,
		cli.Field{"details", string(job.Details)},
		cli.Field{"store", cli.ValuesText(job.Store)},
		cli.Field{"schedule", job.Schedule},
		cli.Field{"slot", p.TimeText(job.Slot)},
		cli.Field{"posted", p.TimeText(job.PostedAt)},
		cli.Field{"posted by", job.PostedBy},
		cli.Field{"traceparent", job.Traceparent},
		cli.Field{"not before", p.TimeText(job.NotBefore)},
		cli.Field{"due", p.TimeText(job.DueAt)},
		cli.Field{"deadline", p.TimeText(job.Deadline)},
		cli.Field{"started", p.TimeText(job.StartedAt)},
		cli.Field{"finished", p.TimeText(job.FinishedAt)},
		cli.Field{"took", tookText(job, time.Now())},
		cli.Field{"claims", strconv.Itoa(job.Claims)},
		cli.Field{"crashes", cli.CountText(job.Crashes)},
		cli.Field{"iteration", cli.CountText(job.Iteration)},
		cli.Field{"unread signals", cli.CountText(job.UnreadSignals)},
		cli.Field{"failures", cli.CountText(job.Failures)},
		cli.Field{"retention", cli.SpanText(job.Retention)},
		cli.Field{"retry", RetryText(job.Retry)},
		cli.Field{"attempt", attemptText(p, job)},
		cli.Field{"reason", job.Reason},
		cli.Field{"stop", stopText(p, job.StopRequest)},
		cli.Field{"reserved", reservedText(p, job.Reserved)},
	)
}

// effectiveText returns the job's effective priority, if the board has ageing.
func effectiveText(job *jobs.Job) string {
	if job.Effective == nil {
		return ""
	}
	return job.Effective.String()
}

// frontText shows whether a job is at the front of its priority.
func frontText(job *jobs.Job) string {
	if job.Front == 0 {
		return ""
	}
	return "yes"
}

// NoteIdle prints a note if a job waits for a kind that no live conductor takes.
func NoteIdle(ctx context.Context, p *cli.Program, cluster document.Conductors, job *jobs.Job) error {
	if job.Flow.IsZero() || job.State.Finished() || job.State == jobs.StateClaimed {
		return nil
	}
	conductors, err := cluster.Entities(ctx, jobs.EntityConductor)
	if err != nil {
		return cli.Because(err, "list conductors")
	}
	able := false
	for i := range conductors {
		conductor := &conductors[i]
		if !slices.Contains(conductor.JobKinds, job.Kind) || !slices.Contains(conductor.Boards, job.Board) {
			continue
		}
		lacks := func(label string) bool { return !slices.Contains(conductor.Labels, label) }
		if able = true; !slices.ContainsFunc(job.Labels, lacks) {
			return nil
		}
	}
	if able {
		p.Note("the job waits: no live conductor of its kind offers all of the labels %q", job.Labels)
		return nil
	}
	p.Note("the job waits: no live conductor builds flows of kind %q from board %q", job.Kind, job.Board)
	return nil
}

func explainCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "explain ID",
		Short: "Explain why a job does not run, and show the command that helps",
		Args:  cobra.ExactArgs(1),
		RunE: cli.Get(p, "the explanation of job", jobs.ParseJobID, cli.Cluster.Explain, func(ctx context.Context, cluster cli.Cluster, e jobs.Explanation) error {
			if p.JSON() {
				return p.WriteJSON(command.ExplanationToProto(&e))
			}
			return p.WriteFields([]cli.Field{
				{"job", e.Job.String()}, {"state", string(e.State)}, {"cause", string(e.Cause)}, {"why", e.Text},
				{"until", p.TimeText(e.Until)}, {"places", placesText(ctx, cluster, &e)}, {"next step", cli.RemedyText(e.Remedy)}, {"effect", remedyEffect(ctx, cluster, &e)},
			})
		}),
	}
}

// placesText describes the loops of a claimed job in which elements wait for a place; empty: none, or not known.
func placesText(ctx context.Context, cluster cli.FlowReader, e *jobs.Explanation) string {
	if e.State != jobs.StateClaimed {
		return ""
	}
	detail, err := cli.FindFlow(ctx, cluster, e.Job.UUID)
	if err != nil {
		return ""
	}
	return tree.PlacesText(spec.PlanOf(&detail), &detail)
}

// repairs are the interventions of the remedies that repair a flow.
var repairs = map[jobs.RemedyVerb]logbook.InterventionKind{
	jobs.RemedyRetryRevert: logbook.InterveneRetryRevert, jobs.RemedyRerunFlow: logbook.InterveneRerun,
}

// remedyEffect lists the steps that a remedy runs, runs again or reverts; empty if it repairs no flow, or if
// the flow cannot be read.
func remedyEffect(ctx context.Context, cluster cli.FlowReader, e *jobs.Explanation) string {
	kind, repairs := repairs[e.Remedy.Verb]
	id, err := logbook.ParseFlowID(e.Remedy.Target)
	if !repairs || err != nil {
		return ""
	}
	detail, err := cluster.FlowDetail(ctx, id)
	if err != nil {
		return ""
	}
	i := logbook.Intervention{Kind: kind}
	effect, err := tree.ConsequenceOf(&detail, spec.PlanOf(&detail), detail.Store, i)
	if errors.Is(err, logbook.ErrConflict) {
		return err.Error() // flow show lists what is possible
	}
	if err != nil { // such as a value of the job's store that is not known here
		effect = tree.RecordedConsequence(&detail, i)
	}
	return effect.String()
}
