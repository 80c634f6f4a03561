package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node/backup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestExitCodes(t *testing.T) {
	for _, row := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("the disk is full"), 1},
		{jobs.ErrInvalid, 2},
		{&logbook.InvalidError{Field: "name", Reason: "empty"}, 2},
		{config.Faults{{Key: "node", Message: "must be set"}}, 2},
		{jobs.ErrNotFound, 3},
		{jobs.ErrConflict, 4},
		{jobs.ErrUnclaimable, 4},
		{jobs.ErrFenced, 4},
		{jobs.ErrSessionExpired, 4},
		{jobs.ErrCompacted, 4},
		{jobs.ErrUncertain, 5},
		{context.DeadlineExceeded, 5},
		{jobs.ErrUnavailable, 6},
		{fmt.Errorf("%w: %w", jobs.ErrUnavailable, context.DeadlineExceeded), 6},
		{fmt.Errorf("%w: %w", jobs.ErrUnavailable, context.Canceled), 130},
		{fmt.Errorf("%w: %w", jobs.ErrUncertain, context.DeadlineExceeded), 5},
		{fmt.Errorf("%w: %w", jobs.ErrUncertain, context.Canceled), 5},
		{jobs.ErrNotAllowed, 7},
		{jobs.ErrLimit, 8},
		{&logbook.LimitError{Field: "name", Limit: 255, Size: 256, Unit: "bytes"}, 8},
		{context.Canceled, 130},
	} {
		if got := cli.ExitCode(row.err); got != row.want {
			t.Errorf("%v: got %d, want %d", row.err, got, row.want)
		}
		if row.err != nil && cli.ExitCode(fmt.Errorf("cannot do it: %w", row.err)) != row.want {
			t.Errorf("%v: another code when it is wrapped", row.err)
		}
	}
}

func TestWrongCommandLines(t *testing.T) {
	const id = "01890000-0000-7000-8000-000000000001"
	for _, row := range []struct {
		args string
		want string // part of the output
	}{
		{"jobs", `there is no "jobs" in "conductord"; did you mean "job"?`},
		{"flow rum --help", `there is no "rum" in "conductord flow"; did you mean "run"?`},
		{"job fetch", `there is no "fetch" in "conductord job"`},
		{"job lst", `there is no "lst" in "conductord job"; did you mean "list"?`},
		{"flow chekc", `there is no "chekc" in "conductord flow"; did you mean "check"?`},
		{"job get", "conductord: ID is missing\n"},
		{"job get a b", `"b" is one argument too many`},
		{"job list a", `"a" is one argument too many`},
		{"flow skip " + id, "STEP is missing"},
		{"trash purge", "ID is missing"},
		{"claim extend", "JOB is missing"},
		{"board ageing a", "DURATION|off is missing"},
		{"job get x", `"x" must be a UUID`},
		{"job list --colour", "there is no flag --colour\n"},
		{"job list --bord x", `there is no flag --bord; did you mean --board?`},
		{"job list --servr x", `there is no flag --servr; did you mean --server?`},
		{"job list -x", "unknown shorthand flag"},
		{"job list --limit x", `--limit must be a whole number, not "x"`},
		{"job list --timeout x", `--timeout must be a duration such as 30s or 5m, not "x"`},
		{"job cancel --revert=x " + id, `--revert must be true or false, not "x"`},
		{"board limit b --jobs -1", `--jobs must be a whole number, not negative, not "-1"`},
		{"job list --board", "--board needs a value: only jobs on this board"},
		{"job list --state lost", "--state must be one of delayed, claimable"},
		{"job list --state complted", `not "complted"; did you mean "completed"?`},
		{"job list --limit -1", "--limit must not be negative"},
		{"job list --timeout -1s", "--timeout must not be negative"},
		{"job list -o yaml", "--output must be table or json"},
		{"job post --priority urgent", "priority is invalid"},
		{"job post --set colour", "--set must be NAME=VALUE"},
		{"job post --set a=1 --set a=2", `--set gives "a" twice`},
		{"job post --kind k --set a=\xff", "--set must be UTF-8"},
		{"job post", "name the work of the job: --flow, --book or --kind"},
		{"job post --kind a\x01", "--kind is invalid: contains the control character U+0001"},
		{"job post --details {", "--details is invalid: not a JSON value"},
		{"job post --details @/nowhere", "cannot read --details"},
		{"job post --not-before soon", "--not-before must be a time"},
		{"job post --book x", "book id is invalid"},
		{"job post --flow-id " + id, "--flow-id needs --book"},
		{"job post --kind a --book " + id, "exclude each other"},
		{"job post --id x", "job id is invalid"},
		{"job watch --after 7", "--after must be INDEX-ITEM"},
		{"job consume --outcome fine " + id, "--outcome must be success"},
		{"job consume --token 7 " + id, "token is invalid"},
		{"job abandon --delay -1s " + id, "--delay must not be negative"},
		{"flow run /nowhere.toml", "no such file"},
		{"flow show x", "job id is invalid"},
		{"flow graph --format png ../../../examples/hello.toml", "--format must be dot, mermaid or text"},
		{"book get x", "book id is invalid"},
		{"dev --log-level loud", "--log-level must be trace, debug, info, warn or error"},
		{"dev --api-listen here", "--api-listen must be HOST:PORT"},
		{"config check /nowhere.toml", "cannot read the configuration"},
	} {
		t.Run(row.args, func(t *testing.T) {
			got := clitest.Run(t, nil, strings.Fields(row.args)...)
			if got.Code != cli.ExitUsage || !strings.Contains(got.Err, row.want) || got.Out != "" {
				t.Errorf("code %d\nstdout %s\nstderr %s\nwant %s", got.Code, got.Out, got.Err, row.want)
			}
		})
	}
}

func TestNoServer(t *testing.T) {
	got := clitest.Run(t, nil, "job", "list")
	want := "conductord: cannot connect to 127.0.0.1:7070: nobody answers: unavailable: it did not happen\n" +
		"conductord: is a server running, and is --server right? start one with `conductord dev`\n"
	if got.Code != cli.ExitUnavailable || got.Err != want || got.Out != "" {
		t.Errorf("got %+v", got)
	}
}

func TestEndpoints(t *testing.T) {
	for _, row := range []struct {
		name string
		env  []string
		args []string
		want string
	}{
		{"default", nil, nil, "127.0.0.1:7070"},
		{"environment", []string{"CONDUCTORD_SERVER=a:1, b:2"}, nil, "a:1 b:2"},
		{"flags", []string{"CONDUCTORD_SERVER=a:1"}, []string{"--server", "c:3,d:4", "--server", "e:5"}, "c:3 d:4 e:5"},
		{"empty", []string{"CONDUCTORD_SERVER="}, nil, "127.0.0.1:7070"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var dialled []string
			clitest.RunWith(t, t.Context(), nil, func(p *cli.Program) {
				p.Env = row.env
				p.Dial = func(_ context.Context, options raftboard.Options) (cli.Cluster, error) {
					dialled = options.Endpoints
					return nil, jobs.ErrUnavailable
				}
			}, append([]string{"session", "list"}, row.args...)...)
			if got := strings.Join(dialled, " "); got != row.want {
				t.Errorf("dialled %q, want %q", got, row.want)
			}
		})
	}
}

// TestBounds checks which commands wait without a limit.
func TestBounds(t *testing.T) {
	const id = "01890000-0000-7000-8000-000000000001"
	for _, row := range []struct {
		args string
		want time.Duration
	}{
		{"job get " + id, 10 * time.Second},
		{"flow show " + id, 10 * time.Second},
		{"job wait " + id, time.Minute},
		{"job watch", time.Minute},
		{"flow run ../../../examples/hello.toml", 10 * time.Second},
		{"flow run ../../../examples/hello.toml --wait", time.Minute},
		{"job wait --timeout 7m " + id, 7 * time.Minute},
	} {
		var got time.Duration
		clitest.RunWith(t, t.Context(), nil, func(p *cli.Program) {
			p.Dial = func(_ context.Context, options raftboard.Options) (cli.Cluster, error) {
				got = options.Patience
				return nil, jobs.ErrUnavailable
			}
		}, strings.Fields(row.args)...)
		if got != row.want {
			t.Errorf("%s: patience of %s, want %s", row.args, got, row.want)
		}
	}
}

func TestVersion(t *testing.T) {
	formats := cli.Formats{Log: command.Version, Rows: fsm.RowsFormat, Snapshot: fsm.SnapshotFormat, Backup: backup.Format}
	line := fmt.Sprintf("\nformats:  log %d, rows %d, snapshot %d, backup %d\n", formats.Log, formats.Rows, formats.Snapshot, formats.Backup)
	if got := clitest.Run(t, nil, "version"); got.Code != 0 || !strings.HasPrefix(got.Out, "conductord ") || !strings.Contains(got.Out, line) || got.Err != "" {
		t.Errorf("got %+v", got)
	}
	var version cli.Version
	if got := clitest.Run(t, nil, "version", "-o", "json"); json.Unmarshal([]byte(got.Out), &version) != nil || version.Go == "" || version.Formats != formats {
		t.Errorf("got %+v", got)
	}
}

// TestLimitsAgree: package config repeats the largest limits of package logbook, because it
// must not import it.
func TestLimitsAgree(t *testing.T) {
	limits := config.Default().Limits
	if got := (logbook.Limits{Name: limits.Name, Value: limits.Value, Command: limits.Command, Steps: limits.Steps}); got != logbook.MaxLimits {
		t.Errorf("config has %+v, logbook %+v", got, logbook.MaxLimits)
	}
}
