package node

import (
	"runtime"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
)

const metricNamespace = "conductord"

// nodeMetrics are counters and measurements of a working node. Gauges and stateCollector have the
// numbers that are read at each request for metrics.
type nodeMetrics struct {
	commands         *prometheus.CounterVec
	entries          prometheus.Counter
	entryBytes       prometheus.Histogram
	entryCommands    prometheus.Histogram
	commit           prometheus.Histogram
	logWrite         prometheus.Histogram
	snapshotHold     prometheus.Histogram
	readRounds       prometheus.Counter
	forwarded        prometheus.Counter
	expiriesDeferred prometheus.Counter
	posted           prometheus.Counter
	finished         *prometheus.CounterVec
	retries          prometheus.Counter
	slotsSkipped     prometheus.Counter
	keptExpired      prometheus.Counter
	calls            *prometheus.HistogramVec
}

func newNodeMetrics(registry *prometheus.Registry) *nodeMetrics {
	factory := promauto.With(registry)
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Namespace: metricNamespace, Name: name, Help: help})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Namespace: metricNamespace, Name: name, Help: help}, []string{label})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return factory.NewHistogram(prometheus.HistogramOpts{Namespace: metricNamespace, Name: name, Help: help, Buckets: buckets})
	}
	latencies := prometheus.ExponentialBuckets(0.0005, 2, 15) // to 8 s
	m := &nodeMetrics{
		commands:         counters("commands_total", "Commands that this node proposed as the leader, by name.", "command"),
		entries:          counter("entries_total", "Log entries that this node proposed as the leader."),
		entryBytes:       histogram("entry_bytes", "Size of a proposed log entry, in bytes.", prometheus.ExponentialBuckets(64, 4, 8)),
		entryCommands:    histogram("entry_commands", "Commands in a proposed log entry.", prometheus.ExponentialBuckets(1, 2, 10)),
		commit:           histogram("commit_duration_seconds", "Time from the proposal of a log entry until it is committed and applied, on the leader.", latencies),
		logWrite:         histogram("log_write_duration_seconds", "Time that the disk took to acknowledge a write of this node's raft log, fsync included.", latencies),
		snapshotHold:     histogram("snapshot_hold_duration_seconds", "Time for which the start of a snapshot delayed the application of entries.", latencies),
		readRounds:       counter("read_rounds_total", "Rounds of term checks for reads and keep-alives."),
		forwarded:        counter("forwarded_calls_total", "Calls that this node forwarded to the leader."),
		expiriesDeferred: counter("session_expiries_deferred_total", "Pauses of this node as the leader, after which it gave all sessions a full TTL."),
		posted:           counter("jobs_posted_total", "Jobs whose posting this node applied as the leader."),
		finished:         counters("jobs_finished_total", "Jobs whose end this node applied as the leader, by result: ok or failed.", "result"),
		retries:          counter("job_retries_total", "Failed attempts at jobs that this node applied as the leader, and that the retry policy repeats."),
		slotsSkipped:     counter("schedule_slots_skipped_total", "Slots of schedules that this node skipped as the leader."),
		keptExpired:      counter("publications_expired_total", "Kept publications that no wait took in time, and that this node removed as the leader."),
		calls: factory.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: metricNamespace, Name: "call_duration_seconds", Help: "Duration of API calls, by call and result.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"call", "code"}),
	}
	m.applied(fsm.Changes{}) // creates the counters of all results
	return m
}

func (m *nodeMetrics) proposed(entry *conductordv1.Entry, bytes int) {
	m.entries.Inc()
	m.entryBytes.Observe(float64(bytes))
	m.entryCommands.Observe(float64(len(entry.Commands)))
	for _, c := range entry.Commands {
		m.commands.WithLabelValues(command.Name(c)).Inc()
	}
}

// applied counts the changes that a leader has applied. Followers count nothing, so the sum over
// all nodes has each change once.
func (m *nodeMetrics) applied(changes fsm.Changes) {
	m.posted.Add(float64(changes.Posted))
	m.finished.WithLabelValues("ok").Add(float64(len(changes.Finished) - changes.Failed))
	m.finished.WithLabelValues("failed").Add(float64(changes.Failed))
	m.retries.Add(float64(changes.Retried))
	m.slotsSkipped.Add(float64(changes.Skipped))
	m.keptExpired.Add(float64(changes.Expired))
}

func (m *nodeMetrics) called(call string, took time.Duration, err error) {
	code := "ok"
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	m.calls.WithLabelValues(call, code).Observe(took.Seconds())
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// registerGauges adds the numbers that are read at each request for metrics.
func (n *Node) registerGauges() {
	o := n.options
	for _, row := range []struct {
		name, help string
		value      func() float64
	}{
		{"leading", "1 while this node serves as the leader.", func() float64 { return oneIf(n.leader.Serves()) }},
		{"ready", "1 while this node knows a leader and has caught up.", func() float64 { return oneIf(n.ready.Check() == nil) }},
		{"members", "Members of the cluster, as this node knows them.", func() float64 { return float64(len(n.members.Now())) }},
		{"workers_set_aside", "Step workers that this node, as the leader, has set aside because all their steps failed.", func() float64 { return float64(n.offers.SetAside()) }},
		{"term", "Raft's term: each election raises it.", func() float64 { return float64(n.group.Term()) }},
		{"applied_index", "Log index that the state machine has applied.", func() float64 { return float64(n.machine.AppliedIndex()) }},
		{"disk_free_bytes", "Free space on the disk of the data directory.", func() float64 { return float64(n.disk.Free()) }},
		{"disk_short", "1 while this node's disk is short of space, so that the cluster refuses new work.", func() float64 { return oneIf(n.disk.Crowded()) }},
		{"memory_short", "1 while this node uses most of its memory budget, so that it refuses new work.", func() float64 { return oneIf(n.memory.Short()) }},
		{"memory_budget_bytes", "The setting memory: the budget of this process.", func() float64 { return float64(o.Memory) }},
		{"log_size_bytes", "Size of the files of this node's raft log.", func() float64 { return float64(logstore.Size(o.DataDir, o.LogStore)) }},
		{"log_unsnapshotted_bytes", "Log entries that no snapshot of this node replaces yet.", func() float64 { return float64(n.group.Unsnapshotted()) }},
		{"state_size_bytes", "Size of the file of this node's state.", func() float64 { bytes, _, _ := n.machine.Space(); return float64(bytes) }},
		{"proposals_waiting", "Proposals in the leader's queue.", func() float64 { return float64(n.proposer.Load().Waiting) }},
		{"proposals_waiting_bytes", "Size of the proposals in the leader's queue.", func() float64 { return float64(n.proposer.Load().Bytes) }},
		{"proposals_limit_bytes", "Maximum size of the proposals in the queue; above it, the leader refuses proposals.", func() float64 { return float64(o.Memory / proposalShare) }},
		{"entries_in_flight", "Log entries that were proposed and are not applied yet.", func() float64 { return float64(n.proposer.Load().InFlight) }},
		{"schedule_overdue_seconds", "Time since the earliest undecided slot became due; 0 if there is none.", func() float64 { return overdue(n.machine.NextSlot(), n.clock.AnswerTime()) }},
		{"backup_age_seconds", "Time since the newest scheduled backup of this node, or since the start of the node if there is no backup; 0 without scheduled backups.", n.cluster.Schedule.Age},
		{"certificate_expiry_timestamp_seconds", "Unix time at which the first of this node's certificates expires; 0 without TLS.", func() float64 {
			if o.Credentials == nil {
				return 0
			}
			return float64(o.Credentials.Expires().Unix())
		}},
	} {
		promauto.With(o.Metrics).NewGaugeFunc(prometheus.GaugeOpts{Namespace: metricNamespace, Name: row.name, Help: row.help}, row.value)
	}
	promauto.With(o.Metrics).NewGauge(prometheus.GaugeOpts{
		Namespace: metricNamespace, Name: "build_info", Help: "1, with the versions of this program.",
		ConstLabels: prometheus.Labels{"version": o.Version, "goversion": runtime.Version(), "log_store": string(o.LogStore)},
	}).Set(1)
	o.Metrics.MustRegister(&stateCollector{machine: n.machine, clock: n.clock, logger: n.logger})
}

// overdue returns the seconds since a due time; 0 without a due time.
func overdue(at, now time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(now.Sub(at).Seconds(), 0)
}

var (
	jobsDescription        = prometheus.NewDesc("conductord_jobs", "Jobs, by state.", []string{"state"}, nil)
	boardJobsDescription   = prometheus.NewDesc("conductord_board_jobs", "Jobs of a board, by state.", []string{"board", "state"}, nil)
	boardOldestDescription = prometheus.NewDesc("conductord_board_oldest_claimable_seconds",
		"Waiting time of the job that has been claimable longest; 0 if no job is claimable.", []string{"board"}, nil)
	boardPausedDescription = prometheus.NewDesc("conductord_board_paused", "1 while the board is paused: its jobs cannot be claimed.", []string{"board"}, nil)
	boardParkedDescription = prometheus.NewDesc("conductord_board_parked_jobs", "Parked jobs of a board: their retry policy holds them for an operator.", []string{"board"}, nil)
	clockDescription       = prometheus.NewDesc("conductord_clock_offset_seconds",
		"Offset of this node's wall clock from the cluster's time, positive if the clock is ahead; absent until a leader has measured it.", nil, nil)
	sessionsDescription   = prometheus.NewDesc("conductord_sessions", "Open sessions of conductors and other clients.", nil, nil)
	conductorsDescription = prometheus.NewDesc("conductord_conductors", "Conductors that are registered.", nil, nil)
	drainsDescription     = prometheus.NewDesc("conductord_drains", "Names of conductors that an operator has drained.", nil, nil)
)

// stateCollector reads the state at each request for metrics.
type stateCollector struct {
	machine *fsm.Machine
	clock   *clock.Clock
	logger  hclog.Logger
}

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{
		jobsDescription, clockDescription, sessionsDescription, conductorsDescription, drainsDescription,
		boardJobsDescription, boardOldestDescription, boardPausedDescription, boardParkedDescription,
	} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for state, count := range c.machine.Counts() {
		gauge(jobsDescription, float64(count), string(state))
	}
	if ahead, known := c.clock.WallOffset(); known {
		gauge(clockDescription, ahead.Seconds())
	}
	if present, err := c.machine.Presence(); err != nil {
		c.logger.Warn("cannot count the sessions for the metrics", "error", err)
	} else {
		gauge(sessionsDescription, float64(present.Sessions))
		gauge(conductorsDescription, float64(present.Conductors))
		gauge(drainsDescription, float64(present.Drains))
	}
	c.collectBoards(gauge)
}

const (
	// maxMetricBoards limits the boards with their own metrics: each board adds a dozen series to
	// the memory of the system that collects them.
	maxMetricBoards = 100
	// otherBoards is the label of all other boards together, and of a board with that name.
	otherBoards = "other"
)

// boardGauges are the gauges of one label.
type boardGauges struct {
	jobs           map[jobs.State]uint64
	oldest, paused float64 // of several boards: the largest
	parked         uint64
}

func (c *stateCollector) collectBoards(gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	boards, err := c.boards(c.clock.AnswerTime())
	if err != nil {
		c.logger.Warn("cannot read the boards for the metrics", "error", err)
		return
	}
	for name, board := range boards {
		for _, state := range jobs.States {
			gauge(boardJobsDescription, float64(board.jobs[state]), name, string(state))
		}
		gauge(boardOldestDescription, board.oldest, name)
		gauge(boardPausedDescription, board.paused, name)
		gauge(boardParkedDescription, float64(board.parked), name)
	}
}

// boards reads the gauges of the first boards by name, and the sums of all other boards.
func (c *stateCollector) boards(now time.Time) (map[string]*boardGauges, error) {
	all := make(map[string]*boardGauges)
	for seen, after := 0, ""; ; {
		page, err := c.machine.BoardList(after, 0, now)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			board, name := &page.Items[i], page.Items[i].Name
			if seen++; seen > maxMetricBoards {
				name = otherBoards
			}
			g := all[name]
			if g == nil {
				g = &boardGauges{jobs: make(map[jobs.State]uint64)}
				all[name] = g
			}
			for state, count := range board.Jobs {
				g.jobs[state] += count
			}
			g.oldest = max(g.oldest, overdue(board.OldestClaimable, now))
			g.paused = max(g.paused, oneIf(board.Pause != nil))
			g.parked += uint64(board.Parked)
		}
		if after = page.Next; after == "" {
			return all, nil
		}
	}
}
