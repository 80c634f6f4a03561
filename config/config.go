// Package config loads the configuration of a daemon from a TOML file, environment variables
// and flags, into one checked Config.
//
// Every key of the file is also an environment variable and a flag. The key raft.heartbeat is
// the variable CONDUCTORD_RAFT_HEARTBEAT and the flag --raft-heartbeat. A flag overrides the
// variable, the variable overrides the file, and the file overrides the default. One table
// defines all keys (see Settings). The example file is generated from it.
//
// Load reports all faults at once, each with its place: unknown keys, values with a wrong type
// or out of range, and values that conflict. A Config from Load has no faults.
package config

import "time"

// Config is the configuration of a daemon.
type Config struct {
	Node         string // this node's name, which is the name of a member
	DataDir      string
	RaftListen   string // empty: the node's own raft address
	APIListen    string // empty: the node's own API address
	DrainTimeout time.Duration
	LogStore     string // store of raft's log: bolt or wal
	DiskReserve  int    // bytes
	Memory       int    // bytes
	Insecure     bool   // allow plain text on every address
	// AccessControl: callers must authenticate. It has an effect only with TLS. Load refuses an explicit
	// true without TLS.
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

// TLS has the paths of three PEM files: all set, or none.
type TLS struct {
	CA   string // certificates of the trusted authorities
	Cert string // this node's certificate
	Key  string // this node's private key
	// ClientCerts: clients must have a certificate of one of the authorities.
	ClientCerts bool
}

// JWT is the accepted issuer of JSON web tokens. Without an Issuer, no token is accepted.
type JWT struct {
	Issuer   string
	Audience string
	Keys     string // absolute path, or https URL
	Claim    string // the claim with the name of the principal
}

// Cluster has the settings that must be equal in the files of all nodes.
type Cluster struct {
	ID              string
	Members         []Member
	VerifyInterval  time.Duration
	RemoveDeadAfter time.Duration // 0: never
}

// Member is one node with its addresses.
type Member struct {
	Name string
	Raft string // host:port
	API  string // host:port
}

// Raft has the timings and sizes of the replicated log.
type Raft struct {
	Heartbeat         time.Duration
	Election          time.Duration
	LeaderLease       time.Duration
	MaxAppendEntries  int
	SnapshotInterval  time.Duration
	SnapshotThreshold int
	TrailingLogs      int
}

// Sessions has the settings for the expiry of sessions.
type Sessions struct {
	TTL        time.Duration
	Grace      time.Duration
	CoolDown   time.Duration
	MaxCrashes int
}

// Limits are the limits for input: see logbook.Limits. The defaults are the largest values.
type Limits struct {
	Name    int
	Value   int
	Command int
	Steps   int
}

// Retention has the limits for kept finished jobs.
type Retention struct {
	MaxAge time.Duration
	Keep   int
}

// Backup has the settings for scheduled backups.
type Backup struct {
	Directory string // empty: no scheduled backups
	Interval  time.Duration
	Keep      int
}

// Topology names the file that maps boards to clusters.
type Topology struct {
	File string // empty: none
}

// Dashboard has the settings of the web dashboard.
type Dashboard struct {
	Enabled  bool
	ReadOnly bool   // the pages allow no changes
	Path     string // begins and ends with a /
	Origin   string // address of a reverse proxy; empty: no proxy
}

// Conductor has the settings of the conductor inside the daemon.
type Conductor struct {
	Enabled bool
	Name    string // empty: the node's name
	Boards  []string
	Labels  []string // labels that the conductor offers
	MaxJobs int
	Workers int
	Steps   int
	// After MaxDispatches claimed jobs, or after claiming jobs for MaxDuration, the conductor
	// claims no more jobs, and the daemon ends; 0: no limit.
	MaxDispatches int
	MaxDuration   time.Duration
	Handlers      []string // directories with handlers
	// ValueKeys is the file with the keys that encrypt values; empty: no encryption.
	ValueKeys string
}

// PerBoard maps boards to names. A key is the name of a board, or a prefix and *.
type PerBoard map[string][]string

// Handlers has the restrictions of handlers. A limit of 0 is no limit.
type Handlers struct {
	User       string   // empty: the daemon's user
	Users      PerBoard // users for the jobs of some boards, one each
	NoNewPrivs bool
	OpenFiles  int
	FileSize   int // bytes
	Cgroups    bool
	Memory     int // bytes
	Processes  int
}

// Secrets has the sources of steps' secrets, in the order in which they are searched.
type Secrets struct {
	Directory   string // directory of files
	Environment string // prefix of variables
	Command     string // executable
	// Boards has the secrets that the jobs of a board may name, in addition to the secrets in the
	// board's directory. If Boards is empty, jobs may name all secrets without access control, and
	// no others with access control.
	Boards PerBoard
}

// Traces has the settings for sending spans of jobs.
type Traces struct {
	Endpoint string // empty: no spans
	Headers  string // path of a file
	OneIn    int    // sends the trace of one job in OneIn
}

// Log has the settings of the log.
type Log struct {
	Level string
	JSON  bool
}

// Default returns the defaults. They are not a complete configuration: a node needs a name, a data
// directory, a cluster id and members.
func Default() Config {
	return Config{
		DrainTimeout:  500 * time.Millisecond, // half of the second in which a stopping node hands over
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

// Self returns the member with the node's name.
func (c *Config) Self() (Member, bool) {
	for _, member := range c.Cluster.Members {
		if member.Name == c.Node {
			return member, true
		}
	}
	return Member{}, false
}

// RaftAddress returns the address on which the node listens for other members.
func (c *Config) RaftAddress() string {
	self, _ := c.Self()
	return orElse(c.RaftListen, self.Raft)
}

// APIAddress returns the address on which the node listens for clients.
func (c *Config) APIAddress() string {
	self, _ := c.Self()
	return orElse(c.APIListen, self.API)
}

// ConductorName returns the name of the node's conductor.
func (c *Config) ConductorName() string { return orElse(c.Conductor.Name, c.Node) }

func orElse(text, otherwise string) string {
	if text != "" {
		return text
	}
	return otherwise
}
