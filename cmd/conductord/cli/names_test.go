package cli_test

import (
	"context"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// dials counts the connections of one command.
func dials(t *testing.T, cluster cli.Cluster, args ...string) (got clitest.Said, dialled int) {
	t.Helper()
	got = clitest.RunWith(t, t.Context(), cluster, func(p *cli.Program) {
		p.Dial = func(context.Context, raftboard.Options) (cli.Cluster, error) {
			dialled++
			return cluster, nil
		}
	}, args...)
	return got, dialled
}

// TestShortIDs: arguments and flags accept the beginning of an id.
func TestShortIDs(t *testing.T) {
	const first, second, other = "01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-0000000000ab", "02220000-0000-7000-8000-000000000001"
	cluster := clitest.Open(t)
	for _, id := range []string{first, second, other} {
		if got := clitest.Run(t, cluster, "job", "post", "--flow", "../../../examples/hello.toml", "--set", "guest=Ada", "--id", id); got.Code != 0 {
			t.Fatalf("%+v", got)
		}
	}
	opened, err := cluster.OpenSession(t.Context(), jobs.Opening{ID: jobs.NewSessionID(), Name: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	job, err := cluster.Job(t.Context(), mustParse(t, jobs.ParseJobID, first))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args  string
		code  int
		says  string // part of stdout, or of stderr after a failure
		dials int
	}{
		{"job get " + first, 0, first, 1},
		{"job get 0222", 0, other, 2},
		{"job get 02220000-0000-7", 0, other, 2},
		{"job get 0189000000007000800000000000000a", cli.ExitNotFound, "no job id starts or ends with 0189000000007000800000000000000a: not found", 1},
		{"job get 01890000-0000-7000-8000-0000000000A", 0, second, 2},
		{"job get 0189", cli.ExitUsage, "0189 is ambiguous: these job ids start or end with it; use more of the id:\nconductord:   " + first + "\nconductord:   " + second + "\n", 1},
		{"job get 018", cli.ExitUsage, `job id is invalid: "018" must be a UUID, or at least its first 4 or last 8 hexadecimal digits`, 0},
		{"job get nope", cli.ExitUsage, `"nope" must be a UUID`, 0},
		{"job get 000000ab", 0, second, 2},
		{"job get 8000-0000000000AB", 0, second, 2},
		{"job get 00000001", cli.ExitUsage, "00000001 is ambiguous: these job ids start or end with it; use more of the id:\nconductord:   " + other + "\nconductord:   " + first + "\n", 1},
		{"job get 00000ab", cli.ExitNotFound, "no job id starts or ends with 00000ab", 1},
		{"job explain 0222", 0, other, 2},
		{"job errors 0222", 0, "", 2},
		{"job suspend 0222", 0, "suspended", 2},
		{"job release 0222", 0, other, 2},
		{"job cancel 0222", 0, "cancelled", 2},
		{"job wait 0222 --timeout 5s", cli.ExitFailed, "", 2},
		{"job watch 0222", 0, "", 2},
		{"job move 0222 0189000000007000800000000000000 default", 0, first, 2},
		{"trash purge " + second + " 0222", 0, other, 2},
		{"flow show 0189000000007000800000000000000", 0, "pending", 2},
		{"flow show " + job.Flow.String()[:30], 0, "pending", 2},
		{"flow plan --revert 01890000-0000-7000-8000-0000000000", 0, "", 2},
		{"flow rerun 0189000000007000800000000000000", cli.ExitConflict, "", 2},
		{"flow plan abcd", cli.ExitUsage, "no such file", 0},
		{"book get " + job.Book.String()[:30], 0, job.Book.String(), 2},
		{"claim list --session " + opened.ID.String()[:13], 0, "", 2},
		{"claim list --session 0000", cli.ExitNotFound, "no session id starts or ends with 0000", 1},
	} {
		if strings.HasPrefix(row.args, "trash purge") {
			clitest.Run(t, cluster, "job", "cancel", second) // so that the job is finished
		}
		got, dialled := dials(t, cluster, strings.Fields(row.args)...)
		text := got.Out
		if got.Code != 0 {
			text = got.Err
		}
		if got.Code != row.code || !strings.Contains(text, row.says) || dialled != row.dials {
			t.Errorf("conductord %s: dialled %d times, %+v", row.args, dialled, got)
		}
	}
}

// TestShortIDsOfJobsAndFlows: a prefix that matches a job and the flow of another job is ambiguous.
func TestShortIDsOfJobsAndFlows(t *testing.T) {
	const flow, other, own, itsFlow = "03330000-0000-7000-8000-000000000002", "03330000-0000-7000-8000-000000000001", "05550000-0000-7000-8000-000000000001", "05550000-0000-7000-8000-000000000002"
	cluster := clitest.Open(t)
	post := func(job, flow string) {
		posting := jobs.NewPosting("k", nil, nil)
		posting.ID, posting.Flow = mustParse(t, jobs.ParseJobID, job), mustParse(t, logbook.ParseFlowID, flow)
		posting.Book.Flows[0].ID = posting.Flow
		if _, err := jobs.PostOne(t.Context(), cluster, posting); err != nil {
			t.Fatal(err)
		}
	}
	post("04440000-0000-7000-8000-000000000001", flow)
	post(other, "04440000-0000-7000-8000-000000000002")
	post(own, itsFlow)
	for _, row := range []struct {
		args string
		code int
		says string
	}{
		{"flow show 0333", cli.ExitUsage, "0333 is ambiguous: these job or flow ids start or end with it; use more of the id:\nconductord:   " + other + "\nconductord:   " + flow + "\n"},
		{"flow show " + flow[:len(flow)-1], cli.ExitUsage, "is ambiguous"},
		{"flow show " + flow, 0, flow},
		{"flow show 0555", 0, itsFlow},
	} {
		got := clitest.Run(t, cluster, strings.Fields(row.args)...)
		if got.Code != row.code || !strings.Contains(got.Out+got.Err, row.says) {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
}

// TestShortIDsAreBounded: a long list of candidates is not shown.
func TestShortIDsAreBounded(t *testing.T) {
	cluster := clitest.Open(t)
	var postings []jobs.Posting
	for i := range jobs.MaxIDMatches + 1 {
		id := mustParse(t, jobs.ParseJobID, "01890000-0000-7000-8000-00000000000"+string("123456789ab"[i]))
		postings = append(postings, jobs.Posting{ID: id, Name: "n", Kind: "k"})
	}
	if _, err := cluster.Post(t.Context(), postings...); err != nil {
		t.Fatal(err)
	}
	got := clitest.Run(t, cluster, "job", "get", "0189")
	if got.Code != cli.ExitUsage || strings.Count(got.Err, "7000-8000") != jobs.MaxIDMatches || !strings.Contains(got.Err, "  and possibly more\n") {
		t.Errorf("%+v", got)
	}
}

func mustParse[ID any](t *testing.T, parse func(string) (ID, error), text string) ID {
	t.Helper()
	id, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
