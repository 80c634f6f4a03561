package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	chaos "github.com/conductord/conductord/test/cluster"
)

// linearizableTimeEnv makes TestProcessesAreLinearizable longer, such as 3m.
const linearizableTimeEnv = "CONDUCTORD_LINEARIZABLE_TIME"

// TestProcessesAreLinearizable kills the leader every 5 s while workers post, claim, consume,
// abandon, change and read the same jobs through all nodes: the answers about each job are
// consistent with one order of all calls about it.
func TestProcessesAreLinearizable(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	const pace, workers = 5 * time.Second, 8
	lasts := timeOf(t, linearizableTimeEnv, 3*pace)
	cluster, patient := startCluster(t, func(c *config.Config) { c.Conductor.Enabled = false })
	history := chaos.NewHistory("job", 500*time.Millisecond)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for number := range workers {
		w := hire(t, cluster, patient, history, number)
		all.Go(func() { w.Work(ctx) })
	}
	killed := killLeaders(t, cluster, patient, lasts, pace)
	stop()
	all.Wait()
	last := &chaos.Worker{Client: patient, Number: workers, History: history}
	for _, id := range history.Jobs() {
		if err := last.Read(within(t), id); err != nil {
			t.Fatal(err)
		}
	}
	answers := history.Answers()
	t.Logf("%d leaders killed, %d calls: %v", killed, history.Calls(), answers)
	for _, what := range []string{"post", "claim", "consume", "abandon", "trash", "change", "read"} {
		if answers[what+" refused=false unknown=false"] == 0 {
			t.Errorf("no %s was ever answered", what)
		}
	}
	if err := history.Check(patience); err != nil {
		t.Error(err)
	}
}

// hire makes a worker.
func hire(t *testing.T, cluster *local.Cluster, patient *raftboard.Client, history *chaos.History, number int) *chaos.Worker {
	t.Helper()
	endpoints := cluster.Endpoints()
	at := number % len(endpoints)
	client, err := raftboard.Open(t.Context(), raftboard.Options{
		Endpoints: append(slices.Clone(endpoints[at:]), endpoints[:at]...), Patience: chaos.Impatient,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	session := jobs.NewSessionID()
	if _, err := patient.OpenSession(within(t), jobs.Opening{ID: session, Name: fmt.Sprint("worker ", number), TTL: jobs.MaxTTL}); err != nil {
		t.Fatal(err)
	}
	return &chaos.Worker{
		Client: client, Number: number, History: history, Session: session, Draw: rand.New(rand.NewPCG(uint64(number), 0)),
	}
}

// timeOf is the duration of a test: the value of an environment variable, or a default.
func timeOf(t *testing.T, name string, otherwise time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return lasts
}
