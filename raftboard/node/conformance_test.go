package node_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs/jobstest"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/logbooktest"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/valuekeys"
)

// The promises of jobs.Board and logbook.Connection hold through the client, over one node and
// over three. With three, the client first knows only a follower, so that calls are also
// forwarded.
func TestConformance(t *testing.T) {
	longtest.Skip(t) // fsm/fsmtest and raftboard/node/api run the suites too
	t.Parallel()
	noKeys := func(*testing.T) *valuekeys.Keys { return nil }
	for _, row := range []struct {
		name   string
		nodes  int
		stores func(*node.Options)
		keys   func(*testing.T) *valuekeys.Keys
		races  bool // its goroutines are not those of another row
	}{
		{"one node", 1, onStore(logstore.Bolt), noKeys, true},
		{"one node with raft-wal", 1, onStore(logstore.WAL), noKeys, false},
		{"three nodes", 3, onStore(logstore.Bolt), noKeys, false},
		{"three nodes with different log stores", 3, bothStores, noKeys, true},
		{"one node with encrypted values", 1, onStore(logstore.Bolt), func(t *testing.T) *valuekeys.Keys { return someKeys(t, "a") }, false},
	} {
		if underRace && !row.races {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, row.nodes, row.stores, func(o *node.Options) {
				o.Raft.Heartbeat = time.Second // the rows assume one leader, and many run in parallel
				o.Sessions = node.SessionTimings{Grace: 200 * time.Millisecond, CoolDown: 100 * time.Millisecond}
			}).startAll()
			keys := row.keys(t)
			client := c.clientWith(keys, (c.leader()+1)%row.nodes)
			t.Run("board", func(t *testing.T) {
				t.Parallel()
				jobstest.Exercise(t, func(t *testing.T) jobstest.Harness {
					return jobstest.Harness{Board: client, Logbook: client, Lapse: lapse(t, client), TTL: 3 * time.Second, Encrypted: keys != nil}
				})
			})
			t.Run("scheduler", func(t *testing.T) {
				t.Parallel()
				jobstest.ExerciseScheduler(t, func(t *testing.T) jobstest.Harness {
					return jobstest.Harness{Board: client, Logbook: client, Lapse: lapse(t, client), TTL: 3 * time.Second,
						Scheduler: client, Dormant: dormant(t, c)}
				})
			})
			t.Run("logbook", func(t *testing.T) {
				t.Parallel()
				logbooktest.Exercise(t, func(*testing.T) logbook.Connection { return client })
			})
		})
	}
}

// dormant saves a schedule with the command of a leader at a past time.
func dormant(t *testing.T, c *cluster) func(schedules.Schedule, time.Time) (schedules.Schedule, error) {
	return func(schedule schedules.Schedule, since time.Time) (schedules.Schedule, error) {
		save, err := command.PlanSave(&schedule, nil, schedules.NewID(), since)
		if err != nil {
			return schedule, err
		}
		result, err := node.Submit(t.Context(), c.nodes[c.leader()], save)
		if err != nil {
			return schedule, err
		}
		return command.ScheduleFromProto(result.GetSchedule().GetSchedule())
	}
}

// atOnce is the number of parallel tests. They mostly wait for clocks and disks, except under the
// race detector.
func atOnce() int {
	if underRace {
		return 4
	}
	return 10
}

func TestMain(m *testing.M) {
	longtest.AtOnce(atOnce())
	goleak.VerifyTestMain(m)
}
