// Package attack sets hostile clients and would-be members on a cluster with TLS and access
// control, at a bounded rate and on loopback alone.
//
// A Cluster has an honest client, and everything that an attacker can have: the addresses,
// certificates of the wrong kind, and tokens that are wrong, expired, or of a principal with
// few permissions. Run makes one try after another and reports the tries that succeeded.
package attack

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// Board is the board of the honest client. No attacker may use it.
const Board = "orders"

const (
	guestBoard = "guests" // the guest may read it
	valid      = time.Hour
)

// Cluster is a cluster of processes under attack.
type Cluster struct {
	*local.Cluster
	Honest   *raftboard.Client // posts on Board
	Operator *raftboard.Client // through the socket of a node: has all permissions

	dir          string
	authority    credentials.Issued
	certificates map[string]tls.Certificate // of false members, by fault
	store        *credentials.Store         // trusts the nodes, but has no certificate
	tokens       map[string]string          // by fault; "right" is the honest client's token
	hello        transport.Hello            // as a member sends it
	client       *tls.Config                // trusts the nodes, but has no certificate
}

// Start starts a cluster of three nodes without conductors. Close it.
func Start(ctx context.Context, options local.Options) (*Cluster, error) {
	c := &Cluster{dir: options.Dir, certificates: map[string]tls.Certificate{}, tokens: map[string]string{}}
	var err error
	if c.authority, err = credentials.NewAuthority("cluster", 2*valid); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.file("ca.pem"), c.authority.Cert, 0o600); err != nil {
		return nil, err
	}
	options.Configure = func(settings *config.Config) {
		settings.Conductor.Enabled = false
		settings.TLS = config.TLS{CA: c.file("ca.pem"), Cert: c.file(settings.Node + ".pem"), Key: c.file(settings.Node + ".key")}
	}
	if c.Cluster, err = local.New(options); err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	for _, node := range c.Nodes {
		if err := c.issueNode(node.Name); err != nil {
			return err
		}
	}
	if err := errors.Join(c.Cluster.Start(), c.WaitReady(ctx), c.forge()); err != nil {
		return err
	}
	var err error
	if c.Operator, err = raftboard.Dial(ctx, "unix://"+filepath.Join(c.Nodes[0].DataDir, "api.sock")); err != nil {
		return err
	}
	return c.admit(ctx)
}

// Close kills the cluster. It may be called twice.
func (c *Cluster) Close() {
	for _, client := range []*raftboard.Client{c.Honest, c.Operator} {
		if client != nil {
			client.Close()
		}
	}
	c.Cluster.Close()
}

func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) issueNode(name string) error {
	made, err := credentials.Issue(c.authority, credentials.Subject{Name: name, Cluster: "local", Hosts: []string{"127.0.0.1"}, Valid: valid})
	return errors.Join(err, os.WriteFile(c.file(name+".pem"), made.Cert, 0o600), os.WriteFile(c.file(name+".key"), made.Key, 0o600))
}

// forge makes the certificates of false members. Each claims the name of the last node.
func (c *Cluster) forge() error {
	other, err := credentials.NewAuthority("other", 2*valid)
	if err != nil {
		return err
	}
	last := c.Nodes[len(c.Nodes)-1].Name
	right := credentials.Subject{Name: last, Cluster: "local", Hosts: []string{"127.0.0.1"}, Valid: valid}
	expired, elsewhere, wrong, client := right, right, right, right
	expired.Valid, elsewhere.Cluster, wrong.Name, client.Cluster = time.Nanosecond, "others", "node9", ""
	for name, row := range map[string]struct {
		authority credentials.Issued
		subject   credentials.Subject
	}{
		"right": {c.authority, right}, "expired": {c.authority, expired}, "of another cluster": {c.authority, elsewhere},
		"of another name": {c.authority, wrong}, "of a client": {c.authority, client}, "of another authority": {other, right},
	} {
		made, err := credentials.Issue(row.authority, row.subject)
		if err != nil {
			return err
		}
		if c.certificates[name], err = tls.X509KeyPair(made.Cert, made.Key); err != nil {
			return err
		}
	}
	roster := transport.Roster{}
	for _, node := range c.Nodes {
		roster[node.Name] = transport.Member{Name: node.Name, Incarnation: transport.FirstIncarnation, Raft: node.Raft, API: node.API}.Address()
	}
	c.hello = transport.Hello{
		Cluster: "local", Name: last, Incarnation: transport.FirstIncarnation, Instance: uuid.New(), Start: 1_000, Run: uuid.New(), Members: roster, Agreed: true, Joined: true,
	}
	return nil
}

// admit makes the principals and the tokens, and the honest client.
func (c *Cluster) admit(ctx context.Context) error {
	const shortly = 200 * time.Millisecond
	for _, row := range []struct {
		principal string
		grant     access.Grant
		tokens    map[string]time.Time // expiry by name
	}{
		{"shop", access.Grant{Role: access.Poster, Boards: Board}, map[string]time.Time{"right": {}}},
		{"former", access.Grant{Role: access.Poster, Boards: Board}, map[string]time.Time{"expired": time.Now().Add(shortly), "revoked": {}}},
		{"guest", access.Grant{Role: access.Viewer, Boards: guestBoard}, map[string]time.Time{"guest": {}}},
	} {
		if err := c.Operator.SavePrincipal(ctx, access.Principal{Name: row.principal, Grants: []access.Grant{row.grant}}); err != nil {
			return err
		}
		for name, expires := range row.tokens {
			text, token := access.Draw(expires)
			if err := c.Operator.AddAccessToken(ctx, row.principal, token); err != nil {
				return err
			}
			if name == "revoked" {
				if err := c.Operator.RevokeAccessToken(ctx, row.principal, token.ID); err != nil {
					return err
				}
			}
			c.tokens[name] = text
		}
	}
	c.tokens["wrong"], _ = access.Draw(time.Time{})
	time.Sleep(shortly)
	store, err := credentials.Open(credentials.Files{CA: c.file("ca.pem")}, func(error) {})
	if err != nil {
		return err
	}
	c.store, c.client = store, store.Client()
	if c.Honest, err = c.Dial(ctx, c.tokens["right"]); err != nil {
		return err
	}
	_, err = jobs.PostOne(ctx, c.Honest, Posting())
	return err
}

// Dial opens a client that calls with a token. Close it.
func (c *Cluster) Dial(ctx context.Context, token string) (*raftboard.Client, error) {
	return raftboard.Open(ctx, raftboard.Options{Endpoints: c.Endpoints(), Credentials: c.store, Token: token})
}

// Admit makes a principal with one grant, and returns its token.
func (c *Cluster) Admit(ctx context.Context, principal string, grant access.Grant) (token string, err error) {
	if err := c.Operator.SavePrincipal(ctx, access.Principal{Name: principal, Grants: []access.Grant{grant}}); err != nil {
		return "", err
	}
	text, drawn := access.Draw(time.Time{})
	return text, c.Operator.AddAccessToken(ctx, principal, drawn)
}

// Posting is a job that no conductor runs.
func Posting() jobs.Posting {
	return jobs.Posting{ID: jobs.NewJobID(), Board: Board, Name: "order", Kind: "none"}
}

// node returns the nodes in turn.
func (c *Cluster) node(n int) *local.Node { return c.Nodes[n%len(c.Nodes)] }

// errIn marks a successful attack.
func errIn(format string, args ...any) error { return fmt.Errorf("it got in: "+format, args...) }
