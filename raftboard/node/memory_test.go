package node_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node"
)

// With little memory, new work and lists are refused as overloaded, but keep-alives, claims and
// endings continue. The node accepts new work again when it has memory.
func TestShortMemoryRefusesNewWork(t *testing.T) {
	c := newCluster(t, 1, func(o *node.Options) { o.Memory = 64 << 20 }).startAll()
	client := c.client()
	session := opened(t, client, time.Minute)
	first, second := posted(t, client), posted(t, client)
	held, err := client.Claim(t.Context(), session, first, jobs.NewNonce())
	if err != nil {
		t.Fatal(err)
	}
	taken := make([]byte, 64<<20)
	runtime.GC() // the runtime updates its memory statistics here
	asked := func(call func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		return call(ctx)
	}
	list := func(ctx context.Context) error {
		_, err := client.Jobs(ctx, jobs.Query{})
		return err
	}
	eventually(t, "memory is short", func() bool { return asked(list) != nil })
	for name, refused := range map[string]func(context.Context) error{
		"list": list,
		"post": func(ctx context.Context) error {
			_, err := client.Post(ctx, jobs.Posting{ID: jobs.NewJobID(), Name: "new", Kind: "none"})
			return err
		},
		"create a board": func(ctx context.Context) error { return client.CreateBoard(ctx, "new") },
	} {
		if err := asked(refused); !errors.Is(err, jobs.ErrUnavailable) || !strings.Contains(err.Error(), "overloaded") || !strings.Contains(err.Error(), "most of its memory") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := client.KeepAlive(t.Context(), session); err != nil {
		t.Error(err)
	}
	if _, err := client.Claim(t.Context(), session, second, jobs.NewNonce()); err != nil {
		t.Error(err)
	}
	if err := client.Consume(t.Context(), jobs.Ending{Job: first, Token: held.Job.Token, Outcome: jobs.OutcomeSuccess}); err != nil {
		t.Error(err)
	}
	if job, err := client.Job(t.Context(), first); err != nil || job.State != jobs.StateCompleted {
		t.Errorf("%v, %v", job.State, err)
	}
	runtime.KeepAlive(taken)
	taken = nil
	posted(t, client)
}
