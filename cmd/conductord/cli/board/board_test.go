package board_test

import (
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
)

// TestBoardCommands runs the verbs in the order of a board's life.
func TestBoardCommands(t *testing.T) {
	const toCreate = "board \"day\": not found\nconductord: the first posting creates a board, or run `conductord board create day`\n"
	cluster := clitest.Open(t)
	for _, row := range []struct {
		args string
		code int
		want string // part of stdout or stderr
	}{
		{"board show day", cli.ExitNotFound, toCreate},
		{"board create night", 0, "night open, no limits"},
		{"board limit night", cli.ExitUsage, "name a limit"},
		{"board limit night --jobs 1 --postings-per-second 5", 0, "night open, at most 1 unfinished job, 5 postings per second"},
		{"board limit night --bytes 9000", 0, "at most 1 unfinished job, 9000 bytes of unfinished jobs, 5 postings per second"},
		{"board delete night", 0, ""},
		{"board create night", 0, "night open, no limits"},
		{"board limit night --jobs 1", 0, "at most 1"},
		{"job post --board night --kind k --name a", 0, ""},
		{"job post --board night --kind k --name b", cli.ExitLimit, `board "night" is at its limit: at most 1 unfinished job; try again later`},
		{"board pause night --reason stocktaking", 0, "night paused since"},
		{"board list", 0, "paused"},
		{"-o json board list", 0, `"reason": "stocktaking"`},
		{"board show night", 0, "1 claimable"},
		{"-o json board show night", 0, `"kind": "k"`},
		{"board resume night", 0, "night open"},
		{"board delete night", cli.ExitConflict, "1 unfinished and 0 finished jobs"},
		{"board ageing night 1m", 0, "night, ageing: priority +1 for each 1m of waiting, since"},
		{"-o json board show night", 0, `"step": "60s"`},
		{"board ageing night off", 0, "ageing: off since"},
		{"board show night", 0, "waiting jobs keep their current priority"},
		{"board ageing night soon", cli.ExitUsage, `"soon" is neither "off" nor a duration such as 1m`},
		{"board ageing night 1ms", cli.ExitUsage, "the interval must be 0"},
		{"board limit day --jobs 1", cli.ExitNotFound, toCreate},
		{"board pause day", cli.ExitNotFound, toCreate},
		{"board resume day", cli.ExitNotFound, toCreate},
		{"board ageing day 1m", cli.ExitNotFound, toCreate},
		{"board wait day", cli.ExitNotFound, toCreate},
		{"board delete day", cli.ExitNotFound, "board \"day\": not found\nconductord: `conductord board list` lists the boards\n"},
		{"board delete default", cli.ExitConflict, "always exists"},
	} {
		got := clitest.Run(t, cluster, strings.Fields(row.args)...)
		if got.Code != row.code || !strings.Contains(got.Out+got.Err, row.want) {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
}

// TestBothPrioritiesAreShown: on a board with ageing, a job's set priority and effective priority
// are shown.
func TestBothPrioritiesAreShown(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k", "--priority", "-7").String()
	if got := clitest.Run(t, cluster, "job", "get", id); got.Code != 0 || strings.Contains(got.Out, "effective") {
		t.Errorf("without ageing: %+v", got)
	}
	clitest.Run(t, cluster, "board", "ageing", "default", "24h")
	if got := clitest.Run(t, cluster, "job", "get", id); !strings.Contains(clitest.Steady(got.Out), "priority: -7\neffective: -7\n") {
		t.Errorf("with ageing: %+v", got)
	}
	if got := clitest.Run(t, cluster, "-o", "json", "job", "get", id); !strings.Contains(got.Out, `"effective_priority": `) {
		t.Errorf("as JSON: %+v", got)
	}
}

// TestBoardWait: the awaited state exists at once, never occurs, or occurs while the command waits.
func TestBoardWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clitest.Open(t)
		clitest.Run(t, cluster, "board", "create", "empty")
		later := clitest.Post(t, cluster, "--kind", "k", "--tag", "eu", "--not-before", "1h", "--board", "night")
		for _, row := range []struct {
			args string
			code int
			want string // part of stdout or stderr
		}{
			{"board wait", cli.ExitUsage, "BOARD is missing"},
			{"board wait none", cli.ExitNotFound, `cannot read board "none"`},
			{"board wait none --some --timeout 1ms", cli.ExitTimeout, "board none has 0 unfinished jobs"},
			{"board wait empty", 0, "empty has 0 unfinished, 0 finished"},
			{"board wait night --state claimable", 0, "night has 0 claimable, 0 finished"},
			{"board wait night --state claimable,cooling", 0, "night has 0 claimable or cooling"},
			{"board wait night --state delayed --some", 0, "night has 1 delayed"},
			{"board wait night --kind other", 0, "night has 0 unfinished"},
			{"board wait night --tag eu --timeout 1ms", cli.ExitTimeout, "board night has "},
			{"board wait night --state lost", cli.ExitUsage, "--state must be one of"},
			{"board wait night --state completed", cli.ExitUsage, "completed is a final state"},
			{"-o json board wait empty", 0, `"left": 0`},
		} {
			if got := clitest.Run(t, cluster, strings.Fields(row.args)...); got.Code != row.code || !strings.Contains(got.Out+got.Err, row.want) {
				t.Errorf("%s: %+v", row.args, got)
			}
		}

		seen, done := make(chan struct{}), make(chan clitest.Said, 1)
		waiting := &signalling{Writer: new(strings.Builder), seen: seen}
		go func() { // ends with the job
			done <- clitest.RunWith(t, t.Context(), cluster, func(p *cli.Program) { p.Terminal, p.Err = true, waiting }, "board", "wait", "night", "--timeout", "1m")
		}()
		select {
		case <-seen:
		case <-time.After(time.Minute):
			t.Fatal("nothing is said of what is waited for")
		}
		clitest.Run(t, cluster, "job", "cancel", later.String())
		got := <-done
		if got.Code != 0 || got.Out != "night has 0 unfinished, 1 finished, 1 cancelled\n" {
			t.Errorf("waited: %+v", got)
		}
		if text := waiting.Writer.(*strings.Builder).String(); !strings.HasPrefix(text, "conductord: board night: 1 unfinished, 0 gone\n") {
			t.Errorf("it said %q", text)
		}
		if job, err := cluster.Job(t.Context(), later); err != nil || job.State != jobs.StateCompleted {
			t.Errorf("the job is %s, %v", job.State, err)
		}
	})
}

// signalling is a writer that signals the first write.
type signalling struct {
	io.Writer
	seen chan<- struct{}
	once sync.Once
}

func (s *signalling) Write(data []byte) (int, error) {
	n, err := s.Writer.Write(data)
	s.once.Do(func() { close(s.seen) })
	return n, err
}
