package cli

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
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func (p *Program) jobCommand() *cobra.Command {
	commands := []*cobra.Command{
		p.jobPostCommand(), p.jobGetCommand(), p.jobListCommand(), p.jobWaitCommand(), p.jobWatchCommand(),
		p.jobRetryCommand(), p.jobRepostCommand(), p.jobEndCommand(consume), p.jobEndCommand(abandon), p.jobEndCommand(trash),
	}
	for _, how := range stopCommands() {
		commands = append(commands, p.jobOrderCommand(how))
	}
	commands = append(commands, p.jobExplainCommand(), p.jobLogsCommand(), p.jobErrorsCommand(), p.jobReleaseCommand(), p.jobAlterCommand(), p.jobMoveCommand())
	return Noun("job", "Post, show, control and end jobs", commands...)
}

func (p *Program) jobGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show a job: state, reason and details",
		Args:  cobra.ExactArgs(1),
		RunE:  get(p, "job", jobs.ParseJobID, Cluster.Job, p.showJob),
	}
}

func (p *Program) jobListCommand() *cobra.Command {
	var filter jobFilter
	var query jobs.Query
	var order listOrder
	attend := false
	listed := jobList(&query)
	selected := listed.read
	var attended attention
	listed.read = func(ctx context.Context, cluster Cluster, after string, limit int) ([]jobs.Job, string, error) {
		if !attend {
			return selected(ctx, cluster, after, limit)
		}
		if err := attended.look(ctx, cluster, query); err != nil {
			return nil, "", err
		}
		return attended.page(ctx, cluster, after, limit)
	}
	cmd := listed.command(p, &cobra.Command{Use: "list", Short: "List jobs, newest first",
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
	cmd.Flags().StringVar(&order.by, "order", "posted", "posted; or claim: the claimable jobs of one board (default, or --board), next first")
	order.flag(cmd)
	for _, other := range []string{"state", "outcome", "order"} {
		cmd.MarkFlagsMutuallyExclusive("needs-attention", other)
	}
	return cmd
}

// jobList lists the jobs that a query selects.
func jobList(query *jobs.Query) list[jobs.Job] {
	scans := false
	return list[jobs.Job]{
		what: "jobs",
		read: func(ctx context.Context, cluster Cluster, after string, limit int) ([]jobs.Job, string, error) {
			query.After, query.Limit = after, limit
			page, err := cluster.Jobs(ctx, *query)
			scans = scans || page.Scans
			return page.Items, page.Next, err
		},
		answer: func(listed []jobs.Job, next string) proto.Message {
			return &v1.ListJobsResponse{Jobs: messages(listed, command.JobToProto), Next: next, Scans: scans}
		},
		header: []string{"id", "state", "outcome", "name", "started", "took", "kind", "board", "priority", "owner", "posted"},
		row: func(job *jobs.Job) []string {
			return []string{
				job.ID.String(), string(job.State), OrDash(string(job.Outcome)), OrDash(job.Name),
				OrDash(agoText(job.StartedAt)), OrDash(tookText(job, time.Now())), OrDash(job.Kind), job.Board, job.Priority.String(), OrDash(ownerOf(job)), agoText(job.PostedAt),
			}
		},
	}
}

// outcomes are all that there are.
var outcomes = []jobs.Outcome{jobs.OutcomeSuccess, jobs.OutcomeReverted, jobs.OutcomeFailed, jobs.OutcomeCancelled}

// texts are the values of a type of text, as texts.
func texts[T ~string](values []T) []string {
	names := make([]string, 0, len(values))
	for _, value := range values {
		names = append(names, string(value))
	}
	return names
}

// Unknown states that people try get advice.
func parseStates(names []string) ([]jobs.State, error) {
	states := make([]jobs.State, 0, len(names))
	for _, name := range names {
		state := jobs.State(strings.ToLower(name))
		if !slices.Contains(jobs.States, state) {
			err := usageError{fmt.Errorf("--state must be one of %s, not %.64q%s", strings.Join(texts(jobs.States), ", "), name, meant.Hint(name, texts(jobs.States)))}
			return nil, advisedError{err, stateAdvice[string(state)]}
		}
		states = append(states, state)
	}
	return states, nil
}

// tookText is how long a job has been at work: to its end, or until now while it is
// claimed; nothing in between, when nobody works on it.
func tookText(job *jobs.Job, now time.Time) string {
	end := job.FinishedAt
	if job.Claim != nil {
		end = now
	}
	if job.StartedAt.IsZero() || end.IsZero() {
		return ""
	}
	return durationText(max(end.Sub(job.StartedAt), 0))
}

func ownerOf(job *jobs.Job) string {
	if job.Claim == nil {
		return ""
	}
	return job.Claim.Owner
}

// readJob reads a job and shows it.
func (p *Program) readJob(ctx context.Context, cluster Cluster, id jobs.JobID) error {
	job, err := cluster.Job(ctx, id)
	if err != nil {
		return because(err, "get job %s", id)
	}
	return p.showJob(ctx, cluster, job)
}

// showChanged reads a job after a change and shows it: as JSON, or in a line.
func (p *Program) showChanged(ctx context.Context, reader jobs.Reader, id jobs.JobID, line func(*jobs.Job) string) error {
	job, err := reader.Job(ctx, id)
	if err != nil {
		return because(err, "read job %s after the change, which was made", id)
	}
	return p.Show(command.JobToProto(&job), "%s %s", job.ID, line(&job))
}

// showJob shows a job with its evidence, and notes when no conductor can run
// it.
func (p *Program) showJob(ctx context.Context, cluster Cluster, job jobs.Job) error {
	if err := p.noteIdle(ctx, cluster, &job); err != nil {
		return err
	}
	if p.JSON() {
		return p.WriteJSON(command.JobToProto(&job))
	}
	fields := p.jobFields(&job)
	evidence, err := evidenceOf(ctx, cluster, &job)
	if err != nil {
		return err
	}
	return p.writeFields(append(fields, evidence...))
}

func (p *Program) jobFields(job *jobs.Job) []field {
	fields := []field{
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
		{"max crashes", countText(job.MaxCrashes)},
		{"state", string(job.State)},
		{"outcome", string(job.Outcome)},
		{"owner", ownerOf(job)},
		{"last owner", job.LastOwner},
	}
	if !job.Token.IsZero() {
		fields = append(fields, field{"token", job.Token.String()})
	}
	if job.Claim != nil {
		fields = append(fields, field{"expiry", spanText(job.Claim.Expiry)})
	}
	if !job.Book.IsZero() {
		fields = append(fields, field{"book", strings.TrimSpace(job.Book.String() + " " + Clean(job.BookName))})
	}
	if !job.Flow.IsZero() {
		fields = append(fields, field{"flow", job.Flow.String()})
	}
	return append(fields,
		field{"details", string(job.Details)},
		field{"store", valuesText(job.Store)},
		field{"schedule", job.Schedule},
		field{"slot", p.timeText(job.Slot)},
		field{"posted", p.timeText(job.PostedAt)},
		field{"posted by", job.PostedBy},
		field{"traceparent", job.Traceparent},
		field{"not before", p.timeText(job.NotBefore)},
		field{"due", p.timeText(job.DueAt)},
		field{"deadline", p.timeText(job.Deadline)},
		field{"started", p.timeText(job.StartedAt)},
		field{"finished", p.timeText(job.FinishedAt)},
		field{"took", tookText(job, time.Now())},
		field{"claims", strconv.Itoa(job.Claims)},
		field{"crashes", countText(job.Crashes)},
		field{"failures", countText(job.Failures)},
		field{"retention", spanText(job.Retention)},
		field{"retry", retryText(job.Retry)},
		field{"attempt", p.attemptText(job)},
		field{"reason", job.Reason},
		field{"stop", p.stopText(job.StopRequest)},
		field{"reserved", p.reservedText(job.Reserved)},
	)
}

// effectiveText says what a job counts for now, where waiting raises it.
func effectiveText(job *jobs.Job) string {
	if job.Effective == nil {
		return ""
	}
	return job.Effective.String()
}

// frontText says whether a job comes before its equals.
func frontText(job *jobs.Job) string {
	if job.Front == 0 {
		return ""
	}
	return "yes"
}

// countText shows a count, and nothing for none.
func countText(count int) string {
	if count == 0 {
		return ""
	}
	return strconv.Itoa(count)
}

// valuesText shows values by name, one on each line.
func valuesText(values logbook.Values) string {
	lines := make([]string, 0, len(values))
	for name, value := range values {
		lines = append(lines, Clean(name)+" = "+string(value))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// evidenceOf is why a job failed: its failure, and what the step that failed
// last wrote to stderr. The flow may be gone already; then there is less.
func evidenceOf(ctx context.Context, cluster Cluster, job *jobs.Job) ([]field, error) {
	fields := failureFields(job.Failure)
	between := job.Attempted != "" && job.Claim == nil // between two attempts, or parked after the last
	if job.Flow.IsZero() || !job.State.Finished() && !between && job.Claim == nil || job.Outcome == jobs.OutcomeSuccess {
		return fields, nil
	}
	detail, err := cluster.FlowDetail(ctx, job.Flow)
	if errors.Is(err, jobs.ErrNotFound) {
		return fields, nil
	}
	if err != nil {
		return nil, because(err, "read flow %s of job %s", job.Flow, job.ID)
	}
	if job.Claim != nil {
		t := tree{rows: rowsOf(&detail), detail: &detail, now: time.Now(), waiting: true, height: maxAlsoFailed}
		return append(fields, field{"waiting steps", strings.Join(t.lines()[1:], "\n")}), nil
	}
	cause := job.Failure
	if cause == nil {
		cause = detail.Cause
		fields = failureFields(cause)
	}
	fields = append(fields, flowEvidence(cause, &detail)...)
	if detail.State == logbook.FlowFailure {
		fields = append(fields, field{"next step", fmt.Sprintf("an operator must repair the flow: `conductord flow show %s` lists the repairs", detail.ID)})
	}
	return fields, nil
}

func failureFields(failure *logbook.Failure) []field {
	if failure == nil {
		return nil
	}
	if origin := failure.Origin(); origin != failure {
		undo := logbook.Failure{Step: failure.Step, Message: failure.Kind + ": " + failure.Message}
		return append(failureFields(origin), field{"revert failed", undo.Error()})
	}
	fields := []field{
		{"failed step", failure.Step},
		{"failure", failure.Kind + ": " + failure.Message},
	}
	if len(failure.Details) > 0 {
		fields = append(fields, field{"failure details", valuesText(failure.Details)})
	}
	for len(failure.Causes) > 0 {
		said := failure.Message
		failure = &failure.Causes[0]
		if strings.Contains(said, failure.Message) {
			continue // an error tells its causes, and then they would stand here twice
		}
		fields = append(fields, field{"caused by", (&logbook.Failure{Step: failure.Step, Message: failure.Kind + ": " + failure.Message}).Error()})
	}
	return fields
}

// stderrLines is how much of a step's stderr is shown without being asked for.
const stderrLines = 20

// maxAlsoFailed bounds the steps that are named beside the one of the cause.
const maxAlsoFailed = 10

// flowEvidence is what a flow says of its failure beyond the cause: the other
// steps that have failed, and the end of what the step of the cause wrote to
// stderr when it failed. Where it wrote nothing, that of a step which the cause
// names further down is shown under its name.
func flowEvidence(cause *logbook.Failure, detail *logbook.FlowDetail) (fields []field) {
	var named []*logbook.Failure
	for rest := []*logbook.Failure{cause}; len(rest) > 0 && rest[0] != nil; rest = rest[1:] {
		named = append(named, rest[0])
		for i := range rest[0].Causes {
			rest = append(rest, &rest[0].Causes[i])
		}
	}
	others := detail.AlsoFailed(cause)
	for _, other := range others[:min(len(others), maxAlsoFailed)] {
		fields = append(fields, field{"also failed", other.Step + ": " + other.Kind + ": " + other.Message})
	}
	if more := len(others) - maxAlsoFailed; more > 0 {
		fields = append(fields, field{"also failed", fmt.Sprintf("%d more steps", more)})
	}
	for i, failure := range named {
		atom, ok := detail.Atom(failure.Step)
		if !ok {
			continue
		}
		name, action := "stderr", logbook.ActionExecute
		if i == 0 && atom.State == logbook.AtomRevertFailure {
			name, action = "stderr of the revert", logbook.ActionRevert
		} else if failure.Step != cause.Step {
			name += " of " + failure.Step
		}
		if lines := stderrTail(atom, action); len(lines) > 0 {
			return append(fields, field{name, strings.Join(lines, "\n")})
		}
	}
	return fields
}

// stderrTail is the end of what a step wrote to stderr when it failed last.
func stderrTail(atom *logbook.AtomDetail, action logbook.Action) []string {
	last, ok := atom.Last(action)
	if !ok || last.Failure == nil || last.Stderr == "" {
		return nil
	}
	lines := strings.Split(strings.TrimRight(last.Stderr, "\n"), "\n")
	return lines[max(0, len(lines)-stderrLines):]
}

// noteIdle says so if a job waits for a kind of conductor that is not there.
func (p *Program) noteIdle(ctx context.Context, cluster Cluster, job *jobs.Job) error {
	if job.Flow.IsZero() || job.State.Finished() || job.State == jobs.StateClaimed {
		return nil
	}
	conductors, err := cluster.Entities(ctx, jobs.EntityConductor)
	if err != nil {
		return because(err, "list conductors")
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
