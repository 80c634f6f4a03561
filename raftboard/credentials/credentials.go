// Package credentials keeps the certificate, the key and the authorities of a node or a client,
// as files, and reads them again when they have changed.
//
// A node's certificate names its cluster and the node in one URI, conductord://CLUSTER/NODE, and
// the hosts at which clients find it. It lists the usages of servers and of clients. Nodes
// identify each other by that URI, never by an address; clients identify nodes by their hosts, as
// browsers do. A client's certificate has no such URI, and has its name as the common name. A
// certificate with the URI and without both usages is neither.
//
// Guarantees: TLS 1.3 on every connection. A handshake uses the files in their state of at most a
// second before. Unusable files leave the earlier ones in use, and are reported. A key that
// others can read is refused; its group may read it if root owns it.
//
// A Store may be used concurrently.
package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// scheme is the scheme of the URI that names a node.
const scheme = "conductord"

// lookInterval is the interval of checks of the files, while there are handshakes.
const lookInterval = time.Second

// Files are PEM files. A client can have only authorities; a node has all three files.
type Files struct {
	CA   string // authorities of the other certificates
	Cert string // this program's certificate, with intermediate certificates
	Key  string // this program's private key
}

// Empty reports whether there are no files at all.
func (f Files) Empty() bool { return f == Files{} }

// Validate returns an error unless the files are complete for a node or a client.
func (f Files) Validate() error {
	switch {
	case f.CA == "":
		return errors.New("the file of the authorities (ca) is missing")
	case (f.Cert == "") != (f.Key == ""):
		return errors.New("either the certificate (cert) or its key (key) is missing: set both, or neither")
	}
	return nil
}

// Store has the content of the files.
type Store struct {
	files  Files
	failed func(error)

	mu      sync.Mutex // guards the fields below
	looked  time.Time
	tried   [3]stamp // of the files that were read last, valid or not
	roots   *x509.CertPool
	own     *tls.Certificate // nil: none
	expires time.Time        // earliest expiry of the certificates in the files
}

// stamp distinguishes a file from its replacement.
type stamp struct {
	changed time.Time
	size    int64
}

// Open reads the files. failed is called when they have changed and are invalid.
func Open(files Files, failed func(error)) (*Store, error) {
	if err := files.Validate(); err != nil {
		return nil, err
	}
	s := &Store{files: files, failed: failed}
	stamps, err := s.stampsNow()
	if err == nil {
		err = s.load(stamps)
	}
	if err != nil {
		return nil, err
	}
	s.looked = time.Now()
	return s, nil
}

func (s *Store) paths() []string { return []string{s.files.CA, s.files.Cert, s.files.Key} }

func (s *Store) stampsNow() (now [3]stamp, err error) {
	for i, path := range s.paths() {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return now, err
		}
		now[i] = stamp{info.ModTime(), info.Size()}
	}
	return now, nil
}

// load reads all files.
func (s *Store) load(stamps [3]stamp) error {
	s.tried = stamps
	authorities, err := os.ReadFile(s.files.CA)
	if err != nil {
		return err
	}
	roots, err := parseCertificates(authorities)
	if err != nil {
		return fmt.Errorf("cannot use the authorities in %s: %w", s.files.CA, err)
	}
	pool := x509.NewCertPool()
	for _, root := range roots {
		pool.AddCert(root)
	}
	own, expires, err := s.loadOwn()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if expires.IsZero() || root.NotAfter.Before(expires) {
			expires = root.NotAfter
		}
	}
	s.roots, s.own, s.expires = pool, own, expires
	return nil
}

func (s *Store) loadOwn() (own *tls.Certificate, expires time.Time, err error) {
	if s.files.Cert == "" {
		return nil, expires, nil
	}
	key, err := os.Stat(s.files.Key)
	if err != nil {
		return nil, expires, err
	}
	if mode := key.Mode().Perm(); mode&0o077 != 0 && (mode&0o037 != 0 || !ofRoot(key)) {
		return nil, expires, fmt.Errorf("other users can read the key %s: its mode is %#o: run chmod 600 %s, or use mode 0640 with root as the owner",
			s.files.Key, mode, s.files.Key)
	}
	pair, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
	if err != nil {
		return nil, expires, fmt.Errorf("cannot use certificate %s with key %s: %w", s.files.Cert, s.files.Key, err)
	}
	return &pair, pair.Leaf.NotAfter, nil
}

// current returns the authorities and the certificate. It reads them again if the files have
// changed.
func (s *Store) current() (*x509.CertPool, *tls.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) >= lookInterval {
		s.looked = time.Now()
		stamps, err := s.stampsNow()
		if err == nil && stamps != s.tried {
			err = s.load(stamps)
		}
		if err != nil {
			s.failed(fmt.Errorf("the current certificates stay in use: %w", err))
		}
	}
	return s.roots, s.own
}

// Expires is the earliest expiry of the certificates in the files.
func (s *Store) Expires() time.Time {
	s.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expires
}

// base is a configuration whose peers are verified by the current authorities.
func (s *Store) base(verify func(tls.ConnectionState, *x509.CertPool) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// Go's own verification needs a host, which nodes do not know of each other, and takes
		// its authorities from the configuration, which cannot follow the file. VerifyConnection
		// verifies instead, on every connection.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			roots, _ := s.current()
			return verify(state, roots)
		},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			_, own := s.current()
			if own == nil {
				return nil, errors.New("there is no certificate")
			}
			return own, nil
		},
		GetClientCertificate: s.clientCertificate,
	}
}

func (s *Store) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if _, own := s.current(); own != nil {
		return own, nil
	}
	return &tls.Certificate{}, nil // none: the server decides
}

// verified verifies the certificate of the other end for a usage. It verifies a node's certificate
// for both of a node's usages, for any host.
func verified(state tls.ConnectionState, roots *x509.CertPool, usage x509.ExtKeyUsage) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the peer has no certificate")
	}
	certificate, usages := state.PeerCertificates[0], []x509.ExtKeyUsage{usage}
	if holder, err := HolderOf(certificate); err == nil && holder.Cluster != "" {
		usages = nodeUsages
	}
	between := x509.NewCertPool()
	for _, other := range state.PeerCertificates[1:] {
		between.AddCert(other)
	}
	for _, usage := range usages { // one at a time, because a list means any of them
		options := x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}}
		if _, err := certificate.Verify(options); err != nil {
			return err
		}
	}
	return nil
}

// Client is the configuration for one connection to the API of a node, which is identified by its
// host. It has the current authorities, so a long-lived program makes one for each connection.
func (s *Store) Client(protocols ...string) *tls.Config {
	roots, _ := s.current()
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, GetClientCertificate: s.clientCertificate, NextProtos: protocols}
}

// API is the configuration of the API port. A client's certificate is verified; with required,
// the client must have one.
func (s *Store) API(required bool) *tls.Config {
	config := s.base(func(state tls.ConnectionState, roots *x509.CertPool) error {
		if len(state.PeerCertificates) == 0 && !required {
			return nil
		}
		return verified(state, roots, x509.ExtKeyUsageClientAuth)
	})
	config.ClientAuth, config.NextProtos = tls.RequestClientCert, []string{"h2", "http/1.1"}
	return config
}

// Members is the configuration for connections from a node to the nodes of its cluster, at either
// port.
func (s *Store) Members(cluster string) *tls.Config {
	return s.base(func(state tls.ConnectionState, roots *x509.CertPool) error {
		if err := verified(state, roots, x509.ExtKeyUsageServerAuth); err != nil {
			return err
		}
		return ofCluster(state, cluster)
	})
}

// Raft is the configuration of the raft port, which accepts only nodes of the cluster.
func (s *Store) Raft(cluster string) *tls.Config {
	config := s.base(func(state tls.ConnectionState, roots *x509.CertPool) error {
		if err := verified(state, roots, x509.ExtKeyUsageClientAuth); err != nil {
			return err
		}
		return ofCluster(state, cluster)
	})
	config.ClientAuth = tls.RequireAnyClientCert
	return config
}

func ofCluster(state tls.ConnectionState, cluster string) error {
	holder, err := nodeOf(state.PeerCertificates[0])
	if err == nil && holder.Cluster != cluster {
		err = fmt.Errorf("its certificate is for %s, and this is cluster %q", holder, cluster)
	}
	return err
}

// Holder is the node or the client to which a certificate belongs.
type Holder struct {
	Cluster string // of a node; empty: a client
	Name    string // name of the node, or common name of the client
}

func (h Holder) String() string {
	if h.Cluster == "" {
		return fmt.Sprintf("client %q", h.Name)
	}
	return fmt.Sprintf("node %q of cluster %q", h.Name, h.Cluster)
}

// nodeUsages are the usages of a node's certificate: a node listens and dials.
var nodeUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

// HolderOf finds the holder of a verified certificate. It returns an error for a certificate with
// the URI of a node that is not a node's: such a certificate is not a client's either.
func HolderOf(certificate *x509.Certificate) (Holder, error) {
	var holder Holder
	for _, uri := range certificate.URIs {
		if uri.Scheme != scheme {
			continue
		}
		another := Holder{uri.Host, strings.TrimPrefix(uri.Path, "/")}
		if another.Cluster == "" || another.Name == "" {
			return Holder{}, fmt.Errorf("its certificate has the URI %.128q, and the URI of a node has the form %s", uri, NodeURI("CLUSTER", "NODE"))
		}
		if holder != (Holder{}) {
			return Holder{}, fmt.Errorf("its certificate contains %s and %s, and a certificate of a node contains one node", holder, another)
		}
		holder = another
	}
	if holder == (Holder{}) {
		return Holder{Name: certificate.Subject.CommonName}, nil
	}
	for _, usage := range nodeUsages {
		if !slices.Contains(certificate.ExtKeyUsage, usage) {
			return Holder{}, fmt.Errorf("its certificate has the URI of %s, but not both usages, server and client", holder)
		}
	}
	return holder, nil
}

// nodeOf finds the node that holds a certificate.
func nodeOf(certificate *x509.Certificate) (Holder, error) {
	holder, err := HolderOf(certificate)
	if err == nil && holder.Cluster == "" {
		err = fmt.Errorf("its certificate is not for a node: it has no URI of the form %s", NodeURI("CLUSTER", "NODE"))
	}
	return holder, err
}

// NodeURI is the URI in a node's certificate.
func NodeURI(cluster, node string) *url.URL {
	return &url.URL{Scheme: scheme, Host: cluster, Path: "/" + node}
}

// CheckName returns an error unless the certificate on a connection names the node.
func CheckName(conn net.Conn, node string) error {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return errors.New("internal error: a connection without TLS")
	}
	peers := secure.ConnectionState().PeerCertificates
	if len(peers) == 0 {
		return errors.New("the peer has no certificate")
	}
	holder, err := nodeOf(peers[0])
	if err == nil && holder.Name != node {
		err = fmt.Errorf("it claims to be node %q, and its certificate is for node %q", node, holder.Name)
	}
	return err
}

// Check returns an error unless the store's own certificate names the node of the cluster.
func (s *Store) Check(cluster, node string) error {
	_, own := s.current()
	if own == nil {
		return errors.New("a node needs a certificate (cert) and its key (key)")
	}
	holder, err := nodeOf(own.Leaf)
	if here := (Holder{cluster, node}); err == nil && holder != here {
		err = fmt.Errorf("the certificate %s is for %s, and this is %s", s.files.Cert, holder, here)
	}
	return err
}

// maxToken bounds the file of a token, in bytes.
const maxToken = 16 << 10

// ReadToken reads an access token from a file. It refuses a file that other users can read.
func ReadToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return "", fmt.Errorf("cannot use the token in %s: other users can read it: its mode is %#o: run chmod 600 %s", path, mode, path)
	}
	if info.Size() > maxToken {
		return "", fmt.Errorf("cannot use %s: a token has at most %d bytes, and this file has %d", path, maxToken, info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
