package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// rebuilds counts what is begun outside and has not ended. It is looked at every ten seconds.
type rebuilds struct{ running, most int }

func (r *rebuilds) Execute(_ context.Context, call *flow.Call) (any, error) {
	if call.Asked == 0 {
		r.running++
		r.most = max(r.most, r.running)
	}
	if call.Asked < 3 {
		return nil, flow.NotYet(10 * time.Second)
	}
	r.running--
	return nil, nil
}

// TestKeysAreKeptWhileWaiting: a step that waits after "not yet" keeps its key, also over a resume,
// unless it releases it. No job is released meanwhile.
func TestKeysAreKeptWhileWaiting(t *testing.T) {
	for _, row := range []struct {
		name      string
		options   []flow.ConcurrencyOption
		suspended time.Duration
		most      int
		took      time.Duration
	}{
		{name: "kept", most: 1, took: 90 * time.Second},
		{name: "kept over a resume", suspended: 45 * time.Second, most: 1, took: 90 * time.Second},
		{name: "released", options: []flow.ConcurrencyOption{flow.ReleaseWhileWaiting()}, most: 3, took: 30 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rebuilds{}
				root := flow.Unordered("f")
				for i := range 3 {
					root.Add(flow.NewStep(fmt.Sprintf("s%d", i), r, flow.Concurrency("database", 1, row.options...)))
				}
				j, began := newJournal(newDetail()), time.Now()
				pool := engine.NewPool(1)
				o := engine.Options{Plan: compile(t, root), Journal: j, Workers: 9, Pool: pool, MaxIdle: time.Second}
				if row.suspended > 0 {
					suspend := make(chan struct{})
					time.AfterFunc(row.suspended, func() { close(suspend) })
					o.Suspend = suspend
				}
				for claim, end := uint64(1), (engine.End{}); !end.State.Finished(); claim++ {
					if !end.WaitUntil.IsZero() {
						<-time.After(time.Until(end.WaitUntil))
						if row.options == nil {
							t.Error("the run was given back, with its key")
						}
					}
					o.Detail, o.Token = j.snapshot(), logbook.Token{Index: claim}
					var err error
					if end, err = engine.Run(t.Context(), o); err != nil {
						t.Fatal(err)
					}
					if o.Suspend = nil; end.Update != nil {
						if err := j.apply(*end.Update); err != nil {
							t.Fatal(err)
						}
					}
				}
				if took := time.Since(began); r.most != row.most || took != row.took || pool.InUse() != 0 {
					t.Errorf("%d ran in parallel, for %s", r.most, took)
				}
			})
		})
	}
}
