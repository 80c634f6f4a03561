package clock_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/clock"
)

// TestClockAgreesWithItsModel: while a node leads, the clock never goes back, its rate stays
// within the slew limit, and it reaches the corrected time.
func TestClockAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var passed time.Duration
		shown := clock.WithPassed(func() time.Duration { return passed })
		anyTime := rapid.Custom(func(t *rapid.T) time.Time {
			return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.Int64Range(-int64(48*time.Hour), int64(48*time.Hour)).Draw(t, "time")))
		})
		leads := false
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) {
				before, d := shown.Now(), time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "passes"))
				passed += d
				if got := shown.Now().Sub(before); (got - d).Abs() > d/clock.SlewShare+1 {
					t.Fatalf("in %v the clock went on by %v", d, got)
				}
			},
			"hear": func(t *rapid.T) {
				before, told := shown.Now(), anyTime.Draw(t, "told")
				shown.Hear(told)
				want := told
				if leads {
					want = before
				}
				if got := shown.Now(); !got.Equal(want) {
					t.Fatalf("told %v it shows %v, want %v", told, got, want)
				}
			},
			"lead": func(t *rapid.T) {
				before, least := shown.Now(), anyTime.Draw(t, "least")
				shown.Lead(least)
				leads = true
				if now := shown.Now(); now.Before(before) || now.Before(least) || now.After(before) && now.After(least) {
					t.Fatalf("from %v, with at least %v, it shows %v", before, least, now)
				}
			},
			"follow": func(t *rapid.T) { shown.Follow(); leads = false },
			"correct": func(t *rapid.T) {
				if !leads {
					t.Skip("only a leader's is corrected")
				}
				before := shown.Now()
				off := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "off"))
				shown.Correct(off)
				if now := shown.Now(); !now.Equal(before) {
					t.Fatalf("corrected by %v it jumps by %v", off, now.Sub(before))
				}
				passes := off.Abs()*clock.SlewShare + time.Second
				passed += passes
				if now := shown.Now(); !now.Equal(before.Add(passes + off)) {
					t.Fatalf("after %v it has been corrected by %v, want %v", passes, now.Sub(before)-passes, off)
				}
			},
		})
	})
}

// TestAMinorityOfWrongClocksHasNoEffect: a correction moves the cluster's time towards the right
// clocks and never past them, for any answers of a minority. With all answers, the time is between
// the right clocks.
func TestAMinorityOfWrongClocksHasNoEffect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 7).Draw(t, "nodes")
		majority := nodes/2 + 1
		anyOffset := rapid.Int64Range(-int64(1000*time.Hour), int64(1000*time.Hour))
		off := anyOffset.Draw(t, "right clocks")
		var right, all []time.Duration
		for range majority {
			right = append(right, time.Duration(off+rapid.Int64Range(0, int64(time.Second)).Draw(t, "drift")))
		}
		all = append(all, right...)
		for range nodes - majority {
			all = append(all, time.Duration(anyOffset.Draw(t, "wrong")))
		}
		answers := rapid.IntRange(majority, nodes).Draw(t, "answers")
		got, err := clock.Supported(rapid.Permutation(all).Draw(t, "order")[:answers], majority, nil)
		if err != nil {
			t.Fatal(err)
		}
		least, most := slices.Min(right), slices.Max(right)
		switch {
		case got > max(most, 0), got < min(least, 0):
			t.Fatalf("right clocks are off by %v to %v, and the correction is %v", least, most, got)
		case answers == nodes && nodes%2 == 1 && (got < least || got > most):
			t.Fatalf("all have answered, right clocks are off by %v to %v, and the correction is %v", least, most, got)
		}
	})
}

// TestAWrongClockIsWarnedOfOnce: the warning is not repeated at every message of the leader, but
// again when the error changes.
func TestAWrongClockIsWarnedOfOnce(t *testing.T) {
	var shown shifted
	var said strings.Builder
	hear := clock.NewListener(&said, shown.now)
	for _, row := range []struct {
		what string
		off  time.Duration
		want string // lines of the log
	}{
		{"right", 500 * time.Millisecond, ""},
		{"wrong", -time.Minute, "[WARN]"},
		{"slewed", -50 * time.Second, ""},
		{"other way", time.Minute, "[WARN]"},
		{"far", time.Hour, "[WARN]"},
		{"farther by a little", time.Hour + 10*time.Minute, ""},
		{"right again", 0, "[INFO]"},
		{"still", 0, ""},
	} {
		said.Reset()
		shown.Store(int64(row.off))
		for range 3 {
			hear(time.Now())
		}
		if got := said.String(); !strings.Contains(got, row.want) || strings.Count(got, "\n") != min(len(row.want), 1) {
			t.Errorf("%s: it says %q, want one line with %q", row.what, got, row.want)
		}
	}
}

// TestAgreedTime: the cluster's time is at least the time that a majority of the clocks has
// reached, and at most the time that a majority has not passed. Offsets are relative to the
// cluster's time.
func TestAgreedTime(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, row := range []struct {
		name     string
		offsets  []time.Duration
		majority int
		want     time.Duration // the correction
		err      error
	}{
		{"one node", []time.Duration{time.Hour}, 1, time.Hour, nil},
		{"all agree", []time.Duration{time.Second, time.Second, time.Second}, 2, time.Second, nil},
		{"one is a year ahead", []time.Duration{year, 0, 0}, 2, 0, nil},
		{"one is a year behind", []time.Duration{-year, 0, 0}, 2, 0, nil},
		{"one is a year ahead, one is away", []time.Duration{year, 0}, 2, 0, nil},
		{"one is a year behind, one is away", []time.Duration{-year, 0}, 2, 0, nil},
		{"they differ, and one is away", []time.Duration{time.Minute, year}, 2, time.Minute, nil},
		{"they differ the other way, and one is away", []time.Duration{-time.Minute, -year}, 2, -time.Minute, nil},
		{"all differ", []time.Duration{time.Minute, 0, -time.Minute}, 2, 0, nil},
		{"the time is ahead of all", []time.Duration{-time.Hour, -2 * time.Hour, -time.Minute}, 2, -time.Hour, nil},
		{"two of five are ahead", []time.Duration{0, year, 0, -time.Second, year}, 3, 0, nil},
		{"four nodes", []time.Duration{year, time.Hour, time.Minute, -year}, 3, time.Minute, nil},
		{"alone", []time.Duration{0}, 2, 0, jobs.ErrUnavailable},
	} {
		got, err := clock.Supported(row.offsets, row.majority, errors.New("away"))
		if !errors.Is(err, row.err) || (row.err == nil && (err != nil || got != row.want)) {
			t.Errorf("%s: %s, %v; want %s, %v", row.name, got, err, row.want, row.err)
		}
	}
}

// shifted is a wall clock with an error in nanoseconds.
type shifted struct{ atomic.Int64 }

func (s *shifted) now() time.Time { return time.Now().Add(time.Duration(s.Load())).Round(0) }
