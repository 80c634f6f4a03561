package nodetest_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/nodetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A cluster of three in this process, with a worker and a job.
func Example() {
	cluster, err := nodetest.Open(3) // in a test: nodetest.New(t, 3)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cluster.Close() }()

	ctx, stop := context.WithCancel(context.Background())
	job, err := jobs.PostOne(ctx, cluster.Client, jobs.NewPlainPosting("greet", "Ada"))
	if err != nil {
		log.Fatal(err)
	}
	greet := conductor.WithDetails(func(_ context.Context, _ jobs.Job, name string) error {
		fmt.Println("Hello, " + name + "!")
		stop()
		return nil
	})
	err = conductor.Run(ctx, conductor.Options{Client: cluster.Client, Funcs: map[string]conductor.Func{"greet": greet}})
	job, errJob := cluster.Client.Job(context.Background(), job.ID)
	fmt.Println(job.Outcome, err, errJob)
	// Output:
	// Hello, Ada!
	// success <nil> <nil>
}

// The cluster serves with two of three nodes, but not with one, and again after their restart.
func TestNodesStopAndStart(t *testing.T) {
	c := nodetest.New(t, 3)
	post := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := jobs.PostOne(ctx, c.Client, jobs.NewPlainPosting("greet", nil))
		return err
	}
	stop := func(i int) {
		if err := c.Stop(i); err != nil {
			t.Fatal(err)
		}
	}
	stop(0)
	stop(0) // twice
	if err := post(); err != nil {
		t.Errorf("with two of three nodes: %v", err)
	}
	stop(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := jobs.PostOne(ctx, c.Client, jobs.NewPlainPosting("greet", nil)); err == nil {
		t.Error("one of three nodes has accepted a job")
	}
	for i := range 3 {
		if err := c.Start(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := post(); err != nil {
		t.Errorf("with all nodes again: %v", err)
	}
}

func TestSizeIsBounded(t *testing.T) {
	for _, nodes := range []int{-1, 0, 10} {
		if _, err := nodetest.Open(nodes); err == nil || !strings.Contains(err.Error(), "1 to 9") {
			t.Errorf("%d nodes: %v", nodes, err)
		}
	}
}
