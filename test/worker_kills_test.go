package test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var (
	killJobs    = flag.Int("worker-jobs", 40, "jobs of TestWorkersAreKilled")
	killSteps   = flag.Int("worker-steps", 5, "steps of each")
	killWorkers = flag.Int("workers", 3, "workers that do them")
	killMost    = flag.Int("kills", 16, "workers and nodes that are killed at most")
	killEvery   = flag.Duration("kill-every", 700*time.Millisecond, "how often a worker or a node is killed")
	killTime    = flag.Duration("kill-time", 3*time.Minute, "time limit of the whole test")
)

// TestWorkersAreKilled kills and restarts random workers and nodes (with their conductors). Every flow
// succeeds, no attempt starts twice, a step starts again only after its previous attempt has lost its worker,
// and recorded results do not change. Flags make the test larger: -worker-jobs 1000 -worker-steps 10 -workers
// 10 -kills 10000 -kill-every 3s -kill-time 1h.
func TestWorkersAreKilled(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f := openField(t)
	ctx, cancel := context.WithTimeout(t.Context(), *killTime)
	defer cancel()
	workers := make([]*exec.Cmd, *killWorkers)
	start := func(i int) {
		workers[i] = exec.CommandContext(ctx, binary, "worker", "--handlers", f.handlers, "--ttl", "3s", f.all)
		if err := workers[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range workers {
		start(i)
	}
	posted := postWorkerFlows(ctx, f, *killJobs, *killSteps)
	kills := map[string]int{}
	recorded := map[logbook.FlowID]map[string]string{} // results by step, as first seen
	ticker := time.NewTicker(*killEvery)
	defer ticker.Stop()
	for done := 0; done < len(posted); {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%d of %d jobs have ended after %s", done, len(posted), *killTime)
		}
		seen := posted[rand.IntN(len(posted))].Flow
		f.compare(ctx, seen, recorded)
		switch victim := rand.IntN(len(workers) + len(f.cluster.Nodes)); {
		case kills["workers"]+kills["nodes"] >= *killMost: // on a busy machine, workers would only restart
		case victim < len(workers):
			_ = workers[victim].Process.Kill()
			_ = workers[victim].Wait()
			start(victim)
			kills["workers"]++
		default:
			node := f.cluster.Nodes[victim-len(workers)]
			node.Kill()
			if err := node.Start(); err != nil {
				t.Fatal(err)
			}
			if err := node.WaitReady(ctx); err != nil {
				t.Fatal(err)
			}
			kills["nodes"]++
		}
		for done < len(posted) {
			job, err := f.client.Job(ctx, posted[done].ID)
			if err != nil || !job.State.Finished() {
				break
			}
			if job.Outcome != jobs.OutcomeSuccess {
				t.Fatalf("job %s is %s with outcome %q and reason %q: %s", job.ID, job.State, job.Outcome, job.Reason, ran(t, "flow", "show", job.Flow.String(), f.all))
			}
			done++
		}
	}
	again := map[string]int{}
	starts := f.startsByAttempt()
	for _, job := range posted {
		f.compare(ctx, job.Flow, recorded)
		f.checkAttempts(ctx, job.Flow, starts, again)
	}
	t.Logf("%d jobs of %d steps, %d workers: killed %v; steps started again: %v", *killJobs, *killSteps, *killWorkers, kills, again)
}

// postWorkerFlows posts jobs with a flow each, almost all in parallel.
func postWorkerFlows(ctx context.Context, f *field, count, steps int) (posted []jobs.Job) {
	text := "name = \"killed\"\npattern = \"linear\"\n"
	for i := range steps {
		text += fmt.Sprintf("[[steps]]\nname = \"s%d\"\nhandler = \"quick\"\nworker = true\n", i+1)
	}
	const together = 100
	for count > 0 {
		postings := make([]jobs.Posting, min(count, together))
		for i := range postings {
			postings[i] = workerFlow(f, text)
		}
		results, err := f.client.Post(ctx, postings...)
		if err != nil {
			f.Fatal(err)
		}
		for _, result := range results {
			if result.Err != nil {
				f.Fatal(result.Err)
			}
			posted = append(posted, result.Job)
		}
		count -= len(postings)
	}
	return posted
}

func workerFlow(f *field, text string) jobs.Posting {
	document, err := spec.Parse([]byte(text), "flow.toml")
	if err != nil {
		f.Fatal(err)
	}
	book := logbook.NewBookID()
	detail := document.Detail(logbook.NewFlowID(), book, document.Store)
	return jobs.Posting{
		ID: jobs.NewJobID(), Name: document.Name, Book: &logbook.Book{ID: book, Name: document.Name, Flows: []logbook.FlowDetail{detail}},
		MaxCrashes: jobs.MaxMaxCrashes, // otherwise a job that loses its conductor five times is trashed
	}
}

// compare reads a flow, and compares its results with the earlier record.
func (f *field) compare(ctx context.Context, id logbook.FlowID, recorded map[logbook.FlowID]map[string]string) {
	f.Helper()
	detail, err := f.client.FlowDetail(ctx, id)
	if err != nil {
		f.Fatal(err)
	}
	if recorded[id] == nil {
		recorded[id] = map[string]string{}
	}
	now := map[string]string{}
	for i := range detail.Atoms {
		if result, has := detail.Atoms[i].Result(); has {
			now[detail.Atoms[i].Name] = string(result)
		}
	}
	for step, result := range recorded[id] {
		if now[step] != result {
			f.Errorf("the result of step %s of flow %s was %s and is %q", step, id, result, now[step])
		}
	}
	recorded[id] = now
}

// startsByAttempt counts the starts of the handlers, by key and attempt.
func (f *field) startsByAttempt() map[string]int {
	data, err := os.ReadFile(f.starts)
	if err != nil {
		f.Fatal(err)
	}
	starts := map[string]int{}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		starts[words[3]+" "+words[2]]++
	}
	return starts
}

// checkAttempts compares the attempts of a flow with the starts of its handlers.
func (f *field) checkAttempts(ctx context.Context, id logbook.FlowID, starts map[string]int, again map[string]int) {
	f.Helper()
	detail, err := f.client.FlowDetail(ctx, id)
	if err != nil {
		f.Fatal(err)
	}
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		for j := range atom.Attempts {
			attempt := &atom.Attempts[j]
			name := fmt.Sprintf("%s/%s/execute %d", id, atom.Name, attempt.Number)
			last := j == len(atom.Attempts)-1
			switch started := starts[name]; {
			case started > 1:
				f.Errorf("%s was started %d times", name, started)
			case last && (started != 1 || attempt.Failure != nil):
				f.Errorf("%s, the last, was started %d times and has the failure %v", name, started, attempt.Failure)
			case !last && (attempt.Failure == nil || attempt.Failure.Kind != logbook.FailureWorkerLost):
				f.Errorf("%s is followed by another, and its failure is %v", name, attempt.Failure)
			case !last && started == 1:
				again["its worker was killed while it ran, or before its end was recorded"]++
			case !last:
				again["its worker was killed before the step began"]++
			}
			delete(starts, name)
		}
	}
	if left := slices.DeleteFunc(slices.Collect(maps.Keys(starts)), func(name string) bool { return !strings.HasPrefix(name, id.String()) }); len(left) > 0 {
		f.Errorf("started, and in no record: %v", left)
	}
}

// TestWorkersDoOneGraph: many workers run a flow of a hundred steps with up to ten dependencies
// each. Each step starts once, with the results of its dependencies.
func TestWorkersDoOneGraph(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f := openField(t)
	const steps, most = 100, 10
	writeHandler(t, f.handlers, "node", `read -r line; echo "$CONDUCTORD_STEP $line" >> '`+f.starts+`'; echo "\"result of $CONDUCTORD_STEP\""`)
	for range *killWorkers {
		f.worker()
	}
	text := "name = \"graph\"\n"
	want := map[string]map[string]string{}
	for i := range steps {
		name := fmt.Sprintf("s%d", i)
		want[name] = map[string]string{}
		for _, earlier := range rand.Perm(i)[:min(i, most)] {
			want[name][fmt.Sprintf("v%d", earlier)] = fmt.Sprintf("result of s%d", earlier)
		}
		requires, err := json.Marshal(slices.Sorted(maps.Keys(want[name])))
		if err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("[[steps]]\nname = %q\nhandler = \"node\"\nworker = true\nprovides = \"v%d\"\nrequires = %s\n", name, i, strings.ReplaceAll(string(requires), "null", "[]"))
	}
	job, err := jobs.PostOne(within(t), f.client, workerFlow(f, text))
	if err != nil {
		t.Fatal(err)
	}
	f.ends(job.ID.String(), jobs.OutcomeSuccess)
	data, err := os.ReadFile(f.starts)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		name, arguments, _ := strings.Cut(line, " ")
		var got map[string]string
		if err := json.Unmarshal([]byte(arguments), &got); err != nil || !maps.Equal(got, want[name]) {
			t.Errorf("step %s was started with %s (%v), want %v, once", name, arguments, err, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("never started: %v", slices.Sorted(maps.Keys(want)))
	}
}
