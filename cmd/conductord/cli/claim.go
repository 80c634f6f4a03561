package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func (p *Program) claimCommand() *cobra.Command {
	return Noun("claim", "Look at who holds what, and give claims more time", p.claimListCommand(), p.claimExtendCommand())
}

func (p *Program) claimListCommand() *cobra.Command {
	var (
		query   jobs.ClaimQuery
		session string
		limit   int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List who holds which job, since when, and for how long unless heard again",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if session != "" {
				if query.Session, err = jobs.ParseSessionID(session); err != nil {
					return err
				}
			}
			if err := checkLimit(limit); err != nil {
				return err
			}
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				held, more, err := listClaims(ctx, cluster, query, limit)
				if err != nil {
					return because(err, "list claims")
				}
				if more {
					p.Note("there are more: these are the first %d, and --limit 0 lists all", len(held))
				}
				return p.writeClaims(held)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&query.Owner, "owner", "", "only of sessions of this name")
	flags.StringVar(&session, "session", "", "only of this session")
	flags.StringVar(&query.Board, "board", "", "only of jobs of this board")
	flags.IntVar(&limit, "limit", defaultListed, "at most so many; 0: all")
	return cmd
}

// listClaims gathers pages. A limit of 0 gathers all.
func listClaims(ctx context.Context, cluster Cluster, query jobs.ClaimQuery, limit int) (held []jobs.HeldClaim, more bool, err error) {
	for {
		if limit > 0 {
			query.Limit = min(limit-len(held), logbook.MaxPage)
		}
		page, err := cluster.Claims(ctx, query)
		if err != nil {
			return nil, false, err
		}
		held = append(held, page.Claims...)
		if page.Next == "" || (limit > 0 && len(held) >= limit) {
			return held, page.Next != "", nil
		}
		query.After = page.Next
	}
}

// shownClaim is a claim as claim list gives it as JSON: with its times as people
// and the API write them, where Go would count nanoseconds.
type shownClaim struct {
	jobs.HeldClaim
	Claim  shownOwner `json:"claim"`
	Left   string     `json:"left,omitempty"`
	Silent string     `json:"silent,omitempty"`
}

type shownOwner struct {
	jobs.Claim
	Expiry string `json:"expiry,omitempty"`
}

func shownClaims(held []jobs.HeldClaim) []shownClaim {
	shown := make([]shownClaim, 0, len(held))
	for _, h := range held {
		shown = append(shown, shownClaim{
			HeldClaim: h, Claim: shownOwner{h.Claim, spanText(h.Claim.Expiry)}, Left: spanText(h.Left), Silent: spanText(h.Silent),
		})
	}
	return shown
}

func (p *Program) writeClaims(held []jobs.HeldClaim) error {
	if p.JSON() {
		return p.WriteJSON(shownClaims(held))
	}
	rows := make([][]string, 0, len(held))
	for _, h := range held {
		session := "well"
		if h.Suspect {
			session = "silent " + durationText(h.Silent)
		}
		extensions := ""
		if h.Claim.Extensions > 0 {
			extensions = strconv.Itoa(h.Claim.Extensions)
		}
		rows = append(rows, []string{
			h.Job.String(), OrDash(h.Name), h.Board, h.Claim.Owner, session, timeText(h.Claim.Since), h.Claim.Token.String(),
			OrDash(spanText(h.Left)), OrDash(spanText(h.Claim.Expiry)), OrDash(extensions),
		})
	}
	return p.writeTable([]string{"job", "name", "board", "owner", "session", "since", "token", "to go", "expiry", "extended"}, rows)
}

// spanText shows a duration, and nothing for none.
func spanText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return durationText(d)
}

func (p *Program) claimExtendCommand() *cobra.Command {
	var (
		token  string
		expiry time.Duration
	)
	cmd := &cobra.Command{
		Use:   "extend JOB --token TOKEN --for DURATION",
		Short: "Give a claim a time of its own from now on, after which it ends unless it is extended again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := jobs.ParseJobID(args[0])
			if err != nil {
				return err
			}
			parsed, err := logbook.ParseToken(token)
			if err != nil {
				return usageError{err}
			}
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				if err := cluster.Extend(ctx, id, parsed, expiry); err != nil {
					return because(err, "extend the claim of job %s", id)
				}
				job, err := cluster.Job(ctx, id)
				if err != nil {
					return because(err, "get job %s", id)
				}
				return p.showJob(ctx, cluster, job)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&token, "token", "", "of the claim: job get shows it")
	flags.DurationVar(&expiry, "for", 0, "how long from now")
	return cmd
}
