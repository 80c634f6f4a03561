package node_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// authority makes certificates in a directory of the test.
type authority struct {
	t    *testing.T
	dir  string
	made credentials.Issued
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	made, err := credentials.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, dir: t.TempDir(), made: made}
	a.write("ca.pem", made.Cert)
	return a
}

func (a *authority) write(name string, data []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// files issues a certificate, and replaces an earlier one.
func (a *authority) files(subject credentials.Subject) credentials.Files {
	a.t.Helper()
	if subject.Valid == 0 {
		subject.Valid = 30 * time.Minute
	}
	made, err := credentials.Issue(a.made, subject)
	if err != nil {
		a.t.Fatal(err)
	}
	key := a.write(subject.Name+".key", made.Key)
	return credentials.Files{CA: filepath.Join(a.dir, "ca.pem"), Cert: a.write(subject.Name+".pem", made.Cert), Key: key}
}

func (a *authority) nodeFiles(name string) credentials.Files {
	return a.files(credentials.Subject{Name: name, Cluster: "test", Hosts: []string{"127.0.0.1"}})
}

func opening(t *testing.T, files credentials.Files) *credentials.Store {
	t.Helper()
	store, err := credentials.Open(files, func(err error) { t.Logf("reading certificates again: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// withTLS gives each node a certificate.
func withTLS(a *authority) func(*node.Options) {
	return func(o *node.Options) { o.Credentials = opening(a.t, a.nodeFiles(o.Name)) }
}

// secureClient dials the nodes of a cluster with TLS.
func secureClient(t *testing.T, c *cluster, files credentials.Files, which ...int) (*raftboard.Client, error) {
	t.Helper()
	endpoints := c.endpoints()
	if len(which) > 0 {
		endpoints = endpoints[which[0] : which[0]+1]
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	options := raftboard.Options{Endpoints: endpoints, Patience: 2 * time.Second, Credentials: opening(t, files)}
	client, err := raftboard.Open(ctx, options)
	if err == nil {
		t.Cleanup(client.Close)
	}
	return client, err
}

// All connections between nodes and clients work with TLS: postings by any node, long polls,
// watches, read rounds, transfers, restarts, comparisons and backups.
func TestTLSCluster(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	c := newCluster(t, 3, withTLS(a)).startAll()
	for i := range 3 { // each node forwards, or leads
		client, err := secureClient(t, c, credentials.Files{CA: filepath.Join(a.dir, "ca.pem")}, i)
		if err != nil {
			t.Fatal(err)
		}
		posted(t, client)
		if _, err := client.Jobs(t.Context(), jobs.Query{}); err != nil {
			t.Error(err)
		}
	}
	client, err := secureClient(t, c, a.files(credentials.Subject{Name: "ann"}))
	if err != nil {
		t.Fatal(err)
	}
	session := opened(t, client, time.Minute)
	granted, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Max: 1})
	if err != nil || len(granted) != 1 {
		t.Errorf("%v, %v", granted, err)
	}
	if _, err := client.TransferLeader(t.Context(), ""); err != nil {
		t.Error(err)
	}
	comparison, err := client.Verify(t.Context())
	if err != nil || len(comparison.Members) != 3 {
		t.Errorf("%+v, %v", comparison, err)
	}
	backup, err := client.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, backup); err != nil || n == 0 {
		t.Errorf("a backup of %d bytes, %v", n, err)
	}
	_ = backup.Close()
	c.stop(0)
	posted(t, client)
	c.options[0].Init = false
	c.start(0)
	c.ready()
	same(t, c)
}

// Programs without a certificate of the cluster are refused at every port, and learn nothing of it.
func TestTLSRefusesStrangers(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	c := newCluster(t, 3, withTLS(a)).startAll()
	client, err := secureClient(t, c, credentials.Files{CA: filepath.Join(a.dir, "ca.pem")})
	if err != nil {
		t.Fatal(err)
	}
	posted(t, client)
	member := c.options[0].Members[0]
	hello := node.HelloOf(c.nodes[2]) // as member n3
	hello.Run, hello.Start = uuid.New(), hello.Start+1
	files := func(f credentials.Files) *tls.Config {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
	}
	subject := credentials.Subject{Name: "n3", Cluster: "test", Hosts: []string{"127.0.0.1"}}
	expired, elsewhere, n2 := subject, subject, subject
	expired.Valid, elsewhere.Cluster, n2.Name = time.Nanosecond, "others", "n2"
	older := files(a.files(subject))
	older.MaxVersion = tls.VersionTLS12
	for name, config := range map[string]*tls.Config{
		"no TLS":                        nil,
		"no certificate":                {InsecureSkipVerify: true},
		"another authority":             files(other.files(subject)),
		"an expired certificate":        files(a.files(expired)),
		"a node of another cluster":     files(a.files(elsewhere)),
		"a client's certificate":        files(a.files(credentials.Subject{Name: "n3"})),
		"another node's certificate":    files(a.files(n2)),
		"an older TLS":                  older,
		"a half-open handshake":         nil,
		"a certificate without its key": {InsecureSkipVerify: true, Certificates: []tls.Certificate{withoutKey(t, a)}},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", member.Raft)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if name == "a half-open handshake" {
				_, _ = conn.Write([]byte{0x16, 0x03, 0x01})
				return // the cluster continues to work
			}
			if config != nil {
				conn = tls.Client(conn, config)
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			if welcome, err := transport.Greet(conn, transport.PurposeProbe, hello); err == nil {
				t.Errorf("it got in, or heard of the cluster: %+v", welcome)
			}
		})
	}
	a.nodeFiles("n3") // a new certificate for the same node
	// The same hello with the right certificate is accepted, so the table tests the certificates.
	conn, err := tls.Dial("tcp", member.Raft, files(a.files(subject)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if welcome, err := transport.Greet(conn, transport.PurposeProbe, hello); err != nil || welcome.Cluster != "test" {
		t.Errorf("a member's greeting: %+v, %v", welcome, err)
	}
	if _, err := raftboard.Open(t.Context(), raftboard.Options{Endpoints: c.endpoints(), Patience: 300 * time.Millisecond}); err == nil {
		t.Error("a client without TLS got in")
	}
	if _, err := secureClient(t, c, credentials.Files{CA: filepath.Join(other.dir, "ca.pem")}); err == nil {
		t.Error("a client trusts nodes of another authority")
	}
	if _, err := secureClient(t, c, credentials.Files{CA: filepath.Join(a.dir, "ca.pem"), Cert: filepath.Join(other.dir, "n3.pem"), Key: filepath.Join(other.dir, "n3.key")}); err == nil {
		t.Error("a client with another authority's certificate got in")
	}
	posted(t, client)
	// If clients must have certificates, a client without one is refused.
	strict := newCluster(t, 3, withTLS(a), func(o *node.Options) { o.ClientCertificates = true }).startAll()
	if _, err := secureClient(t, strict, credentials.Files{CA: filepath.Join(a.dir, "ca.pem")}); err == nil {
		t.Error("a client without a certificate got in")
	}
	for i := range 3 {
		certified, err := secureClient(t, strict, a.files(credentials.Subject{Name: "ann"}), i)
		if err != nil {
			t.Fatal(err)
		}
		posted(t, certified)
	}
	// A member is accepted at any host; clients check the host.
	moved := newCluster(t, 1, func(o *node.Options) {
		o.Credentials = opening(t, a.files(credentials.Subject{Name: o.Name, Cluster: "test", Hosts: []string{"10.9.9.9"}}))
	}).startAll()
	if _, err := secureClient(t, moved, credentials.Files{CA: filepath.Join(a.dir, "ca.pem")}); err == nil || !strings.Contains(err.Error(), "10.9.9.9") {
		t.Errorf("a client accepts a node at a host that its certificate does not name: %v", err)
	}
}

// withoutKey is a member's certificate with another key.
func withoutKey(t *testing.T, a *authority) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(a.dir, "n1.pem"), filepath.Join(a.dir, "n1.key"))
	if err != nil {
		t.Fatal(err)
	}
	made, err := credentials.Issue(a.made, credentials.Subject{Name: "thief", Valid: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	thief, err := tls.X509KeyPair(made.Cert, made.Key)
	if err != nil {
		t.Fatal(err)
	}
	pair.PrivateKey = thief.PrivateKey
	return pair
}

// A node with a certificate of another node or cluster does not start.
func TestWrongCertificates(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	for want, subject := range map[string]credentials.Subject{
		`is for node "n2" of cluster "test", and this is node "n1" of cluster "test"`:   {Name: "n2", Cluster: "test", Hosts: []string{"127.0.0.1"}},
		`is for node "n1" of cluster "others", and this is node "n1" of cluster "test"`: {Name: "n1", Cluster: "others", Hosts: []string{"127.0.0.1"}},
		"is not for a node": {Name: "n1"},
	} {
		c := newCluster(t, 1, func(o *node.Options) { o.Credentials = opening(t, a.files(subject)) })
		if opened, err := node.Open(c.options[0]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
			if err == nil {
				_ = opened.Close()
			}
		}
	}
}

// Certificates and authorities are replaced while jobs are posted: no call fails, and the nodes
// then show the new certificates. If a file is invalid, the previous certificate stays in use.
func TestCertificatesAreExchanged(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	c := newCluster(t, 3, withTLS(a)).startAll()
	ca := filepath.Join(a.dir, "ca.pem")
	client, err := secureClient(t, c, credentials.Files{CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				if _, err := jobs.PostOne(ctx, client, jobs.Posting{Name: "load", Kind: "none"}); err != nil && ctx.Err() == nil {
					t.Errorf("a post fails: %v", err)
				}
			}
		})
	}
	shown := func() *x509.Certificate {
		conn, err := tls.Dial("tcp", c.endpoints()[0], &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0]
	}
	before := shown()
	next := newAuthority(t)
	both := append(bytes.Clone(a.made.Cert), next.made.Cert...)
	a.write("ca.pem", both)
	time.Sleep(1100 * time.Millisecond) // all nodes read the authorities before they get certificates of the new one
	a.made = next.made
	for _, o := range c.options {
		a.nodeFiles(o.Name)
	}
	eventually(t, "the new certificate is shown", func() bool { return !shown().Equal(before) })
	// Every connection is new.
	for i := range 3 {
		c.stop(i)
		c.options[i].Init = false
		c.start(i)
		c.ready()
	}
	now := shown()
	a.write("n1.pem", []byte("no certificate"))
	time.Sleep(1100 * time.Millisecond)
	if !shown().Equal(now) {
		t.Error("an unusable file has changed the certificate")
	}
}

// The files must be valid when a node or a client starts.
func TestUnusableCredentials(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	good := a.nodeFiles("n1")
	open := filepath.Join(a.dir, "open.key")
	key, err := os.ReadFile(good.Key)
	if err == nil {
		err = errors.Join(os.WriteFile(open, key, 0o600), os.Chmod(open, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	garbage, _ := json.Marshal("garbage")
	for want, files := range map[string]credentials.Files{
		"authorities (ca) is missing":  {Cert: good.Cert, Key: good.Key},
		"set both, or neither":         {CA: good.CA, Cert: good.Cert},
		"other users can read the key": {CA: good.CA, Cert: good.Cert, Key: open},
		"no such file":                 {CA: good.CA, Cert: good.Cert, Key: good.Key + ".none"},
		"no PEM certificate":           {CA: a.write("garbage.pem", garbage), Cert: good.Cert, Key: good.Key},
		"cannot use certificate":       {CA: good.CA, Cert: good.Cert, Key: a.files(credentials.Subject{Name: "ann"}).Key},
	} {
		if _, err := credentials.Open(files, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
