package command_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
)

func TestNames(t *testing.T) {
	want := []string{
		"post", "post", "post", "claim", "claim_next", "claim_next", "claim_next", "abandon", "extend_claim", "consume", "abandon", "trash", "open_session", "close_session", "register",
		"save_book", "update_flow", "destroy_book", "suspend", "resume", "cancel", "change", "change", "intervene", "restore", "purge",
		"create_board", "limit_board", "pause_board", "resume_board", "delete_board",
		"age_board", "drain_conductor", "undrain_conductor", "delete_schedule", "pause_schedule",
		"begin_leadership", "expire_session", "expire_claim", "wake_due", "sweep",
		"save_schedule", "resume_schedule", "fire_schedule", "run_schedule", "backfill_schedule",
	}
	var got []string
	for _, c := range samples() {
		got = append(got, command.Name(c))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for _, c := range []*v1.Command{nil, {}, newerCommand(t)} {
		if name := command.Name(c); name != "unknown" {
			t.Errorf("%v is called %q", c, name)
		}
	}
}

func TestLeaderOnly(t *testing.T) {
	leaders := []string{
		"begin_leadership", "expire_session", "expire_claim", "wake_due", "sweep",
		"save_schedule", "resume_schedule", "fire_schedule", "run_schedule", "backfill_schedule",
	}
	for _, c := range samples() {
		if got := command.LeaderOnly(c); got != slices.Contains(leaders, command.Name(c)) {
			t.Errorf("%s: leader only is %t", command.Name(c), got)
		}
	}
	if command.LeaderOnly(nil) || command.LeaderOnly(&v1.Command{}) {
		t.Error("no command is the leader's")
	}
}

func TestSizeIsThatOfTheEncoding(t *testing.T) {
	for _, c := range samples() {
		if got := command.Size(c); got != len(marshal(t, c)) {
			t.Errorf("%s: size %d, encoded %d", command.Name(c), got, len(marshal(t, c)))
		}
	}
}

func TestPostingDigest(t *testing.T) {
	same := map[string]func(*v1.Posting){
		"itself":           func(*v1.Posting) {},
		"the board unsaid": func(p *v1.Posting) { p.Board = "" },
		"another map order": func(p *v1.Posting) {
			p.Store = map[string]*v1.Value{"c": p.Store["c"], "a": p.Store["a"], "b": p.Store["b"]}
		},
	}
	other := map[string]func(*v1.Posting){
		"board":         func(p *v1.Posting) { p.Board = "night" },
		"name":          func(p *v1.Posting) { p.Name += "!" },
		"priority":      func(p *v1.Posting) { p.Priority++ },
		"details":       func(p *v1.Posting) { p.Details = value(`{"customer":18}`) },
		"store":         func(p *v1.Posting) { p.Store["a"] = value(`3`) },
		"missing value": func(p *v1.Posting) { delete(p.Store, "a") },
		"book":          func(p *v1.Posting) { p.Book.Meta["at"] = value(`8`) },
		"flow":          func(p *v1.Posting) { p.Flow = "" },
		"time":          func(p *v1.Posting) { p.NotBefore.Nanos++ },
		"kind":          func(p *v1.Posting) { p.Kind = "k" },
	}
	want, memory := command.PostingDigest(nil, samplePosting())
	for name, change := range same {
		for range 20 { // map order varies from one encoding to the next
			p := samplePosting()
			change(p)
			before := proto.Clone(p)
			if got, _ := command.PostingDigest(memory, p); got != want {
				t.Fatalf("%s: another digest", name)
			}
			if !proto.Equal(p, before) {
				t.Fatalf("%s: the posting was changed", name)
			}
		}
	}
	for name, change := range other {
		p := samplePosting()
		change(p)
		if got, _ := command.PostingDigest(memory, p); got == want {
			t.Errorf("%s makes no difference", name)
		}
	}
}

// TestPostingDigestIsPinned: digests are kept in the state of running
// clusters. A new one for an old posting would make its repeat a conflict.
func TestPostingDigestIsPinned(t *testing.T) {
	const want = "8cc71e5a49d4a84f24b1cfa8395c3f30fe9b8e56dc677c8d453ac143c0a1a9a0"
	digest, _ := command.PostingDigest(nil, samplePosting())
	if got := hexOf(digest[:]); got != want {
		t.Errorf("the digest of the sample has become %s", got)
	}
}
