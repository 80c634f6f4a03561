package conductor_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// registrations counts the registrations of entities at a board.
type registrations struct {
	cluster
	count atomic.Int32
	fault atomic.Bool // the next call fails
}

func (r *registrations) Register(ctx context.Context, id jobs.SessionID, e jobs.Entity) error {
	r.count.Add(1)
	if r.fault.CompareAndSwap(true, false) {
		return logbook.ErrUnavailable
	}
	return r.cluster.Register(ctx, id, e)
}

// TestMetadataAreFollowed: a change of the metadata is on the board within a second, after one
// registration, or two if the first fails. Without a change the conductor does not register again.
func TestMetadataAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registrations{cluster: openCluster(t)}
		var value atomic.Pointer[string]
		set := func(text string) { value.Store(&text) }
		set("1")
		o := options(r, simple(t))
		o.Metadata = func() logbook.Values { return logbook.Values{"tools": []byte(*value.Load())} }
		worker := running(t, o)
		<-worker.Ready()
		for _, row := range []struct {
			name  string
			act   func()
			want  string
			calls int32
		}{
			{"as at the start", func() {}, "1", 1},
			{"changed", func() { set("2") }, "2", 2},
			{"changed, and a call fails", func() { set("3"); r.fault.Store(true) }, "3", 4},
			{"changed, and back before anybody looks", func() { set("4"); set("3") }, "3", 4},
			{"under a new session", func() { set("5"); expireSessions(t, r.cluster) }, "5", 5},
			{"changed under it", func() { set("6") }, "6", 6},
		} {
			row.act()
			time.Sleep(3 * jobs.DefaultTTL / 5)
			synctest.Wait()
			present, err := r.Entities(t.Context(), jobs.EntityConductor)
			var got []string
			for i := range present {
				got = append(got, string(present[i].Metadata["tools"]))
			}
			if err != nil || !slices.Equal(got, []string{row.want}) || r.count.Load() != row.calls {
				t.Errorf("%s: the board has %s, %v, after %d registrations; want %s after %d",
					row.name, strings.Join(got, " "), err, r.count.Load(), row.want, row.calls)
			}
		}
	})
}
