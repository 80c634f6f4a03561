// Package schedule has the commands about schedules.
package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/document"
	jobcmd "github.com/conductord/conductord/cmd/conductord/cli/job"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// shownHistory is the number of slot records that are shown of a schedule.
const shownHistory = 10

// Command makes the noun of schedules.
func Command(p *cli.Program) *cobra.Command {
	return cli.Noun("schedule", "Manage schedules, which post jobs at given times",
		setCommand(p), listCommand(p), showCommand(p), nextCommand(p),
		pauseCommand(p), resumeCommand(p), runCommand(p), backfillCommand(p),
		deleteCommand(p),
	)
}

// scheduleVerb makes a command for one schedule, which its first argument
// names.
func scheduleVerb(p *cli.Program, use, short, long string, do func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error) *cobra.Command {
	name := schedules.Ref{}
	cmd := &cobra.Command{
		Use: use + " NAME", Short: short, Long: strings.TrimSpace(short + ".\n\n" + long), Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name.Name = args[0]
			return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				keeper, err := cli.Scheduler(cluster)
				if err != nil {
					return err
				}
				err = do(ctx, keeper, name)
				if errors.Is(err, jobs.ErrNotFound) {
					err = cli.Advised(err, "--board names the board of the schedule; `conductord schedule list` lists the schedules of all boards")
				}
				return cli.Because(err, "%s schedule %s", use, name.Name)
			})
		},
	}
	cmd.Flags().StringVar(&name.Board, "board", jobs.DefaultBoard, "board")
	return cmd
}

// scheduleFlags describe a schedule.
type scheduleFlags struct {
	rule, zone, overlap, missed, start, end string
	name                                    string
	deadline                                time.Duration
	content                                 jobcmd.ContentFlags
	work                                    jobcmd.WorkFlags
}

func (f *scheduleFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.rule, "rule", "", `rule: five cron fields, six with seconds first, @daily and similar, or "@every 90s"`)
	flags.StringVar(&f.zone, "zone", "", "IANA time zone of the rule, such as Europe/Berlin (default UTC)")
	flags.StringVar(&f.overlap, "overlap", "skip", "policy while an earlier job of the schedule is unfinished: skip, queue, cancel or allow")
	flags.StringVar(&f.missed, "missed", "last=1", "which missed slots to post: none, the latest N with last=N, or the latest DURATION with window=DURATION")
	flags.StringVar(&f.start, "start", "", "time of the first possible slot (2030-01-02T15:04:05Z), or a duration from now (10m)")
	flags.StringVar(&f.end, "end", "", "time of the last possible slot, or a duration from now")
	flags.StringVar(&f.name, "job-name", "", "name of the jobs (default the name of the flow document or of the schedule)")
	flags.DurationVar(&f.deadline, "deadline", 0, "cancel and revert a job that is not finished this long after its slot (default the document's deadline, or none)")
	f.content.Add(cmd)
	f.work.AddNew(cmd)
	f.work.Supplied = []string{schedules.SlotKey, schedules.NameKey}
}

// schedule makes the schedule of the flags.
func (f *scheduleFlags) schedule(p *cli.Program, now time.Time) (schedules.Schedule, error) {
	s := schedules.Schedule{Rule: f.rule, Zone: f.zone, Overlap: schedules.Overlap(f.overlap)}
	if f.rule == "" {
		return s, cli.UsageError(errors.New("the rule is required: --rule"))
	}
	var err error
	if s.Missed, err = parseMissed(f.missed); err != nil {
		return s, err
	}
	if s.Start, err = cli.ParseMoment("--start", f.start, now); err != nil {
		return s, err
	}
	if s.End, err = cli.ParseMoment("--end", f.end, now); err != nil {
		return s, err
	}
	s.Posting, err = f.posting(p)
	return s, err
}

func (f *scheduleFlags) posting(p *cli.Program) (jobs.Posting, error) {
	posting := jobs.Posting{Name: f.name}
	if err := f.content.Fill(p, &posting); err != nil {
		return posting, err
	}
	posting.DeadlineAfter = f.deadline
	if err := f.work.Fill(p, &posting); err != nil {
		return posting, err
	}
	f.content.Override(&posting)
	if f.name == "" && f.work.Kind != "" {
		posting.Name = "" // the schedule's name
	}
	if posting.Book != nil {
		// Every slot gets its own book and flow. Without these ids, a repeated save of the same
		// schedule changes nothing.
		posting.Book.ID = logbook.BookID{}
		for i := range posting.Book.Flows {
			posting.Book.Flows[i].ID, posting.Book.Flows[i].Book = logbook.FlowID{}, logbook.BookID{}
		}
	}
	posting.Flow = logbook.FlowID{}
	return posting, nil
}

// parseMissed reads --missed.
func parseMissed(text string) (schedules.Missed, error) {
	policy, value, _ := strings.Cut(text, "=")
	missed := schedules.Missed{Policy: schedules.MissedPolicy(policy)}
	var err error
	switch missed.Policy {
	case schedules.MissedNone:
		if value == "" {
			return missed, nil
		}
	case schedules.MissedLast:
		if missed.Last, err = strconv.Atoi(value); err == nil && missed.Last > 0 {
			return missed, nil
		}
	case schedules.MissedWindow:
		if missed.Window, err = time.ParseDuration(value); err == nil {
			return missed, nil
		}
	}
	return missed, cli.UsageError(fmt.Errorf("--missed must be none, last=N or window=DURATION, not %.64q", text))
}

func setCommand(p *cli.Program) *cobra.Command {
	f := &scheduleFlags{}
	schedule := schedules.Schedule{}
	cmd := scheduleVerb(p, "set", "Create or change a schedule",
		"The schedule posts a job at each slot of its rule: for a flow document (--flow), or for your own workers (--kind).\n"+
			"The job's store has the schedule's name as \"schedule\" and the time as \"slot\". The command is idempotent.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			schedule.Board, schedule.Name = name.Board, name.Name
			saved, err := keeper.SaveSchedule(ctx, schedule)
			if err != nil {
				return err
			}
			if cluster, ok := keeper.(document.Conductors); ok {
				job := jobs.Job{Board: saved.Board, Kind: spec.Kind, Labels: saved.Posting.Labels}
				defer document.WarnOfHandlers(ctx, p, cluster, &job, document.HandlersOf(&schedule.Posting))
			}
			return p.Show(command.ScheduleToProto(&saved), "%s %s", saved.Name, nextText(p, &saved))
		})
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		schedule, err = f.schedule(p, time.Now())
		return err
	}
	f.add(cmd)
	return cmd
}

// nextText shows the next slot of a schedule.
func nextText(p *cli.Program, s *schedules.Schedule) string {
	switch {
	case s.Pause != nil:
		return "is paused"
	case s.Error != "":
		return "posts no jobs: " + cli.Clean(s.Error)
	case s.Next.IsZero():
		return "has no more slots"
	}
	return "next " + p.TimeText(s.Next)
}

func listCommand(p *cli.Program) *cobra.Command {
	query := schedules.Query{}
	listing := cli.List[schedules.Schedule]{
		What:  "schedules",
		Whole: true, // a cluster has a limited number of schedules
		Read: func(ctx context.Context, cluster cli.Cluster, _ string, _ int) (all []schedules.Schedule, _ string, _ error) {
			keeper, err := cli.Scheduler(cluster)
			if err != nil {
				return nil, "", err
			}
			for {
				page, err := keeper.Schedules(ctx, query)
				all = append(all, page.Items...)
				if query.After = page.Next; err != nil || query.After == "" {
					return all, "", err
				}
			}
		},
		Answer: func(found []schedules.Schedule, _ string) proto.Message {
			return &v1.ListSchedulesResponse{Schedules: cli.Messages(found, command.ScheduleToProto)}
		},
		Header: []string{"board", "name", "rule", "zone", "next", "active", "waiting", "posted", "skipped"},
		Row: func(s *schedules.Schedule) []string {
			next := cli.OrDash(cli.AgoText(s.Next))
			switch {
			case s.Pause != nil:
				next = "paused"
			case s.Error != "":
				next = "error"
			}
			return []string{
				s.Board, s.Name, s.Rule, cmp.Or(s.Zone, "UTC"), next, strconv.Itoa(s.Active), strconv.Itoa(s.Waiting),
				cli.NumberText(s.Posted), cli.NumberText(s.Skipped),
			}
		},
	}
	cmd := listing.Command(p, &cobra.Command{Use: "list", Short: "List schedules by board and name"}, nil)
	cmd.Flags().StringVar(&query.Board, "board", "", "only schedules of this board")
	return cmd
}

func showCommand(p *cli.Program) *cobra.Command {
	history := shownHistory
	cmd := scheduleVerb(p, "show", "Show a schedule, its next slot, and the results of its latest slots", "",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			const upcoming = 1
			report, err := keeper.Schedule(ctx, name, schedules.Look{Upcoming: upcoming, History: history})
			if err != nil {
				return err
			}
			return writeReport(p, report)
		})
	cmd.Flags().IntVar(&history, "history", history, "number of past slots, at most "+strconv.Itoa(schedules.MaxSlotRecords))
	return cmd
}

func nextCommand(p *cli.Program) *cobra.Command {
	const five = 5
	count := five
	cmd := scheduleVerb(p, "next", "Show the next slots of a schedule, in its time zone",
		"For a paused schedule, show the slots as if it were resumed now.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			report, err := keeper.Schedule(ctx, name, schedules.Look{Upcoming: count})
			if err != nil {
				return err
			}
			if p.JSON() {
				return p.WriteJSON(&v1.GetScheduleResponse{Upcoming: command.TimesToProto(report.Upcoming)})
			}
			zone, err := schedules.Zone(report.Schedule.Zone)
			if err != nil { // only a newer node knows the zone
				zone = time.UTC
			}
			lines := make([]string, 0, len(report.Upcoming))
			for _, slot := range report.Upcoming {
				lines = append(lines, slot.In(zone).Format(time.RFC3339))
			}
			return p.WriteLines(lines)
		})
	cmd.Flags().IntVarP(&count, "count", "n", count, "number of slots, at most "+strconv.Itoa(schedules.MaxUpcoming))
	return cmd
}

func pauseCommand(p *cli.Program) *cobra.Command {
	reason := ""
	cmd := scheduleVerb(p, "pause", "Pause a schedule: it posts no jobs until you resume it", "Existing jobs continue.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			request := schedules.Command{Ref: name, By: cli.OperatorName(), Reason: reason}
			if err := keeper.PauseSchedule(ctx, request); err != nil {
				return err
			}
			return showSchedule(ctx, p, keeper, name)
		})
	cmd.Flags().StringVar(&reason, "reason", "", "reason, in one sentence")
	return cmd
}

func resumeCommand(p *cli.Program) *cobra.Command {
	return scheduleVerb(p, "resume", "Resume a paused schedule",
		"Slots during the pause are recorded as skipped; `schedule backfill` can post them.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			if err := keeper.ResumeSchedule(ctx, schedules.Command{Ref: name, By: cli.OperatorName()}); err != nil {
				return err
			}
			return showSchedule(ctx, p, keeper, name)
		})
}

// showSchedule shows the state of a changed schedule in one line.
func showSchedule(ctx context.Context, p *cli.Program, keeper schedules.Scheduler, name schedules.Ref) error {
	report, err := keeper.Schedule(ctx, name, schedules.Look{})
	if err != nil {
		return err
	}
	return p.Show(command.ScheduleToProto(&report.Schedule), "%s %s", report.Schedule.Name, nextText(p, &report.Schedule))
}

func runCommand(p *cli.Program) *cobra.Command {
	return scheduleVerb(p, "run", "Post a job of a schedule immediately",
		"The command ignores the rule, the overlap policy and a pause. The job's slot is the current time.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			record, err := keeper.RunSchedule(ctx, schedules.Command{Ref: name, By: cli.OperatorName()})
			if err != nil {
				return err
			}
			if p.JSON() {
				return p.WriteJSON(command.SlotRecordToProto(&record))
			}
			return writeRecords(p, []schedules.SlotRecord{record})
		})
}

func backfillCommand(p *cli.Program) *cobra.Command {
	var since, until string
	wanted := schedules.Backfill{By: cli.OperatorName()}
	cmd := scheduleVerb(p, "backfill", "Post jobs for past slots without a job",
		"Slots that already have a job are listed and do not change. Unless the overlap policy is allow, the\n"+
			"jobs run one after another. One call posts at most "+strconv.Itoa(schedules.MaxBackfill)+" slots.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			wanted.Ref = name
			records, err := keeper.BackfillSchedule(ctx, wanted)
			if err != nil {
				return err
			}
			if p.JSON() {
				return p.WriteJSON(&v1.BackfillScheduleResponse{Slots: command.SlotRecordsToProto(records)})
			}
			return writeRecords(p, records)
		})
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if since == "" {
			return cli.UsageError(errors.New("the start of the range is required: --since"))
		}
		if wanted.From, err = cli.ParsePast("--since", since, time.Now()); err != nil {
			return err
		}
		wanted.To, err = cli.ParsePast("--until", until, time.Now())
		return err
	}
	cmd.Flags().StringVar(&since, "since", "", "start of the range, such as 2026-01-02T15:04:05Z, or 24h for a day ago")
	cmd.Flags().StringVar(&until, "until", "0s", "end of the range, exclusive; 0s: now")
	return cmd
}

func deleteCommand(p *cli.Program) *cobra.Command {
	return scheduleVerb(p, "delete", "Delete a schedule and the record of its slots",
		"Existing jobs stay. Queued slots are dropped.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			return keeper.DeleteSchedule(ctx, name)
		})
}
