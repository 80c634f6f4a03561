package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const billDocument = `
name = "bill"
[store]
month = 1
[[steps]]
name = "charge"
requires = ["month"]
provides = ["following", "open"]
[[steps]]
name = "next-month"
again = {}
requires = {month = "following"}
when = {step = "charge", field = "open", is = "equals", value = true}
`

// billMonth charges a month once for each idempotency key. It dies with its conductor before or after the charge.
const billMonth = `read -r line
month=${line##*:}; month=${month%%%%[!0-9]*}
echo "$month $CONDUCTORD_KEY" >> %[1]s/starts
sleep 0.05
grep -q " $CONDUCTORD_KEY\$" %[1]s/bills || echo "$month $CONDUCTORD_KEY" >> %[1]s/bills
sleep 0.05
[ $month -lt 20 ] && open=true || open=false
echo "{\"following\": $((month + 1)), \"open\": $open}"
`

// TestBillsSurviveKills: a job bills 20 months in 20 iterations, while its owner is killed three times and the leader once.
// Each month is billed once, with its own key, in order. Each attempt at a month uses the key of the month.
func TestBillsSurviveKills(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	dir := t.TempDir()
	handlers, bills := filepath.Join(dir, "handlers"), filepath.Join(dir, "bills")
	writeHandler(t, handlers, "charge", fmt.Sprintf(billMonth, dir))
	if err := os.WriteFile(bills, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cluster, client := startCluster(t, func(c *config.Config) {
		c.Conductor.Handlers, c.Sessions.TTL = []string{handlers}, 2*time.Second
	})
	job, err := jobs.PostOne(within(t), client, documentPosting(t, "bill", billDocument))
	if err != nil {
		t.Fatal(err)
	}
	billed := func() []string { return linesOf(t, bills) }
	for kill := range 4 {
		eventually(t, "another month is billed, and the job has an owner", func() bool {
			job, err = client.Job(t.Context(), job.ID)
			return err == nil && len(billed()) > 4*kill && job.Claim != nil
		})
		victim, found := cluster.Node(job.Claim.Owner)
		if kill == 1 {
			victim, found = leaderOf(t, cluster, client), true
		}
		if !found {
			t.Fatalf("no node is named %q", job.Claim.Owner)
		}
		victim.Kill()
		restart(t, victim)
	}
	job, err = client.Wait(within(t), job.ID)
	if err != nil || job.Outcome != jobs.OutcomeSuccess || job.Iteration != 20 {
		t.Fatalf("the job is %s in iteration %d: %v", job.Outcome, job.Iteration, err)
	}
	keys := map[string]string{}
	for i, bill := range billed() {
		month, key, _ := strings.Cut(bill, " ")
		if month != fmt.Sprint(i+1) || keys[key] != "" {
			t.Errorf("bill %d is for month %s, with the key of month %q", i+1, month, keys[key])
		}
		keys[key] = month
	}
	if len(keys) != 20 {
		t.Errorf("%d months are billed", len(keys))
	}
	starts := linesOf(t, filepath.Join(dir, "starts"))
	for _, start := range starts {
		if month, key, _ := strings.Cut(start, " "); keys[key] != month {
			t.Errorf("month %s was started with the key of month %q", month, keys[key])
		}
	}
	t.Logf("%d attempts for 20 months", len(starts))
	for month, id := 20, job.Flow; month > 20-jobs.KeptIterations; month-- {
		detail, err := client.FlowDetail(within(t), id)
		if err != nil || detail.State != logbook.FlowSuccess || string(detail.Store["month"]) != fmt.Sprint(month) {
			t.Fatalf("iteration %d is %s with %s: %v", month, detail.State, detail.Store, err)
		}
		id = detail.Previous
	}
}

// linesOf reads the lines of a file that handlers write.
func linesOf(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}
