package job_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
)

func TestClaimsAreShownAndExtended(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k")
	clitest.NewWorker(t, cluster, id)
	free := clitest.Post(t, cluster, "--kind", "k")
	job, err := cluster.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, args string
		code       int
		out, err   string // parts
	}{
		{"all", "claim list", 0, id.String(), ""},
		{"the health of its session", "claim list", 0, "HEALTH", ""},
		{"of the owner", "claim list --owner w1 --limit 1", 0, job.Token.String(), ""},
		{"of the job", "claim list --job ID", 0, job.Token.String(), ""},
		{"of no job", "claim list --job 17", cli.ExitUsage, "", "job id"},
		{"of another owner", "claim list --owner w2", 0, "JOB", ""},
		{"of no session", "claim list --session 17", cli.ExitUsage, "", "session id"},
		{"extend", "claim extend ID --token TOKEN --for 1h", 0, "1h", ""},
		{"the listing tells", "claim list", 0, "1h", ""},
		{"extend without a token", "claim extend ID --for 1h", cli.ExitUsage, "", "token"},
		{"extend under another token", "claim extend ID --token 1-1 --for 1h", cli.ExitConflict, "", "cannot extend the claim of job " + id.String() + ": fenced: this token holds no claim: w1 holds job"},
		{"extend what nobody has claimed", "claim extend FREE --token 1-1 --for 1h", cli.ExitConflict, "", "is claimable, and was never claimed"},
		{"extend by nothing", "claim extend ID --token TOKEN --for 0s", cli.ExitUsage, "", "claim expiry"},
	} {
		t.Run(row.name, func(t *testing.T) {
			args := strings.NewReplacer("ID", id.String(), "FREE", free.String(), "TOKEN", job.Token.String()).Replace(row.args)
			got := clitest.Run(t, cluster, strings.Fields(args)...)
			if got.Code != row.code || !strings.Contains(got.Out, row.out) || !strings.Contains(got.Err, row.err) {
				t.Errorf("got %+v", got)
			}
		})
	}
	var shown struct {
		Claims []struct {
			Job   jobs.JobID
			Claim struct{ Owner, Expiry, Token string }
		}
	}
	got := clitest.Run(t, cluster, "-o", "json", "claim", "list")
	if err := json.Unmarshal([]byte(got.Out), &shown); err != nil || len(shown.Claims) != 1 || shown.Claims[0].Job != id ||
		shown.Claims[0].Claim.Owner != "w1" || shown.Claims[0].Claim.Expiry != "3600s" || !strings.HasPrefix(shown.Claims[0].Claim.Token, "1-") {
		t.Errorf("as JSON: %+v, %v", got, err)
	}
}

// A job without a reservation does not change, and an absent job is not found.
func TestClaimUnreserve(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k")
	clitest.Expect(t, clitest.Run(t, cluster, "claim", "unreserve", id.String()), 0, "ID claimable\n", "")
	if got := clitest.Run(t, cluster, "claim", "unreserve", jobs.NewJobID().String()); got.Code != cli.ExitNotFound {
		t.Errorf("an absent job: %+v", got)
	}
}
