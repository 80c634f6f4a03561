package node_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
	"github.com/conductord/conductord/raftboard/wire"
)

// paper is a certificate, described by the properties that matter for a decision.
type paper struct {
	name      string // common name, and the node in its URI
	kind      string // key of kinds
	cluster   string // cluster in its URI
	authority *authority
}

// kinds are the kinds of certificates, by their URIs and usages.
var kinds = map[string]struct {
	uris   int
	usages []x509.ExtKeyUsage
}{
	"node":              {1, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}},
	"node, client only": {1, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	"node, server only": {1, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
	"node, any usage":   {1, []x509.ExtKeyUsage{x509.ExtKeyUsageAny}},
	"two nodes":         {2, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}},
	"client":            {0, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	"server":            {0, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
}

// pair makes the certificate.
func (p *paper) pair(t *testing.T) tls.Certificate {
	t.Helper()
	authority, err := tls.X509KeyPair(p.authority.made.Cert, p.authority.made.Key)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: p.name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: kinds[p.kind].usages,
	}
	for _, name := range []string{p.name, "n1"}[:kinds[p.kind].uris] {
		template.URIs = append(template.URIs, &url.URL{Scheme: "conductord", Host: p.cluster, Path: "/" + name})
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// verdict is how the ports of cluster "test" must treat a certificate: "node", "client", "nobody",
// or "" if the TLS handshake fails.
func (p *paper) verdict(ours *authority, members ...string) string {
	kind := kinds[p.kind]
	anyUsage := slices.Contains(kind.usages, x509.ExtKeyUsageAny)
	switch {
	case p.authority != ours || !anyUsage && !slices.Contains(kind.usages, x509.ExtKeyUsageClientAuth):
		return ""
	case kind.uris == 0:
		return "client"
	case p.kind == "node" && p.cluster == "test" && slices.Contains(members, p.name):
		return "node"
	}
	return "nobody"
}

// uses are the ways to show a certificate, each with the allowed answers per verdict. A use returns
// the recognised caller; empty: refused, with the reason.
var uses = map[string]struct {
	try  func(c *papers, p *paper, pair tls.Certificate, at int) (who, why string)
	want func(p *paper, verdict string) string
}{
	"the API": {
		func(c *papers, _ *paper, pair tls.Certificate, at int) (string, string) {
			return c.whoAmI(pair, at, nil)
		},
		func(p *paper, verdict string) string {
			return map[string]string{"node": "node/" + p.name, "client": p.name}[verdict]
		},
	},
	"the API, for another caller": {
		func(c *papers, _ *paper, pair tls.Certificate, at int) (string, string) {
			return c.whoAmI(pair, at, http.Header{wire.HeaderPrincipal: {"ann"}, wire.HeaderHops: {"1"}})
		},
		func(p *paper, verdict string) string {
			return map[string]string{"node": "ann", "client": p.name}[verdict]
		},
	},
	"the raft port": {
		func(c *papers, p *paper, pair tls.Certificate, at int) (string, string) {
			conn, why := c.greet(pair, at, c.hello(p.name), transport.PurposeProbe)
			if conn == nil {
				return "", why
			}
			_ = conn.Close()
			return p.name, ""
		},
		func(p *paper, verdict string) string { return map[string]string{"node": p.name}[verdict] },
	},
	"a message of raft": {
		func(c *papers, p *paper, pair tls.Certificate, at int) (string, string) {
			conn, why := c.greet(pair, at, c.hello(p.name), transport.PurposeRaft)
			if conn == nil {
				return "", why
			}
			defer conn.Close()
			if _, err := c.append(conn, c.hello(p.name), &raft.AppendEntriesRequest{}); err != nil { // of an old term, so it changes nothing
				return "", err.Error()
			}
			return p.name, ""
		},
		func(p *paper, verdict string) string { return map[string]string{"node": p.name}[verdict] },
	},
}

// papers is a guarded cluster to which certificates are shown. n4 was a member of it.
type papers struct {
	*tenants
	hellos map[string]transport.Hello // of members, and of the removed member
}

func newPapers(t *testing.T, adjust ...func(*node.Options)) *papers {
	c := &papers{tenants: newTenants(t, 4, adjust...), hellos: map[string]transport.Hello{}}
	for _, running := range c.nodes {
		hello := node.HelloOf(running)
		c.hellos[hello.Name] = hello
	}
	c.stop(3)
	return c
}

// hello is the hello of a node with a name.
func (c *papers) hello(name string) transport.Hello {
	hello, member := c.hellos[name]
	if !member {
		hello = c.hellos["n1"]
		hello.Name, hello.Instance, hello.Run = name, uuid.New(), uuid.New()
	}
	return hello
}

// whoAmI returns the name by which the API knows a caller.
func (c *papers) whoAmI(pair tls.Certificate, at int, header http.Header) (who, why string) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "https://"+c.options[0].Members[at].API+wire.Prefix+"AccessService/WhoAmI", strings.NewReader("{}"))
	if err != nil {
		c.t.Fatal(err)
	}
	if header != nil {
		request.Header = header.Clone()
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return "", err.Error()
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	var told struct{ Name string }
	if err != nil || answer.StatusCode != http.StatusOK || json.Unmarshal(said, &told) != nil {
		return "", fmt.Sprintf("%s %s %v", answer.Status, said, err)
	}
	return told.Name, ""
}

// greet opens a connection to the raft port; nil: refused, with the reason.
func (c *papers) greet(pair tls.Certificate, at int, hello transport.Hello, purpose transport.Purpose) (net.Conn, string) {
	c.t.Helper()
	conn := tls.Client(dialRaft(c.t, c.options[0].Members[at].Raft), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
	welcome, err := transport.Greet(conn, purpose, hello)
	if err != nil || welcome.Refusal != "" {
		_ = conn.Close()
		return nil, fmt.Sprint(welcome.Refusal, err)
	}
	return conn, ""
}

// onlyConn gives a raft transport an existing connection.
type onlyConn struct {
	net.Listener
	conn net.Conn
}

func (o onlyConn) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) { return o.conn, nil }

// append sends a raft message under the name of a node, and returns the answer.
func (c *papers) append(conn net.Conn, from transport.Hello, request *raft.AppendEntriesRequest) (raft.AppendEntriesResponse, error) {
	c.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	sender := raft.NewNetworkTransport(onlyConn{listener, conn}, 1, patience, io.Discard)
	defer sender.Close()
	request.RPCHeader = raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(from.ID()), Addr: []byte(string(from.ID()) + "@127.0.0.1:1,127.0.0.1:2")}
	var answer raft.AppendEntriesResponse
	err = sender.AppendEntries("", "", request, &answer)
	return answer, err
}

// TestCertificates shows every kind of certificate in every use, over TLS: all combinations of
// kinds, clusters, authorities and memberships. Each name is also the name of a principal. Promise
// 7.
func TestCertificates(t *testing.T) {
	t.Parallel()
	c := newPapers(t)
	other := newAuthority(t)
	if _, err := c.operator.RemoveMember(t.Context(), "n4"); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{"n2": "a member", "n4": "removed", "ghost": "never a member", "ann": "a principal"}
	for name := range names {
		if err := c.operator.SavePrincipal(t.Context(), access.Principal{Name: name, Grants: []access.Grant{{Role: access.Viewer, Boards: "x"}}}); err != nil {
			t.Fatal(err)
		}
	}
	same(t, c.cluster) // all nodes know the principals
	shown, tries := map[string]int{}, 0
	for name, membership := range names {
		for kind := range kinds {
			for _, cluster := range []string{"test", "others"} {
				for _, issuer := range []*authority{c.authority, other} {
					p := &paper{name, kind, cluster, issuer}
					verdict, pair := p.verdict(c.authority, "n1", "n2", "n3"), p.pair(t)
					shown[verdict]++
					for use, row := range uses {
						at := tries % 3
						tries++
						who, why := row.try(c, p, pair, at)
						if want := row.want(p, verdict); who != want {
							t.Errorf("%s of %s (%s) in cluster %s, our authority %t, at %s of n%d: it is %q (%s), want %q",
								kind, name, membership, cluster, issuer == c.authority, use, at+1, who, why, want)
						}
						if verdict == "nobody" && strings.HasPrefix(use, "the API") && (!strings.HasPrefix(why, "401") || !strings.Contains(why, name)) {
							t.Errorf("%s of %s in cluster %s is refused with %s", kind, name, cluster, why)
						}
					}
				}
			}
		}
	}
	t.Logf("certificates shown, by verdict: %v", shown)
	if shown["node"] != 1 || shown["client"] != 8 || shown["nobody"] != 31 || shown[""] != 72 {
		t.Error("the table lacks rows")
	}
}

// Messages of a removed node on earlier connections are ignored: no member follows it, and no
// member's log has its entries. Promise 7: no message creates another leader.
func TestRemovedMemberIsHeardNoMore(t *testing.T) {
	t.Parallel()
	c := newPapers(t)
	pair := (&paper{"n4", "node", "test", c.authority}).pair(t)
	hello := c.hello("n4")
	var conns, questions []net.Conn
	for at := range 3 {
		for purpose, all := range map[transport.Purpose]*[]net.Conn{transport.PurposeRaft: &conns, transport.PurposeStanding: &questions} {
			conn, why := c.greet(pair, at, hello, purpose)
			if conn == nil {
				t.Fatal(why)
			}
			*all = append(*all, conn)
		}
		if _, err := c.append(conns[at], hello, &raft.AppendEntriesRequest{}); err != nil {
			t.Fatalf("a member is not heard: %v", err)
		}
	}
	if _, err := c.operator.RemoveMember(t.Context(), "n4"); err != nil {
		t.Fatal(err)
	}
	removed := time.Now()
	for at, conn := range append(conns, questions...) {
		_, err := conn.Read(make([]byte, 1))
		if slow := net.Error(nil); err == nil || errors.As(err, &slow) && slow.Timeout() {
			t.Errorf("connection %d to n%d continues: %v", at, at%3+1, err)
		}
	}
	if took := time.Since(removed); took > 10*time.Second { // a second on an idle machine
		t.Errorf("the members closed the connections after %v", took)
	}
	data, err := command.EncodeEntry(&conductordv1.Entry{TimeUnixNano: time.Now().UnixNano(), Commands: []*conductordv1.Command{{Kind: &conductordv1.Command_SavePrincipal{
		SavePrincipal: &conductordv1.SavePrincipalCommand{Name: "intruder", Grants: []*conductordv1.Grant{{Role: "administrator", Boards: "*"}}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	for at, conn := range conns {
		behind := node.Raft(c.nodes[at])
		last, term := behind.LastIndex(), behind.CurrentTerm()
		answer, err := c.append(conn, hello, &raft.AppendEntriesRequest{
			Term: term + 3, PrevLogEntry: last, PrevLogTerm: term, Entries: []*raft.Log{{Index: last + 1, Term: term + 3, Type: raft.LogCommand, Data: data}}, LeaderCommitIndex: last + 1,
		})
		if err == nil {
			t.Errorf("n%d answers a message of raft of a node that was removed: %+v", at+1, answer)
		}
	}
	page, err := c.operator.Principals(t.Context(), "")
	if err != nil || slices.ContainsFunc(page.Items, func(p access.Principal) bool { return p.Name == "intruder" }) {
		t.Errorf("principals: %+v, %v", page.Items, err)
	}
	same(t, c.cluster)
}

// A removed member loses its connections to the API at its next call, because connections of
// members have no limits.
func TestConnectionOfARemovedMemberEnds(t *testing.T) {
	t.Parallel()
	c := newPapers(t)
	pair := (&paper{"n4", "node", "test", c.authority}).pair(t)
	secure := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}
	opened := 0
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: true, DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		opened++
		secure := secure.Clone()
		secure.NextProtos = []string{"h2"}
		return (&tls.Dialer{Config: secure}).DialContext(ctx, network, address)
	}}}
	t.Cleanup(client.CloseIdleConnections)
	call := func(want int) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+c.options[0].Members[0].API+wire.Prefix+"AccessService/WhoAmI", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != want {
			t.Fatalf("the answer is %s, %v, want %d", answer.Status, err, want)
		}
	}
	call(http.StatusOK)
	call(http.StatusOK)
	if opened != 1 {
		t.Fatalf("a member opened %d connections for two calls", opened)
	}
	if _, err := c.operator.RemoveMember(t.Context(), "n4"); err != nil {
		t.Fatal(err)
	}
	same(t, c.cluster)
	call(http.StatusUnauthorized)
	eventually(t, "the next call needs another connection", func() bool {
		call(http.StatusUnauthorized)
		return opened > 1
	})
}

// A node that was never a member leads no member, even without another leader.
func TestStrangerLeadsNobody(t *testing.T) {
	t.Parallel()
	c := newPapers(t)
	pair := (&paper{"ghost", "node", "test", c.authority}).pair(t)
	c.stop(2)
	c.stop(1) // n1 is alone, and has no leader
	eventually(t, "n1 has no leader", func() bool { return !c.nodes[0].Leading() && leaderOf(c.nodes[0]) == "" })
	conn, why := c.greet(pair, 0, c.hello("ghost"), transport.PurposeRaft)
	if conn != nil || !strings.Contains(why, "not a member") {
		t.Errorf("a node that was never a member may speak raft to n1, which has no leader: %q", why)
	}
	if conn == nil {
		return
	}
	answer, err := c.append(conn, c.hello("ghost"), &raft.AppendEntriesRequest{Term: node.Raft(c.nodes[0]).CurrentTerm() + 3})
	t.Errorf("it leads n1: %+v, %v, and n1 follows %q", answer, err, leaderOf(c.nodes[0]))
}

// leaderOf is raft's id of the leader that a node follows; empty: none.
func leaderOf(n *node.Node) raft.ServerID {
	_, id := node.Raft(n).LeaderWithID()
	return id
}

// A node that was away while another one joined and became the leader accepts it: the members that
// it knows confirm that the new one is a member.
func TestNewLeaderIsVouchedFor(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	c := newChanging(t, 3, 4, withTLS(a))
	client, err := secureClient(t, c.cluster, credentials.Files{CA: a.dir + "/ca.pem"})
	if err != nil {
		t.Fatal(err)
	}
	posted(t, client)
	c.stop(0)
	if err := c.join(client, 3, membership.Join{}); err != nil {
		t.Fatal(err)
	}
	c.awaitMembers("n1 n2 n3 n4", "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := client.TransferLeader(ctx, "n4"); err != nil {
		t.Fatal(err)
	}
	c.options[0].Init = false
	c.start(0)
	c.ready()
	if leader := leaderOf(c.nodes[0]); !strings.HasPrefix(string(leader), "n4.") {
		t.Errorf("n1 follows %q", leader)
	}
	same(t, c.cluster)
}
