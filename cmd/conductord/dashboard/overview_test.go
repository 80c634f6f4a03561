package dashboard

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
)

// The overview names boards whose jobs wait long without claims. It omits paused boards, and
// shortens a long list.
func TestIdleBoards(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 2, 0, 0, 0, time.UTC)
	board := func(name string, waits time.Duration, claimed uint64) *v1.Board {
		counts := &v1.BoardCounts{Jobs: map[string]uint64{"claimable": 1, "claimed": claimed}, OldestClaimable: timestamppb.New(now.Add(-waits))}
		return &v1.Board{Name: name, Counts: counts}
	}
	paused := board("paused", time.Hour, 0)
	paused.Pause = &v1.BoardPause{}
	boards := []*v1.Board{{Name: "empty"}, board("new", longWait, 0), board("busy", time.Hour, 1), paused, board("idle", longWait+1, 0)}
	if got := idleBoards(boards, now); !slices.Equal(got, []string{"idle"}) {
		t.Errorf("idle boards: %q", got)
	}
	many := []*v1.Board{board("a", time.Hour, 0), board("b", time.Hour, 0), board("c", time.Hour, 0), board("d", time.Hour, 0)}
	if got := idleBoards(many, now); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("of many idle boards: %q", got)
	}
}
