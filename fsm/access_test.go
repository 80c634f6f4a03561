package fsm_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs/access"
)

func savePrincipal(name string, grants ...*v1.Grant) *v1.Command {
	return &v1.Command{Kind: &v1.Command_SavePrincipal{SavePrincipal: &v1.SavePrincipalCommand{Name: name, Grants: grants}}}
}

func addToken(principal, token string, hash byte, expires time.Time) *v1.Command {
	c := &v1.AddAccessTokenCommand{Principal: principal, Id: id(token), Hash: bytes.Repeat([]byte{hash}, 32)}
	if !expires.IsZero() {
		c.Expires = timestamppb.New(expires)
	}
	return &v1.Command{Kind: &v1.Command_AddAccessToken{AddAccessToken: c}}
}

func revokeToken(principal, token string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_RevokeAccessToken{RevokeAccessToken: &v1.RevokeAccessTokenCommand{Principal: principal, Id: id(token)}}}
}

// TestPrincipals: saved, added and revoked data is read back, repeats change nothing, and
// every bound applies.
func TestPrincipals(t *testing.T) {
	r := newRig(t)
	viewer := &v1.Grant{Role: "viewer", Boards: "*"}
	r.ok(savePrincipal("ann", viewer))
	first, poster := r.index, &v1.Grant{Role: "poster", Boards: "*"}
	r.harmless(savePrincipal("ann", viewer))
	saved := func(revision uint64, grants ...*v1.Grant) *v1.Command {
		c := savePrincipal("ann", grants...)
		c.GetSavePrincipal().Revision = &revision
		return c
	}
	r.ok(addToken("ann", "of no change", 99, r.now.Add(time.Second)))
	r.refused(saved(0, poster), "conflict")
	// Of two changes of one revision, the first stays, and its repeat is harmless.
	r.ok(saved(first, poster))
	second := r.index
	r.harmless(saved(first, poster))
	if said := r.refused(saved(first, viewer, poster), "conflict"); !strings.Contains(said, fmt.Sprintf("changed since revision %d, and now has revision %d", first, second)) {
		t.Errorf("a change of an old revision: %s", said)
	}
	r.ok(saved(second, viewer))
	r.ok(revokeToken("ann", "of no change"))
	r.refused(addToken("bob", "t1", 1, time.Time{}), "not_found")
	r.ok(addToken("ann", "t1", 1, r.now.Add(time.Hour)))
	r.harmless(addToken("ann", "t1", 1, r.now.Add(time.Hour)))
	r.refused(addToken("ann", "t1", 2, r.now.Add(time.Hour)), "conflict")
	for i := 2; i <= access.MaxTokens; i++ {
		r.ok(addToken("ann", fmt.Sprint("t", i), byte(i), time.Time{}))
	}
	r.refused(addToken("ann", "more", 100, time.Time{}), "over_limit")
	r.now = r.now.Add(time.Hour)
	r.ok(addToken("ann", "more", 100, time.Time{})) // replaces the expired token
	r.refused(revokeToken("ann", "t1"), "not_found")
	r.ok(revokeToken("ann", "t2"))
	r.ok(savePrincipal("ann"))
	all, index, err := r.Principals()
	if err != nil || index != r.AccessIndex() || len(all) != 1 || len(all[0].Grants) != 0 || len(all[0].Tokens) != access.MaxTokens-1 {
		t.Errorf("%+v of entry %d, %v", all, index, err)
	}
	r.ok(&v1.Command{Kind: &v1.Command_DeletePrincipal{DeletePrincipal: &v1.DeletePrincipalCommand{Name: "ann"}}})
	r.refused(&v1.Command{Kind: &v1.Command_DeletePrincipal{DeletePrincipal: &v1.DeletePrincipalCommand{Name: "ann"}}}, "not_found")
	if said := r.refused(saved(second, viewer), "conflict"); !strings.Contains(said, "it was deleted after revision") {
		t.Errorf("a change of a deleted principal: %s", said)
	}
	r.ok(saved(0, viewer))
	r.ok(&v1.Command{Kind: &v1.Command_DeletePrincipal{DeletePrincipal: &v1.DeletePrincipalCommand{Name: "ann"}}})
	var many []*v1.Command
	for i := range access.MaxPrincipals {
		many = append(many, savePrincipal(fmt.Sprint("p", i)))
	}
	r.do(many...)
	r.refused(savePrincipal("one more"), "over_limit")
	r.ok(savePrincipal("p7", viewer))
	if err := fsm.Verify(r.Machine); err != nil {
		t.Error(err)
	}
}

func noteUses(uses ...*v1.TokenUse) *v1.Command {
	return &v1.Command{Kind: &v1.Command_NoteTokenUses{NoteTokenUses: &v1.NoteTokenUsesCommand{Uses: uses}}}
}

// TestTokenUses: the last use of a token is stored with a precision of an hour, and nothing else
// changes.
func TestTokenUses(t *testing.T) {
	r := newRig(t)
	r.ok(savePrincipal("ann"))
	r.ok(addToken("ann", "t1", 1, time.Time{}))
	r.ok(addToken("ann", "t2", 2, time.Time{}))
	index := r.AccessIndex()
	uses := noteUses(&v1.TokenUse{Principal: "bob", Id: id("t1")}, &v1.TokenUse{Principal: "ann", Id: id("gone")}, &v1.TokenUse{Principal: "ann", Id: id("t1")})
	first := r.now.Add(time.Minute)
	for _, row := range []struct{ at, want time.Time }{
		{first, first},
		{first.Add(access.TokenUseInterval - 1), first},
		{first.Add(access.TokenUseInterval), first.Add(access.TokenUseInterval)},
	} {
		r.now = row.at
		r.ok(uses)
		all, _, err := r.Principals()
		if err != nil || len(all) != 1 || !all[0].Tokens[0].LastUsed.Equal(row.want) || !all[0].Tokens[1].LastUsed.IsZero() || all[0].UpdatedAt.After(first) {
			t.Errorf("at %s: %+v, %v", row.at, all, err)
		}
	}
	if r.AccessIndex() != index {
		t.Error("a use counts as a change of what callers may do")
	}
}

// refusedAct is a command that is refused for a principal: it writes only its audit record.
func refusedAct(number int) *v1.Command {
	return &v1.Command{Principal: "ann", From: "here", Kind: &v1.Command_Purge{Purge: &v1.JobCommand{Job: id(fmt.Sprint("none ", number))}}}
}

// TestAuditIsBounded: the oldest records are removed, by number and by age. The state does not
// depend on the batching of entries.
func TestAuditIsBounded(t *testing.T) {
	longtest.Skip(t)
	one, other := newRig(t), newRig(t)
	const more = 10
	var entries []fsm.Entry
	for done := 0; done < access.MaxRecords+more; {
		var commands []*v1.Command
		for len(commands) < 1_000 && done < access.MaxRecords+more {
			commands = append(commands, refusedAct(done))
			done++
		}
		entries = append(entries, one.entry(commands...))
	}
	one.now = one.now.Add(access.MaxRecordAge + time.Second)
	late := []fsm.Entry{one.entry(refusedAct(0))}
	one.now = one.now.Add(access.MaxRecordAge + time.Second)
	late = append(late, one.entry(open("nobody's"))) // this command is not audited, so no record is too old yet
	for _, entry := range entries {
		if _, err := one.Apply([]fsm.Entry{entry}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.Apply(entries); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*rig{one, other} {
		kept, next := 0, ""
		for {
			page, err := r.Audit(access.RecordQuery{After: next, Target: "job=" + id("none 9")})
			if err != nil {
				t.Fatal(err)
			}
			kept += len(page.Items)
			if next = page.Next; next == "" {
				break
			}
		}
		if err := fsm.Verify(r.Machine); err != nil || kept != 0 {
			t.Errorf("%d of the oldest are kept, %v", kept, err)
		}
		page, err := r.Audit(access.RecordQuery{Target: id("none 10"), Limit: 1})
		for err == nil && len(page.Items) == 0 && page.Next != "" {
			page, err = r.Audit(access.RecordQuery{Target: id("none 10"), Limit: 1, After: page.Next})
		}
		if err != nil || len(page.Items) != 1 || page.Items[0].Error != "not_found" {
			t.Errorf("%+v, %v", page, err)
		}
	}
	for _, entry := range late {
		if _, err := one.Apply([]fsm.Entry{entry}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.Apply(late); err != nil {
		t.Fatal(err)
	}
	page, err := one.Audit(access.RecordQuery{})
	if err != nil || len(page.Items) != 1 || page.Items[0].Principal != "ann" || page.Items[0].From != "here" || page.Items[0].Verb != "purge" {
		t.Errorf("%+v, %v", page, err)
	}
	first, err := one.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := other.Digest(); err != nil || first != second {
		t.Errorf("batched otherwise, the state is another one: %v", err)
	}
}

// TestOwnSessions: only the principal that opened a session claims with it, ends its claims, and
// closes it.
func TestOwnSessions(t *testing.T) {
	r := newRig(t)
	r.ok(by("ann", open("of ann")))
	r.posted(posting("a", "k"))
	r.refused(by("bob", claim("of ann", id("a"), "n")), "session_expired")
	token := r.ok(by("ann", claim("of ann", id("a"), "n"))).GetClaim().Granted[0].Token
	end := func() *v1.Command { return consume(&v1.Ending{Job: id("a"), Token: token, Outcome: "success"}) }
	r.refused(by("bob", end()), "fenced")
	r.ok(by("ann", end()))
}
