package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/document"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/duration"
	"github.com/conductord/conductord/internal/traceparent"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

// ContentFlags are the properties of a job for any kind of posting: by an operator, or at the slots
// of a schedule.
type ContentFlags struct {
	priority, details string
	sets              []string
	key               string
	tags, labels      []string
	maxCrashes        int
	hold, front       bool
	retry             jobs.RetryPolicy
	retention         time.Duration
}

// Add adds the flags to a command.
func (f *ContentFlags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.priority, "priority", "", "priority: very-low, low, normal, high, very-high, or a number; higher first (default the document's priority, or normal)")
	flags.StringVar(&f.details, "details", "", "details to store with the job: JSON, or @FILE")
	flags.StringArrayVar(&f.sets, "set", nil, "input of the flow: NAME=JSON, or NAME=TEXT; repeatable")
	flags.BoolVar(&f.hold, "hold", false, "hold the job until you run job release")
	flags.StringVar(&f.key, "key", "", "key of the job: a board has at most one unfinished job with a given key")
	flags.BoolVar(&f.front, "front", false, "claim the job before all others of its priority")
	flags.StringSliceVar(&f.tags, "tag", nil, "tag of the job, to filter by; repeatable or comma-separated")
	flags.StringSliceVar(&f.labels, "label", nil, "label that a conductor must offer; repeatable or comma-separated")
	flags.IntVar(&f.maxCrashes, "max-crashes", 0, "number of crashed owners after which the job is trashed (default the cluster's setting)")
	addRetryFlags(cmd, &f.retry)
	flags.DurationVar(&f.retention, "retention", 0, "time to keep the finished job and its book (default the cluster's setting)")
}

// Fill applies the flags to a posting.
func (f *ContentFlags) Fill(p *cli.Program, posting *jobs.Posting) (err error) {
	posting.Hold, posting.Key, posting.Front = f.hold, f.key, f.front
	posting.Tags, posting.Labels, posting.MaxCrashes = f.tags, f.labels, f.maxCrashes
	if posting.Priority, err = jobs.ParsePriority(cmp.Or(f.priority, "normal")); err != nil {
		return err
	}
	posting.Retention = f.retention
	if posting.Retry, err = givenRetry(&f.retry); err != nil {
		return err
	}
	if posting.Store, err = cli.ParseSets(f.sets); err != nil {
		return err
	}
	if f.details != "" {
		posting.Details, err = p.ReadDetails(f.details)
	}
	return err
}

// Override gives a posting with a flow document the values of flags that equal the default of a posting: the document
// has replaced them.
func (f *ContentFlags) Override(posting *jobs.Posting) {
	if f.priority != "" {
		posting.Priority, _ = jobs.ParsePriority(f.priority) // checked by Fill
	}
}

// PostFlags are the flags of a new job. flow run has some of them too.
type PostFlags struct {
	ContentFlags
	id, name, board     string
	notBefore, deadline string
	signal              logbook.Signal
	signalData          string
	Wait                bool
}

// Add adds the flags to a command, with the flags of the content.
func (f *PostFlags) Add(cmd *cobra.Command) {
	f.ContentFlags.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.id, "id", "", "id of the job; posting the same id again has no effect (default a new id)")
	flags.StringVar(&f.name, "name", "", "display name (default the name of the flow document, kind or book)")
	flags.StringVar(&f.board, "board", jobs.DefaultBoard, "board")
	flags.StringVar(&f.notBefore, "not-before", "", "earliest start: a time (2030-01-02T15:04:05Z), or a duration from now (10m)")
	flags.StringVar(&f.deadline, "deadline", "", "cancel and revert the job if it is not finished by this time, or this long from now")
	flags.StringVar(&f.signal.Name, "signal", "", "with --key: signal the unfinished job with the key; post the job with the signal if there is none")
	flags.StringVar(&f.signalData, "data", "", "data of the --signal, in JSON")
	flags.StringVar(&f.signal.ID, "signal-id", "", "id of the --signal (default the id of the posting)")
	flags.BoolVar(&f.Wait, "wait", false, "wait until the job is finished, and print the results of its flow; exit 1 unless the job succeeds")
}

// Posting makes a posting of the flags, without a flow.
func Posting(p *cli.Program, f *PostFlags) (jobs.Posting, error) {
	posting := jobs.Posting{ID: jobs.NewJobID(), Board: f.board, Name: f.name}
	err := f.Fill(p, &posting)
	if err != nil {
		return posting, err
	}
	if f.id != "" {
		if posting.ID, err = jobs.ParseJobID(f.id); err != nil {
			return posting, err
		}
	}
	if posting.Deadline, err = cli.ParseMoment("--deadline", f.deadline, time.Now()); err != nil {
		return posting, err
	}
	if posting.Signal, err = f.givenSignal(); err != nil {
		return posting, err
	}
	posting.NotBefore, err = cli.ParseMoment("--not-before", f.notBefore, time.Now())
	return posting, err
}

// givenSignal is the signal of the flags; nil: none.
func (f *PostFlags) givenSignal() (*logbook.Signal, error) {
	switch {
	case f.signal.Name == "" && (f.signalData != "" || f.signal.ID != ""):
		return nil, cli.UsageError(errors.New("--data and --signal-id need --signal"))
	case f.signal.Name == "":
		return nil, nil
	case f.key == "":
		return nil, cli.UsageError(errors.New("--signal needs --key: the key names the job that gets the signal"))
	}
	signal := f.signal
	if signal.By = cli.OperatorName(); f.signalData != "" {
		signal.Data = json.RawMessage(f.signalData)
	}
	return &signal, nil
}

func postCommand(p *cli.Program) *cobra.Command {
	var (
		f    PostFlags
		work WorkFlags
		from string
	)
	cmd := &cobra.Command{
		Use:   "post",
		Short: "Post a job, or one for each line of a file",
		Long: "Post a job to run a flow document (--flow) or a flow of a saved book (--book), or for your own workers (--kind).\n" +
			"With --id, posting the same job again has no effect.\n\n" +
			"With --from, each line of a file is a posting in the API's JSON, such as\n" +
			"{\"name\": \"a\", \"kind\": \"mail\", \"key\": \"order 7\"}, or with a flow document as an object:\n" +
			"{\"key\": \"order 8\", \"flow\": {\"name\": \"hello\", \"inputs\": [\"guest\"], \"steps\": […]}, \"store\": {\"guest\": \"Grace\"}}.\n" +
			"A job without a name gets the name of its flow or kind. If each line has an id, posting the file again has\n" +
			"no effect. Other flags, such as --board, are defaults for lines without this field.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from != "" {
				return postFile(p, cmd, from, &f, work.Kind)
			}
			posting, err := Posting(p, &f)
			if err != nil {
				return err
			}
			if err := work.Fill(p, &posting); err != nil {
				return err
			}
			f.Override(&posting)
			return RunOrPost(cmd.Context(), p, posting, f.Wait)
		},
	}
	f.Add(cmd)
	work.add(cmd)
	cmd.Flags().StringVar(&from, "from", "", "file with one JSON posting per line; - is stdin")
	return cmd
}

// lineFields are the fields of a line for which a flag sets the default.
var lineFields = map[string]string{
	"board": "board", "priority": "priority", "details": "details", "set": "store", "hold": "hold", "front": "front", "tag": "tags",
	"label": "labels", "max-crashes": "max_crashes", "retention": "retention", "not-before": "not_before", "deadline": "deadline", "kind": "kind",
}

// postFile posts the postings of a file. It refuses a flag that cannot be a default for the lines,
// because the flag would have no effect.
func postFile(p *cli.Program, cmd *cobra.Command, path string, f *PostFlags, kind string) error {
	var beside error
	given := map[string]bool{}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		field := lineFields[flag.Name]
		if given[field] = true; field == "" && flag.Name != "from" && beside == nil && cmd.InheritedFlags().Lookup(flag.Name) == nil {
			beside = cli.UsageError(fmt.Errorf("--%s does not apply to --from: set it in each line of the file", flag.Name))
		}
	})
	if beside != nil {
		return beside
	}
	defaults, err := lineDefaults(p, f, kind, given)
	if err != nil {
		return err
	}
	postings, err := readPostings(p, path, defaults)
	if err != nil {
		return err
	}
	return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
		return postLines(ctx, p, cluster, postings)
	})
}

// lineDefaults are the values of the flags as fields of a line.
func lineDefaults(p *cli.Program, f *PostFlags, kind string, given map[string]bool) (map[string]json.RawMessage, error) {
	posting, err := Posting(p, f)
	if err != nil {
		return nil, err
	}
	posting.Kind = kind
	text, err := wire.JSONCodec{}.Marshal(command.PostingToProto(&posting))
	fields, defaults := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	for name, value := range fields {
		if given[name] {
			defaults[name] = value
		}
	}
	return defaults, err
}

// WorkFlags describe the flow of the job.
type WorkFlags struct {
	Document, book, flow, Kind string
	Supplied                   []string // inputs of the document that get their values after the posting
	onFailure                  FailurePolicyFlag
}

func (w *WorkFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&w.book, "book", "", "id of a saved book")
	flags.StringVar(&w.flow, "flow-id", "", "id of the flow to run, if the book has several flows")
	w.AddNew(cmd)
}

// AddNew adds the flags for a flow that is in no saved book.
func (w *WorkFlags) AddNew(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&w.Document, "flow", "", "flow document to run (TOML or JSON)")
	flags.StringVar(&w.Kind, "kind", "", "kind of a job without a flow, for your own workers")
	w.onFailure.Add(cmd)
}

// FailurePolicyFlag replaces the failure policies of the flow in a posting.
type FailurePolicyFlag string

// Add adds the flag to a command.
func (f *FailurePolicyFlag) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(f), "on-step-failure", "", "reaction to a failed step: revert, or hold (revert nothing and wait for an operator) (default the document's on_failure)")
}

// Fill sets the policy of all flows of a posting, which must have a book.
func (f FailurePolicyFlag) Fill(posting *jobs.Posting) {
	for i := range posting.Book.Flows {
		posting.Book.Flows[i].OnFailure = logbook.FailurePolicy(f)
	}
}

// Fill sets the work of a posting from the flags. It refuses flags that name no work, or more than one.
func (w *WorkFlags) Fill(p *cli.Program, posting *jobs.Posting) (err error) {
	given := 0
	for _, what := range []string{w.Document, w.book, w.Kind} {
		if what != "" {
			given++
		}
	}
	switch {
	case given > 1:
		return cli.UsageError(errors.New("--flow, --book and --kind exclude each other"))
	case w.flow != "" && w.book == "":
		return cli.UsageError(errors.New("--flow-id needs --book"))
	case w.onFailure != "" && w.Document == "":
		return cli.UsageError(errors.New("--on-step-failure needs --flow"))
	case given == 0:
		return cli.UsageError(errors.New("name the work of the job: --flow, --book or --kind"))
	}
	if w.Kind != "" { // here, because the job's name may be derived from it
		if err := logbook.MaxLimits.CheckName("--kind", w.Kind); err != nil {
			return err
		}
		if w.Kind == spec.Kind {
			return cli.UsageError(fmt.Errorf("--kind %s is for jobs with a flow: use --flow FILE", w.Kind))
		}
	}
	if w.Document != "" {
		if err := document.AttachFiles(p, spec.Linear, []string{w.Document}, posting, w.Supplied); err != nil {
			return err
		}
		w.onFailure.Fill(posting)
		return nil
	}
	posting.Kind = w.Kind
	if posting.Name == "" {
		posting.Name = cmp.Or(w.Kind, w.book) // a job must have a name, and no flag gives one
	}
	if w.book != "" {
		if posting.BookID, err = logbook.ParseBookID(w.book); err != nil {
			return err
		}
	}
	if w.flow != "" {
		posting.Flow, err = logbook.ParseFlowID(w.flow)
	}
	return err
}

// poster posts jobs, and follows them.
type poster interface {
	jobs.Poster
	Work
}

// postAndShow posts one job, prints its id, and warns of obstacles to its run.
func postAndShow(ctx context.Context, p *cli.Program, cluster poster, posting jobs.Posting) error {
	job, err := postJob(ctx, p, cluster, posting)
	if err != nil {
		return err
	}
	defer document.WarnOfHandlers(ctx, p, cluster, &job, document.HandlersOf(&posting))
	return showPosted(p, job)
}

// postJob posts one job. A note reports that it had been posted before.
func postJob(ctx context.Context, p *cli.Program, cluster jobs.Poster, posting jobs.Posting) (jobs.Job, error) {
	ctx, err := traced(ctx)
	if err != nil {
		return jobs.Job{}, err
	}
	posted, err := cluster.Post(ctx, posting)
	if err == nil {
		err = elsewhere(posted[0].Err)
	}
	if err != nil {
		if mayHaveHappened(err) {
			p.Note("it is unknown whether job %s was posted: see `conductord job get %s`, or repeat the command with --id %s", posting.ID, posting.ID, posting.ID)
		}
		return jobs.Job{}, cli.Because(err, "post job %s", posting.ID)
	}
	switch {
	case posted[0].Existed && posted[0].Job.ID != posting.ID && posted[0].Job.State.Finished():
		p.Note("job %s has received the signal with this id before, and is finished: no job was posted", posted[0].Job.ID)
	case posted[0].Existed && posted[0].Job.ID != posting.ID:
		p.Note("job %s has the key %q and is not finished, so no second job was posted; its priority is %s, the higher of the two", posted[0].Job.ID, posting.Key, posted[0].Job.Priority)
	case posted[0].Existed:
		p.Note("job %s was already posted: nothing changed", posting.ID)
	}
	if posting.Signal != nil {
		p.Note("signal %s to job %s: %s", posting.Signal.Name, posted[0].Job.ID, posted[0].Signal.Answer)
	}
	return posted[0].Job, nil
}

// elsewhere adds advice to the error of a posting for another cluster: the called node has
// answered, but the board's cluster has not.
func elsewhere(verdict error) error {
	if errors.Is(verdict, jobs.ErrUnavailable) && !errors.Is(verdict, jobs.ErrOverloaded) {
		return cli.Advised(verdict, "the board's cluster does not answer: `conductord topology check` checks the nodes of all clusters")
	}
	return verdict
}

// traced adds the environment's span to a context; without TRACEPARENT there is none.
func traced(ctx context.Context) (context.Context, error) {
	text := os.Getenv(traceparent.Variable)
	if text == "" {
		return ctx, nil
	}
	parent, err := traceparent.Parse("the variable "+traceparent.Variable, text)
	return trace.ContextWithRemoteSpanContext(ctx, parent), err
}

// mayHaveHappened reports whether a write that returned an error may have taken effect.
func mayHaveHappened(err error) bool {
	if errors.Is(err, jobs.ErrUnavailable) {
		return false
	}
	return errors.Is(err, jobs.ErrUncertain) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// showPosted prints the id, which scripts need.
func showPosted(p *cli.Program, job jobs.Job) error {
	return p.Show(command.JobToProto(&job), "%s", job.ID)
}

// addRetryFlags adds the flags for the retry policy of a job.
func addRetryFlags(cmd *cobra.Command, policy *jobs.RetryPolicy) {
	flags := cmd.Flags()
	flags.IntVar(&policy.Attempts, "attempts", 0, "maximum attempts (default 1)")
	flags.DurationVar(&policy.Delay, "retry-delay", 0, "delay before the second attempt (default 10s)")
	flags.IntVar(&policy.BackoffPercent, "retry-backoff-percent", 0, "next delay as a percentage of the previous delay (default 100)")
	flags.DurationVar(&policy.MaxDelay, "retry-max-delay", 0, "maximum delay between attempts (default 1h)")
	flags.IntVar(&policy.JitterPercent, "retry-jitter-percent", 0, "random variation of each delay, in percent, 0 to 100 (default 0)")
	flags.Int32Var((*int32)(&policy.PriorityStep), "priority-step", 0, "change of the priority before each further attempt (default 0)")
	flags.StringSliceVar(&policy.Only, "retry-only", nil, "failure kind or exit status to retry; repeatable or comma-separated (default all)")
	flags.StringSliceVar(&policy.Never, "retry-never", nil, "failure kind or exit status that ends the attempts, even with --retry-only; repeatable or comma-separated")
	flags.StringVar((*string)(&policy.OnFailure), "on-failure", "", "action after the last attempt: complete, retry (without limit), or park (hold for an operator) (default complete)")
}

// givenRetry is the policy of the flags; nil if none was given.
func givenRetry(policy *jobs.RetryPolicy) (*jobs.RetryPolicy, error) {
	if reflect.ValueOf(*policy).IsZero() {
		return nil, nil
	}
	return policy, jobs.CheckRetryPolicy(logbook.MaxLimits, policy)
}

// RetryText shows a policy on one line.
func RetryText(p *jobs.RetryPolicy) string {
	if p == nil {
		return ""
	}
	parts := []string{fmt.Sprintf("%d attempts", p.Tries())}
	if p.Tries() == 1 {
		parts[0] = "1 attempt"
	}
	add := func(given bool, format string, args ...any) {
		if given {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(true, "after %s", duration.Text(cmp.Or(p.Delay, jobs.DefaultRetryDelay)))
	add(p.BackoffPercent > 100, "each delay %d %% of the previous delay", p.BackoffPercent)
	add(p.MaxDelay != 0, "at most %s", duration.Text(p.MaxDelay))
	add(p.JitterPercent != 0, "%d %% of it random", p.JitterPercent)
	add(p.PriorityStep != 0, "priority %+d each time", int(p.PriorityStep))
	parts = append(parts, p.RetryFilter.Notes()...)
	add(p.OnFailure != "", "then %s", p.OnFailure)
	return strings.Join(parts, ", ")
}

// attemptText shows the current attempt of a job with a retry policy.
func attemptText(p *cli.Program, job *jobs.Job) string {
	if job.Retry == nil {
		return ""
	}
	tries := job.Retry.Tries()
	if job.Parked || job.State.Finished() {
		return fmt.Sprintf("%d of %d failed", job.Attempts, max(tries, job.Attempts))
	}
	text := fmt.Sprintf("%d of %d", job.Attempts+1, max(tries, job.Attempts+1))
	if job.Attempts > 0 && job.State == jobs.StateCooling {
		text += ", next at " + p.TimeText(job.DueAt)
	}
	return text
}
