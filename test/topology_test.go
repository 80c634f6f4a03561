package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/topology"
)

// federation is clusters of one node each. Each node has its own topology file.
type federation struct {
	t        *testing.T
	names    []string
	clusters map[string]*local.Cluster
	files    map[string]string // by cluster
}

// startFederation starts clusters with the rules of a topology.
func startFederation(t *testing.T, rules string, names ...string) *federation {
	t.Helper()
	return startFederationOf(t, rules, func(*config.Config) {}, names...)
}

func startFederationOf(t *testing.T, rules string, configure func(*config.Config), names ...string) *federation {
	t.Helper()
	f := &federation{t: t, names: names, clusters: map[string]*local.Cluster{}, files: map[string]string{}}
	for _, name := range names {
		f.files[name] = filepath.Join(t.TempDir(), name+".toml")
		f.clusters[name] = newClusterOf(t, 1, func(c *config.Config) {
			c.Cluster.ID, c.Topology.File, c.Conductor.Enabled = name, f.files[name], false
			configure(c)
		})
	}
	f.write(rules, names...)
	for _, name := range names {
		if err := f.clusters[name].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		if err := f.clusters[name].WaitReady(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// write gives the nodes of some clusters a topology file.
func (f *federation) write(rules string, to ...string) {
	f.t.Helper()
	text := "default = \"" + f.names[0] + "\"\n"
	for _, name := range f.names {
		text += fmt.Sprintf("[clusters.%s]\nservers = [%q]\n", name, f.clusters[name].Nodes[0].API)
	}
	for _, name := range to {
		if err := os.WriteFile(f.files[name], []byte(text+"[boards]\n"+rules), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
}

// source follows the file of a cluster.
func (f *federation) source(of string) *topology.Source {
	f.t.Helper()
	source, err := topology.Open(topology.Options{File: f.files[of]})
	if err != nil {
		f.t.Fatal(err)
	}
	return source
}

// dial is a client of one cluster that knows no topology.
func (f *federation) dial(name string) *raftboard.Client {
	f.t.Helper()
	client, err := raftboard.Open(within(f.t), raftboard.Options{Endpoints: f.clusters[name].Endpoints(), Patience: 3 * time.Second})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(client.Close)
	return client
}

func (f *federation) routed(of string) *raftboard.Routed {
	f.t.Helper()
	routed, err := raftboard.OpenRouted(f.source(of), raftboard.Options{Patience: 3 * time.Second})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(routed.Close)
	return routed
}

func postingTo(board string) jobs.Posting {
	return jobs.Posting{ID: jobs.NewJobID(), Board: board, Kind: "test", Name: "test"}
}

// verdict is the error of a single posting.
func verdict(posted []jobs.Posted, err error) error {
	if err != nil {
		return err
	}
	return posted[0].Err
}

// allJobs counts the jobs of a cluster, by id.
func allJobs(t *testing.T, client *raftboard.Client) map[jobs.JobID]string {
	t.Helper()
	found := map[jobs.JobID]string{}
	for after := ""; ; {
		page, err := client.Jobs(within(t), jobs.Query{After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range page.Items {
			found[job.ID] = job.Board
		}
		if after = page.Next; after == "" {
			return found
		}
	}
}

// TestPostingsAreForwarded posts to a family of boards through every node, twice, and finds each
// job once, in the cluster of its board. Then one cluster is down.
func TestPostingsAreForwarded(t *testing.T) {
	t.Parallel()
	f := startFederation(t, `"events/*" = ["a", "b", "c"]`, "a", "b", "c")
	now := f.source("a").Current()
	const all, each = 600, 50
	posted := map[jobs.JobID]string{}
	for i := 0; i < all; i += each {
		var postings []jobs.Posting
		for k := range each {
			postings = append(postings, postingTo(fmt.Sprintf("events/%d", (i+k)%40)))
			posted[postings[k].ID] = now.Route(postings[k].Board).Cluster
		}
		for try := range 2 { // the repeat comes through another node
			client := f.dial(f.names[(i/each+try)%len(f.names)])
			answers, err := client.Post(within(t), postings...)
			if err != nil {
				t.Fatal(err)
			}
			for k, answer := range answers {
				if answer.Err != nil || answer.Job.ID != postings[k].ID || answer.Existed != (try == 1) {
					t.Fatalf("posting to %s, try %d: got %+v", postings[k].Board, try, answer)
				}
			}
		}
	}
	found := 0
	for _, name := range f.names {
		here := allJobs(t, f.dial(name))
		t.Logf("cluster %s has %d jobs", name, len(here))
		if len(here) < all/10 {
			t.Errorf("cluster %s has only %d of %d jobs", name, len(here), all)
		}
		for id, board := range here {
			found++
			if posted[id] != name {
				t.Errorf("job %s of board %s is in cluster %s and not in %q", id, board, name, posted[id])
			}
		}
	}
	if found != all {
		t.Errorf("found %d jobs, and %d were posted", found, all)
	}
	f.withoutCluster("c", posted)
}

// withoutCluster kills a cluster: its boards are unavailable, and other boards are not affected.
func (f *federation) withoutCluster(down string, posted map[jobs.JobID]string) {
	t, now := f.t, f.source("a").Current()
	f.clusters[down].Kill()
	routed, plain := f.routed("a"), f.dial("a")
	var mixed []jobs.Posting
	for i := range 40 {
		mixed = append(mixed, postingTo(fmt.Sprintf("events/%d", i)))
	}
	answers, err := plain.Post(within(t), mixed...)
	if err != nil {
		t.Fatal(err)
	}
	for i, answer := range answers {
		if want := now.Route(mixed[i].Board).Cluster == down; errors.Is(answer.Err, jobs.ErrUnavailable) != want || !want && answer.Err != nil {
			t.Errorf("board %s among others: got %v", mixed[i].Board, answer.Err)
		}
	}
	for i := range 40 {
		board := fmt.Sprintf("events/%d", i)
		route := now.Route(board).Cluster
		if route == down && i > 4 {
			continue // each takes the patience of a client
		}
		for _, err := range []error{verdict(plain.Post(within(t), postingTo(board))), verdict(routed.Post(within(t), postingTo(board)))} {
			if want := route == down; errors.Is(err, jobs.ErrUnavailable) != want || !want && err != nil {
				t.Errorf("board %s of cluster %s: got %v", board, route, err)
			}
		}
	}
	for id, name := range posted {
		client, err := routed.Find(within(t), id)
		if name == down {
			if !errors.Is(err, jobs.ErrUnavailable) {
				t.Errorf("a job of the cluster that is down: got %v", err)
			}
			continue
		}
		if err != nil {
			t.Errorf("job %s of cluster %s: %v", id, name, err)
		} else if job, err := client.Job(within(t), id); err != nil || job.ID != id {
			t.Errorf("job %s of cluster %s: got %v, %v", id, name, job.ID, err)
		}
		break
	}
}

// TestDifferentTopologiesDoNotLoop: two nodes that each treat the other as the owner of a board
// refuse its postings. Other calls name the right cluster.
func TestDifferentTopologiesDoNotLoop(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f := startFederation(t, `"mail" = "b"`, "a", "b")
	client := f.dial("a")
	for _, err := range []error{
		second(client.BoardStatus(within(t), "mail")), second(client.Jobs(within(t), jobs.Query{Board: "mail"})),
	} {
		if !errors.Is(err, jobs.ErrWrongCluster) || !strings.Contains(err.Error(), f.clusters["b"].Nodes[0].API) {
			t.Errorf("a call about a board elsewhere: got %v, want %v and the servers of b", err, jobs.ErrWrongCluster)
		}
	}
	f.write(`"mail" = "a"`, "b")
	ours, theirs := f.source("a").Current().Digest(), f.source("b").Current().Digest()
	f.awaitDigest("b", theirs)
	err := verdict(client.Post(within(t), postingTo("mail")))
	if !errors.Is(err, jobs.ErrWrongCluster) || !strings.Contains(err.Error(), ours) || !strings.Contains(err.Error(), theirs) {
		t.Errorf("got %v, want %v with the digests %s and %s", err, jobs.ErrWrongCluster, ours, theirs)
	}
	for _, name := range f.names {
		if got := allJobs(t, f.dial(name)); len(got) != 0 {
			t.Errorf("cluster %s has %v", name, got)
		}
	}
}

// second is the error of a call.
func second[T any](_ T, err error) error { return err }

// awaitDigest waits until the node of a cluster uses a topology.
func (f *federation) awaitDigest(name, digest string) {
	f.t.Helper()
	ctx, client := within(f.t), f.dial(name)
	for {
		status, err := client.Status(ctx, f.clusters[name].Nodes[0].API)
		switch {
		case err == nil && status.TopologyDigest == digest && status.TopologyCluster == name:
			return
		case ctx.Err() != nil:
			f.t.Fatalf("the node of %s has topology %q of cluster %q, %v", name, status.TopologyDigest, status.TopologyCluster, err)
		}
	}
}

// TestBoardChangesClusters follows docs/topology.md while jobs are posted.
func TestBoardChangesClusters(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f := startFederation(t, `"mail" = "a"`, "a", "b")
	before, after := f.dial("a"), f.dial("b")
	var ids []jobs.JobID
	post := func(through *raftboard.Client) {
		t.Helper()
		posting := postingTo("mail")
		if err := verdict(through.Post(within(t), posting)); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, posting.ID)
	}
	post(before)
	post(after) // forwarded to a
	if err := after.CreateBoard(within(t), "mail"); err != nil {
		t.Fatal(err)
	}
	if err := after.PauseBoard(within(t), jobs.BoardCommand{Board: "mail", Reason: "moving here"}); err != nil {
		t.Fatal(err)
	}
	f.write(`"mail" = "b"`, "a", "b")
	digest := f.source("a").Current().Digest()
	f.awaitDigest("a", digest)
	f.awaitDigest("b", digest)
	post(before) // forwarded to b
	post(after)
	if got := take(t, after); len(got) != 0 {
		t.Errorf("the paused board gives %v", got)
	}
	done := take(t, before)
	if err := after.ResumeBoard(within(t), jobs.BoardCommand{Board: "mail"}); err != nil {
		t.Fatal(err)
	}
	done = append(done, take(t, after)...)
	if fmt.Sprint(done) != fmt.Sprint(ids) {
		t.Errorf("done were %v, and posted %v", done, ids)
	}
	if _, err := before.BoardStatus(within(t), "mail"); err != nil {
		t.Errorf("the old cluster does not answer for its finished jobs: %v", err)
	}
}

// take claims and consumes the jobs of the board mail until none is left.
func take(t *testing.T, client *raftboard.Client) (done []jobs.JobID) {
	t.Helper()
	ctx := within(t)
	session, err := client.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "test", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.CloseSession(context.WithoutCancel(ctx), session.ID) }()
	for {
		claimed, err := client.ClaimNext(ctx, jobs.ClaimRequest{Session: session.ID, Nonce: jobs.NewNonce(), Boards: []string{"mail"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(claimed) == 0 {
			return done
		}
		if err := client.Consume(ctx, jobs.Ending{Outcome: jobs.OutcomeSuccess, Job: claimed[0].Job.ID, Token: claimed[0].Job.Token}); err != nil {
			t.Fatal(err)
		}
		done = append(done, claimed[0].Job.ID)
	}
}
