// Package config is what a daemon is told: a TOML file, environment variables
// and flags, brought together into one checked Config.
//
// Every key of the file is also an environment variable and a flag, and all
// three come from one table (see Settings), which also makes the example file
// and the documentation. For the key raft.heartbeat they are
// CONDUCTORD_RAFT_HEARTBEAT and --raft-heartbeat. A flag goes over the
// environment, that over the file, and that over the default.
//
// Load reports everything that is wrong at once, each fault with its place: a
// key that is not known, a value of the wrong type or out of its range, and
// values that do not fit together. A Config that Load gives has no fault.
package config

import "time"

// Config is all that a daemon can be told.
type Config struct {
	Node         string // this node's name: one of the members'
	DataDir      string
	RaftListen   string // empty: the node's own raft address
	APIListen    string // empty: the node's own API address
	DrainTimeout time.Duration
	LogStore     string // how the node keeps raft's log: bolt or wal
	DiskReserve  int    // bytes
	Memory       int    // bytes
	Insecure     bool   // plain text on every address
	// AccessControl: callers must authenticate. It counts only with TLS.
	AccessControl bool

	TLS       TLS
	JWT       JWT
	Cluster   Cluster
	Raft      Raft
	Sessions  Sessions
	Limits    Limits
	Retention Retention
	Backup    Backup
	Topology  Topology
	Dashboard Dashboard
	Conductor Conductor
	Handlers  Handlers
	Secrets   Secrets
	Traces    Traces
	Log       Log
}

// TLS holds files in PEM: all three, or none.
type TLS struct {
	CA   string // the authorities that certificates come from
	Cert string // this node's
	Key  string
	// ClientCerts: clients must have a certificate of these authorities.
	ClientCerts bool
}

// JWT is the issuer of JSON web tokens that count; empty: there is none.
type JWT struct {
	Issuer   string
	Audience string
	Keys     string // absolute path, or https URL
	Claim    string // that names the principal
}

// Cluster is what the files of all nodes have in common.
type Cluster struct {
	ID              string
	Members         []Member
	VerifyInterval  time.Duration
	RemoveDeadAfter time.Duration // 0: never
}

// Member is one node, and where the others find it.
type Member struct {
	Name string
	Raft string // host:port
	API  string // host:port
}

// Raft holds the timing and the sizes of the replicated log.
type Raft struct {
	Heartbeat         time.Duration
	Election          time.Duration
	LeaderLease       time.Duration
	MaxAppendEntries  int
	SnapshotInterval  time.Duration
	SnapshotThreshold int
	TrailingLogs      int
}

// Sessions holds how presence is judged.
type Sessions struct {
	TTL        time.Duration
	Grace      time.Duration
	CoolDown   time.Duration
	MaxCrashes int
}

// Limits bound what is accepted: the defaults are the largest there are.
type Limits struct {
	Name    int
	Value   int
	Command int
	Steps   int
}

// Retention says which finished jobs are kept.
type Retention struct {
	MaxAge time.Duration
	Keep   int
}

// Backup says which backups the node makes by itself.
type Backup struct {
	Directory string // empty: it makes none
	Interval  time.Duration
	Keep      int
}

// Topology says which boards are in other clusters.
type Topology struct {
	File string // empty: none
}

// Dashboard is the web pages for people.
type Dashboard struct {
	Enabled  bool
	ReadOnly bool   // its pages change nothing
	Path     string // begins and ends with a /
	Origin   string // of a reverse proxy; empty: there is none
}

// Conductor is the conductor inside the daemon.
type Conductor struct {
	Enabled bool
	Name    string // empty: the node's name
	Boards  []string
	Labels  []string // what it offers to jobs that want labels
	MaxJobs int
	Workers int
	Steps   int
	// MaxDispatches and MaxDuration end the daemon, once the conductor has taken so many
	// jobs or has taken jobs for so long; 0: never.
	MaxDispatches int
	MaxDuration   time.Duration
	Handlers      []string // the directories in which handlers are looked for
	// ValueKeys is the file of the keys with which values are encrypted; empty: they are not.
	ValueKeys string
}

// PerBoard is names for boards. The keys are names of boards, or beginnings of names and *.
type PerBoard map[string][]string

// Handlers says how handlers are confined. A limit of 0 limits nothing.
type Handlers struct {
	User       string   // empty: the daemon's
	Users      PerBoard // for the jobs of some boards; each has one name
	NoNewPrivs bool
	OpenFiles  int
	FileSize   int // bytes
	Cgroups    bool
	Memory     int // bytes
	Processes  int
}

// Secrets says where the secrets of steps come from: the first that has one counts.
type Secrets struct {
	Directory   string // of files
	Environment string // prefix of variables
	Command     string // executable
	// Boards has the secrets that jobs may name beside those of their board's directory. Empty: all, without
	// access control, and else none.
	Boards PerBoard
}

// Traces says where the spans of jobs are sent.
type Traces struct {
	Endpoint string // empty: nowhere
	Headers  string // file
	OneIn    int
}

// Log says what is logged and how.
type Log struct {
	Level string
	JSON  bool
}

// Default is what holds where nothing is said. It is not complete: a node
// needs a name, a data directory, a cluster id and members.
func Default() Config {
	return Config{
		DrainTimeout:  500 * time.Millisecond, // half of the second within which a stopped node hands over
		LogStore:      "bolt",
		DiskReserve:   256 << 20,
		Memory:        512 << 20,
		AccessControl: true,
		Cluster:       Cluster{VerifyInterval: 10 * time.Minute},
		Raft: Raft{
			Heartbeat:         500 * time.Millisecond,
			Election:          500 * time.Millisecond,
			LeaderLease:       500 * time.Millisecond,
			MaxAppendEntries:  128,
			SnapshotInterval:  30 * time.Second,
			SnapshotThreshold: 16_384,
			TrailingLogs:      65_536,
		},
		JWT:       JWT{Claim: "sub"},
		Sessions:  Sessions{TTL: 4 * time.Second, Grace: time.Second, CoolDown: 500 * time.Millisecond, MaxCrashes: 5},
		Limits:    Limits{Name: maxName, Value: maxValue, Command: maxCommand, Steps: maxSteps},
		Retention: Retention{MaxAge: 7 * 24 * time.Hour, Keep: 100_000},
		Backup:    Backup{Interval: 24 * time.Hour, Keep: 7},
		Dashboard: Dashboard{Enabled: true, Path: "/dashboard/"},
		Conductor: Conductor{Enabled: true, Boards: []string{"default"}, MaxJobs: 16, Workers: 8},
		Handlers:  Handlers{NoNewPrivs: true},
		Traces:    Traces{OneIn: 1},
		Log:       Log{Level: "info"},
	}
}

// Self is the member that the node itself is.
func (c *Config) Self() (Member, bool) {
	for _, member := range c.Cluster.Members {
		if member.Name == c.Node {
			return member, true
		}
	}
	return Member{}, false
}

// RaftAddress is where the node listens for the other members.
func (c *Config) RaftAddress() string {
	self, _ := c.Self()
	return orElse(c.RaftListen, self.Raft)
}

// APIAddress is where the node listens for clients.
func (c *Config) APIAddress() string {
	self, _ := c.Self()
	return orElse(c.APIListen, self.API)
}

// ConductorName is the name under which the node's conductor is known.
func (c *Config) ConductorName() string { return orElse(c.Conductor.Name, c.Node) }

func orElse(text, otherwise string) string {
	if text != "" {
		return text
	}
	return otherwise
}
