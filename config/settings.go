package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conductord/conductord/internal/duration"
)

// The largest limits, which equal logbook.MaxLimits. This package must not import package logbook,
// so tests of the command compare the numbers.
const (
	maxName    = 255
	maxValue   = 256 << 10
	maxCommand = 1 << 20
	maxSteps   = 10_000
)

// Setting is one key of the configuration.
type Setting struct {
	Key     string // key in the file: "raft.heartbeat"
	Flag    string // without dashes: "raft-heartbeat"
	Env     string // "CONDUCTORD_RAFT_HEARTBEAT"
	Default string // text form of flags and variables; can be empty
	Doc     string // phrases or sentences, without a full stop at the end
	Type    string // string, int, bool, duration, strings, members or boards
}

// setting is a row of the table: a key, the field for its value, and the allowed values.
type setting struct {
	key    string
	short  string            // the flag, if it differs from the key
	target func(*Config) any // *string, *int, *bool, *time.Duration, *[]string, *[]Member or *PerBoard
	low    int64             // smallest value of *int and *time.Duration
	high   int64             // largest value of *int and *time.Duration
	path   bool              // for *string and *[]string: a relative path in a file is relative to the file's directory
	doc    string
}

// Units of the ranges in the table.
const (
	ms   = int64(time.Millisecond)
	hour = int64(time.Hour)
)

// table has all keys, in the order of the example file.
func table() []setting {
	return slices.Concat(nodeSettings(), tlsSettings(), jwtSettings(), clusterSettings(), raftSettings(), sessionSettings(),
		limitSettings(), retentionSettings(), backupSettings(), topologySettings(), dashboardSettings(), conductorSettings(), handlerSettings(), secretSettings(), traceSettings(), logSettings())
}

func nodeSettings() []setting {
	return []setting{
		{key: "node", target: func(c *Config) any { return &c.Node },
			doc: "Name of this node, one of the names in cluster.members"},
		{key: "data_dir", target: func(c *Config) any { return &c.DataDir }, path: true,
			doc: "Directory for this node's log, snapshots and identity"},
		{key: "raft_listen", target: func(c *Config) any { return &c.RaftListen },
			doc: "Address to listen on for other members. Default: the member's raft address"},
		{key: "api_listen", target: func(c *Config) any { return &c.APIListen },
			doc: "Address to listen on for clients. Default: the member's API address"},
		{key: "drain_timeout", target: func(c *Config) any { return &c.DrainTimeout }, low: 0, high: hour,
			doc: "Time for running steps to finish when the node stops. After this time, the node kills these steps and releases their jobs. With 500ms, a hand-over takes less than a second"},
		{key: "log_store", target: func(c *Config) any { return &c.LogStore },
			doc: "Store of raft's log: bolt (raft-boltdb) or wal (raft-wal, faster and younger). To change the store of an existing node, run conductord log-store convert"},
		{key: "disk_reserve", target: func(c *Config) any { return &c.DiskReserve }, low: 1 << 20, high: 1 << 40,
			doc: "Free disk space, in bytes, that new work requires, in addition to space for three snapshots. Each snapshot can grow by half of this value, so an empty node needs 2.5 times this value. With log_store wal, it needs 64 MiB more"},
		{key: "memory", target: func(c *Config) any { return &c.Memory }, low: 256 << 20, high: 1 << 40,
			doc: "Memory budget of the process, in bytes, without the mapped state file. Queues get shares of the budget. Near the limit, calls fail as overloaded"},
		{key: "insecure", target: func(c *Config) any { return &c.Insecure },
			doc: "Allow plain text on addresses that are not loopback. Everyone who can connect to these addresses can read, cancel and run all jobs"},
		{key: "access_control", target: func(c *Config) any { return &c.AccessControl },
			doc: "Authenticate callers, and limit them to the roles of their principals. Without tls, or with false, every caller can do everything. Without tls, a node refuses an explicit true"},
	}
}

func tlsSettings() []setting {
	return []setting{
		{key: "tls.ca", target: func(c *Config) any { return &c.TLS.CA }, path: true,
			doc: "PEM file of the authorities for certificates of nodes and clients. If this file, tls.cert or tls.key changes, the node reads the file again"},
		{key: "tls.cert", target: func(c *Config) any { return &c.TLS.Cert }, path: true,
			doc: "PEM file of this node's certificate, which names cluster and node: see conductord cert issue"},
		{key: "tls.key", target: func(c *Config) any { return &c.TLS.Key }, path: true,
			doc: "PEM file of this node's private key. Other users must not have read access"},
		{key: "tls.client_certs", target: func(c *Config) any { return &c.TLS.ClientCerts },
			doc: "Require a client certificate from tls.ca for each call to the API, even with a token"},
	}
}

func jwtSettings() []setting {
	return []setting{
		{key: "jwt.issuer", target: func(c *Config) any { return &c.JWT.Issuer },
			doc: "Accepted issuer of JSON web tokens, as in the claim iss of the tokens. If it is empty, the node refuses JSON web tokens"},
		{key: "jwt.audience", target: func(c *Config) any { return &c.JWT.Audience },
			doc: "Required audience, in the tokens' claim aud"},
		{key: "jwt.keys", target: func(c *Config) any { return &c.JWT.Keys },
			doc: "Issuer's public keys as a JSON web key set: absolute path or https URL. If a token names an unknown key, the node reads the keys again"},
		{key: "jwt.claim", target: func(c *Config) any { return &c.JWT.Claim },
			doc: "Claim that names the principal"},
	}
}

func clusterSettings() []setting {
	return []setting{
		{key: "cluster.id", target: func(c *Config) any { return &c.Cluster.ID },
			doc: "Name of the cluster, checked in every handshake between nodes"},
		{key: "cluster.verify_interval", target: func(c *Config) any { return &c.Cluster.VerifyInterval }, low: 1_000 * ms, high: 365 * 24 * hour,
			doc: "Interval at which the leader compares the states of all members"},
		{key: "cluster.remove_dead_after", target: func(c *Config) any { return &c.Cluster.RemoveDeadAfter }, low: 0, high: 365 * 24 * hour,
			doc: "Time without an answer after which the leader removes a member, if a majority of the other members answers. With 0s, the leader removes no members"},
		{key: "cluster.members", target: func(c *Config) any { return &c.Cluster.Members },
			doc: "First members of the cluster, equal in the files of all nodes. As a flag or variable: NAME=RAFT_HOST:PORT,API_HOST:PORT;…"},
	}
}

func raftSettings() []setting {
	return []setting{
		{key: "raft.heartbeat", target: func(c *Config) any { return &c.Raft.Heartbeat }, low: 10 * ms, high: 60_000 * ms,
			doc: "Time without a message from the leader after which a follower starts an election"},
		{key: "raft.election", target: func(c *Config) any { return &c.Raft.Election }, low: 10 * ms, high: 60_000 * ms,
			doc: "Time that a candidate waits for votes; at least raft.heartbeat"},
		{key: "raft.leader_lease", target: func(c *Config) any { return &c.Raft.LeaderLease }, low: 5 * ms, high: 60_000 * ms,
			doc: "Time after which a leader without a majority steps down; at most raft.heartbeat"},
		{key: "raft.max_append_entries", target: func(c *Config) any { return &c.Raft.MaxAppendEntries }, low: 1, high: 1024,
			doc: "Maximum log entries in one message"},
		{key: "raft.snapshot_interval", target: func(c *Config) any { return &c.Raft.SnapshotInterval }, low: 100 * ms, high: 24 * hour,
			doc: "Interval at which a node checks whether a snapshot is due"},
		{key: "raft.snapshot_threshold", target: func(c *Config) any { return &c.Raft.SnapshotThreshold }, low: 16, high: 10_000_000,
			doc: "Number of new log entries after which the node writes a snapshot"},
		{key: "raft.trailing_logs", target: func(c *Config) any { return &c.Raft.TrailingLogs }, low: 32, high: 100_000_000,
			doc: "Number of log entries that the node keeps before its last snapshot; at least twice raft.snapshot_threshold"},
	}
}

func sessionSettings() []setting {
	return []setting{
		{key: "sessions.ttl", target: func(c *Config) any { return &c.Sessions.TTL }, low: 500 * ms, high: hour,
			doc: "Time after the last keep-alive until the conductor's session ends"},
		{key: "sessions.grace", target: func(c *Config) any { return &c.Sessions.Grace }, low: 0, high: hour,
			doc: "Extra time before the leader expires a session"},
		{key: "sessions.cool_down", target: func(c *Config) any { return &c.Sessions.CoolDown }, low: 0, high: hour,
			doc: "Pause before the jobs of an expired session can be claimed again"},
		{key: "sessions.max_crashes", target: func(c *Config) any { return &c.Sessions.MaxCrashes }, low: 1, high: 1000,
			doc: "Number of lost owners after which a job is trashed with its evidence"},
	}
}

func limitSettings() []setting {
	return []setting{
		// The lowest limit must cover the kinds of failure, such as flow.intervention. A
		// shortened kind would match nothing.
		{key: "limits.name", target: func(c *Config) any { return &c.Limits.Name }, low: 32, high: maxName,
			doc: "Maximum bytes of a name"},
		{key: "limits.value", target: func(c *Config) any { return &c.Limits.Value }, low: 1 << 10, high: maxValue,
			doc: "Maximum bytes of one JSON value: a result, an argument, a job's details"},
		{key: "limits.command", target: func(c *Config) any { return &c.Limits.Command }, low: 64 << 10, high: maxCommand,
			doc: "Maximum bytes of one encoded command"},
		{key: "limits.steps", target: func(c *Config) any { return &c.Limits.Steps }, low: 1, high: maxSteps,
			doc: "Maximum steps of one flow"},
	}
}

func retentionSettings() []setting {
	return []setting{
		{key: "retention.max_age", target: func(c *Config) any { return &c.Retention.MaxAge }, low: 60_000 * ms, high: 10 * 365 * 24 * hour,
			doc: "Age at which finished jobs and their books are removed"},
		{key: "retention.keep", target: func(c *Config) any { return &c.Retention.Keep }, low: 1, high: 10_000_000,
			doc: "Maximum number of finished jobs. The oldest jobs are removed first. Trashed and failed jobs, which wait for an operator, are counted separately"},
	}
}

func backupSettings() []setting {
	return []setting{
		{key: "backup.directory", target: func(c *Config) any { return &c.Backup.Directory }, path: true,
			doc: "Existing directory, outside data_dir, for backups of this node's state. If it is empty, the node makes no backups"},
		{key: "backup.interval", target: func(c *Config) any { return &c.Backup.Interval }, low: 1_000 * ms, high: 365 * 24 * hour,
			doc: "Interval between backups in backup.directory"},
		{key: "backup.keep", target: func(c *Config) any { return &c.Backup.Keep }, low: 1, high: 10_000,
			doc: "Number of backups to keep in backup.directory"},
	}
}

func topologySettings() []setting {
	return []setting{
		{key: "topology.file", target: func(c *Config) any { return &c.Topology.File },
			doc: "File that maps boards to clusters. The node forwards postings for boards of other clusters. If the file changes, the node reads it again"},
	}
}

func dashboardSettings() []setting {
	return []setting{
		{key: "dashboard.enabled", target: func(c *Config) any { return &c.Dashboard.Enabled },
			doc: "Serve web pages on the API port. The permissions of the caller apply"},
		{key: "dashboard.read_only", target: func(c *Config) any { return &c.Dashboard.ReadOnly },
			doc: "Serve the web pages without actions, for all callers"},
		{key: "dashboard.path", target: func(c *Config) any { return &c.Dashboard.Path },
			doc: "Path of the web pages. A reverse proxy must not change the path"},
		{key: "dashboard.origin", target: func(c *Config) any { return &c.Dashboard.Origin },
			doc: "Address of the web pages behind a reverse proxy, such as `https://conductord.example.org`; empty if there is no proxy"},
	}
}

func conductorSettings() []setting {
	return []setting{
		{key: "conductor.enabled", target: func(c *Config) any { return &c.Conductor.Enabled },
			doc: "Run flows on this node. With false, the node only keeps the state of the cluster"},
		{key: "conductor.name", target: func(c *Config) any { return &c.Conductor.Name },
			doc: "Name of the conductor. Default: the node's name"},
		{key: "conductor.boards", target: func(c *Config) any { return &c.Conductor.Boards },
			doc: "Boards from which the conductor claims jobs"},
		{key: "conductor.labels", target: func(c *Config) any { return &c.Conductor.Labels },
			doc: "Labels of the conductor, for jobs that require labels"},
		{key: "conductor.max_jobs", target: func(c *Config) any { return &c.Conductor.MaxJobs }, low: 1, high: 256,
			doc: "Maximum parallel jobs, without jobs that only wait for step workers"},
		{key: "conductor.workers", target: func(c *Config) any { return &c.Conductor.Workers }, low: 1, high: 1024,
			doc: "Maximum parallel steps of one job"},
		{key: "conductor.steps", target: func(c *Config) any { return &c.Conductor.Steps }, low: 0, high: 4096,
			doc: "Maximum parallel steps of all jobs together, without steps on step workers. Jobs take turns. With 0, the maximum is half of max_jobs times workers, at least 64 and at most 4096"},
		{key: "conductor.max_dispatches", target: func(c *Config) any { return &c.Conductor.MaxDispatches }, low: 0, high: 1_000_000_000,
			doc: "Number of jobs after which the conductor claims no further jobs. When its jobs are finished, the node hands over and exits with status 0. With 0, there is no limit"},
		{key: "conductor.max_duration", target: func(c *Config) any { return &c.Conductor.MaxDuration }, low: 0, high: 365 * 24 * hour,
			doc: "Time after which the conductor claims no further jobs. When its jobs are finished, the node hands over and exits with status 0. With 0s, there is no limit"},
		{key: "conductor.handlers", target: func(c *Config) any { return &c.Conductor.Handlers }, path: true,
			doc: "Directories with the executables of steps"},
		{key: "conductor.value_keys", target: func(c *Config) any { return &c.Conductor.ValueKeys }, path: true,
			doc: "File of keys that decrypt the values of jobs and encrypt results. Only its owner may have read access. To make the file, run conductord value-key add. The node reads the file at its start"},
	}
}

func handlerSettings() []setting {
	return []setting{
		{key: "handlers.user", target: func(c *Config) any { return &c.Handlers.User },
			doc: "User that runs handlers, with the groups of this user. Default: the node's user. The node must run as root, and gives this user execute permission on data_dir"},
		{key: "handlers.users", target: func(c *Config) any { return &c.Handlers.Users },
			doc: `Users that run the handlers of some boards, such as {"a/*" = "tenant-a"}. The longest match wins. All other boards use handlers.user. As a flag or variable: BOARDS=USER;…`},
		{key: "handlers.no_new_privs", target: func(c *Config) any { return &c.Handlers.NoNewPrivs },
			doc: "Deny extra privileges to set-uid programs that handlers start, such as sudo (Linux)"},
		{key: "handlers.open_files", target: func(c *Config) any { return &c.Handlers.OpenFiles }, low: 0, high: 1 << 20,
			doc: "Maximum open files of each process of a handler. With 0, the node's limit applies"},
		{key: "handlers.file_size", target: func(c *Config) any { return &c.Handlers.FileSize }, low: 0, high: 1 << 50,
			doc: "Maximum bytes of a file that a handler writes. With 0, the node's limit applies"},
		{key: "handlers.cgroups", target: func(c *Config) any { return &c.Handlers.Cgroups },
			doc: "Run each handler in its own cgroup (version 2), to end all its processes. The node's own cgroup must be delegated to the node"},
		{key: "handlers.memory", target: func(c *Config) any { return &c.Handlers.Memory }, low: 0, high: 1 << 50,
			doc: "Maximum bytes of memory for all processes of a running handler. A handler above this limit is killed. Needs handlers.cgroups. With 0, there is no limit"},
		{key: "handlers.processes", target: func(c *Config) any { return &c.Handlers.Processes }, low: 0, high: 1 << 20,
			doc: "Maximum processes of a running handler. Needs handlers.cgroups. With 0, there is no limit"},
	}
}

func secretSettings() []setting {
	return []setting{
		{key: "secrets.directory", target: func(c *Config) any { return &c.Secrets.Directory },
			doc: "Directory of files with the secrets of steps: NAME for all boards, BOARD/NAME for one board. Other users must not have read access"},
		{key: "secrets.environment", target: func(c *Config) any { return &c.Secrets.Environment },
			doc: "Prefix of environment variables with secrets of steps: the secret db-key is PREFIXDB_KEY"},
		{key: "secrets.command", target: func(c *Config) any { return &c.Secrets.Command },
			doc: "Executable that prints a secret of a step. Its arguments are the board and the name of the secret"},
		{key: "secrets.boards", target: func(c *Config) any { return &c.Secrets.Boards },
			doc: `Shared secrets that jobs of a board may use, such as {"a/*" = ["db", "mail-*"]}. Default: all secrets without access control, and no secrets with access control. As a flag or variable: BOARDS=NAME,NAME;…`},
	}
}

func traceSettings() []setting {
	return []setting{
		{key: "traces.endpoint", target: func(c *Config) any { return &c.Traces.Endpoint },
			doc: "URL of an OpenTelemetry collector for OTLP over HTTP, such as http://127.0.0.1:4318; the conductor sends spans to /v1/traces below this URL. If it is empty, the conductor sends no spans"},
		{key: "traces.headers", target: func(c *Config) any { return &c.Traces.Headers },
			doc: "File of HTTP headers for the collector, one NAME: VALUE on each line. Only its owner and group may have access. The node reads the file at its start"},
		{key: "traces.one_in", target: func(c *Config) any { return &c.Traces.OneIn }, low: 1, high: 1_000_000,
			doc: "Sampling interval: 1 traces every job, 100 traces 1 % of the jobs. The traceparent of a job overrides the sampling"},
	}
}

func logSettings() []setting {
	return []setting{
		{key: "log.level", target: func(c *Config) any { return &c.Log.Level },
			doc: "Lowest level of log lines: trace, debug, info, warn or error"},
		{key: "log.json", target: func(c *Config) any { return &c.Log.JSON },
			doc: "Log lines as JSON objects"},
	}
}

// Settings returns all keys, in the order of the example file.
func Settings() []Setting { return listed(table()) }

func listed(rows []setting) []Setting {
	defaults := Default()
	settings := make([]Setting, 0, len(rows))
	for _, row := range rows {
		target := row.target(&defaults)
		settings = append(settings, Setting{
			Key: row.key, Flag: row.flag(), Env: row.env(), Default: textOf(target), Doc: row.doc, Type: typeOf(target),
		})
	}
	return settings
}

// Shared replacers: a replacer builds its tables at the first use, and each command lists many settings.
var (
	flagNames = strings.NewReplacer(".", "-", "_", "-")
	typeNames = strings.NewReplacer("*", "", "time.Duration", "duration", "[]string", "strings", "[]config.Member", "members", "config.PerBoard", "boards")
)

func (s setting) flag() string {
	if s.short != "" {
		return s.short
	}
	return flagNames.Replace(s.key)
}

// envPrefix is the prefix of the settings' variables.
const envPrefix = "CONDUCTORD_"

func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

// textOf returns the text form of a value, which flags accept.
func textOf(target any) string {
	switch value := target.(type) {
	case *string:
		return *value
	case *int:
		return strconv.Itoa(*value)
	case *bool:
		return strconv.FormatBool(*value)
	case *time.Duration:
		return duration.Text(*value)
	case *[]string:
		return strings.Join(*value, ",")
	case *[]Member:
		texts := make([]string, 0, len(*value))
		for _, member := range *value {
			texts = append(texts, fmt.Sprintf("%s=%s,%s", member.Name, member.Raft, member.API))
		}
		return strings.Join(texts, ";")
	case *PerBoard:
		texts := make([]string, 0, len(*value))
		for _, board := range slices.Sorted(maps.Keys(*value)) {
			texts = append(texts, board+"="+strings.Join((*value)[board], ","))
		}
		return strings.Join(texts, ";")
	}
	panic(fmt.Sprintf("internal error: no text form for %T", target))
}

// typeOf names the type of a value for messages.
func typeOf(target any) string {
	return typeNames.Replace(fmt.Sprintf("%T", target))
}

// setText sets a setting from the text of a flag or a variable. It returns the fault; empty: none.
func (s setting) setText(c *Config, text string) string {
	switch target := s.target(c).(type) {
	case *string:
		*target = text
	case *int:
		number, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Sprintf("must be a whole number, not %.64q", text)
		}
		*target = number
	case *bool:
		value, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Sprintf("must be true or false, not %.64q", text)
		}
		*target = value
	case *time.Duration:
		return setDuration(target, text)
	case *[]string:
		*target = splitList(text, ",")
	case *[]Member:
		return setMembers(target, text)
	case *PerBoard:
		*target = nil
		for _, item := range splitList(text, ";") {
			boards, names, named := strings.Cut(item, "=")
			if !named {
				return fmt.Sprintf("must be BOARDS=NAME,NAME;…, not %.128q", item)
			}
			target.set(strings.TrimSpace(boards), splitList(names, ","))
		}
	}
	return ""
}

func (p *PerBoard) set(boards string, names []string) {
	if *p == nil {
		*p = make(PerBoard)
	}
	(*p)[boards] = append((*p)[boards], names...)
}

func setDuration(target *time.Duration, text string) string {
	value, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Sprintf(`must be a duration such as "500ms", "4s" or "24h", not %.64q`, text)
	}
	*target = value
	return ""
}

func setMembers(target *[]Member, text string) string {
	var members []Member
	for _, item := range splitList(text, ";") {
		name, addresses, named := strings.Cut(item, "=")
		raft, api, both := strings.Cut(addresses, ",")
		if !named || !both {
			return fmt.Sprintf("must be NAME=RAFT_HOST:PORT,API_HOST:PORT, not %.128q", item)
		}
		members = append(members, Member{
			Name: strings.TrimSpace(name), Raft: strings.TrimSpace(raft), API: strings.TrimSpace(api),
		})
	}
	*target = members
	return ""
}

// splitList omits empty items, so an empty text is an empty list.
func splitList(text, separator string) []string {
	var items []string
	for item := range strings.SplitSeq(text, separator) {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// outOfRange returns the fault of a number or a duration out of its range; empty: none.
func (s setting) outOfRange(c *Config) string {
	switch value := s.target(c).(type) {
	case *int:
		if number := int64(*value); number < s.low || number > s.high {
			return fmt.Sprintf("is %d; it must be %d to %d", number, s.low, s.high)
		}
	case *time.Duration:
		if number := int64(*value); number < s.low || number > s.high {
			return fmt.Sprintf("is %s; it must be %s to %s", duration.Text(*value),
				duration.Text(time.Duration(s.low)), duration.Text(time.Duration(s.high)))
		}
	}
	return ""
}
