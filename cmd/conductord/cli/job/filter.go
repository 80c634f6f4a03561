package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
)

// jobFilter are the flags that select jobs.
type jobFilter struct {
	query                                              jobs.Query
	states, outcomes                                   []string
	postedSince, postedUntil, endedSince, finishedTill string
}

// filterFlags are the names of the flags.
var filterFlags = [...]string{
	"board", "state", "outcome", "kind", "key", "tag", "name", "error", "posted-since", "posted-until", "finished-since", "finished-until",
}

func (f *jobFilter) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.query.Board, "board", "", "only jobs on this board")
	flags.StringSliceVar(&f.states, "state", nil, "only jobs in these states: "+strings.Join(cli.Texts(jobs.States), ", "))
	flags.StringSliceVar(&f.outcomes, "outcome", nil, "only completed jobs with this outcome: "+strings.Join(cli.Texts(cli.Outcomes), ", ")+"; failed jobs need an operator")
	flags.StringVar(&f.query.Kind, "kind", "", "only jobs of this kind")
	flags.StringVar(&f.query.Key, "key", "", "only jobs with this key")
	flags.StringSliceVar(&f.query.Tags, "tag", nil, "only jobs with all of these tags; repeatable or comma-separated")
	flags.StringVar(&f.query.Name, "name", "", "only jobs with this text in their name")
	flags.StringVar(&f.query.ErrorType, "error", "", "only jobs with a failure of this kind, such as handler.exit; see job errors")
	flags.StringVar(&f.postedSince, "posted-since", "", "only jobs posted at or after this time (2026-01-02T15:04:05Z, or 1h for an hour ago)")
	flags.StringVar(&f.postedUntil, "posted-until", "", "only jobs posted before this time")
	flags.StringVar(&f.endedSince, "finished-since", "", "only jobs finished at or after this time")
	flags.StringVar(&f.finishedTill, "finished-until", "", "only jobs finished before this time")
}

// stateAdvice suggests a filter for words that are not states of a job.
var stateAdvice = wordAdvice()

func wordAdvice() map[string]string {
	advice := map[string]string{}
	for text, words := range map[string][]string{
		"parked jobs are held: --state held; `conductord job list --needs-attention` lists failed, trashed and parked jobs": {"parked"},
		"`conductord job list --needs-attention` lists jobs that need an operator":                                          {"stuck", "attention", "needs-attention", "blocked"},
		"jobs that wait are claimable, delayed, cooling or waiting: --state claimable,delayed,cooling,waiting":              {"pending", "queued", "ready", "posted", "unclaimed"},
		"jobs that wait for a time are delayed, cooling or waiting: --state delayed,cooling,waiting":                        {"scheduled", "retrying", "sleeping"},
		"jobs that run are claimed: --state claimed":                                                                        {"running", "active", "started", "executing", "reverting"},
		"stopped jobs are suspended, held or parked: --state suspended,held":                                                {"paused", "stopped", "hold", "on-hold", "interrupted"},
		"finished jobs are completed or trashed: --state completed,trashed":                                                 {"finished", "done", "ended"},
		"jobs that no conductor could do are trashed: --state trashed":                                                      {"dead", "trash"},
	} {
		for _, word := range words {
			advice[word] = text
		}
	}
	for _, outcome := range cli.Outcomes {
		advice[string(outcome)] = fmt.Sprintf("%s is an outcome of completed jobs: --outcome %s", outcome, outcome)
	}
	maps.Copy(advice, map[string]string{"failure": advice["failed"], "succeeded": advice["success"], "canceled": advice["cancelled"]})
	return advice
}

// given reports whether any filter was given.
func (f *jobFilter) given(cmd *cobra.Command) bool {
	for _, name := range filterFlags {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

func (f *jobFilter) read(now time.Time) (query jobs.Query, err error) {
	query = f.query
	if query.States, err = ParseStates(f.states); err != nil {
		return query, err
	}
	for _, name := range f.outcomes {
		outcome := jobs.Outcome(strings.ToLower(name))
		if !slices.Contains(cli.Outcomes, outcome) {
			err := cli.UsageError(fmt.Errorf("--outcome must be one of %s, not %.64q", strings.Join(cli.Texts(cli.Outcomes), ", "), name))
			if slices.Contains(jobs.States, jobs.State(outcome)) {
				return query, cli.Advised(err, fmt.Sprintf("%s is a state: --state %s", outcome, outcome))
			}
			return query, cli.Advised(err, stateAdvice[string(outcome)])
		}
		query.Outcomes = append(query.Outcomes, outcome)
	}
	for _, moment := range []struct {
		flag, text string
		to         *time.Time
	}{
		{"--posted-since", f.postedSince, &query.PostedFrom}, {"--posted-until", f.postedUntil, &query.PostedTo},
		{"--finished-since", f.endedSince, &query.FinishedFrom}, {"--finished-until", f.finishedTill, &query.FinishedTo},
	} {
		if *moment.to, err = cli.ParsePast(moment.flag, moment.text, now); err != nil {
			return query, err
		}
	}
	return query, excluding(&query)
}

// excluding refuses combinations of filters that no job can match. The listing would be empty
// without an explanation.
func excluding(query *jobs.Query) error {
	if len(query.States) == 0 {
		return nil
	}
	if len(query.Outcomes) > 0 && !slices.Contains(query.States, jobs.StateCompleted) {
		return cli.UsageError(fmt.Errorf("--outcome and --state exclude each other: only completed jobs have an outcome, and --state is %s", strings.Join(cli.Texts(query.States), ",")))
	}
	if !(query.FinishedFrom.IsZero() && query.FinishedTo.IsZero()) && !slices.ContainsFunc(query.States, jobs.State.Finished) {
		return cli.UsageError(fmt.Errorf("--finished-since or --finished-until and --state exclude each other: no job that is %s has finished", strings.Join(cli.Texts(query.States), " or ")))
	}
	return nil
}

// listOrder are the flags for the order of listed jobs.
type listOrder struct {
	by      string // posted or claim
	reverse bool
}

func (o *listOrder) flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.reverse, "reverse", false, "list oldest first")
}

func (o *listOrder) read() (jobs.Order, error) {
	switch {
	case o.by != "posted" && o.by != "claim":
		return "", cli.UsageError(fmt.Errorf("--order must be posted or claim, not %.64q", o.by))
	case o.by == "claim" && o.reverse:
		return "", cli.UsageError(errors.New("--order claim cannot be reversed; omit --reverse"))
	case o.by == "claim":
		return jobs.OrderClaim, nil
	case o.reverse:
		return jobs.OrderPosted, nil
	}
	return jobs.OrderNewest, nil
}
