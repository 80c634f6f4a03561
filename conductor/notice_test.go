package conductor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
)

// TestNoticesComeInOrder: the notices of a job have the order of its states, for each of its
// possible ends. The end is noticed once.
func TestNoticesComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		broken := func(context.Context) error { return flow.Permanent(errors.New("no seats")) }
		stuck := flow.FuncRevert("stuck", func(context.Context, nothing) (nothing, error) { return nothing{}, nil },
			func(context.Context, nothing, *nothing) error { return flow.Permanent(errors.New("nor that")) })
		registry := factories{
			"fine":    func() ([]flow.Node, error) { return []flow.Node{do("a", well), do("b", well)}, nil },
			"fails":   func() ([]flow.Node, error) { return []flow.Node{do("a", well), do("b", broken)}, nil },
			"stuck":   func() ([]flow.Node, error) { return []flow.Node{stuck, do("b", broken)}, nil },
			"refused": func() ([]flow.Node, error) { return nil, errors.New("the arguments are wrong") },
		}.registry(t)
		var notices diary
		o := options(c, registry)
		o.Notify = notices.note
		posted := make(map[string]jobs.JobID)
		for _, kind := range []string{"fine", "fails", "stuck", "refused"} {
			posted[kind] = post(t, c, kind, nil).ID
		}
		running(t, o)
		const ran = "claimed, started, flow ended, consumed"
		for _, row := range []struct{ kind, want string }{
			{"fine", ran}, {"fails", ran}, {"stuck", ran}, {"refused", "claimed, trashed"},
		} {
			life := func() string {
				moments := []string{}
				notices.mu.Lock()
				defer notices.mu.Unlock()
				for _, n := range notices.notices {
					if n.Job == posted[row.kind] {
						moments = append(moments, string(n.Moment))
					}
				}
				return strings.Join(moments, ", ")
			}
			finished(t, c, posted[row.kind])
			until(t, "the end of "+row.kind+" was noticed", func() bool {
				got := life()
				return strings.HasSuffix(got, "consumed") || strings.HasSuffix(got, "trashed")
			})
			if got := life(); got != row.want {
				t.Errorf("%s: noticed %s; want %s", row.kind, got, row.want)
			}
		}
		notices.mu.Lock()
		defer notices.mu.Unlock()
		if first := slices.IndexFunc(notices.notices, func(n conductor.Notice) bool { return n.Moment == conductor.MomentSessionOpened }); first != 0 {
			t.Errorf("the session is opened in notice %d", first)
		}
	})
}
