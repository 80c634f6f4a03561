package deadlines_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/deadlines"
)

const grace = time.Second

// sessions are the timers of sessions.
type sessions struct {
	*deadlines.Deadlines[jobs.SessionID]
}

func newSessions() sessions {
	return sessions{deadlines.New[jobs.SessionID](grace, make(chan struct{}, 1))}
}

func (d sessions) arm(id jobs.SessionID, ttl time.Duration, now time.Time) { d.Arm(id, ttl, 0, now) }

func (d sessions) due(now time.Time, most int) (ids []jobs.SessionID) {
	for _, late := range d.TakeDue(now, most) {
		ids = append(ids, late.ID)
	}
	return ids
}

// modelled is the expected state of a session's timer.
type modelled struct {
	ttl      time.Duration
	silent   time.Time // time of the last renewal
	again    time.Time // earliest time of the next attempt after a spared expiry
	expiring <-chan struct{}
	waits    bool // expiring
}

func (m *modelled) due() time.Time {
	if !m.again.IsZero() {
		return m.again
	}
	return m.silent.Add(m.ttl + grace)
}

// Nothing is due before TTL and grace have passed since its last renewal. After that, everything is
// due.
func TestDeadlinesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newSessions()
		now := time.Unix(1_000, 0)
		model := map[jobs.SessionID]*modelled{}
		ids := make([]jobs.SessionID, 6)
		for i := range ids {
			ids[i] = jobs.NewSessionID()
		}
		pick := func() jobs.SessionID { return rapid.SampledFrom(ids).Draw(t, "session") }
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.SampledFrom([]int{1, 40, 500, 999, 1000, 2000}).Draw(t, "ms")) * time.Millisecond)
			},
			"arm": func(t *rapid.T) {
				id := pick()
				ttl := time.Duration(rapid.IntRange(1, 4).Draw(t, "ttl")) * time.Second
				d.arm(id, ttl, now)
				if model[id] == nil {
					model[id] = &modelled{}
				}
				model[id].ttl = ttl // the TTL of a claim can change
				model[id].silent, model[id].again = now, time.Time{}
			},
			"renew": func(t *rapid.T) {
				id := pick()
				wait, known := d.Renew(id, now)
				m := model[id]
				if known != (m != nil) || (wait != nil) != (m != nil && m.waits) {
					t.Fatalf("renew: known %v, wait %v, model %+v", known, wait != nil, m)
				}
				if known && wait == nil {
					m.silent, m.again = now, time.Time{}
				}
			},
			"disarm": func(t *rapid.T) {
				id := pick()
				d.Disarm(id)
				decided(t, model[id])
				delete(model, id)
			},
			"spare": func(t *rapid.T) {
				id := pick()
				again := now.Add(100 * time.Millisecond)
				d.Spare(id, again)
				if m := model[id]; m != nil && m.waits {
					decided(t, m)
					m.waits, m.expiring = false, nil
					if m.due().Before(again) { // its TTL was not extended meanwhile
						m.again = again
					}
				}
			},
			"rearm": func(*rapid.T) {
				d.RearmAll(now)
				for _, m := range model {
					m.silent, m.again = now, time.Time{}
				}
			},
			"due": func(t *rapid.T) {
				most := rapid.IntRange(1, 6).Draw(t, "most")
				got := d.due(now, most)
				var want int
				for id, m := range model {
					if m.waits {
						continue
					}
					if !m.due().After(now) {
						want++
					} else if slices.Contains(got, id) {
						t.Fatalf("session is due at %v, %v early", now, m.due().Sub(now))
					}
				}
				if len(got) != min(want, most) {
					t.Fatalf("%d sessions are due, want %d", len(got), min(want, most))
				}
				for _, id := range got {
					if model[id] == nil || model[id].waits {
						t.Fatalf("a session is due that has no timer")
					}
					model[id].expiring, _ = d.Renew(id, now)
					model[id].waits = true
				}
			},
			"": func(t *rapid.T) {
				idle := 0
				for m := range maps.Values(model) {
					if !m.waits {
						idle++
					}
				}
				if sessions, inHeap := d.Count(), d.InHeap(); sessions != len(model) || inHeap != idle {
					t.Fatalf("holds %d sessions and %d keys, want %d and %d", sessions, inHeap, len(model), idle)
				}
				for _, m := range model {
					if next := d.Next(); !m.waits && (next.IsZero() || next.After(m.due())) {
						t.Fatalf("the next key %v is after the deadline %v", next, m.due())
					}
				}
			},
		})
	})
}

// decided checks that a caller that waits for an expiry has learned its outcome.
func decided(t *rapid.T, m *modelled) {
	if m == nil || !m.waits {
		return
	}
	select {
	case <-m.expiring:
	default:
		t.Fatal("the expiry is decided, and its waiters were not woken")
	}
}

// A keep-alive during an expiry waits for the outcome: it never succeeds for a session that then
// expires.
func TestRenewWaitsForExpiry(t *testing.T) {
	for _, row := range []struct {
		name   string
		decide func(d sessions, id jobs.SessionID, now time.Time)
		alive  bool
	}{
		{"expired", func(d sessions, id jobs.SessionID, _ time.Time) { d.Disarm(id) }, false},
		{"spared", func(d sessions, id jobs.SessionID, now time.Time) { d.Spare(id, now.Add(time.Second)) }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, id := newSessions(), jobs.NewSessionID()
				d.arm(id, time.Second, time.Now())
				time.Sleep(time.Second + grace) // virtual time
				if due := d.due(time.Now(), 10); len(due) != 1 {
					t.Fatalf("due: %v", due)
				}
				outcome := make(chan bool, 16)
				for range cap(outcome) {
					go func() {
						for {
							wait, known := d.Renew(id, time.Now())
							if wait == nil {
								outcome <- known
								return
							}
							<-wait
						}
					}()
				}
				synctest.Wait()
				if len(outcome) != 0 {
					t.Fatal("a keep-alive did not wait for the expiry under way")
				}
				row.decide(d, id, time.Now())
				synctest.Wait()
				for range cap(outcome) {
					if alive := <-outcome; alive != row.alive {
						t.Fatalf("alive %v, want %v", alive, row.alive)
					}
				}
				time.Sleep(time.Second + grace - time.Millisecond)
				if due := d.due(time.Now(), 10); len(due) != 0 {
					t.Fatal("due before a full TTL after its renewal")
				}
			})
		})
	}
}
