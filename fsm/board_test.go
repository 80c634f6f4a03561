package fsm_test

import (
	"fmt"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
)

func limitBoard(board string, limits *v1.BoardLimits) *v1.Command {
	return &v1.Command{Kind: &v1.Command_LimitBoard{LimitBoard: &v1.LimitBoardCommand{Board: board, Limits: limits}}}
}

func pauseBoard(board string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_PauseBoard{PauseBoard: &v1.BoardCommand{Board: board, By: "ann"}}}
}

func resumeBoard(board string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_ResumeBoard{ResumeBoard: &v1.BoardCommand{Board: board}}}
}

func (r *rig) board(name string) jobs.BoardStatus {
	r.Helper()
	status, err := r.BoardStatus(name, r.now)
	if err != nil {
		r.Fatal(err)
	}
	return status
}

// TestBoardRates: the postings of the last one, five and fifteen minutes, as time passes. The
// oldest span of 15 s counts in part.
func TestBoardRates(t *testing.T) {
	r := newRig(t)
	begin := start.Truncate(15 * time.Second)
	posted := 0
	for _, row := range []struct {
		at   time.Duration // since the start
		post int           // postings at that time, before the reading
		want jobs.BoardRate
	}{
		{0, 4, jobs.BoardRate{One: 4, Five: 4, Fifteen: 4}},
		{30 * time.Second, 2, jobs.BoardRate{One: 6, Five: 6, Fifteen: 6}},
		{60 * time.Second, 0, jobs.BoardRate{One: 6, Five: 6, Fifteen: 6}},
		{67500 * time.Millisecond, 0, jobs.BoardRate{One: 4, Five: 6, Fifteen: 6}}, // half of the first span counts
		{75 * time.Second, 0, jobs.BoardRate{One: 2, Five: 6, Fifteen: 6}},
		{4 * time.Minute, 1, jobs.BoardRate{One: 1, Five: 7, Fifteen: 7}},
		{10 * time.Minute, 0, jobs.BoardRate{Fifteen: 7}},
		{15*time.Minute + 15*time.Second, 0, jobs.BoardRate{Fifteen: 3}},
		{15*time.Minute + 30*time.Second, 1, jobs.BoardRate{One: 1, Five: 1, Fifteen: 4}},
		{15*time.Minute + 45*time.Second, 0, jobs.BoardRate{One: 1, Five: 1, Fifteen: 2}},
		{time.Hour, 0, jobs.BoardRate{}},
		{24 * time.Hour, 3, jobs.BoardRate{One: 3, Five: 3, Fifteen: 3}},
	} {
		r.now = begin.Add(row.at)
		for range row.post {
			posted++
			r.posted(posting(fmt.Sprint("job ", posted), "k"))
		}
		if got := r.board("").Posted; got != row.want {
			t.Errorf("after %s: %+v, want %+v", row.at, got, row.want)
		}
	}
}

// TestBoardPostingRate: the bucket holds the postings of one second and refills within one second
// of the entries' time.
func TestBoardPostingRate(t *testing.T) {
	r := newRig(t)
	r.ok(limitBoard("", &v1.BoardLimits{PostingsPerSecond: 2}))
	posted := 0
	for _, row := range []struct {
		after time.Duration // time since the previous row
		want  bool
	}{
		{0, true}, {0, true}, {0, false}, {499 * time.Millisecond, false}, {time.Millisecond, true}, {0, false},
		{time.Hour, true}, {0, true}, {0, false}, {-time.Minute, false}, // time never runs backwards
		{time.Minute, false}, {500 * time.Millisecond, true}, {250 * time.Millisecond, false}, {250 * time.Millisecond, true},
	} {
		r.now = r.now.Add(row.after)
		posted++
		result := r.ok(post(posting(fmt.Sprint("job ", posted), "k"))).GetPost().Posted[0]
		if accepted := result.Error == nil; accepted != row.want || (!accepted && result.Error.Code != "over_limit") {
			t.Errorf("posting %d: %v, want it accepted: %t", posted, result.Error, row.want)
		}
	}
	r.ok(limitBoard("", &v1.BoardLimits{PostingsPerSecond: 1}))
	r.now = r.now.Add(time.Second)
	r.posted(posting("under the lower limit", "k"))
}

// TestResumedBoardTellsItsQueues: waiters are woken for each queue of the resumed board in which
// jobs wait, and for no queue of another board.
func TestResumedBoardTellsItsQueues(t *testing.T) {
	r := newRig(t)
	for i, kind := range []string{"k", "l", "k"} {
		p := posting(fmt.Sprint("job ", i), kind)
		if i == 2 {
			p.Labels = []string{"gpu", "big"}
		}
		r.posted(p)
	}
	elsewhere := posting("elsewhere", "k")
	elsewhere.Board = "default 2"
	r.posted(elsewhere)
	r.ok(pauseBoard(""))
	r.harmless(pauseBoard(""))
	r.ok(resumeBoard(""))
	got := r.changes[len(r.changes)-1].Claimable
	want := []fsm.Queue{{Board: "default", Kind: "k"}, {Board: "default", Kind: "l"}, {Board: "default", Kind: "k", Labels: "big\ngpu"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("claimable queues are %v, want %v", got, want)
	}
	r.harmless(resumeBoard(""))
}
