package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
)

const (
	// lookInterval is the interval of checks of the file, while it is used.
	lookInterval = time.Second
	// freshTime is the time for which a DNS answer is used without another query. staleTime is the
	// time for which it is used while DNS does not answer.
	freshTime = 30 * time.Second
	staleTime = 10 * time.Minute
	// lookupTime limits one DNS query.
	lookupTime = 2 * time.Second
)

// Options configure a Source.
type Options struct {
	File     string
	Cluster  string        // the id of a node's own cluster, which must be in the file; empty: not required
	Resolver *net.Resolver // of SRV names; nil: the system's
	// Failed is called when the file has changed and is invalid. Nil: no call.
	Failed func(error)
}

// Source follows a file. If a changed file cannot be used, the previous topology stays in use.
// A Source may be used concurrently; slow DNS for one cluster delays only callers of that
// cluster.
type Source struct {
	options Options

	mu     sync.Mutex // guards the fields below
	looked time.Time
	tried  stamp // of the file that was read last, valid or not
	now    *Topology
	found  map[string]answer // by SRV name
}

// stamp distinguishes a file from its replacement.
type stamp struct {
	changed time.Time
	size    int64
}

// answer is an answer of DNS.
type answer struct {
	at      time.Time
	servers []string
}

// Open reads the file.
func Open(options Options) (*Source, error) {
	if options.Resolver == nil {
		options.Resolver = net.DefaultResolver
	}
	if options.Failed == nil {
		options.Failed = func(error) {}
	}
	s := &Source{options: options, found: map[string]answer{}}
	if err := s.look(); err != nil {
		return nil, err
	}
	return s, nil
}

// look reads the file if it has changed.
func (s *Source) look() error {
	s.looked = time.Now()
	info, err := os.Stat(s.options.File)
	if err != nil {
		return fmt.Errorf("cannot read the topology: %w", err)
	}
	now := stamp{info.ModTime(), info.Size()}
	if now == s.tried {
		return nil
	}
	s.tried = now
	if info.Size() > MaxBytes {
		return fmt.Errorf("cannot use the topology in %s: it has %d bytes; the limit is %d", s.options.File, info.Size(), MaxBytes)
	}
	text, err := os.ReadFile(s.options.File)
	if err != nil {
		return fmt.Errorf("cannot read the topology: %w", err)
	}
	read, err := Parse(text)
	if err != nil {
		return fmt.Errorf("cannot use the topology in %s:\n%w", s.options.File, err)
	}
	if _, here := read.NameOf(s.options.Cluster); !here && s.options.Cluster != "" {
		return fmt.Errorf("cannot use the topology in %s: no cluster has this node's cluster id %q", s.options.File, s.options.Cluster)
	}
	s.now = read
	return nil
}

// Current is the topology, at most a second old.
func (s *Source) Current() *Topology {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) >= lookInterval {
		if err := s.look(); err != nil {
			s.options.Failed(fmt.Errorf("the current topology stays in use: %w", err))
		}
	}
	return s.now
}

// Servers returns the addresses of a cluster: from the file, or from its SRV name, by priority
// and weight. ErrUnavailable if DNS has not answered for longer than staleTime.
func (s *Source) Servers(ctx context.Context, name string) ([]string, error) {
	cluster, known := s.Current().Clusters[name]
	if !known {
		return nil, fmt.Errorf("there is no cluster %.64q in the topology: %w", name, jobs.ErrNotFound)
	}
	if cluster.SRV == "" {
		return cluster.Servers, nil
	}
	s.mu.Lock()
	before := s.found[cluster.SRV]
	s.mu.Unlock()
	if time.Since(before.at) < freshTime {
		return before.servers, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	_, records, err := s.options.Resolver.LookupSRV(ctx, "", "", cluster.SRV)
	now := answer{at: time.Now()}
	for _, record := range records[:min(len(records), MaxServers)] {
		if host := strings.TrimSuffix(record.Target, "."); host != "" { // otherwise the name means that there is no server
			now.servers = append(now.servers, net.JoinHostPort(host, fmt.Sprint(record.Port)))
		}
	}
	switch {
	case len(now.servers) > 0:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.found[cluster.SRV] = now
		return now.servers, nil
	case len(before.servers) > 0 && time.Since(before.at) < staleTime:
		return before.servers, nil
	}
	if err == nil {
		err = errors.New("the answer has no record with a host")
	}
	return nil, fmt.Errorf("%w: DNS names no servers of cluster %q under %s: %w", jobs.ErrUnavailable, name, cluster.SRV, err)
}
