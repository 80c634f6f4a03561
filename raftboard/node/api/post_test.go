package api_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/api"
)

// TestPartsOfACall: if some part of a call took effect, its error is not "it did not happen".
func TestPartsOfACall(t *testing.T) {
	unavailable := fmt.Errorf("%w: not the leader", jobs.ErrUnavailable)
	for _, row := range []struct {
		what  string
		fails int // the failing part; -1: none
		with  error
		want  error
		done  int
	}{
		{"all parts", -1, nil, nil, 3},
		{"the first is refused", 0, unavailable, jobs.ErrUnavailable, 1},
		{"a later one is refused", 2, unavailable, jobs.ErrUncertain, 3},
		{"a later one is in doubt", 1, jobs.ErrUncertain, jobs.ErrUncertain, 2},
		{"a later one is wrong", 1, jobs.ErrInvalid, jobs.ErrInvalid, 2},
	} {
		done := 0
		err := api.InTurn(3, func(part int) error {
			done++
			if part == row.fails {
				return row.with
			}
			return nil
		})
		refused := errors.Is(err, jobs.ErrUnavailable)
		if !errors.Is(err, row.want) || done != row.done || refused != (row.want == jobs.ErrUnavailable) {
			t.Errorf("%s: %v after %d parts", row.what, err, done)
		}
	}
}
