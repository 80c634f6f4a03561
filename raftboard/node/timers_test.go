package node_test

import (
	"slices"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
)

// TestManySessionsVanish: many sessions with the maximum number of claims vanish together. All are
// expired as fast as a single session, in several rounds.
func TestManySessionsVanish(t *testing.T) {
	t.Parallel()
	const sessions = 12
	c := newCluster(t, 1).startAll()
	client := c.client()
	var postings []jobs.Posting
	for range sessions * jobs.MaxClaims {
		postings = append(postings, jobs.Posting{Name: "job", Kind: "k"})
	}
	for chunk := range slices.Chunk(postings, 1_000) {
		if _, err := client.Post(t.Context(), chunk...); err != nil {
			t.Fatal(err)
		}
	}
	var last jobs.SessionID
	for range sessions {
		last = opened(t, client, 5*time.Second)
		request := jobs.ClaimRequest{Session: last, Nonce: jobs.NewNonce(), Kinds: []string{"k"}, Max: jobs.MaxClaims}
		if claimed, err := client.ClaimNext(t.Context(), request); err != nil || len(claimed) != jobs.MaxClaims {
			t.Fatalf("%d jobs are claimed: %v", len(claimed), err)
		}
	}
	lapse(t, client)(last)
	eventually(t, "all are expired", func() bool {
		left, err := client.Sessions(t.Context())
		return err == nil && len(left) == 0
	})
}
