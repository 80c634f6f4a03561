package node_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
)

// shifted is a wall clock with an error in nanoseconds.
type shifted struct{ atomic.Int64 }

func (s *shifted) now() time.Time { return time.Now().Add(time.Duration(s.Load())).Round(0) }

// clusterClocks are the wall clocks of the nodes of a cluster.
type clusterClocks struct {
	*cluster
	wrong []shifted
}

// newClusterClocks starts three nodes whose wall clocks have the given errors.
func newClusterClocks(t *testing.T, off ...time.Duration) *clusterClocks {
	t.Helper()
	c := &clusterClocks{wrong: make([]shifted, len(off))}
	started := 0
	c.cluster = newCluster(t, len(off), func(o *node.Options) {
		o.Metrics = prometheus.NewRegistry()
		o.Sessions = node.SessionTimings{Grace: 100 * time.Millisecond, CoolDown: 300 * time.Millisecond}
		c.wrong[started].Store(int64(off[started]))
		o.WallClock = c.wrong[started].now
		started++
	}).startAll()
	return c
}

// leadTo moves the leadership to a given node.
func (c *clusterClocks) leadTo(which int) {
	c.t.Helper()
	eventually(c.t, "the leadership is handed over", func() bool {
		leader := c.leader()
		if leader != which {
			_ = node.TransferTo(c.nodes[leader], c.options[which].Name) // repeated after a failure
		}
		return leader == which
	})
}

const (
	soon = 10 * time.Minute
	// near is less than any clock error here, and more than the delay of a busy machine.
	near = 30 * time.Second
)

// checker repeatedly checks that wrong clocks change nothing.
type checker struct {
	*clusterClocks
	board    *raftboard.Client
	finished jobs.JobID // a job with a long retention
	deadline jobs.JobID
	later    jobs.JobID
	slots    schedules.Ref
	last     time.Time     // time of the last stamp
	near     time.Duration // maximum difference between stamps and this test's clock
}

func newChecker(c *clusterClocks, near time.Duration) *checker {
	c.t.Helper()
	k := &checker{clusterClocks: c, board: c.client(), slots: schedules.Ref{Name: "hourly"}, near: near}
	k.finished = k.post(jobs.Posting{Kind: "k"})
	claimed, _ := k.claim(time.Minute)
	if err := k.board.Consume(k.t.Context(), jobs.Ending{Job: k.finished, Token: claimed.Token, Outcome: jobs.OutcomeSuccess}); err != nil {
		k.t.Fatal(err)
	}
	k.deadline = k.post(jobs.Posting{Kind: "other", Deadline: time.Now().Add(soon)})
	k.later = k.post(jobs.Posting{Kind: "other", NotBefore: time.Now().Add(soon)})
	schedule := schedules.Schedule{Name: k.slots.Name, Rule: "@every 1h", Posting: jobs.Posting{Kind: "tick"}}
	if _, err := k.board.SaveSchedule(k.t.Context(), schedule); err != nil {
		k.t.Fatal(err)
	}
	return k
}

func (k *checker) session(ttl time.Duration) jobs.SessionID {
	k.t.Helper()
	session, err := k.board.OpenSession(k.t.Context(), jobs.Opening{ID: jobs.NewSessionID(), Name: "worker", TTL: ttl})
	if err != nil {
		k.t.Fatal(err)
	}
	return session.ID
}

// post posts a job. Its stamp must be the current time, and not before the previous stamp.
func (k *checker) post(posting jobs.Posting) jobs.JobID {
	k.t.Helper()
	posting.Name = "job"
	posted, err := k.board.Post(k.t.Context(), posting)
	if err != nil || posted[0].Err != nil {
		k.t.Fatalf("cannot post %+v: %v, %v", posting, err, posted)
	}
	at := posted[0].Job.PostedAt
	if off := time.Since(at); off.Abs() > k.near || at.Before(k.last) {
		k.t.Errorf("a job was posted %v ago, and one before it %v ago", off, time.Since(k.last))
	}
	k.last = at
	return posted[0].Job.ID
}

// claim claims the job in its own session, and returns a time before the session was opened.
func (k *checker) claim(ttl time.Duration) (jobs.Job, time.Time) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	opened, session := time.Now(), k.session(ttl)
	for {
		got, err := k.board.ClaimNext(ctx, jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Kinds: []string{"k"}, Max: 1, Wait: time.Second})
		if len(got) == 1 {
			return got[0].Job, opened
		}
		if errors.Is(err, jobs.ErrSessionExpired) { // this machine is slow
			opened, session = time.Now(), k.session(ttl)
		}
		if ctx.Err() != nil {
			k.t.Fatalf("nothing to claim: %v", err)
		}
	}
}

func (k *checker) state(what string, id jobs.JobID, want jobs.State) {
	k.t.Helper()
	if job, err := k.board.Job(k.t.Context(), id); err != nil || job.State != want {
		k.t.Errorf("%s is %q, due at %v, %v; want %q", what, job.State, job.DueAt, err, want)
	}
}

// check checks that nothing was deleted, cancelled or due early, and that a dead owner's job is
// claimable again in time.
func (k *checker) check(when string) {
	k.t.Helper()
	if err := node.Sweep(k.nodes[k.leader()]); err != nil {
		k.t.Fatal(err)
	}
	k.state(when+", a job that has just finished", k.finished, jobs.StateCompleted)
	k.state(when+", a job with a deadline in ten minutes", k.deadline, jobs.StateClaimable)
	k.state(when+", a job that is due in ten minutes", k.later, jobs.StateDelayed)
	k.state(when+", a new job that is due in ten minutes", k.post(jobs.Posting{Kind: "other", NotBefore: time.Now().Add(soon)}), jobs.StateDelayed)
	k.state(when+", a new job with a deadline in ten minutes", k.post(jobs.Posting{Kind: "other", Deadline: time.Now().Add(soon)}), jobs.StateClaimable)
	if report, err := k.board.Schedule(k.t.Context(), k.slots, schedules.Look{}); err != nil || report.Schedule.Posted != 0 {
		k.t.Errorf("%s, slots were posted early: %+v, %v", when, report, err)
	}
	const ttl = jobs.MinTTL
	crashed := k.post(jobs.Posting{Kind: "k"})
	_, began := k.claim(ttl)
	again, _ := k.claim(time.Minute)
	took, timings := time.Since(began), k.options[0].Sessions
	if least := ttl + timings.Grace + timings.CoolDown*9/10; again.ID != crashed || took < least || took > near {
		k.t.Errorf("%s, the job of a dead owner was claimed again after %v; it takes %v", when, took, least)
	}
	if err := k.board.Consume(k.t.Context(), jobs.Ending{Job: again.ID, Token: again.Token, Outcome: jobs.OutcomeSuccess}); err != nil {
		k.t.Error(err)
	}
}

// TestOneWrongClockChangesNothing: the wall clock of one of three nodes jumps while the node leads.
// The node hands over, leads again, and follows.
func TestOneWrongClockChangesNothing(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for name, jump := range map[string]time.Duration{
		"an hour ahead": time.Hour, "an hour behind": -time.Hour, "a year ahead": year, "a year behind": -year,
	} {
		t.Run(name, func(t *testing.T) {
			if jump != year {
				longtest.Skip(t)
			}
			t.Parallel()
			k := newChecker(newClusterClocks(t, 0, 0, 0), near)
			wrong := k.leader()
			k.wrong[wrong].Store(int64(jump))
			k.check("the leader's clock has jumped")
			k.leadTo((wrong + 1) % 3)
			k.check("it has handed over")
			k.leadTo(wrong)
			k.check("it leads again")
			k.wrong[wrong].Store(0)
			k.leadTo((wrong + 2) % 3)
			k.check("its clock is right again")
		})
	}
}

// TestThreeClocksThatDiffer: for each leader, time neither stops nor goes back.
func TestThreeClocksThatDiffer(t *testing.T) {
	t.Parallel()
	// The first leader may know only two clocks.
	k := newChecker(newClusterClocks(t, -time.Second, time.Minute, -time.Minute), near+time.Minute)
	for i := range k.nodes {
		k.leadTo(i)
		k.check(k.options[i].Name + " leads")
	}
}

// TestTheOnlyClockJumps: for a short time, even a jump of the only clock changes nothing.
func TestTheOnlyClockJumps(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	k := newChecker(newClusterClocks(t, 0), near)
	for _, jump := range []time.Duration{year, 0, -year} {
		k.wrong[0].Store(int64(jump))
		k.check("the clock is off by " + jump.String())
	}
}

// TestAWrongClockIsShown checks that a node reports its wrong clock: once in its
// log, and in its status and metrics.
func TestAWrongClockIsShown(t *testing.T) {
	t.Parallel()
	c := newClusterClocks(t, 0, 0, 0)
	wrong := (c.leader() + 1) % 3
	c.wrong[wrong].Store(int64(time.Hour))
	client := c.client(wrong)
	eventually(t, "the status has the offset", func() bool {
		status, err := client.Status(t.Context(), c.options[wrong].Members[wrong].API)
		return err == nil && status.ClockOffset != nil && (*status.ClockOffset-time.Hour).Abs() < near
	})
	families, err := c.options[wrong].Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "conductord_clock_offset_seconds" {
			if got := family.GetMetric()[0].GetGauge().GetValue(); got < (time.Hour-near).Seconds() || got > (time.Hour+near).Seconds() {
				t.Errorf("the metric is %v", got)
			}
			return
		}
	}
	t.Error("no metric shows the offset")
}
