package offers_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/offers"
)

// TestNewAttemptsGoElsewhere checks which of the workers a and b gets an attempt, at once and after
// the time that is reserved for other workers.
func TestNewAttemptsGoElsewhere(t *testing.T) {
	for _, row := range []struct {
		name, workers, failed string // one letter each; after the dash, the workers without a free slot
		restarts              bool   // the failed workers restart
		at, later             string
	}{
		{"the first attempt", "ab", "", false, "a", ""},
		{"the other has failed", "ab", "b", false, "a", ""},
		{"the first has failed", "ab", "a", false, "b", ""},
		{"the other is busy", "a-b", "a", false, "", "a"},
		{"both have failed", "ab", "ab", false, "a", ""},
		{"the only one has failed", "a", "a", false, "a", ""},
		{"it comes back under its name", "ab", "a", true, "b", ""},
		{"it comes back, and is the only one", "a", "a", true, "a", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := offers.NewStepMatch()
				var failed []string
				for _, name := range row.failed {
					m.Pull(string(name), "k")
					failed = append(failed, string(name))
				}
				if row.restarts {
					m.Offer("s", "k")
					m.Dies(row.failed, "s")
					m.Returns(row.failed)
					failed = []string{row.failed + "'"}
				}
				workers, busy, _ := strings.Cut(row.workers, "-")
				for _, name := range busy {
					m.PullFull(string(name), "k")
				}
				for _, name := range workers {
					m.Pull(string(name), "k")
				}
				m.Offer("s", "k", failed...)
				if got := m.Taken("s"); got != row.at {
					t.Errorf("%q gets it at once, want %q", got, row.at)
				}
				time.Sleep(offers.ElsewhereTime)
				if got := m.Taken("s"); got != row.later {
					t.Errorf("%q gets it later, want %q", got, row.later)
				}
			})
		})
	}
}

// TestWorkersAreSetAside checks when a worker that has waited longest gets no step, and when it
// gets steps again.
func TestWorkersAreSetAside(t *testing.T) {
	broken, bad := &logbook.Failure{Kind: "error"}, &logbook.Failure{Kind: "error", Permanent: true}
	fails := func(m *offers.StepMatch, name string, steps int, failure *logbook.Failure) {
		for i := range steps {
			step := fmt.Sprint(name, i)
			m.Offer(step, "k")
			if got := m.Taken(step); got != name {
				panic(got + " has it, want " + name)
			}
			m.Ends(name, step, failure)
			m.Pull(name, "k")
		}
	}
	for _, row := range []struct {
		name   string
		before func(m *offers.StepMatch)
		other  bool // there is another worker, b
		wait   time.Duration
		aside  string
		taker  string
	}{
		{"four failures", func(m *offers.StepMatch) { fails(m, "a", 4, broken) }, true, 0, "", "a"},
		{"five failures", func(m *offers.StepMatch) { fails(m, "a", 5, broken) }, true, 0, "a", "b"},
		{"five failures, and alone", func(m *offers.StepMatch) { fails(m, "a", 5, broken) }, false, 0, "a", "a"},
		{"permanent failures", func(m *offers.StepMatch) { fails(m, "a", 9, bad) }, true, 0, "", "a"},
		{"a success between", func(m *offers.StepMatch) {
			fails(m, "a", 4, broken)
			fails(m, "a", 1, nil)
			fails(m, "a", 4, broken)
		}, true, 0, "", "a"},
		{"failures at one step", func(m *offers.StepMatch) {
			for range 9 {
				fails(m, "a", 1, broken)
			}
		}, true, 0, "", "a"},
		{"on trial", func(m *offers.StepMatch) { fails(m, "a", 5, broken) }, true, offers.AsideFirst, "a", "a"},
		{"failed on trial", func(m *offers.StepMatch) {
			fails(m, "a", 5, broken)
			time.Sleep(offers.AsideFirst)
			fails(m, "a", 1, broken)
		}, true, offers.AsideFirst, "a", "b"},
		{"failed on trial, and long after", func(m *offers.StepMatch) {
			fails(m, "a", 5, broken)
			time.Sleep(offers.AsideFirst)
			fails(m, "a", 1, broken)
		}, true, 2 * offers.AsideFirst, "a", "a"},
		{"good on trial", func(m *offers.StepMatch) {
			fails(m, "a", 5, broken)
			time.Sleep(offers.AsideFirst)
			fails(m, "a", 1, nil)
		}, true, 0, "", "a"},
		{"one session is lost with a step, five times", func(m *offers.StepMatch) {
			for i := range 5 {
				m.Offer(fmt.Sprint(i), "k")
				m.Dies("a", fmt.Sprint(i))
				m.Returns("a")
				m.Pull("a", "k")
			}
		}, true, 0, "a a'", "b"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := offers.NewStepMatch()
				m.Pull("a", "k")
				row.before(m)
				time.Sleep(row.wait)
				m.Pull("a", "k")
				if row.other {
					m.Pull("b", "k")
				}
				if got := m.Aside(); got != row.aside {
					t.Errorf("aside: %q, want %q", got, row.aside)
				}
				m.Offer("next", "k")
				if got := m.Taken("next"); got != row.taker {
					t.Errorf("%q gets the next step, want %q", got, row.taker)
				}
			})
		})
	}
}

// TestOnlyWorker checks which worker gets an attempt that only one may get: a session of worker a,
// and after its end another session of that name.
func TestOnlyWorker(t *testing.T) {
	for _, row := range []struct {
		name, only string
		before     func(m *offers.StepMatch)
		after      func(m *offers.StepMatch)
		taker      string
	}{
		{"it waits", "a", func(m *offers.StepMatch) { m.Pull("b", "k"); m.Pull("a", "k") }, nil, "a"},
		{"another waits", "a", func(m *offers.StepMatch) { m.Pull("b", "k"); m.PullFull("a", "k") }, nil, ""},
		{"it comes later", "a", func(m *offers.StepMatch) { m.Pull("b", "k"); m.PullFull("a", "k") }, func(m *offers.StepMatch) { m.Pull("a", "k") }, "a"},
		{"it does not do the type", "a", func(m *offers.StepMatch) { m.Pull("a", "other") }, nil, ""},
		{"another of its name, and it lives", "a'", func(m *offers.StepMatch) { m.PullFull("a", "k"); m.Returns("a"); m.Pull("a", "k") }, nil, ""},
		{"it ends, and another is free", "a", func(m *offers.StepMatch) { m.PullFull("a", "k"); m.Pull("b", "k") }, func(m *offers.StepMatch) { m.Ended("a") }, ""},
		{"it ends, and comes back", "a", func(m *offers.StepMatch) { m.PullFull("a", "k") }, func(m *offers.StepMatch) { m.Ended("a"); m.Returns("a"); m.Pull("a", "k") }, "a"},
		{"it comes back, and then ends", "a'", func(m *offers.StepMatch) { m.PullFull("a", "k"); m.Returns("a"); m.Pull("a", "k") },
			func(m *offers.StepMatch) { m.Ended("a'") }, "a"},
		{"it has ended, as a new leader finds", "gone", func(m *offers.StepMatch) { m.Returns("gone"); m.Pull("b", "k"); m.Pull("a", "k") },
			func(m *offers.StepMatch) { m.Widen("s") }, "a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := offers.NewStepMatch()
			row.before(m)
			m.OfferOnly("s", "k", row.only, "a")
			if row.after != nil {
				row.after(m)
			}
			if got := m.Taken("s"); got != row.taker {
				t.Errorf("%q gets it, want %q", got, row.taker)
			}
		})
	}
}

// TestPromisesTakeSlots checks that a promised attempt takes a slot of the worker's next call until
// the attempt is recorded or offered again, or until the promise lapses.
func TestPromisesTakeSlots(t *testing.T) {
	for _, row := range []struct {
		name  string
		after func(m *offers.StepMatch) // before the next call
		taker string                    // the worker that takes another step
	}{
		{"not recorded", func(*offers.StepMatch) {}, ""},
		{"recorded, and not given", func(m *offers.StepMatch) { m.Records("a", "first") }, ""},
		{"ended", func(m *offers.StepMatch) { m.Ends("a", "first", nil) }, "a"},
		{"offered again, and for another worker now", func(m *offers.StepMatch) { m.Offer("first", "other") }, "a"},
		{"its conductor has died", func(*offers.StepMatch) { time.Sleep(offers.PromiseTime) }, "a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := offers.NewStepMatch()
				m.Pull("a", "k")
				m.Offer("first", "k")
				if got := m.Taken("first"); got != "a" {
					t.Fatalf("%q gets the first step", got)
				}
				row.after(m)
				m.Pull("a", "k")
				m.Offer("second", "k")
				if got := m.Taken("second"); got != row.taker {
					t.Errorf("%q gets the second step, want %q", got, row.taker)
				}
			})
		})
	}
}
