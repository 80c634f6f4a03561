package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/valuekeys"
)

// Cluster is the program's connection for commands: a board, a logbook, and the status of the
// nodes. Functions of a noun take only the part that they need.
type Cluster interface {
	jobs.Board
	logbook.Connection
	access.Quotas
	Members
	Principals
	statusReader

	// FindIDs reads the ids that start or end with the given digits.
	FindIDs(ctx context.Context, prefix jobs.IDPrefix) (jobs.IDMatches, error)

	// ReadLogs reads the output of a job's steps; see raftboard.Client.
	ReadLogs(ctx context.Context, query steplog.Query) (steplog.Page, error)

	// Verify compares the states of the members.
	Verify(ctx context.Context) (raftboard.Comparison, error)

	// Stale is the cluster with reads that any node answers from its own state.
	Stale() Cluster

	// StaleAge is the maximum age of the answers to the reads of Stale; see raftboard.Client.
	StaleAge() (age time.Duration, known bool)

	// Backup reads a backup. A stale backup has the state of one node. The caller closes it.
	Backup(ctx context.Context, stale bool) (io.ReadCloser, error)

	Close() error
}

// statusReader asks every node for its status. The list contains a silent node with its error.
type statusReader interface {
	Nodes(ctx context.Context) ([]raftboard.NodeStatus, error)
}

// Members changes the members of a cluster, their leader and their version; see raftboard.Client.
type Members interface {
	// TransferLeader transfers the leadership, and returns the new leader.
	TransferLeader(ctx context.Context, to string) (leader string, err error)
	AddMember(ctx context.Context, member raftboard.NewMember) (raftboard.Admission, error)
	RemoveMember(ctx context.Context, name string) ([]raftboard.Member, error)
	SetVote(ctx context.Context, name string, vote bool) ([]raftboard.Member, error)
	MoveMember(ctx context.Context, name, raftAddress, apiAddress string) ([]raftboard.Member, error)

	// Upgrade raises the version of the cluster, and returns it.
	Upgrade(ctx context.Context) (version int, err error)
}

// Principals reads and changes principals, and reads their audit records and refusals; see
// raftboard.Client.
type Principals interface {
	UpdatePrincipal(ctx context.Context, p access.Principal) error
	DeletePrincipal(ctx context.Context, name string) error
	AddAccessToken(ctx context.Context, principal string, token access.Token) error
	RevokeAccessToken(ctx context.Context, principal string, id access.TokenID) error
	Principals(ctx context.Context, after string) (logbook.Page[access.Principal], error)
	WhoAmI(ctx context.Context) (access.Identity, error)
	Audit(ctx context.Context, query access.RecordQuery) (logbook.Page[access.Record], error)
	Refusals(ctx context.Context) ([]access.Refusal, error)
}

// endpoints are the servers to call: from the flag, else from the environment, else the server
// on this machine.
func (p *Program) endpoints() []string {
	given := p.servers
	if len(given) == 0 {
		given = strings.Split(p.Value("CONDUCTORD_SERVER"), ",")
	}
	var endpoints []string
	for _, endpoint := range given {
		if endpoint = strings.TrimSpace(endpoint); endpoint != "" {
			endpoints = append(endpoints, endpoint)
		}
	}
	if len(endpoints) == 0 {
		return []string{DefaultServer}
	}
	return endpoints
}

// ServersOr sets the servers to call if none were given.
func (p *Program) ServersOr(addresses []string) {
	if len(p.servers) == 0 && p.Value("CONDUCTORD_SERVER") == "" {
		p.servers = addresses
	}
}

// credentials are the certificates: from the flag, else from the environment.
func (p *Program) credentials() credentials.Files {
	files := p.files
	for _, of := range []struct {
		file *string
		name string
	}{{&files.CA, "CONDUCTORD_CA_FILE"}, {&files.Cert, "CONDUCTORD_CERT_FILE"}, {&files.Key, "CONDUCTORD_KEY_FILE"}} {
		if *of.file == "" {
			*of.file = p.Value(of.name)
		}
	}
	return files
}

// CredentialsOr sets the certificates if none were given.
func (p *Program) CredentialsOr(files credentials.Files) {
	if p.credentials().Empty() {
		p.files = files
	}
}

// token is the access token: from the flag, else from the environment; empty: none.
func (p *Program) token() (string, error) {
	path := cmp.Or(p.tokenFile, p.Value("CONDUCTORD_TOKEN_FILE"))
	if path == "" {
		return p.Value("CONDUCTORD_TOKEN"), nil
	}
	return credentials.ReadToken(path)
}

// ValueKeys is the path of the value key file: from the flag, else from the environment;
// empty: none.
func (p *Program) ValueKeys() string { return cmp.Or(p.valueKeys, p.Value("CONDUCTORD_VALUE_KEYS")) }

// With calls do with a cluster, within the usual time of a call.
func (p *Program) With(ctx context.Context, do func(ctx context.Context, cluster Cluster) error) error {
	return p.within(ctx, callTimeout, callPatience, do)
}

// Waiting calls do with a cluster, without a time limit.
func (p *Program) Waiting(ctx context.Context, do func(ctx context.Context, cluster Cluster) error) error {
	return p.within(ctx, 0, waitPatience, do)
}

// Watching is Waiting for a command that an interrupt from the keyboard ends. The interrupt is not
// an error.
func (p *Program) Watching(ctx context.Context, do func(ctx context.Context, cluster Cluster) error) error {
	err := p.Waiting(ctx, do)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// within limits the time by --timeout, or else by a usual time; 0: no limit.
func (p *Program) within(ctx context.Context, usual, patience time.Duration, do func(ctx context.Context, cluster Cluster) error) error {
	first := firstPatience
	if p.Timeout > 0 {
		usual, patience, first = p.Timeout, p.Timeout, p.Timeout
	}
	if usual > 0 {
		bounded, cancel := context.WithTimeout(ctx, usual)
		defer cancel()
		ctx = bounded
	}
	cluster, err := p.connect(ctx, first, patience)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if !p.stale {
		return p.adviseTopology(ctx, cluster, do(ctx, cluster))
	}
	if err := do(ctx, cluster.Stale()); err != nil {
		return err
	}
	p.noteAge(cluster.StaleAge())
	return nil
}

// connect finds a node that answers, and gives up soon.
func (p *Program) connect(ctx context.Context, first, patience time.Duration) (Cluster, error) {
	dialling, cancel := context.WithTimeout(ctx, first)
	defer cancel()
	if _, err := p.UseProfile(); err != nil {
		return nil, err
	}
	if err := p.routeServers(dialling); err != nil {
		return nil, err
	}
	servers := strings.Join(p.endpoints(), ", ")
	if p.Profile != "" {
		servers += " (profile " + p.Profile + ")"
	}
	options, err := p.Options(patience)
	if err != nil {
		return nil, err
	}
	cluster, err := p.Dial(dialling, options)
	if err != nil && p.cluster != "" {
		err = fmt.Errorf("cluster %q of the topology: %w", p.cluster, err)
		if errors.Is(err, jobs.ErrUnavailable) && mismatchRemedy(err) == "" {
			err = Advised(err, "`conductord topology check` checks the nodes of all clusters")
		}
	}
	if err != nil {
		return nil, Because(err, "connect to %s", servers)
	}
	return cluster, nil
}

// Options returns the options of a connection to the selected servers.
func (p *Program) Options(patience time.Duration) (options raftboard.Options, err error) {
	options = raftboard.Options{Endpoints: p.endpoints(), Patience: patience}
	if files := p.credentials(); !files.Empty() {
		store, err := credentials.Open(files, func(error) {}) // they do not change while a command runs
		if err != nil {
			return options, UsageError(fmt.Errorf("cannot use the certificates: %w", err))
		}
		if expires := store.Expires(); time.Now().After(expires) { // nodes would refuse it with a TLS message
			p.Note("warning: a certificate of this client expired on %s; issue a new one: `conductord cert issue client --help`",
				expires.Format(time.DateOnly))
		}
		options.Credentials = store
	}
	if options.Token, err = p.token(); err != nil {
		return options, UsageError(err)
	}
	if path := p.ValueKeys(); path != "" {
		if options.ValueKeys, err = valuekeys.Open(path); err != nil {
			return options, UsageError(err)
		}
	}
	return options, nil
}

// adviseTopology extends the error "not found" of an id if the node uses a topology. The node has
// then posted jobs to other clusters, and only a client with the topology finds them.
func (p *Program) adviseTopology(ctx context.Context, cluster statusReader, err error) error {
	if !errors.Is(err, jobs.ErrNotFound) || len(p.ids) == 0 || p.Value("CONDUCTORD_TOPOLOGY") != "" || p.topology != "" {
		return err
	}
	nodes, unread := cluster.Nodes(ctx)
	if unread != nil || !slices.ContainsFunc(nodes, func(n raftboard.NodeStatus) bool { return n.Status.TopologyDigest != "" }) {
		return err
	}
	return Advised(err, "this node uses a topology, and another cluster may have it: use --topology FILE")
}

// HandlersKey is the metadata key under which a daemon's conductor announces its handlers.
const HandlersKey = "handlers"

// CloseTimeout limits the closing of a session.
const CloseTimeout = 5 * time.Second

// Scheduler is the part of a cluster for schedules.
func Scheduler(cluster any) (schedules.Scheduler, error) {
	keeper, ok := cluster.(schedules.Scheduler)
	if !ok {
		return nil, fmt.Errorf("%w: this cluster does not support schedules", jobs.ErrNotAllowed)
	}
	return keeper, nil
}
