package dashboard_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/conductord/conductord/jobs"
)

// TestIterations: the pages of a job and of its flow link to the kept iterations. The page of an earlier iteration shows its
// values.
func TestIterations(t *testing.T) {
	t.Parallel()
	const bill = `read -r line; month=${line##*:}; month=${month%%[!0-9]*}
[ $month -lt 12 ] && open=true || open=false
echo "{\"following\": $((month + 1)), \"open\": $open}"`
	p := newFlowPages(t, map[string]string{"charge": bill})
	job := p.wait(p.run(`
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
	`).ID)
	if job.Outcome != jobs.OutcomeSuccess || job.Iteration != 12 {
		t.Fatalf("the job is %s in iteration %d", job.Outcome, job.Iteration)
	}
	flow := "flows/" + job.ID.String()
	link := func(number int) string { return fmt.Sprintf(`href="/dashboard/%s?iteration=%d"`, flow, number) }
	p.wants(p.get("jobs/"+job.ID.String()), "iteration 12<", link(11), link(3), `href="/dashboard/`+flow+`">12<`, "no "+link(2))
	p.wants(p.get(flow), link(11), link(3), `aria-current="page">12<`, "no and the job has continued", "no "+link(2))
	earlier := p.get(flow + "?iteration=5&step=charge")
	p.wants(earlier, "5, and the job has continued", `aria-current="page">5<`, link(6), "conductord flow show "+job.ID.String()+" --iteration 5",
		`href="/dashboard/jobs/`+job.ID.String()+`"`, "<code>5</code>", "no <code>12</code>", "iteration=5&amp;")
	for text, status := range map[string]int{"2": http.StatusNotFound, "13": http.StatusNotFound, "0": http.StatusBadRequest, "x": http.StatusBadRequest} {
		answer, err := http.Get(p.server.URL + "/dashboard/" + flow + "?iteration=" + text)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body.Close(); answer.StatusCode != status {
			t.Errorf("iteration %s: %s", text, answer.Status)
		}
	}
	once := p.wait(p.run("name = \"once\"\n[store]\nmonth = 1\n[[steps]]\nname = \"charge\"\nrequires = [\"month\"]").ID)
	if page := p.get("jobs/" + once.ID.String()); strings.Contains(page, "teration") {
		t.Errorf("the page of a job without iterations shows them:\n%s", page)
	}
}
