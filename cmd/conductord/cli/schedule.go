package cli

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
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// shownHistory is how many records of its slots a schedule is shown with.
const shownHistory = 10

func (p *Program) scheduleCommand() *cobra.Command {
	return Noun("schedule", "Manage schedules, which post jobs at given times",
		p.scheduleSetCommand(), p.scheduleListCommand(), p.scheduleShowCommand(), p.scheduleNextCommand(),
		p.schedulePauseCommand(), p.scheduleResumeCommand(), p.scheduleRunCommand(), p.scheduleBackfillCommand(),
		p.scheduleDeleteCommand(),
	)
}

// scheduler is the part of a cluster that keeps schedules.
func scheduler(cluster Cluster) (schedules.Scheduler, error) {
	keeper, ok := cluster.(schedules.Scheduler)
	if !ok {
		return nil, fmt.Errorf("%w: this cluster does not support schedules", jobs.ErrNotAllowed)
	}
	return keeper, nil
}

// scheduleVerb makes a command for one schedule, which its first argument
// names.
func (p *Program) scheduleVerb(use, short, long string, do func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error) *cobra.Command {
	name := schedules.Ref{}
	cmd := &cobra.Command{
		Use: use + " NAME", Short: short, Long: strings.TrimSpace(short + ".\n\n" + long), Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name.Name = args[0]
			return p.With(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				keeper, err := scheduler(cluster)
				if err != nil {
					return err
				}
				return because(do(ctx, keeper, name), "%s schedule %s", use, name.Name)
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
	content                                 contentFlags
	work                                    workFlags
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
	f.content.add(cmd)
	flags.StringVar(&f.work.document, "flow", "", "flow document to run (TOML or JSON)")
	flags.StringVar(&f.work.kind, "kind", "", "kind of jobs without a flow, for your own workers")
}

// schedule makes what the flags say.
func (f *scheduleFlags) schedule(p *Program, now time.Time) (schedules.Schedule, error) {
	s := schedules.Schedule{Rule: f.rule, Zone: f.zone, Overlap: schedules.Overlap(f.overlap)}
	if f.rule == "" {
		return s, usageError{errors.New("the rule is required: --rule")}
	}
	var err error
	if s.Missed, err = parseMissed(f.missed); err != nil {
		return s, err
	}
	if s.Start, err = parseMoment("--start", f.start, now); err != nil {
		return s, err
	}
	if s.End, err = parseMoment("--end", f.end, now); err != nil {
		return s, err
	}
	s.Posting, err = f.posting(p)
	return s, err
}

func (f *scheduleFlags) posting(p *Program) (jobs.Posting, error) {
	posting := jobs.Posting{Name: f.name}
	if err := f.content.fill(p, &posting); err != nil {
		return posting, err
	}
	if err := f.work.fill(p, &posting); err != nil {
		return posting, err
	}
	if f.name == "" && f.work.kind != "" {
		posting.Name = "" // the schedule's
	}
	if posting.Book != nil {
		// Every slot gets a book and a flow of its own. Without ids, to set the
		// same schedule again changes nothing.
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
	return missed, usageError{fmt.Errorf("--missed must be none, last=N or window=DURATION, not %.64q", text)}
}

func (p *Program) scheduleSetCommand() *cobra.Command {
	f := &scheduleFlags{}
	schedule := schedules.Schedule{}
	cmd := p.scheduleVerb("set", "Create or change a schedule",
		"Each slot of the rule posts a job: for a flow document (--flow), or for your own workers (--kind). The job's\n"+
			"store has the schedule's name as \"schedule\" and the time as \"slot\". The command is idempotent.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			schedule.Board, schedule.Name = name.Board, name.Name
			saved, err := keeper.SaveSchedule(ctx, schedule)
			if err != nil {
				return err
			}
			if cluster, ok := keeper.(Cluster); ok {
				job := jobs.Job{Board: saved.Board, Kind: spec.Kind, Labels: saved.Posting.Labels}
				defer p.warnOfHandlers(ctx, cluster, &job, handlersOf(&schedule.Posting))
			}
			return p.Show(command.ScheduleToProto(&saved), "%s %s", saved.Name, p.nextText(&saved))
		})
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		schedule, err = f.schedule(p, time.Now())
		return err
	}
	f.add(cmd)
	return cmd
}

// nextText says when the next slot of a schedule is.
func (p *Program) nextText(s *schedules.Schedule) string {
	switch {
	case s.Pause != nil:
		return "is paused"
	case s.Error != "":
		return "posts no jobs: " + Clean(s.Error)
	case s.Next.IsZero():
		return "has no more slots"
	}
	return "next " + p.timeText(s.Next)
}

func (p *Program) scheduleListCommand() *cobra.Command {
	query := schedules.Query{}
	listing := list[schedules.Schedule]{
		what:  "schedules",
		whole: true, // a cluster keeps a bounded number of schedules
		read: func(ctx context.Context, cluster Cluster, _ string, _ int) (all []schedules.Schedule, _ string, _ error) {
			keeper, err := scheduler(cluster)
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
		answer: func(found []schedules.Schedule, _ string) proto.Message {
			return &v1.ListSchedulesResponse{Schedules: messages(found, command.ScheduleToProto)}
		},
		header: []string{"board", "name", "rule", "zone", "next", "active", "waiting", "posted", "skipped"},
		row: func(s *schedules.Schedule) []string {
			next := OrDash(agoText(s.Next))
			switch {
			case s.Pause != nil:
				next = "paused"
			case s.Error != "":
				next = "error"
			}
			return []string{
				s.Board, s.Name, s.Rule, cmp.Or(s.Zone, "UTC"), next, strconv.Itoa(s.Active), strconv.Itoa(s.Waiting),
				numberText(s.Posted), numberText(s.Skipped),
			}
		},
	}
	cmd := listing.command(p, &cobra.Command{Use: "list", Short: "List schedules by board and name"}, nil)
	cmd.Flags().StringVar(&query.Board, "board", "", "only schedules of this board")
	return cmd
}

func (p *Program) scheduleShowCommand() *cobra.Command {
	history := shownHistory
	cmd := p.scheduleVerb("show", "Show a schedule, its next slot, and the results of the latest ones", "",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			const upcoming = 1
			report, err := keeper.Schedule(ctx, name, schedules.Look{Upcoming: upcoming, History: history})
			if err != nil {
				return err
			}
			return p.writeReport(report)
		})
	cmd.Flags().IntVar(&history, "history", history, "number of past slots, at most "+strconv.Itoa(schedules.MaxSlotRecords))
	return cmd
}

func (p *Program) scheduleNextCommand() *cobra.Command {
	const five = 5
	count := five
	cmd := p.scheduleVerb("next", "Show the next slots of a schedule, in its time zone",
		"For a paused schedule, show the slots after a resume now.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			report, err := keeper.Schedule(ctx, name, schedules.Look{Upcoming: count})
			if err != nil {
				return err
			}
			if p.JSON() {
				return p.WriteJSON(&v1.GetScheduleResponse{Upcoming: command.TimesToProto(report.Upcoming)})
			}
			zone, err := schedules.Zone(report.Schedule.Zone)
			if err != nil { // a newer node knows it
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

func (p *Program) schedulePauseCommand() *cobra.Command {
	reason := ""
	cmd := p.scheduleVerb("pause", "Pause a schedule: it posts no jobs until you resume it", "Existing jobs continue.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			request := schedules.Command{Ref: name, By: operatorName(), Reason: reason}
			if err := keeper.PauseSchedule(ctx, request); err != nil {
				return err
			}
			return p.showSchedule(ctx, keeper, name)
		})
	cmd.Flags().StringVar(&reason, "reason", "", "reason, in one sentence")
	return cmd
}

func (p *Program) scheduleResumeCommand() *cobra.Command {
	return p.scheduleVerb("resume", "Resume a paused schedule",
		"Slots during the pause are recorded as skipped; `schedule backfill` can post them.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			if err := keeper.ResumeSchedule(ctx, schedules.Command{Ref: name, By: operatorName()}); err != nil {
				return err
			}
			return p.showSchedule(ctx, keeper, name)
		})
}

// showSchedule shows in a line where a schedule stands after a change.
func (p *Program) showSchedule(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
	report, err := keeper.Schedule(ctx, name, schedules.Look{})
	if err != nil {
		return err
	}
	return p.Show(command.ScheduleToProto(&report.Schedule), "%s %s", report.Schedule.Name, p.nextText(&report.Schedule))
}

func (p *Program) scheduleRunCommand() *cobra.Command {
	return p.scheduleVerb("run", "Post a job of a schedule immediately",
		"The command ignores the rule, the overlap policy and a pause. The job's slot is the current time.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			record, err := keeper.RunSchedule(ctx, schedules.Command{Ref: name, By: operatorName()})
			if err != nil {
				return err
			}
			if p.JSON() {
				return p.WriteJSON(command.SlotRecordToProto(&record))
			}
			return p.writeRecords([]schedules.SlotRecord{record})
		})
}

func (p *Program) scheduleBackfillCommand() *cobra.Command {
	var since, until string
	wanted := schedules.Backfill{By: operatorName()}
	cmd := p.scheduleVerb("backfill", "Post jobs for past slots that have none",
		"Slots that already have a job are listed and do not change. Unless the overlap policy is allow, the\n"+
			"jobs run one after another. At most "+strconv.Itoa(schedules.MaxBackfill)+" slots per call.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			wanted.Ref = name
			records, err := keeper.BackfillSchedule(ctx, wanted)
			if err != nil {
				return err
			}
			if p.JSON() {
				return p.WriteJSON(&v1.BackfillScheduleResponse{Slots: command.SlotRecordsToProto(records)})
			}
			return p.writeRecords(records)
		})
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if since == "" {
			return usageError{errors.New("the start of the range is required: --since")}
		}
		if wanted.From, err = parsePast("--since", since, time.Now()); err != nil {
			return err
		}
		wanted.To, err = parsePast("--until", until, time.Now())
		return err
	}
	cmd.Flags().StringVar(&since, "since", "", "start of the range, such as 2026-01-02T15:04:05Z, or 24h for a day ago")
	cmd.Flags().StringVar(&until, "until", "0s", "end of the range, exclusive; 0s: now")
	return cmd
}

func (p *Program) scheduleDeleteCommand() *cobra.Command {
	return p.scheduleVerb("delete", "Delete a schedule and the record of its slots",
		"Existing jobs stay. Queued slots are dropped.",
		func(ctx context.Context, keeper schedules.Scheduler, name schedules.Ref) error {
			return keeper.DeleteSchedule(ctx, name)
		})
}
