package node

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/raftboard/node/cluster"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/node/raftlog"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
	"github.com/conductord/conductord/topology"
)

// Member is one daemon of the cluster.
type Member = transport.Member

// Issuer makes JSON web tokens that prove principals.
type Issuer = guard.Issuer

// Options describe a node and its behaviour. Cluster and the timings must be the same on
// all nodes of a cluster.
type Options struct {
	Name    string // name of this node, which is one of the Members
	Cluster string // the cluster's id: nodes of another cluster are refused
	// Members are the founders of the cluster, including this node. At the first start, all
	// founders must have the same list. After that, only this node's own address in the list is
	// used. Incarnations are ignored.
	Members []Member
	DataDir string // contains all durable files; created if it is missing
	Init    bool   // this is the node's first start: create its identity in an empty data directory
	Version string // of the program, for display

	// LogStore is the store of raft's log and votes; empty: logstore.Bolt. A data directory with
	// another store is refused: see ConvertLog.
	LogStore logstore.Kind

	// Credentials are for TLS on both ports, and between the nodes; the certificate names this
	// node. nil: plain text.
	Credentials *credentials.Store
	// ClientCertificates: clients of the API must also have a certificate.
	ClientCertificates bool

	// AccessControl: callers of the API must authenticate, and the roles of their principals limit
	// their calls. It needs Credentials.
	AccessControl bool
	// Issuer makes JSON web tokens, which are accepted in addition to access tokens.
	Issuer Issuer
	// Socket is the path of a socket for operators of this machine, at most 100 bytes. They have
	// all permissions. Empty: no socket.
	Socket string

	RaftListen string // listening address; empty: this member's Raft
	APIListen  string // listening address; empty: this member's API

	Raft      RaftTimings
	Sessions  SessionTimings
	Retention Retention
	Limits    logbook.Limits // zero: logbook.MaxLimits
	// DiskReserve is the minimum free space, in bytes, for new work, in addition to the space of a
	// snapshot. 0: 256 MiB
	DiskReserve int64
	// Memory is the budget, in bytes, for data that clients make this node hold; its shares limit
	// the queues. The caller gives Go's runtime the same limit. 0: 512 MiB
	Memory  int64
	Backups cluster.Backups // that the node makes by itself
	// VerifyInterval is the interval at which the leader compares the states of the members. 0: 10
	// min
	VerifyInterval time.Duration
	// RemoveDeadAfter is the silence after which the leader removes a member, if a majority of the
	// other members answers. 0: never
	RemoveDeadAfter time.Duration

	// Topology maps boards to clusters: the node forwards postings for boards of other clusters.
	// Its Options.Cluster is Cluster. nil: every board is here
	Topology *topology.Source

	// CheckFlow checks the flow of each posting that contains its book, with the job's own store,
	// before anything is written. An error refuses the posting. It may be called concurrently, and
	// is not called if the arguments of the flow's factory are encrypted. nil: every flow passes.
	CheckFlow func(flow *logbook.FlowDetail, store logbook.Values) error

	// Pages makes the handler of web pages, which answers every request below PagesPath, such as
	// "/dashboard/". Its argument is the API, which authenticates and authorizes each call of a
	// page like a call from the network. nil: there are no pages.
	Pages     func(api http.Handler) http.Handler
	PagesPath string
	// PageToken is the token in a request for a page; empty: none. nil: the token of the header
	// Authorization
	PageToken func(*http.Request) string

	// WallClock reads the wall clock of this machine, which is this node's vote about the cluster's
	// time. It may be called concurrently. nil: time.Now.
	WallClock func() time.Time

	System System // for tests; zero: this machine's

	// TokenUsePeriod is the interval at which the node reports used access tokens to the
	// leader. 0: 1 min
	TokenUsePeriod time.Duration

	Logger  hclog.Logger         // nil: none
	Metrics *prometheus.Registry // nil: a new registry of the node
	// Fatal ends the process after a fault after which the node cannot continue, such as a failed
	// disk. nil: log, and exit with status 70.
	Fatal func(error)
}

// MaxSocketPath limits the path of a socket, in bytes: systems allow 104 to 108.
const MaxSocketPath = 100

// RaftTimings are the times and sizes of raft.
type RaftTimings = raftlog.Timings

// SessionTimings are the leader's policies for sessions and their claims.
type SessionTimings = lead.SessionTimings

// Retention limits the time and the number of finished jobs and their books.
type Retention = lead.Retention

// Backups is the schedule of a node's own backups.
type Backups = cluster.Backups

func (o Options) withDefaults() Options {
	o.Raft = o.Raft.WithDefaults()
	setDefault(&o.Sessions.Grace, time.Second)
	setDefault(&o.Sessions.CoolDown, 500*time.Millisecond)
	setDefault(&o.Sessions.MaxCrashes, 5)
	setDefault(&o.Retention.MaxAge, 7*24*time.Hour)
	setDefault(&o.Retention.Keep, 100_000)
	setDefault(&o.Limits, logbook.MaxLimits)
	setDefault(&o.LogStore, logstore.Bolt)
	setDefault(&o.DiskReserve, 256<<20)
	setDefault(&o.Memory, defaultMemory)
	setDefault(&o.VerifyInterval, 10*time.Minute)
	setDefault(&o.TokenUsePeriod, time.Minute)
	o.Backups = o.Backups.WithDefaults()
	if o.WallClock == nil {
		o.WallClock = wallTime
	}
	o.System = o.System.withDefaults()
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if self, err := o.self(); err == nil {
		setDefault(&o.RaftListen, self.Raft)
		setDefault(&o.APIListen, self.API)
	}
	return o
}

// defaultMemory is the default of Options.Memory. A share of the budget is for waiting proposals.
const (
	defaultMemory = 512 << 20
	proposalShare = 8
)

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate reports all problems at once.
func (o Options) validate() error {
	_, selfErr := o.self()
	faults := []error{o.Limits.CheckName("cluster id", o.Cluster), selfErr, o.Issuer.Validate(), o.Backups.Validate(o.DataDir)} // nil: no fault
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if o.AccessControl && o.Credentials == nil {
		fault("access control requires TLS: with plain text, others on the network can read tokens")
	}
	if o.Pages != nil && (len(o.PagesPath) < 2 || !strings.HasPrefix(o.PagesPath, "/") || !strings.HasSuffix(o.PagesPath, "/")) {
		fault("the path of the pages %.64q does not begin and end with a /, or is the root", o.PagesPath)
	}
	if len(o.Socket) > MaxSocketPath {
		fault("the path of socket %q has %d bytes; the limit is %d", o.Socket, len(o.Socket), MaxSocketPath)
	}
	if o.DataDir == "" || !filepath.IsAbs(o.DataDir) {
		fault("data directory %q is not an absolute path", o.DataDir)
	}
	if !slices.Contains(logstore.Kinds, o.LogStore) {
		fault("log store %.64q is not one of %v", o.LogStore, logstore.Kinds)
	}
	seen := map[string]string{}
	for _, member := range o.Members {
		for _, key := range []string{"name " + member.Name, "address " + member.Raft, "address " + member.API} {
			if other, taken := seen[key]; taken {
				fault("members %q and %q have the same %s", other, member.Name, key)
			}
			seen[key] = member.Name
		}
	}
	if o.Raft.LeaderLease > o.Raft.Heartbeat {
		fault("raft leader lease %v is longer than the heartbeat timeout %v", o.Raft.LeaderLease, o.Raft.Heartbeat)
	}
	if o.Raft.TrailingLogs < 2*o.Raft.SnapshotThreshold {
		fault("raft trailing logs %d are fewer than twice the snapshot threshold %d", o.Raft.TrailingLogs, o.Raft.SnapshotThreshold)
	}
	return errors.Join(faults...)
}

func (o Options) self() (Member, error) {
	for _, member := range o.Members {
		if member.Name == o.Name {
			return member, nil
		}
	}
	return Member{}, fmt.Errorf("node %q is not among the members of the cluster", o.Name)
}

// wallTime reads the wall clock of this machine, only for this node's vote about the cluster's
// time. Nothing else in a node reads the wall clock: all other uses of time.Now measure durations.
func wallTime() time.Time { return time.Now() }
