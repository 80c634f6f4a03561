package test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

const storySteps = 20

// story is one job of many steps on a cluster whose nodes are killed. Each step writes a line
// to a diary, outside the cluster. The file limit has the number of the last step that may
// end, so that the job cannot finish too early for the test.
type story struct {
	*testing.T
	cluster *local.Cluster
	client  *raftboard.Client
	diary   string
	limit   string
	job     jobs.Job
}

// upTo lets the steps up to a number end.
func (s *story) upTo(step int) {
	s.Helper()
	if err := os.WriteFile(s.limit+".new", []byte(strconv.Itoa(step)), 0o600); err != nil {
		s.Fatal(err)
	}
	if err := os.Rename(s.limit+".new", s.limit); err != nil {
		s.Fatal(err)
	}
}

// beginStory starts the cluster and posts the job.
func beginStory(t *testing.T, pace time.Duration) *story {
	t.Helper()
	dir := t.TempDir()
	s := &story{T: t, diary: filepath.Join(dir, "diary"), limit: filepath.Join(dir, "limit")}
	s.upTo(storySteps / 2)
	handlers := filepath.Join(dir, "handlers")
	writeHandler(t, handlers, "work", fmt.Sprintf(`
echo "$CONDUCTORD_STEP $CONDUCTORD_ATTEMPT $CONDUCTORD_FENCE" >> %s
sleep %.2f
number=${CONDUCTORD_STEP#step-}
while [ "${number#0}" -gt "$(cat %s)" ]; do sleep 0.05; done
echo "\"$CONDUCTORD_STEP done by attempt $CONDUCTORD_ATTEMPT\""
`, s.diary, pace.Seconds(), s.limit))
	s.cluster, s.client = startCluster(t, func(c *config.Config) { c.Conductor.Handlers = []string{handlers} })
	posting := documentPosting(t, "story", linearDocument(storySteps, "work"))
	job, err := jobs.PostOne(within(t), s.client, posting)
	if err != nil {
		t.Fatal(err)
	}
	s.job = job
	return s
}

// linearDocument is a flow of n steps, one after another.
func linearDocument(n int, handler string) string {
	var text strings.Builder
	text.WriteString("name = \"story\"\npattern = \"linear\"\n")
	for i := range n {
		fmt.Fprintf(&text, "[[steps]]\nname = \"step-%02d\"\nhandler = %q\n", i+1, handler)
	}
	return text.String()
}

// documentPosting makes a posting of a flow document.
func documentPosting(t *testing.T, name, text string) jobs.Posting {
	t.Helper()
	document, err := spec.Parse([]byte(text), name+".toml")
	if err != nil {
		t.Fatal(err)
	}
	return jobs.Posting{ID: jobs.NewJobID(), Name: name, Book: &logbook.Book{
		ID: logbook.NewBookID(), Name: name, Flows: []logbook.FlowDetail{{
			ID: logbook.NewFlowID(), Name: name, Store: document.Store,
			Factory: logbook.Factory{Name: spec.Kind, Args: document.JSON()},
		}},
	}}
}

// recorded reads the successful executions that the logbook holds.
func (s *story) recorded() map[string]logbook.Attempt {
	s.Helper()
	detail, err := s.client.FlowDetail(within(s.T), s.job.Flow)
	if err != nil {
		s.Fatal(err)
	}
	results := map[string]logbook.Attempt{}
	for i := range detail.Atoms {
		for _, attempt := range detail.Atoms[i].Attempts {
			if attempt.Action == logbook.ActionExecute && attempt.Ended() && attempt.Failure == nil {
				if _, twice := results[detail.Atoms[i].Name]; twice {
					s.Errorf("step %s has two results", detail.Atoms[i].Name)
				}
				results[detail.Atoms[i].Name] = attempt
			}
		}
	}
	return results
}

// progress waits until a number of steps is recorded, and reads the claim.
func (s *story) progress(steps int) (map[string]logbook.Attempt, jobs.Job) {
	s.Helper()
	var results map[string]logbook.Attempt
	var job jobs.Job
	eventually(s.T, fmt.Sprintf("%d steps are recorded and the job is held", steps), func() bool {
		var err error
		if job, err = s.client.Job(s.Context(), s.job.ID); err != nil {
			return false
		}
		results = s.recorded()
		return len(results) >= steps && (job.Claim != nil || job.State.Finished())
	})
	if job.State.Finished() {
		s.Fatalf("the job has finished already, with %d steps", len(results))
	}
	return results, job
}

// nextOwner waits until the job is claimed under a higher token.
func (s *story) nextOwner(after jobs.Token) jobs.Job {
	s.Helper()
	var job jobs.Job
	eventually(s.T, "the job has a new owner", func() bool {
		var err error
		job, err = s.client.Job(s.Context(), s.job.ID)
		return err == nil && job.Claim != nil && job.Claim.Token.Compare(after) > 0
	})
	return job
}

// kept checks that earlier records are unchanged, byte by byte.
func (s *story) kept(before map[string]logbook.Attempt) {
	s.Helper()
	now := s.recorded()
	for step, then := range before {
		attempt, ok := now[step]
		if !ok || !bytes.Equal(attempt.Result, then.Result) || attempt.Number != then.Number || attempt.Token != then.Token {
			s.Errorf("the result of %s was %s of attempt %d, and is %s of attempt %d", step, then.Result, then.Number, attempt.Result, attempt.Number)
		}
	}
}

// executions counts the lines of the diary, by step.
func (s *story) executions() map[string]int {
	s.Helper()
	data, err := os.ReadFile(s.diary)
	if err != nil {
		s.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(data)) {
		step, _, _ := strings.Cut(line, " ")
		counts[step]++
	}
	return counts
}

// TestStoryOfKills checks promises 1, 2 and 3. A job has twenty steps; first its claimant is
// killed, then the leader. The job ends with every step recorded once, and no step with a
// recorded result runs again.
func TestStoryOfKills(t *testing.T) {
	t.Parallel()
	s := beginStory(t, 250*time.Millisecond)
	done := map[string]bool{}
	for _, victim := range []string{"claimant", "leader"} {
		s.upTo(len(done) + 8)
		before, job := s.progress(len(done) + 4)
		node, ok := s.cluster.Node(job.Claim.Owner)
		if victim == "leader" {
			node, ok = leaderOf(t, s.cluster, s.client), true
		}
		if !ok {
			t.Fatalf("no node is named %q", job.Claim.Owner)
		}
		heldByVictim := job.Claim.Owner == node.Name
		led := leaderOf(t, s.cluster, s.client) == node
		began := time.Now()
		node.Kill()
		if heldByVictim {
			next := s.nextOwner(job.Claim.Token)
			t.Logf("killed %s, the %s (leading: %t): %s had the job after %v", node.Name, victim, led, next.Claim.Owner, time.Since(began).Round(10*time.Millisecond))
			if next.Crashes == 0 {
				t.Error("the crash was not counted")
			}
		}
		s.kept(before)
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
		if err := node.WaitReady(within(t)); err != nil {
			t.Fatal(err)
		}
		for step := range before {
			done[step] = true
		}
	}
	s.endsWell()
}

// endsWell waits for a successful end, and compares the record with the diary.
func (s *story) endsWell() {
	s.Helper()
	s.upTo(storySteps)
	job, err := s.client.Wait(within(s.T), s.job.ID)
	if err != nil {
		s.Fatal(err)
	}
	if job.State != jobs.StateCompleted || job.Outcome != jobs.OutcomeSuccess {
		s.Fatalf("the job is %s %s: %s", job.State, job.Outcome, job.Reason)
	}
	results, executions := s.recorded(), s.executions()
	if len(results) != storySteps {
		s.Errorf("%d of %d steps have results", len(results), storySteps)
	}
	for step, attempt := range results {
		if executions[step] < 1 || executions[step] > attempt.Number {
			s.Errorf("%s was executed %d times, and its result comes from attempt %d", step, executions[step], attempt.Number)
		}
		if want := fmt.Sprintf(`"%s done by attempt %d"`, step, attempt.Number); string(attempt.Result) != want {
			s.Errorf("the result of %s is %s, want %s", step, attempt.Result, want)
		}
	}
}

// TestStoryOfStops checks the second half of promise 4: a node that gets a stop signal hands its
// job over to another node without a crash, and ends with status 0.
func TestStoryOfStops(t *testing.T) {
	t.Parallel()
	s := beginStory(t, 100*time.Millisecond)
	before, job := s.progress(3)
	node, ok := s.cluster.Node(job.Claim.Owner)
	if !ok {
		t.Fatalf("no node is named %q", job.Claim.Owner)
	}
	began := time.Now()
	node.Signal(syscall.SIGTERM)
	next := s.nextOwner(job.Claim.Token)
	t.Logf("stopped %s: %s had the job after %v", node.Name, next.Claim.Owner, time.Since(began).Round(10*time.Millisecond))
	if next.Crashes != 0 {
		t.Errorf("a stop was counted as %d crashes", next.Crashes)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if status, err := node.Wait(ctx); err != nil || status != 0 {
		t.Errorf("the node ended with status %d, error %v", status, err)
	}
	s.kept(before)
	s.endsWell()
	for step, count := range s.executions() {
		if count > 2 {
			t.Errorf("%s was executed %d times", step, count)
		}
	}
}
