package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
)

// awaits posts a flow that waits for topic payments with a key, and returns its job once the flow waits.
func (f *field) awaits(key string) (job string) {
	f.Helper()
	job = f.runFlow("inputs = [\"order\"]\n\n[[steps]]\nname = \"payment\"\nrequires = [\"order\"]\nwait = {topic = \"payments\", key = \"order-{order}\", timeout = \"1h\"}\n", "--set", "order="+key)
	remedy := "signal publish payments --key order-" + key
	eventually(f.T, "the flow waits", func() bool { return strings.Contains(ran(f.T, "job", "explain", job, f.all), remedy) })
	return job
}

// publishes publishes to topic payments, and checks the answer.
func (f *field) publishes(want, key, id string, more ...string) {
	f.Helper()
	args := append([]string{"signal", "publish", "payments", "--key", "order-" + key, "--id", id, "--data", fmt.Sprintf(`{"id": %q}`, id), f.all}, more...)
	if got := ran(f.T, args...); got != want+"\n" {
		f.Errorf("publication %s: %q, want %q", id, got, want)
	}
}

// has waits for the end of a job, and checks the publication that its wait took.
func (f *field) has(job, id string) {
	f.Helper()
	f.ends(job, jobs.OutcomeSuccess)
	if got := ran(f.T, "step", "wait", job+"/payment", f.all); !sameJSON(f.T, got, fmt.Sprintf(`{"id": %q}`, id)) {
		f.Errorf("job %s has %s, want publication %s", job, got, id)
	}
}

// TestTopics: a publication reaches the oldest wait, or all of them, once, and continues their flows. A board keeps a
// publication for the next wait. This also holds after the leader was killed.
func TestTopics(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f := openField(t)
	first, second, other := f.awaits("7"), f.awaits("7"), f.awaits("8")
	leader := leaderOf(t, f.cluster, f.client)
	leader.Kill()
	f.publishes("taken by 1", "7", "a")
	f.publishes("repeated, first taken by 1", "7", "a", "--to", "all")
	f.has(first, "a")
	third := f.awaits("7")
	f.publishes("taken by 2", "7", "b", "--to", "all")
	f.has(second, "b")
	f.has(third, "b")

	unheard := command(t, "", "signal", "publish", "payments", "--key", "order-7", f.all)
	if unheard.code == 0 || !strings.Contains(unheard.err, "nobody waits") || !strings.Contains(unheard.err, "keep the publication") {
		t.Errorf("a publication to nobody: %+v", unheard)
	}
	f.publishes("kept", "7", "c", "--keep", "1h")
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	leaderOf(t, f.cluster, f.client).Kill()
	f.has(f.runFlow("[[steps]]\nname = \"payment\"\nwait = {topic = \"payments\", key = \"order-7\"}\n"), "c")
	f.publishes("taken by 1", "8", "a")
	f.has(other, "a")
}
