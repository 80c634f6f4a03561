package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
)

// The maximum numbers of slots on the page of a schedule. The command line shows more.
const (
	shownSlots   = 10
	shownRecords = 50
)

// schedulesData is the data of the list of schedules.
type schedulesData struct {
	Schedules []*v1.Schedule
	More      pager
}

// loadSchedules lists the schedules that the user may see, by board and name.
func loadSchedules(ctx context.Context, v *visit) (view, error) {
	board, err := v.listedBoard(ctx, v.query("board"))
	if err != nil {
		return view{}, err
	}
	answer, err := ask(ctx, v.api.schedules.List, &v1.ListSchedulesRequest{Board: board, After: v.query("after"), Limit: v.rows(), Stale: true})
	data := schedulesData{answer.GetSchedules(), v.more(answer.GetNext())}
	return view{Title: "Schedules", Command: "conductord schedule list" + boardFlag(board), Data: data}, err
}

// scheduleData is the data of the page of a schedule.
type scheduleData struct {
	Schedule   *v1.Schedule
	Overlap    string
	Missed     string
	Upcoming   []time.Time
	Records    []slotRow // the latest first
	All        bool      // no older record is stored
	Operations []operation
}

// slotRow is a record of slots, with the text of its state.
type slotRow struct {
	*v1.SlotRecord
	State badge
}

var slotStates = map[schedules.SlotState]badge{
	schedules.SlotPosted: {"posted", "✓", "good"}, schedules.SlotWaiting: {"waiting", "○", "wait"}, schedules.SlotSkipped: {"skipped", "⊘", "calm"},
}

// loadSchedule shows a schedule: its next slots, and the outcomes of the latest ones.
func loadSchedule(ctx context.Context, v *visit) (view, error) {
	board, name := v.part("board"), v.part("name")
	answer, err := ask(ctx, v.api.schedules.Get, &v1.GetScheduleRequest{Board: board, Name: name, Upcoming: shownSlots, History: uint32(v.bound(shownRecords)), Stale: true})
	if err != nil {
		return view{}, err
	}
	s := answer.GetSchedule()
	data := scheduleData{
		Schedule: s, Overlap: cmp.Or(s.GetOverlap(), string(schedules.OverlapSkip)), Missed: missedText(s), All: len(answer.GetHistory()) == int(s.GetRecords()),
		Operations: v.offered(scheduleOperations(name, s), board, "schedules", board, name),
	}
	for _, slot := range answer.GetUpcoming() {
		data.Upcoming = append(data.Upcoming, slot.AsTime())
	}
	for _, record := range answer.GetHistory() {
		data.Records = append(data.Records, slotRow{record, slotStates[schedules.SlotState(record.GetState())]})
	}
	return view{
		Title: "Schedule " + name, Command: "conductord schedule show" + boardFlag(board) + " " + cli.Operand(name), Data: data, Watch: &v1.WatchRequest{Board: board},
	}, nil
}

func missedText(s *v1.Schedule) string {
	switch schedules.MissedPolicy(s.GetMissed()) {
	case schedules.MissedNone:
		return "skipped"
	case schedules.MissedWindow:
		return "slots of the last " + durationText(s.GetMissedWindow().AsDuration()) + " are posted"
	}
	return fmt.Sprintf("skipped, except the latest %d", max(1, s.GetMissedLast()))
}

// scheduleOperations is the table of operations on a schedule; s is nil when an operation is
// performed.
func scheduleOperations(name string, s *v1.Schedule) []operation {
	said := func(verb string) string {
		return "conductord schedule " + verb + boardFlag(s.GetBoard()) + " " + cli.Operand(name)
	}
	on := func(call func(ctx context.Context, v *visit, board string) error) func(context.Context, *visit) (string, error) {
		return func(ctx context.Context, v *visit) (string, error) {
			board := v.part("board")
			return addressBelow("schedules", board, name), call(ctx, v, board)
		}
	}
	return []operation{
		{
			Verb: "run", Text: "Run now", Command: said("run"), Help: "Post a job now, regardless of rule, overlap policy and pause.",
			permission: command.Operate, do: on(func(ctx context.Context, v *visit, board string) error {
				_, err := ask(ctx, v.api.schedules.Run, &v1.RunScheduleRequest{Board: board, Name: name, By: dashboardName})
				return err
			}),
		},
		{
			Verb: "pause", Text: "Pause", Command: said("pause"), Help: "The schedule posts no jobs until you resume it. Existing jobs continue.", Inputs: []input{why},
			permission: command.Operate, unfit: s.GetPause() != nil, do: on(func(ctx context.Context, v *visit, board string) error {
				_, err := ask(ctx, v.api.schedules.Pause, &v1.PauseScheduleCommand{Board: board, Name: name, By: dashboardName, Reason: v.form("reason")})
				return err
			}),
		},
		{
			Verb: "resume", Text: "Resume", Command: said("resume"), Help: "The schedule posts jobs again. Slots during the pause are recorded as skipped.",
			permission: command.Operate, unfit: s.GetPause() == nil, do: on(func(ctx context.Context, v *visit, board string) error {
				_, err := ask(ctx, v.api.schedules.Resume, &v1.ResumeScheduleRequest{Board: board, Name: name})
				return err
			}),
		},
		{
			Verb: "backfill", Text: "Backfill", Command: said("backfill --since TIME --until TIME"), Danger: true,
			Help:       fmt.Sprintf("Post jobs for past slots without a job, at most %d.", schedules.MaxBackfill),
			Inputs:     []input{{Name: "from", Label: "From", Kind: "datetime-local"}, {Name: "to", Label: "To, exclusive", Kind: "datetime-local"}},
			permission: command.Operate, do: on(backfill),
		},
		{
			Verb: "delete", Text: "Delete", Command: said("delete"), Help: "Remove the schedule and the record of its slots. Its jobs stay.", Danger: true,
			permission: command.Operate, do: func(ctx context.Context, v *visit) (string, error) {
				_, err := ask(ctx, v.api.schedules.Delete, &v1.DeleteScheduleCommand{Board: v.part("board"), Name: name})
				return "schedules", err
			},
		},
	}
}

// backfill posts the slots of a period that have no job. One call posts as many slots as fit into
// one write.
func backfill(ctx context.Context, v *visit, board string) error {
	request := &v1.BackfillScheduleRequest{Board: board, Name: v.part("name"), By: dashboardName, Nonce: jobs.NewNonce().String()}
	var err error
	if request.From, err = parseDate("from", v.form("from")); err != nil {
		return err
	}
	if request.To, err = parseDate("to", v.form("to")); err != nil {
		return err
	}
	for range maxBulkCalls {
		answer, err := ask(ctx, v.api.schedules.Backfill, request)
		if request.From = answer.GetNext(); err != nil || request.From == nil {
			return err
		}
	}
	return fmt.Errorf("%w: the range contains more slots than one request can post; all slots before %s are posted", jobs.ErrLimit, request.From.AsTime().Format(dateForm))
}
