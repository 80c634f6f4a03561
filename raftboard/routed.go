package raftboard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/topology"
)

// Routed has a Client for each used cluster of a topology. The clients share nothing: a cluster
// that is down delays calls to its own boards by their patience, and does not affect others. All
// methods may be called concurrently.
type Routed struct {
	source  *topology.Source
	options Options

	mu      sync.Mutex
	clients map[string]*Client // by the cluster's name
	closed  bool
}

// OpenRouted makes no connection yet. The options apply to each client; the topology supplies the
// endpoints. Close it after use.
func OpenRouted(source *topology.Source, options Options) (*Routed, error) {
	if len(options.Endpoints) > 0 {
		return nil, fmt.Errorf("cannot open clients: %w", &logbook.InvalidError{Field: "endpoints", Reason: "set together with a topology, which already has them"})
	}
	return &Routed{source: source, options: options, clients: map[string]*Client{}}, nil
}

// For returns the client of the cluster that has a board now. Call it again for each call,
// because boards move. Routed closes the client.
func (r *Routed) For(ctx context.Context, board string) (*Client, error) {
	return r.Client(ctx, r.source.Current().Route(board).Cluster)
}

// Client returns the client of a cluster, by its name in the topology. If no node of the cluster
// answers, the client's calls fail. Errors: ErrNotFound; ErrUnavailable if DNS does not name its
// servers; ErrInvalid for options that do not fit its servers.
func (r *Routed) Client(ctx context.Context, cluster string) (*Client, error) {
	servers, err := r.source.Servers(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("cannot find cluster %q: %w", cluster, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("cannot call cluster %q: %w: %w", cluster, jobs.ErrUnavailable, errClosed)
	}
	if open := r.clients[cluster]; open != nil {
		for _, server := range servers {
			_, address, schemed := strings.Cut(server, "://")
			if !schemed {
				address = server
			}
			open.peers.learn(address) // the topology can name other nodes than before
		}
		return open, nil
	}
	options := r.options
	options.Endpoints = servers
	made, err := newClient(options)
	if err != nil {
		return nil, fmt.Errorf("cannot call cluster %q: %w", cluster, err)
	}
	r.clients[cluster] = made
	return made, nil
}

// Post posts each posting to the cluster of its board, to all clusters in parallel. A cluster
// that does not answer causes errors for its own postings only.
func (r *Routed) Post(ctx context.Context, postings ...jobs.Posting) ([]jobs.Posted, error) {
	now, parts := r.source.Current(), map[string][]int{}
	for i := range postings {
		name := now.Route(postings[i].Board).Cluster
		parts[name] = append(parts[name], i)
	}
	posted := make([]jobs.Posted, len(postings))
	var posting sync.WaitGroup
	for name, places := range parts {
		posting.Go(func() {
			var part []jobs.Posting
			for _, place := range places {
				part = append(part, postings[place])
			}
			var answers []jobs.Posted
			client, err := r.Client(ctx, name)
			if err == nil {
				answers, err = client.Post(ctx, part...)
			}
			for i, place := range places {
				if err != nil {
					posted[place].Job.ID, posted[place].Err = postings[place].ID, fmt.Errorf("cluster %q: %w", name, err)
				} else {
					posted[place] = answers[i]
				}
			}
		})
	}
	posting.Wait()
	return posted, nil
}

// Find returns the client of the cluster that has a job. It asks all clusters in parallel: a
// record of postings would know the jobs of this process only, and none after a restart. The
// error is ErrNotFound if all clusters answer that the job does not exist. Otherwise it is the
// error of a cluster that does not answer, because that cluster may have the job.
func (r *Routed) Find(ctx context.Context, job jobs.JobID) (*Client, error) {
	ctx, cancel := context.WithCancel(ctx) // the first cluster that has it ends the other calls
	defer cancel()
	clusters := r.source.Current().Clusters
	type answer struct {
		client *Client
		err    error
	}
	answers := make(chan answer, len(clusters)) // never blocks: each cluster sends once
	for name := range clusters {
		go func() {
			client, err := r.Client(ctx, name)
			if err == nil {
				_, err = client.Job(ctx, job)
			}
			if err != nil {
				err = fmt.Errorf("cluster %q: %w", name, err)
			}
			answers <- answer{client, err}
		}()
	}
	var silent []error
	for range clusters {
		switch got := <-answers; {
		case got.err == nil:
			return got.client, nil
		case !errors.Is(got.err, jobs.ErrNotFound):
			silent = append(silent, got.err)
		}
	}
	if len(silent) > 0 {
		return nil, fmt.Errorf("cannot find job %s: the clusters that answer do not have it: %w", job, errors.Join(silent...))
	}
	return nil, fmt.Errorf("cannot find job %s in any cluster: %w", job, jobs.ErrNotFound)
}

// Close closes all clients. It may be called more than once.
func (r *Routed) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, client := range r.clients {
		client.Close()
	}
}
