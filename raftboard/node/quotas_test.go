package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
)

// shop is a tenant with a quota.
type shop struct {
	*tenants
	secret string // its token
	client *raftboard.Client
}

var ofShop = access.Subject{Principal: "shop"}

func newShop(t *testing.T, limits access.Amounts) *shop {
	c := newTenants(t, 1)
	token, _ := c.token("shop", time.Time{}, access.Grant{Role: access.Administrator, Boards: "shop/*"})
	s := &shop{tenants: c, secret: token, client: c.as(token)}
	s.limit(limits)
	return s
}

func (s *shop) limit(limits access.Amounts) {
	s.t.Helper()
	if err := s.operator.SaveQuota(s.t.Context(), access.Quota{Subject: ofShop, Limits: limits}); err != nil {
		s.t.Fatal(err)
	}
}

// used is the shop's usage, as seen by an administrator and by the shop.
func (s *shop) used() access.Amounts {
	s.t.Helper()
	page, err := s.operator.Quotas(s.t.Context(), "")
	if err != nil || len(page.Items) != 1 {
		s.t.Fatalf("%+v, %v", page, err)
	}
	who, err := s.client.WhoAmI(s.t.Context())
	if err != nil || who.Quota == nil || who.Quota.Subject != ofShop || who.Quota.Limits != page.Items[0].Limits {
		s.t.Fatalf("%+v, %v", who.Quota, err)
	}
	return page.Items[0].Used
}

// watches waits until the shop has a number of watches and long polls.
func (s *shop) watches(n uint64) {
	s.t.Helper()
	eventually(s.t, fmt.Sprint(n, " watches"), func() bool { return s.used().Watches == n })
}

func wantOver(t *testing.T, err error, field string, limit int64) {
	t.Helper()
	var over *logbook.LimitError
	if !errors.As(err, &over) || !strings.Contains(over.Field, field) || over.Limit != limit {
		t.Errorf("got %v, not over the %s of %d", err, field, limit)
	}
}

// All postings of a principal, by any call, count for its quota. Its quota is not shared.
func TestQuotaOfPostings(t *testing.T) {
	t.Parallel()
	s := newShop(t, access.Amounts{Jobs: 2})
	ctx := t.Context()
	answers, err := s.client.Post(ctx,
		jobs.Posting{Board: "shop/a", Name: "n", Kind: "k"}, jobs.Posting{Board: "shop/b", Name: "n", Kind: "k"}, jobs.Posting{Board: "shop/c", Name: "n", Kind: "k"})
	if err != nil || answers[0].Err != nil || answers[1].Err != nil {
		t.Fatalf("%+v, %v", answers, err)
	}
	wantOver(t, answers[2].Err, `quota of principal "shop": jobs`, 2)
	if _, err := jobs.PostOne(ctx, s.operator, jobs.Posting{Board: "shop/a", Name: "n", Kind: "k"}); err != nil {
		t.Errorf("the quota of another principal counts: %v", err)
	}
	if used := s.used(); used.Jobs != 2 {
		t.Errorf("used %+v", used)
	}
	if err := s.client.SaveQuota(ctx, access.Quota{Subject: ofShop, Limits: access.Amounts{Jobs: 100}}); !errors.Is(err, jobs.ErrNotAllowed) {
		t.Errorf("an administrator of some boards changes a quota: %v", err)
	}
	if _, err := s.client.Quotas(ctx, ""); !errors.Is(err, jobs.ErrNotAllowed) {
		t.Errorf("a reader of some boards lists quotas: %v", err)
	}
	page, err := s.operator.Audit(ctx, access.RecordQuery{Verb: "save_quota", Target: "principal=shop"})
	if err != nil || len(page.Items) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
}

// A session over the quota is refused, and accepted when another session has expired.
func TestQuotaOfSessions(t *testing.T) {
	t.Parallel()
	s := newShop(t, access.Amounts{Sessions: 1})
	open := func() (jobs.SessionID, error) {
		id := jobs.NewSessionID()
		_, err := s.client.OpenSession(t.Context(), jobs.Opening{ID: id, Name: "s", TTL: 2 * time.Second})
		return id, err
	}
	first, err := open()
	if err != nil {
		t.Fatal(err)
	}
	_, err = open()
	wantOver(t, err, "sessions", 1)
	lapse(t, s.operator)(first)
	if used := s.used(); used.Sessions != 0 {
		t.Errorf("used %+v", used)
	}
	if _, err := open(); err != nil {
		t.Errorf("after the expiry: %v", err)
	}
}

// A watch or a long poll over the quota is refused, and accepted when another one has ended.
// Running ones continue after the quota is lowered.
func TestQuotaOfWatches(t *testing.T) {
	t.Parallel()
	s := newShop(t, access.Amounts{Watches: 2})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	job, err := jobs.PostOne(ctx, s.client, jobs.Posting{Board: "shop/a", Name: "n", Kind: "k"})
	if err != nil {
		t.Fatal(err)
	}
	session, err := s.client.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	began := make(chan struct{})
	go func() {
		defer close(ended)
		for range s.client.Watch(watching, jobs.Watch{After: &jobs.Position{}, Job: job.ID}) {
			select {
			case <-began:
			default:
				close(began)
			}
		}
	}()
	<-began
	waiting, leave := context.WithCancel(ctx)
	defer leave()
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = s.client.Wait(waiting, job.ID)
	}()
	s.watches(2)
	claim := func(wait time.Duration) error {
		_, err := s.client.ClaimNext(ctx, jobs.ClaimRequest{Session: session.ID, Boards: []string{"shop/none"}, Nonce: jobs.NewNonce(), Wait: wait})
		return err
	}
	wantOver(t, claim(patience), "watches", 2)
	if err := claim(0); err != nil {
		t.Errorf("a claim that does not wait: %v", err)
	}
	for _, err := range s.client.Watch(ctx, jobs.Watch{Job: job.ID}) {
		wantOver(t, err, "watches", 2)
		break
	}
	s.limit(access.Amounts{Watches: 1})
	leave()
	<-left
	s.watches(1)
	wantOver(t, claim(patience), "watches", 1) // after a short wait, the client makes only quick calls
	stop()
	<-ended
	s.watches(0)
	if err := claim(time.Millisecond); err != nil {
		t.Errorf("after the others have ended: %v", err)
	}
}

// A repeated claim replaces the waiting call, whose connection may be dead, and does not count
// twice.
func TestQuotaOfRepeatedPolls(t *testing.T) {
	t.Parallel()
	s := newShop(t, access.Amounts{Watches: 1})
	session, err := s.client.OpenSession(t.Context(), jobs.Opening{ID: jobs.NewSessionID(), Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	claim := func(nonce jobs.Nonce, wait string) string {
		_, answer := s.call(0, s.secret, "BoardService/ClaimNext",
			fmt.Sprintf(`{"claim": {"session": %q, "boards": ["shop/none"], "nonce": %q}, "wait": %q}`, session.ID, nonce, wait))
		return answer
	}
	nonce, first := jobs.NewNonce(), make(chan string, 1)
	go func() { first <- claim(nonce, "60s") }()
	eventually(t, "the claim waits", func() bool { return node.Idle(s.nodes[0]) == 1 })
	if answer := claim(jobs.NewNonce(), "1s"); !strings.Contains(answer, `"over_limit"`) {
		t.Errorf("another claim: %s", answer)
	}
	if answer := claim(nonce, "0.001s"); strings.Contains(answer, "error") || strings.Contains(answer, "code") {
		t.Errorf("the same claim again: %s", answer)
	}
	if answer := <-first; !strings.Contains(answer, `"uncertain"`) {
		t.Errorf("the claim that waited: %s", answer)
	}
	s.watches(0)
}
