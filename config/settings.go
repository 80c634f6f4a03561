package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The largest limits, which are those that package logbook has: it stands
// beside this package and not below it, so the command's tests compare them.
const (
	maxName    = 255
	maxValue   = 256 << 10
	maxCommand = 1 << 20
	maxSteps   = 10_000
)

// Setting is one key, with all of its names.
type Setting struct {
	Key     string // as in the file: "raft.heartbeat"
	Flag    string // without dashes: "raft-heartbeat"
	Env     string // "CONDUCTORD_RAFT_HEARTBEAT"
	Default string // in the text form that flag and variable take; may be empty
	Doc     string // one sentence, without a full stop
	Type    string // string, int, bool, duration, strings, members or boards
}

// setting is a row of the table: where the value lives and what it may be.
type setting struct {
	key    string
	short  string            // the flag, if it is not made of the key
	target func(*Config) any // *string, *int, *bool, *time.Duration, *[]string, *[]Member or *PerBoard
	low    int64             // of *int and *time.Duration: the least value
	high   int64             // of *int and *time.Duration: the largest
	path   bool              // of *string and *[]string: relative paths in a file are relative to its directory
	doc    string
}

// Units of the ranges in the table.
const (
	ms   = int64(time.Millisecond)
	hour = int64(time.Hour)
)

// table holds every key there is, in the order of the example file.
func table() []setting {
	return slices.Concat(nodeSettings(), tlsSettings(), jwtSettings(), clusterSettings(), raftSettings(), sessionSettings(),
		limitSettings(), retentionSettings(), backupSettings(), topologySettings(), dashboardSettings(), conductorSettings(), handlerSettings(), secretSettings(), traceSettings(), logSettings())
}

func nodeSettings() []setting {
	return []setting{
		{key: "node", target: func(c *Config) any { return &c.Node },
			doc: "This node's name: one of the members'"},
		{key: "data_dir", target: func(c *Config) any { return &c.DataDir }, path: true,
			doc: "The directory that holds this node's log, snapshots and identity"},
		{key: "raft_listen", target: func(c *Config) any { return &c.RaftListen },
			doc: "Listen here for the other members, if not at the member's own raft address"},
		{key: "api_listen", target: func(c *Config) any { return &c.APIListen },
			doc: "Listen here for clients, if not at the member's own API address"},
		{key: "drain_timeout", target: func(c *Config) any { return &c.DrainTimeout }, low: 0, high: hour,
			doc: "How long a stopping node lets running steps go on before it kills them and gives their jobs back; 500ms keeps to a hand-over within a second"},
		{key: "log_store", target: func(c *Config) any { return &c.LogStore },
			doc: "How this node keeps raft's log: bolt (raft-boltdb) or wal (raft-wal, faster and younger); a node that has run is changed over with conductord log-store convert"},
		{key: "disk_reserve", target: func(c *Config) any { return &c.DiskReserve }, low: 1 << 20, high: 1 << 40,
			doc: "Bytes of disk that must be free, beside room for the node's snapshots, for anything new to be accepted; an empty node needs 2.5 times as many, and 64 MiB more with log_store wal"},
		{key: "memory", target: func(c *Config) any { return &c.Memory }, low: 256 << 20, high: 1 << 40,
			doc: "Bytes of memory for the process, beside the state's file, which the system maps: its queues get their shares, and calls are refused as overloaded before it is used up"},
		{key: "insecure", target: func(c *Config) any { return &c.Insecure },
			doc: "Speak plain text on addresses that are not loopback: everybody who reaches them can read, cancel and run everything"},
		{key: "access_control", target: func(c *Config) any { return &c.AccessControl },
			doc: "Whether callers must authenticate, and may do only what the roles of their principals allow; it counts only with tls, and without it everybody may do everything"},
	}
}

func tlsSettings() []setting {
	return []setting{
		{key: "tls.ca", target: func(c *Config) any { return &c.TLS.CA }, path: true,
			doc: "PEM file of the authorities that the certificates of nodes and clients come from; it is read again when it changes, as are the next two"},
		{key: "tls.cert", target: func(c *Config) any { return &c.TLS.Cert }, path: true,
			doc: "PEM file of this node's certificate, which names cluster and node: see conductord cert issue"},
		{key: "tls.key", target: func(c *Config) any { return &c.TLS.Key }, path: true,
			doc: "PEM file of its private key, which nobody else may read"},
		{key: "tls.client_certs", target: func(c *Config) any { return &c.TLS.ClientCerts },
			doc: "Whether clients of the API must have a certificate that comes from tls.ca, also those that have tokens"},
	}
}

func jwtSettings() []setting {
	return []setting{
		{key: "jwt.issuer", target: func(c *Config) any { return &c.JWT.Issuer },
			doc: "The issuer of JSON web tokens that prove principals, as it stands in their claim iss; empty: they do not count"},
		{key: "jwt.audience", target: func(c *Config) any { return &c.JWT.Audience },
			doc: "The audience that the tokens must have among their claim aud"},
		{key: "jwt.keys", target: func(c *Config) any { return &c.JWT.Keys },
			doc: "The issuer's public keys as a JSON web key set: an absolute path or an https URL; read again when a token names another key"},
		{key: "jwt.claim", target: func(c *Config) any { return &c.JWT.Claim },
			doc: "The claim that names the principal"},
	}
}

func clusterSettings() []setting {
	return []setting{
		{key: "cluster.id", target: func(c *Config) any { return &c.Cluster.ID },
			doc: "The cluster's name, checked in every handshake between nodes"},
		{key: "cluster.verify_interval", target: func(c *Config) any { return &c.Cluster.VerifyInterval }, low: 1_000 * ms, high: 365 * 24 * hour,
			doc: "How often the leader compares the states of all members"},
		{key: "cluster.remove_dead_after", target: func(c *Config) any { return &c.Cluster.RemoveDeadAfter }, low: 0, high: 365 * 24 * hour,
			doc: "The leader removes a member that has not answered for this long, if a majority of the others answers; 0s: never"},
		{key: "cluster.members", target: func(c *Config) any { return &c.Cluster.Members },
			doc: "The nodes with which the cluster begins, alike in the files of all; as a flag or variable: NAME=RAFT_HOST:PORT,API_HOST:PORT;…"},
	}
}

func raftSettings() []setting {
	return []setting{
		{key: "raft.heartbeat", target: func(c *Config) any { return &c.Raft.Heartbeat }, low: 10 * ms, high: 60_000 * ms,
			doc: "A follower that hears nothing for this long stands for election"},
		{key: "raft.election", target: func(c *Config) any { return &c.Raft.Election }, low: 10 * ms, high: 60_000 * ms,
			doc: "How long a candidate waits for votes; at least raft.heartbeat"},
		{key: "raft.leader_lease", target: func(c *Config) any { return &c.Raft.LeaderLease }, low: 5 * ms, high: 60_000 * ms,
			doc: "A leader without a majority steps down after this long; at most raft.heartbeat"},
		{key: "raft.max_append_entries", target: func(c *Config) any { return &c.Raft.MaxAppendEntries }, low: 1, high: 1024,
			doc: "How many log entries go into one message"},
		{key: "raft.snapshot_interval", target: func(c *Config) any { return &c.Raft.SnapshotInterval }, low: 100 * ms, high: 24 * hour,
			doc: "How often a node looks whether a snapshot is due"},
		{key: "raft.snapshot_threshold", target: func(c *Config) any { return &c.Raft.SnapshotThreshold }, low: 16, high: 10_000_000,
			doc: "How many new log entries make a snapshot due"},
		{key: "raft.trailing_logs", target: func(c *Config) any { return &c.Raft.TrailingLogs }, low: 32, high: 100_000_000,
			doc: "How many log entries stay behind a snapshot; at least twice raft.snapshot_threshold"},
	}
}

func sessionSettings() []setting {
	return []setting{
		{key: "sessions.ttl", target: func(c *Config) any { return &c.Sessions.TTL }, low: 500 * ms, high: hour,
			doc: "How long the conductor's session lives without a keep-alive"},
		{key: "sessions.grace", target: func(c *Config) any { return &c.Sessions.Grace }, low: 0, high: hour,
			doc: "How much longer the leader waits before it expires a session"},
		{key: "sessions.cool_down", target: func(c *Config) any { return &c.Sessions.CoolDown }, low: 0, high: hour,
			doc: "How long the jobs of an expired session rest before others can claim them"},
		{key: "sessions.max_crashes", target: func(c *Config) any { return &c.Sessions.MaxCrashes }, low: 1, high: 1000,
			doc: "A job whose owner vanished this often is trashed with its evidence"},
	}
}

func limitSettings() []setting {
	return []setting{
		// No lower than the kinds of failure are long, such as flow.intervention:
		// cut, they would be matched by nobody.
		{key: "limits.name", target: func(c *Config) any { return &c.Limits.Name }, low: 32, high: maxName,
			doc: "Bytes of a name"},
		{key: "limits.value", target: func(c *Config) any { return &c.Limits.Value }, low: 1 << 10, high: maxValue,
			doc: "Bytes of one JSON value: a result, an argument, a job's details"},
		{key: "limits.command", target: func(c *Config) any { return &c.Limits.Command }, low: 64 << 10, high: maxCommand,
			doc: "Bytes of one encoded command"},
		{key: "limits.steps", target: func(c *Config) any { return &c.Limits.Steps }, low: 1, high: maxSteps,
			doc: "Steps of one flow"},
	}
}

func retentionSettings() []setting {
	return []setting{
		{key: "retention.max_age", target: func(c *Config) any { return &c.Retention.MaxAge }, low: 60_000 * ms, high: 10 * 365 * 24 * hour,
			doc: "Finished jobs and their books are removed after this long"},
		{key: "retention.keep", target: func(c *Config) any { return &c.Retention.Keep }, low: 1, high: 10_000_000,
			doc: "How many finished jobs are kept at most: the latest. Those that wait for a person (trashed, failed) are counted apart"},
	}
}

func backupSettings() []setting {
	return []setting{
		{key: "backup.directory", target: func(c *Config) any { return &c.Backup.Directory }, path: true,
			doc: "Make backups of this node's state in this directory, which must exist, outside data_dir; without it none are made"},
		{key: "backup.interval", target: func(c *Config) any { return &c.Backup.Interval }, low: 1_000 * ms, high: 365 * 24 * hour,
			doc: "The time between two of these backups"},
		{key: "backup.keep", target: func(c *Config) any { return &c.Backup.Keep }, low: 1, high: 10_000,
			doc: "How many of these backups are kept"},
	}
}

func topologySettings() []setting {
	return []setting{
		{key: "topology.file", target: func(c *Config) any { return &c.Topology.File },
			doc: "File that says which boards are in which cluster; the node forwards postings for boards of other clusters once; read again when it changes"},
	}
}

func dashboardSettings() []setting {
	return []setting{
		{key: "dashboard.enabled", target: func(c *Config) any { return &c.Dashboard.Enabled },
			doc: "Whether this node has web pages for people, on the port of its API; they show and do what the caller may"},
		{key: "dashboard.read_only", target: func(c *Config) any { return &c.Dashboard.ReadOnly },
			doc: "Whether these pages only show, whatever the caller may do"},
		{key: "dashboard.path", target: func(c *Config) any { return &c.Dashboard.Path },
			doc: "The path of these pages; a reverse proxy must pass it on unchanged"},
		{key: "dashboard.origin", target: func(c *Config) any { return &c.Dashboard.Origin },
			doc: "The address at which a reverse proxy has these pages, such as `https://conductord.example.org`; empty: there is no proxy"},
	}
}

func conductorSettings() []setting {
	return []setting{
		{key: "conductor.enabled", target: func(c *Config) any { return &c.Conductor.Enabled },
			doc: "Whether this node runs flows, or only keeps the board"},
		{key: "conductor.name", target: func(c *Config) any { return &c.Conductor.Name },
			doc: "The conductor's name, if not the node's"},
		{key: "conductor.boards", target: func(c *Config) any { return &c.Conductor.Boards },
			doc: "The boards from which it claims jobs"},
		{key: "conductor.labels", target: func(c *Config) any { return &c.Conductor.Labels },
			doc: "What it offers to jobs that want labels"},
		{key: "conductor.max_jobs", target: func(c *Config) any { return &c.Conductor.MaxJobs }, low: 1, high: 256,
			doc: "How many jobs it runs at once, besides those that only wait for step workers"},
		{key: "conductor.workers", target: func(c *Config) any { return &c.Conductor.Workers }, low: 1, high: 1024,
			doc: "How many steps of one job it runs at once"},
		{key: "conductor.steps", target: func(c *Config) any { return &c.Conductor.Steps }, low: 0, high: 4096,
			doc: "How many steps of all jobs it runs at once, without those of step workers; the jobs take turns; 0: half of max_jobs times workers, from 64 to 4096"},
		{key: "conductor.max_dispatches", target: func(c *Config) any { return &c.Conductor.MaxDispatches }, low: 0, high: 1_000_000_000,
			doc: "After taking so many jobs, the conductor finishes them, and the node hands over and ends with exit code 0; 0: never"},
		{key: "conductor.max_duration", target: func(c *Config) any { return &c.Conductor.MaxDuration }, low: 0, high: 365 * 24 * hour,
			doc: "After taking jobs for so long, the conductor finishes those that it has, and the node ends likewise; 0s: never"},
		{key: "conductor.handlers", target: func(c *Config) any { return &c.Conductor.Handlers }, path: true,
			doc: "The directories in which executables that do steps are looked for, and nowhere else"},
		{key: "conductor.value_keys", target: func(c *Config) any { return &c.Conductor.ValueKeys }, path: true,
			doc: "File of the keys with which the conductor decrypts the values of jobs and encrypts what it records; only its owner may be able to read it; conductord value-key add makes it; read when the node starts"},
	}
}

func handlerSettings() []setting {
	return []setting{
		{key: "handlers.user", target: func(c *Config) any { return &c.Handlers.User },
			doc: "Run handlers as this user, with its groups, if not as the node's user; the node must run as root, and this user gets the right to pass through data_dir"},
		{key: "handlers.users", target: func(c *Config) any { return &c.Handlers.Users },
			doc: `The users for the handlers of some boards, such as {"a/*" = "tenant-a"}; the longest name that fits a board counts, and handlers.user for all other boards; as a flag or variable: BOARDS=USER;…`},
		{key: "handlers.no_new_privs", target: func(c *Config) any { return &c.Handlers.NoNewPrivs },
			doc: "Whether set-uid programs that handlers start, such as sudo, gain no privileges (Linux)"},
		{key: "handlers.open_files", target: func(c *Config) any { return &c.Handlers.OpenFiles }, low: 0, high: 1 << 20,
			doc: "How many files each process of a handler may have open; 0: as many as the node"},
		{key: "handlers.file_size", target: func(c *Config) any { return &c.Handlers.FileSize }, low: 0, high: 1 << 50,
			doc: "Bytes of a file that a handler writes; 0: as the node"},
		{key: "handlers.cgroups", target: func(c *Config) any { return &c.Handlers.Cgroups },
			doc: "Whether each handler runs in a cgroup (version 2) of its own, with which all that it has started ends; the node's own cgroup must be delegated to it"},
		{key: "handlers.memory", target: func(c *Config) any { return &c.Handlers.Memory }, low: 0, high: 1 << 50,
			doc: "Bytes of memory for all processes of a running handler, which are killed when they use more; it needs handlers.cgroups; 0: no limit"},
		{key: "handlers.processes", target: func(c *Config) any { return &c.Handlers.Processes }, low: 0, high: 1 << 20,
			doc: "How many processes a running handler may have; it needs handlers.cgroups; 0: no limit"},
	}
}

func secretSettings() []setting {
	return []setting{
		{key: "secrets.directory", target: func(c *Config) any { return &c.Secrets.Directory },
			doc: "The directory of files with the secrets of steps: NAME for all boards, BOARD/NAME for one; others must not be able to read them"},
		{key: "secrets.environment", target: func(c *Config) any { return &c.Secrets.Environment },
			doc: "The prefix of environment variables with secrets of steps: the secret db-key is PREFIXDB_KEY"},
		{key: "secrets.command", target: func(c *Config) any { return &c.Secrets.Command },
			doc: "The executable that prints a secret of a step: it is called with board and name"},
		{key: "secrets.boards", target: func(c *Config) any { return &c.Secrets.Boards },
			doc: `The secrets that jobs may name beside the files BOARD/NAME of their own board, such as {"a/*" = ["db", "mail-*"]}; default: all without access control, and none with it; as a flag or variable: BOARDS=NAME,NAME;…`},
	}
}

func traceSettings() []setting {
	return []setting{
		{key: "traces.endpoint", target: func(c *Config) any { return &c.Traces.Endpoint },
			doc: "The URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318: the conductor sends the spans of its jobs to /v1/traces below it; empty: there are no spans"},
		{key: "traces.headers", target: func(c *Config) any { return &c.Traces.Headers },
			doc: "File of HTTP headers for the collector, a NAME: VALUE on each line; only its owner and group may be able to use it; read when the node starts"},
		{key: "traces.one_in", target: func(c *Config) any { return &c.Traces.OneIn }, low: 1, high: 1_000_000,
			doc: "Trace one of so many jobs; for a job that was posted with a traceparent, that decides"},
	}
}

func logSettings() []setting {
	return []setting{
		{key: "log.level", target: func(c *Config) any { return &c.Log.Level },
			doc: "trace, debug, info, warn or error"},
		{key: "log.json", target: func(c *Config) any { return &c.Log.JSON },
			doc: "Log lines as JSON objects"},
	}
}

// Settings lists every key there is, in the order of the example file.
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

// A replacer prepares its tables at the first use, and each command lists many settings.
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

// envPrefix begins the variables of settings.
const envPrefix = "CONDUCTORD_"

func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

// textOf writes a value as a flag takes it.
func textOf(target any) string {
	switch value := target.(type) {
	case *string:
		return *value
	case *int:
		return strconv.Itoa(*value)
	case *bool:
		return strconv.FormatBool(*value)
	case *time.Duration:
		return durationText(*value)
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

// typeOf names the type of a value for people.
func typeOf(target any) string {
	return typeNames.Replace(fmt.Sprintf("%T", target))
}

// durationText leaves out the zero minutes and seconds that String adds.
func durationText(d time.Duration) string {
	text := d.String()
	if trimmed, found := strings.CutSuffix(text, "m0s"); found {
		text = trimmed + "m"
	}
	if trimmed, found := strings.CutSuffix(text, "h0m"); found {
		text = trimmed + "h"
	}
	return text
}

// setText gives a setting the value that a flag or a variable has. The string
// that comes back says what is wrong; it is empty if nothing is.
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

// splitList leaves out empty items, so that an empty text is an empty list.
func splitList(text, separator string) []string {
	var items []string
	for item := range strings.SplitSeq(text, separator) {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// outOfRange says so if a number or a duration is. Empty: it is not.
func (s setting) outOfRange(c *Config) string {
	switch value := s.target(c).(type) {
	case *int:
		if number := int64(*value); number < s.low || number > s.high {
			return fmt.Sprintf("is %d, and must be from %d to %d", number, s.low, s.high)
		}
	case *time.Duration:
		if number := int64(*value); number < s.low || number > s.high {
			return fmt.Sprintf("is %s, and must be from %s to %s", durationText(*value),
				durationText(time.Duration(s.low)), durationText(time.Duration(s.high)))
		}
	}
	return ""
}
