package node

import (
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/credentials"
)

// nodeMetrics are a node's own metrics, beside raft's.
type nodeMetrics struct {
	commands         *prometheus.CounterVec
	entries          prometheus.Counter
	entryBytes       prometheus.Histogram
	entryCommands    prometheus.Histogram
	logWrites        prometheus.Counter
	readRounds       prometheus.Counter
	forwarded        prometheus.Counter
	expiriesDeferred prometheus.Counter
	retries          prometheus.Counter
	calls            *prometheus.HistogramVec
}

func newNodeMetrics(registry *prometheus.Registry) *nodeMetrics {
	const namespace = "conductord"
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
		registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
		registry.MustRegister(h)
		return h
	}
	m := &nodeMetrics{
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "commands_total", Help: "Commands that this node proposed as the leader, by name.",
		}, []string{"command"}),
		entries:          counter("entries_total", "Log entries that this node proposed as the leader."),
		entryBytes:       histogram("entry_bytes", "Size of a proposed log entry, in bytes.", prometheus.ExponentialBuckets(64, 4, 8)),
		entryCommands:    histogram("entry_commands", "Commands in a proposed log entry.", prometheus.ExponentialBuckets(1, 2, 10)),
		logWrites:        counter("log_writes_total", "Writes of this node's raft log that the disk has acknowledged."),
		readRounds:       counter("read_rounds_total", "Rounds of term questions that served reads and keep-alives."),
		forwarded:        counter("forwarded_total", "Calls that this node passed on to the leader."),
		expiriesDeferred: counter("session_expiries_deferred_total", "How often this node, leading, found that it had been paused and gave all sessions a full TTL."),
		retries:          counter("retries_total", "Attempts at jobs that have failed and that others follow, by the jobs' retry policies; of what this node applied as the leader."),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "call_seconds", Help: "Duration of API calls, by call and result.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"call", "code"}),
	}
	registry.MustRegister(m.commands, m.calls)
	return m
}

// certificate adds when the node's certificates expire.
func (m *nodeMetrics) certificate(registry *prometheus.Registry, store *credentials.Store) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "conductord", Name: "certificate_expiry_timestamp_seconds", Help: "When the first of this node's certificates expires, in Unix time; 0 without TLS.",
	}, func() float64 {
		if store == nil {
			return 0
		}
		return float64(store.Expires().Unix())
	}))
}

func (m *nodeMetrics) proposed(entry *conductordv1.Entry, bytes int) {
	m.entries.Inc()
	m.entryBytes.Observe(float64(bytes))
	m.entryCommands.Observe(float64(len(entry.Commands)))
	for _, c := range entry.Commands {
		m.commands.WithLabelValues(command.Name(c)).Inc()
	}
}

func (m *nodeMetrics) called(procedure string, took time.Duration, err error) {
	code := "ok"
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	m.calls.WithLabelValues(procedureName(procedure), code).Observe(took.Seconds())
}

var (
	jobsDescription        = prometheus.NewDesc("conductord_jobs", "Jobs, by state.", []string{"state"}, nil)
	appliedDescription     = prometheus.NewDesc("conductord_applied_index", "Log index that the state machine has applied.", nil, nil)
	boardJobsDescription   = prometheus.NewDesc("conductord_board_jobs", "Jobs of a board, by state.", []string{"board", "state"}, nil)
	boardOldestDescription = prometheus.NewDesc("conductord_board_oldest_claimable_seconds",
		"How long the job has waited that has been claimable longest; 0 if none is.", []string{"board"}, nil)
	boardPausedDescription = prometheus.NewDesc("conductord_board_paused", "1 while nobody can claim from the board.", []string{"board"}, nil)
	boardParkedDescription = prometheus.NewDesc("conductord_board_parked", "Jobs of a board that their retry policy holds for a person.", []string{"board"}, nil)
	clockDescription       = prometheus.NewDesc("conductord_clock_offset_seconds",
		"How far this node's wall clock is ahead of the cluster's time; absent until a leader has told it.", nil, nil)
	diskFreeDescription = prometheus.NewDesc("conductord_disk_free_bytes", "Free space on the disk of the data directory.", nil, nil)
	leadingDescription  = prometheus.NewDesc("conductord_leading", "1 while this node serves as the leader.", nil, nil)
)

// stateCollector reads the state when metrics are asked for.
type stateCollector struct {
	machine *fsm.Machine
	leader  *leaderState
	clock   *clock
	disk    *diskSpace
	logger  hclog.Logger
}

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- jobsDescription
	descriptions <- appliedDescription
	descriptions <- leadingDescription
	descriptions <- clockDescription
	descriptions <- diskFreeDescription
	descriptions <- boardJobsDescription
	descriptions <- boardOldestDescription
	descriptions <- boardPausedDescription
	descriptions <- boardParkedDescription
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for state, count := range c.machine.Counts() {
		gauge(jobsDescription, float64(count), string(state))
	}
	gauge(appliedDescription, float64(c.machine.AppliedIndex()))
	leading := 0.0
	if c.leader.serves() {
		leading = 1
	}
	gauge(leadingDescription, leading)
	gauge(diskFreeDescription, float64(c.disk.free.Load()))
	if ahead, known := c.clock.wallOffset(); known {
		gauge(clockDescription, ahead.Seconds())
	}
	c.collectBoards(gauge)
}

// maxMetricBoards bounds the boards that have metrics of their own: each adds a dozen
// series to the memory of the system that collects them.
const maxMetricBoards = 100

func (c *stateCollector) collectBoards(gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	now := c.clock.answerTime()
	page, err := c.machine.BoardList("", maxMetricBoards, now)
	if err != nil {
		c.logger.Warn("cannot read the boards for the metrics", "error", err)
		return
	}
	for i := range page.Items {
		board := &page.Items[i]
		for _, state := range jobs.States {
			gauge(boardJobsDescription, float64(board.Jobs[state]), board.Name, string(state))
		}
		waited, paused := 0.0, 0.0
		if !board.OldestClaimable.IsZero() {
			waited = max(now.Sub(board.OldestClaimable).Seconds(), 0)
		}
		if board.Pause != nil {
			paused = 1
		}
		gauge(boardOldestDescription, waited, board.Name)
		gauge(boardPausedDescription, paused, board.Name)
		gauge(boardParkedDescription, float64(board.Parked), board.Name)
	}
}
