package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// ending is one of the three ways to let go of a job.
type ending struct {
	verb, short string
	end         func(jobs.Claimer, context.Context, jobs.Ending) error
}

var (
	consume = ending{"consume", "Complete a job whose work is done", jobs.Claimer.Consume}
	abandon = ending{"abandon", "Abandon a claimed job, so that it can be claimed again", jobs.Claimer.Abandon}
	trash   = ending{"trash", "Trash a job that cannot be done", jobs.Claimer.Trash}
)

// operatorTTL is that of the session that ends a job: longer than the command
// may take, since nothing keeps it alive, and short enough that a job whose
// command was killed is soon free.
const operatorTTL = 45 * time.Second

// closeTimeout bounds the closing of that session.
const closeTimeout = 5 * time.Second

// endFlags are what an ending can be given.
type endFlags struct {
	token, reason, outcome string
	delay                  time.Duration
}

func (p *Program) jobEndCommand(how ending) *cobra.Command {
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
			return p.With(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				if f.token == "" {
					return p.endUnclaimed(ctx, cluster, how, end)
				}
				return p.endClaimed(ctx, cluster, how, end)
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
		return end, usageError{fmt.Errorf("--outcome must be success, reverted, failed or cancelled, not %.64q", f.outcome)}
	}
	if f.delay < 0 {
		return end, usageError{fmt.Errorf("--delay must not be negative: %s", f.delay)}
	}
	if how.verb == trash.verb {
		if end.Reason == "" {
			end.Reason = "trashed by " + operatorName()
		}
		end.Failure = &logbook.Failure{Kind: logbook.FailureOperator, Message: end.Reason, Permanent: true}
	}
	return end, nil
}

// endClaimed ends a job under a claim that somebody holds already.
func (p *Program) endClaimed(ctx context.Context, cluster Cluster, how ending, end jobs.Ending) error {
	if err := how.end(cluster, ctx, end); err != nil {
		return because(err, "%s job %s", how.verb, end.Job)
	}
	return p.showChanged(ctx, cluster, end.Job, func(job *jobs.Job) string { return string(job.State) })
}

// endUnclaimed claims a job for a session of its own, and ends it.
func (p *Program) endUnclaimed(ctx context.Context, cluster Cluster, how ending, end jobs.Ending) error {
	host, _ := os.Hostname() // for people; without it the session has no host
	session, err := cluster.OpenSession(ctx, jobs.Opening{
		ID: jobs.NewSessionID(), Name: operatorName(), Host: host, PID: os.Getpid(), TTL: operatorTTL,
	})
	if err != nil {
		return because(err, "open a session")
	}
	defer p.closeSession(ctx, cluster, session.ID)
	claimed, err := cluster.Claim(ctx, session.ID, end.Job, jobs.NewNonce())
	switch {
	case errors.Is(err, jobs.ErrUnclaimable):
		err = p.sayWhy(ctx, cluster, end.Job, err)
	case errors.Is(err, jobs.ErrNotFound):
		err = jobs.ErrNotFound // the claim is not what was asked for
	}
	if err != nil {
		return because(err, "%s job %s", how.verb, end.Job)
	}
	end.Token = claimed.Job.Token
	return p.endClaimed(ctx, cluster, how, end)
}

// closeSession closes a session also when the command was interrupted, since
// it may hold a claim.
func (p *Program) closeSession(ctx context.Context, attendant jobs.Attendant, id jobs.SessionID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := attendant.CloseSession(ctx, id); err != nil {
		p.Note("cannot close session %s, which expires in %s: %v", id, operatorTTL, err)
	}
}

// sayWhy names who holds a job that cannot be claimed, and how to end it all the
// same, or what it waits for.
func (p *Program) sayWhy(ctx context.Context, reader jobs.Reader, id jobs.JobID, refusal error) error {
	job, err := reader.Job(ctx, id)
	switch {
	case err != nil:
		return refusal // which says enough
	case job.Claim != nil:
		return fmt.Errorf("%w: %q has held it since %s; --token %s ends it under that claim",
			jobs.ErrUnclaimable, job.Claim.Owner, p.timeText(job.Claim.Since), job.Claim.Token)
	case !job.DueAt.IsZero():
		return fmt.Errorf("%w: it is %s until %s", jobs.ErrUnclaimable, job.State, p.timeText(job.DueAt))
	}
	return fmt.Errorf("%w: it is %s", jobs.ErrUnclaimable, job.State)
}

// operatorName is who sits at this keyboard: user@host.
func operatorName() string {
	name, host := "unknown", "unknown"
	if who, err := user.Current(); err == nil && who.Username != "" {
		name = who.Username
	}
	if here, err := os.Hostname(); err == nil {
		host = here
	}
	return name + "@" + host
}
