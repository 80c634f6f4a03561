package command_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var stateCounts = rapid.MapOfN(rapid.SampledFrom(jobs.States), rapid.Uint64(), 0, 3)

var boardRates = rapid.Custom(func(t *rapid.T) jobs.BoardRate {
	return jobs.BoardRate{One: rapid.Uint64().Draw(t, "one"), Five: rapid.Uint64().Draw(t, "five"), Fifteen: rapid.Uint64().Draw(t, "fifteen")}
})

var boardStatuses = rapid.Custom(func(t *rapid.T) jobs.BoardStatus {
	return jobs.BoardStatus{
		Name: rapid.String().Draw(t, "name"), CreatedAt: times.Draw(t, "created"),
		Limits: jobs.BoardLimits{
			Jobs: rapid.Uint64().Draw(t, "jobs"), Bytes: rapid.Uint64().Draw(t, "bytes"), PostingsPerSecond: rapid.Uint64().Draw(t, "rate"),
		},
		Pause: optional(rapid.Custom(func(t *rapid.T) jobs.BoardPause {
			return jobs.BoardPause{By: rapid.String().Draw(t, "by"), Reason: rapid.String().Draw(t, "reason"), At: times.Draw(t, "at")}
		})).Draw(t, "pause"),
		Ageing: jobs.BoardAgeing{
			Step: time.Duration(rapid.Int64Min(0).Draw(t, "step")), Since: times.Draw(t, "since"), Steps: rapid.Int64().Draw(t, "steps"),
		},
		Jobs: stateCounts.Draw(t, "by state"), Bytes: rapid.Uint64().Draw(t, "bytes"), Parked: rapid.Uint64().Draw(t, "parked"),
		OldestClaimable: times.Draw(t, "oldest"), NextDue: times.Draw(t, "due"),
		Posted: boardRates.Draw(t, "posted"), Finished: boardRates.Draw(t, "finished"),
		Kinds: list(rapid.Custom(func(t *rapid.T) jobs.BoardKind {
			return jobs.BoardKind{Kind: rapid.String().Draw(t, "kind"), Jobs: stateCounts.Draw(t, "by state")}
		})).Draw(t, "kinds"),
		Holders: list(rapid.Custom(func(t *rapid.T) jobs.BoardHolder {
			return jobs.BoardHolder{
				Session: jobs.SessionID{UUID: ids.Draw(t, "session")}, Owner: rapid.String().Draw(t, "owner"), Jobs: rapid.Uint64().Draw(t, "jobs"),
			}
		})).Draw(t, "holders"),
		More: rapid.Bool().Draw(t, "more"),
	}
})

// TestBoardCommandsAreChecked invalidates each sample in one place.
func TestBoardCommandsAreChecked(t *testing.T) {
	long := strings.Repeat("x", logbook.MaxLimits.Name+1)
	for _, row := range []struct {
		name  string
		spoil func(*v1.Command)
		want  error
	}{
		{"create_board", func(c *v1.Command) { c.GetCreateBoard().Board = long }, logbook.ErrLimit},
		{"create_board", func(c *v1.Command) { c.GetCreateBoard().Reason = "new" }, logbook.ErrInvalid},
		{"delete_board", func(c *v1.Command) { c.GetDeleteBoard().Reason = "old" }, logbook.ErrInvalid},
		{"limit_board", func(c *v1.Command) { c.GetLimitBoard().Board = long }, logbook.ErrLimit},
		{"limit_board", func(c *v1.Command) { c.GetLimitBoard().Limits.Jobs = jobs.MaxBoardLimit + 1 }, logbook.ErrLimit},
		{"limit_board", func(c *v1.Command) { c.GetLimitBoard().Limits.Bytes = jobs.MaxBoardLimit + 1 }, logbook.ErrLimit},
		{"limit_board", func(c *v1.Command) { c.GetLimitBoard().Limits.PostingsPerSecond = jobs.MaxPostingRate + 1 }, logbook.ErrLimit},
		{"age_board", func(c *v1.Command) { c.GetAgeBoard().Board = long }, logbook.ErrLimit},
		{"age_board", func(c *v1.Command) { c.GetAgeBoard().Step = durationpb.New(jobs.MinAgeing - 1) }, logbook.ErrInvalid},
		{"age_board", func(c *v1.Command) { c.GetAgeBoard().Step = durationpb.New(jobs.MaxAgeing + 1) }, logbook.ErrInvalid},
		{"age_board", func(c *v1.Command) { c.GetAgeBoard().Step = durationpb.New(-time.Minute) }, logbook.ErrInvalid},
		{"pause_board", func(c *v1.Command) { c.GetPauseBoard().Reason = strings.Repeat("x", jobs.MaxReason+1) }, logbook.ErrLimit},
		{"resume_board", func(c *v1.Command) { c.GetResumeBoard().By = long }, logbook.ErrLimit},
	} {
		c := commandOf(t, row.name)
		if err := command.Check(logbook.MaxLimits, c); err != nil {
			t.Errorf("the sample of %s is refused: %v", row.name, err)
		}
		row.spoil(c)
		if err := command.Check(logbook.MaxLimits, c); !errors.Is(err, row.want) {
			t.Errorf("a spoilt %s is answered with %v, want %v:\n%v", row.name, err, row.want, c)
		}
	}
}
