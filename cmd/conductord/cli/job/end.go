package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// claimer claims a job in a session, and ends it.
type claimer interface {
	jobReader
	OpenSession(ctx context.Context, opening jobs.Opening) (jobs.Session, error)
	CloseSession(ctx context.Context, id jobs.SessionID) error
	Claim(ctx context.Context, session jobs.SessionID, job jobs.JobID, nonce jobs.Nonce) (jobs.Claimed, error)
	Consume(ctx context.Context, ending jobs.Ending) error
	Abandon(ctx context.Context, ending jobs.Ending) error
	Trash(ctx context.Context, ending jobs.Ending) error
}

// ending is one of the three ways to end a claim.
type ending struct {
	verb, short string
	end         func(claimer, context.Context, jobs.Ending) error
}

var (
	consume = ending{"consume", "Complete a job whose work is done", claimer.Consume}
	abandon = ending{"abandon", "Abandon a claimed job, so that it can be claimed again", claimer.Abandon}
	trash   = ending{"trash", "Trash a job that cannot be done", claimer.Trash}
)

// operatorTTL is the TTL of the session that ends a job. It is longer than the command can take,
// because the command sends no keep-alives. It is short enough to free the job soon after the
// command was killed.
const operatorTTL = 45 * time.Second

// endFlags are the flags of an ending.
type endFlags struct {
	token, reason, outcome string
	delay                  time.Duration
}

func endCommand(p *cli.Program, how ending) *cobra.Command {
	var f endFlags
	cmd := &cobra.Command{
		Use:   how.verb + " ID",
		Short: how.short,
		Long: how.short + ".\n\nWith --token, end the job under this claim. Without --token, claim the job first; exit code 4 means\n" +
			"that another session holds it. A conductor that loses its claim is notified immediately and stops\n" +
			"its running steps. To revert or finish the steps first, use job cancel or job suspend.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			end, err := f.ending(how, args[0])
			if err != nil {
				return err
			}
			return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				if f.token == "" {
					return endUnclaimed(ctx, p, cluster, how, end)
				}
				return endClaimed(ctx, p, cluster, how, end)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.token, "token", "", "token of the current claim")
	switch how.verb {
	case consume.verb:
		flags.StringVar(&f.outcome, "outcome", string(jobs.OutcomeSuccess), "success, reverted or failed; cancelled, if that was requested")
	case abandon.verb:
		flags.StringVar(&f.reason, "reason", "", "reason, in one sentence")
		flags.DurationVar(&f.delay, "delay", 0, "delay before the job can be claimed again (default 0s)")
	case trash.verb:
		flags.StringVar(&f.reason, "reason", "", "reason, in one sentence")
	}
	return cmd
}

func (f *endFlags) ending(how ending, job string) (jobs.Ending, error) {
	end := jobs.Ending{Outcome: jobs.Outcome(f.outcome), Reason: f.reason, Delay: f.delay}
	var err error
	if end.Job, err = jobs.ParseJobID(job); err != nil {
		return end, err
	}
	if f.token != "" {
		if end.Token, err = logbook.ParseToken(f.token); err != nil {
			return end, err
		}
	}
	switch end.Outcome {
	case "", jobs.OutcomeSuccess, jobs.OutcomeReverted, jobs.OutcomeFailed, jobs.OutcomeCancelled:
	default:
		return end, cli.UsageError(fmt.Errorf("--outcome must be success, reverted, failed or cancelled, not %.64q", f.outcome))
	}
	if f.delay < 0 {
		return end, cli.UsageError(fmt.Errorf("--delay must not be negative: %s", f.delay))
	}
	if how.verb == trash.verb {
		if end.Reason == "" {
			end.Reason = "trashed by " + cli.OperatorName()
		}
		end.Failure = &logbook.Failure{Kind: logbook.FailureOperator, Message: end.Reason, Permanent: true}
	}
	return end, nil
}

// endClaimed ends a job under an existing claim.
func endClaimed(ctx context.Context, p *cli.Program, cluster claimer, how ending, end jobs.Ending) error {
	if err := how.end(cluster, ctx, end); err != nil {
		return cli.Because(err, "%s job %s", how.verb, end.Job)
	}
	return showChanged(ctx, p, cluster, end.Job, func(job *jobs.Job) string { return string(job.State) })
}

// endUnclaimed claims a job for its own session, and ends the job.
func endUnclaimed(ctx context.Context, p *cli.Program, cluster claimer, how ending, end jobs.Ending) error {
	host, _ := os.Hostname() // shown to operators; without it the session has no host
	session, err := cluster.OpenSession(ctx, jobs.Opening{
		ID: jobs.NewSessionID(), Name: cli.OperatorName(), Host: host, PID: os.Getpid(), TTL: operatorTTL,
	})
	if err != nil {
		return cli.Because(err, "open a session")
	}
	defer closeSession(ctx, p, cluster, session.ID)
	claimed, err := cluster.Claim(ctx, session.ID, end.Job, jobs.NewNonce())
	switch {
	case errors.Is(err, jobs.ErrUnclaimable):
		err = sayWhy(ctx, p, cluster, end.Job, err)
	case errors.Is(err, jobs.ErrNotFound):
		err = jobs.ErrNotFound // the command does not concern the claim itself
	}
	if err != nil {
		return cli.Because(err, "%s job %s", how.verb, end.Job)
	}
	end.Token = claimed.Job.Token
	return endClaimed(ctx, p, cluster, how, end)
}

// closeSession closes a session, even after an interrupt, because the session may hold a
// claim.
func closeSession(ctx context.Context, p *cli.Program, cluster claimer, id jobs.SessionID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTimeout)
	defer cancel()
	if err := cluster.CloseSession(ctx, id); err != nil {
		p.Note("cannot close session %s, which expires in %s: %v", id, operatorTTL, err)
	}
}

// sayWhy explains why a job cannot be claimed: it names the owner and the way to end the job
// anyway, or what the job waits for.
func sayWhy(ctx context.Context, p *cli.Program, reader jobReader, id jobs.JobID, refusal error) error {
	job, err := reader.Job(ctx, id)
	switch {
	case err != nil:
		return refusal // the refusal is enough
	case job.Claim != nil:
		refusal = fmt.Errorf("%w: %q has held the job since %s", jobs.ErrUnclaimable, job.Claim.Owner, p.TimeText(job.Claim.Since))
		return cli.Advised(refusal, fmt.Sprintf("`conductord job cancel %s` cancels the job, and `conductord job suspend --interrupt-steps %s` suspends it; "+
			"a caller that may use the claim can add --token %s", id, id, job.Claim.Token))
	case !job.DueAt.IsZero() && job.State != jobs.StateHeld && job.State != jobs.StateSuspended: // these two have no end
		refusal = fmt.Errorf("%w: it is %s until %s", jobs.ErrUnclaimable, job.State, p.TimeText(job.DueAt))
	default:
		refusal = fmt.Errorf("%w: it is %s", jobs.ErrUnclaimable, job.State)
	}
	if job.State.Finished() {
		return refusal
	}
	advice := fmt.Sprintf("`conductord job cancel %s` cancels the job in this state", id)
	if verb := claimableAgain[job.State]; verb != "" {
		advice += fmt.Sprintf("; to claim it, first run `%s`", cli.RemedyText(jobs.Remedy{Verb: verb, Target: id.String()}))
	}
	return cli.Advised(refusal, advice)
}

// claimableAgain are the remedies that make a waiting job claimable.
var claimableAgain = map[jobs.State]jobs.RemedyVerb{
	jobs.StateDelayed: jobs.RemedyMakeDue, jobs.StateHeld: jobs.RemedyRelease, jobs.StateSuspended: jobs.RemedyResume,
}
