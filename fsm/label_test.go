package fsm_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
)

// TestLabelsSuit: a claim gets exactly the jobs whose labels it offers.
func TestLabelsSuit(t *testing.T) {
	labels := []string{"a", "aa", "ab", "b", "b!", "c", "é", "z"}
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		r.ok(open("ann"))
		set := rapid.SliceOfNDistinct(rapid.SampledFrom(labels), 0, 5, rapid.ID[string])
		wanted := rapid.SliceOfN(set, 1, 20).Draw(rt, "wanted")
		offered := set.Draw(rt, "offered")
		c := &v1.PostCommand{}
		var want, got []string
		for i, labels := range wanted {
			p := posting(fmt.Sprint(i), rapid.SampledFrom([]string{"k", "l"}).Draw(rt, "kind"))
			p.Labels = labels
			c.Postings = append(c.Postings, p)
			if !slices.ContainsFunc(labels, func(label string) bool { return !slices.Contains(offered, label) }) {
				want = append(want, p.Id)
			}
		}
		r.ok(&v1.Command{Kind: &v1.Command_Post{Post: c}})
		var kinds []string
		if rapid.Bool().Draw(rt, "kinds are named") {
			kinds = []string{"k", "l"}
		}
		claim := claimNext("ann", "n", 256, nil, kinds)
		claim.GetClaimNext().Labels = offered
		for _, granted := range r.ok(claim).GetClaim().GetGranted() {
			got = append(got, granted.GetJob())
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("offered %q to %q: got %q, and %q is right", offered, wanted, got, want)
		}
	})
}

// TestForeignLabelsCostNothing: a claim does not read each set of labels that it does not offer.
func TestForeignLabelsCostNothing(t *testing.T) {
	looks := func(sets int) float64 {
		r := newRig(t)
		r.ok(open("ann"))
		for first := 0; first < sets; first += 1_000 {
			c := &v1.PostCommand{}
			for i := first; i < min(first+1_000, sets); i++ {
				for _, labels := range [][]string{{fmt.Sprint("foreign ", i)}, {"big", fmt.Sprint("foreign ", i)}, {fmt.Sprint("foreign ", i), "zone"}} {
					p := posting(fmt.Sprint(i, labels), "k")
					p.Labels = labels
					c.Postings = append(c.Postings, p)
				}
			}
			r.do(&v1.Command{Kind: &v1.Command_Post{Post: c}})
		}
		request := jobs.ClaimRequest{Session: sessionID("ann"), Nonce: jobs.NewNonce(), Kinds: []string{"k"}, Labels: []string{"big", "zone", "fast"}}
		// The minimum of several runs: a flush in the background also allocates.
		least := math.Inf(1)
		for range 10 {
			least = min(least, testing.AllocsPerRun(1, func() {
				if may, err := r.MayClaim(request); may != fsm.NothingToClaim || err != nil {
					t.Fatalf("it may claim: %d (%v)", may, err)
				}
			}))
		}
		return least
	}
	if few, many := looks(10), looks(3_000); many > 5*few {
		t.Errorf("a claim takes %.0f allocations where 30 sets of labels wait, and %.0f where 9,000 do", few, many)
	} else {
		t.Logf("%.0f and %.0f allocations", few, many)
	}
}
