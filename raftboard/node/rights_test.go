package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node"
)

// after is a mark in all data that is created after the end of a permission.
const after = "after-the-right"

// lasting is a call that waits, and the operation that would answer it.
type lasting struct {
	name    string
	request func(o *tenant) string
	answers func(c *tenants, o *tenant) error // nil: no operation
}

func lastingCalls(c *tenants) []lasting {
	attempt := func(o *tenant) string {
		return fmt.Sprintf(`{"flow": %q, "step": "s", "action": "execute", "attempt": 1}`, o.flow)
	}
	finish := func(c *tenants, o *tenant) error {
		return c.operator.Cancel(c.t.Context(), jobs.JobCommand{Job: o.job, Reason: after})
	}
	post := func(c *tenants, o *tenant) error {
		_, err := jobs.PostOne(c.t.Context(), c.operator, jobs.Posting{Board: o.board, Name: after, Kind: "waited"})
		return err
	}
	return []lasting{
		{"BoardService/WaitJob", func(o *tenant) string {
			if err := c.operator.Change(c.t.Context(), jobs.Change{Job: o.job, Release: true}); err != nil { // a held job is not awaited
				c.t.Fatal(err)
			}
			return fmt.Sprintf(`{"id": %q, "timeout": "60s"}`, o.job)
		}, finish},
		{"BoardService/WaitStep", func(o *tenant) string {
			if err := c.operator.Change(c.t.Context(), jobs.Change{Job: o.job, Release: true}); err != nil { // as above
				c.t.Fatal(err)
			}
			return fmt.Sprintf(`{"job": %q, "step": "s", "timeout": "60s"}`, o.job)
		}, nil},
		{"BoardService/ClaimNext", func(o *tenant) string {
			return fmt.Sprintf(`{"claim": {"session": %q, "boards": [%q], "kinds": ["waited"], "nonce": %q}, "wait": "60s"}`, o.session, o.board, jobs.NewNonce())
		}, post},
		{"BoardService/Watch", func(o *tenant) string { return fmt.Sprintf(`{"board": %q}`, o.board) }, post},
		{"BoardService/Watch", func(o *tenant) string { return fmt.Sprintf(`{"job": %q}`, o.job) }, finish},
		{"BoardService/Watch", func(*tenant) string { return `{}` }, post},
		{"BoardService/ReadLogs", func(o *tenant) string {
			job := heldBy(c.t, c.operator, o.board, "n1")
			o.logged = job.ID
			c.nodes[0].Logs().Begin(job.ID)
			return fmt.Sprintf(`{"job": %q, "wait": "60s"}`, job.ID)
		}, func(c *tenants, o *tenant) error {
			c.nodes[0].Logs().Append(o.logged, steplog.Line{Step: "s", Action: logbook.ActionExecute, Attempt: 1, Text: after}, len(after))
			return nil
		}},
		{"WorkerService/Pull", func(o *tenant) string {
			if err := c.as(o.workerToken).Register(c.t.Context(), o.session, jobs.Entity{Kind: jobs.EntityWorker, Name: o.mark, JobKinds: []string{"s"}}); err != nil {
				c.t.Fatal(err)
			}
			return fmt.Sprintf(`{"session": %q, "slots": 1, "wait": "60s"}`, o.session)
		}, nil},
		{"WorkerService/Report", func(o *tenant) string {
			o.begin(c)
			return fmt.Sprintf(`{"session": %q, "outcome": {"done": true, "result": 1, "id": %s}, "wait": "60s"}`, o.session, attempt(o))
		}, nil},
		{"WorkerService/Offer", func(o *tenant) string {
			token := o.begin(c)
			return fmt.Sprintf(`{"session": %q, "worker": %q, "work": {"type": "s", "job": %q, "token": %q, "id": %s}, "wait": "60s"}`, o.session, o.session, o.job, token, attempt(o))
		}, nil},
	}
}

// rightEnds are the ways in which a permission for a call ends.
var rightEnds = []struct {
	name  string
	which func(l *lasting, request string, o *tenant) bool // nil: all
	end   func(c *tenants, o *tenant) error
}{
	{"the token is revoked", nil, func(c *tenants, o *tenant) error {
		return c.operator.RevokeAccessToken(c.t.Context(), o.worker, o.workerTokenID)
	}},
	{"the grant is taken", func(_ *lasting, request string, _ *tenant) bool { return request != `{}` }, func(c *tenants, o *tenant) error {
		return c.operator.SavePrincipal(c.t.Context(), access.Principal{Name: o.worker, Grants: []access.Grant{{Role: access.Viewer, Boards: "nowhere"}}})
	}},
	{"the principal is deleted", nil, func(c *tenants, o *tenant) error { return c.operator.DeletePrincipal(c.t.Context(), o.worker) }},
	{"the job is moved", func(l *lasting, request string, o *tenant) bool {
		return l.answers != nil && strings.Contains(request, o.job.String())
	}, func(c *tenants, o *tenant) error {
		return c.operator.Change(c.t.Context(), jobs.Change{Job: o.job, Board: "elsewhere"})
	}},
}

// TestCallsEndWithTheRight lets each call wait, removes the permission for it, and then triggers the
// event that would have answered it. The call ends soon, and reveals nothing of that event. Promise:
// a right is checked when a call is answered.
func TestCallsEndWithTheRight(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	if err := c.operator.CreateBoard(t.Context(), "elsewhere"); err != nil {
		t.Fatal(err)
	}
	calls := lastingCalls(c)
	services := conductordv1.File_conductord_v1_service_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			method := services.Get(i).Methods().Get(j)
			name := string(services.Get(i).Name()) + "/" + string(method.Name())
			known := slices.ContainsFunc(calls, func(l lasting) bool { return l.name == name })
			if lasts(method) && !known && name != "StreamService/Carry" && name != "ClusterService/Backup" {
				t.Errorf("%s waits, and is no row above", name)
			}
		}
	}
	for i, end := range rightEnds {
		for j := range calls {
			mark := fmt.Sprintf("m%d-%d", i, j)
			own, call := c.newTenant("board-"+mark, mark), &calls[j]
			request := call.request(&own)
			if end.which != nil && !end.which(call, request, &own) {
				continue
			}
			open := node.Lasting(c.nodes[0])
			answered := make(chan string)
			go func() {
				answered <- c.whole(own.workerToken, call.name, request)
			}()
			eventually(t, call.name+" waits", func() bool { return node.Lasting(c.nodes[0]) > open })
			if err := end.end(c, &own); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if call.answers != nil {
				if err := call.answers(c, &own); err != nil {
					t.Fatal(err)
				}
			}
			answer := <-answered
			if took := time.Since(began); took > patience/4 || !refused(answer, append(notThere, `"unauthenticated"`)) || strings.Contains(answer, after) {
				t.Errorf("%s, %s: answered after %v: %s", call.name, end.name, took, answer)
			}
		}
	}
	page, err := c.operator.Jobs(t.Context(), jobs.Query{Kind: "waited"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range page.Items {
		if page.Items[i].State != jobs.StateClaimable {
			t.Errorf("it was claimed: %+v", page.Items[i])
		}
	}
}

// lasts reports whether a call can wait, or streams its answer.
func lasts(method protoreflect.MethodDescriptor) bool {
	for _, name := range []protoreflect.Name{"wait", "timeout"} {
		if field := method.Input().Fields().ByName(name); field != nil && field.Message() != nil { // a duration
			return true
		}
	}
	return method.IsStreamingServer()
}

// TestStreamsEndWithTheToken: an open stream ends when its caller is no longer known.
func TestStreamsEndWithTheToken(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	token, id := c.token("ann", time.Time{}, access.Grant{Role: access.Viewer, Boards: "*"})
	client := c.as(token)
	eventually(t, "a stream is open", func() bool {
		_, err := client.Job(t.Context(), jobs.NewJobID())
		return errors.Is(err, jobs.ErrNotFound) && node.Lasting(c.nodes[0]) == 1
	})
	if err := c.operator.RevokeAccessToken(t.Context(), "ann", id); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream has ended", func() bool { return node.Lasting(c.nodes[0]) == 0 })
}

// TestClaimIsRevokedInTheRace revokes a token while a job is posted for its waiting claim: the
// caller gets the job, or no session holds it. Another token keeps the session open.
func TestClaimIsRevokedInTheRace(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	own := c.newTenant("orders", "own")
	var handed, kept int
	for round := range 20 {
		text, token := access.Draw(time.Time{})
		if err := c.operator.AddAccessToken(t.Context(), own.worker, token); err != nil {
			t.Fatal(err)
		}
		open := node.Waiting(c.nodes[0])
		answered := make(chan string)
		request := fmt.Sprintf(`{"claim": {"session": %q, "boards": ["orders"], "kinds": ["waited"], "nonce": %q}, "wait": "60s"}`, own.session, jobs.NewNonce())
		go func() { answered <- c.whole(text, "BoardService/ClaimNext", request) }()
		eventually(t, "it waits", func() bool { return node.Waiting(c.nodes[0]) > open })
		job := jobs.NewJobID()
		post := func() error {
			_, err := jobs.PostOne(t.Context(), c.operator, jobs.Posting{ID: job, Board: "orders", Name: "n", Kind: "waited"})
			return err
		}
		revoke := func() error { return c.operator.RevokeAccessToken(t.Context(), own.worker, token.ID) }
		first, second := revoke, post
		if round%2 == 0 {
			first, second = post, revoke
		}
		done := make(chan error)
		go func() { done <- first() }()
		if err := errors.Join(second(), <-done); err != nil {
			t.Fatal(err)
		}
		answer := <-answered
		now, err := c.operator.Job(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		told := strings.Contains(answer, job.String())
		if told {
			handed++
		} else {
			kept++
		}
		if told != (now.State == jobs.StateClaimed) {
			t.Errorf("it is %s, and the caller was told: %s", now.State, answer)
		}
		if err := c.operator.Cancel(t.Context(), jobs.JobCommand{Job: job}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d jobs were given to the caller, and %d were not", handed, kept)
}

// TestClaimsEndWithTheGrant: the jobs that a principal has claimed are released soon after its
// permission for their board has ended, although it keeps its session.
func TestClaimsEndWithTheGrant(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1, func(o *node.Options) { o.Sessions.CoolDown = time.Millisecond })
	own := c.newTenant("orders", "own")
	if err := c.operator.SavePrincipal(t.Context(), access.Principal{Name: own.worker, Grants: []access.Grant{{Role: access.Worker, Boards: "other"}}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job is claimable", func() bool {
		job, err := c.operator.Job(t.Context(), own.claimed)
		return err == nil && job.State == jobs.StateClaimable && strings.Contains(job.Reason, "lost the permission")
	})
	if err := c.as(own.workerToken).KeepAlive(t.Context(), own.session); err != nil {
		t.Errorf("its session: %v", err)
	}
}

// TestRegisteredBoards: a conductor or worker is registered only for the boards on which its
// principal may work.
func TestRegisteredBoards(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	own, client := c.newTenant("orders", "own"), c.operator
	if _, err := jobs.PostOne(t.Context(), client, jobs.Posting{Board: "other", Name: "n", Kind: "k"}); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		kind   string
		boards []string
		named  string // in the refusal; empty: it is allowed
	}{
		{jobs.EntityConductor, []string{"orders"}, ""},
		{jobs.EntityConductor, []string{"orders", "other"}, `"other"`},
		{jobs.EntityConductor, nil, `"default"`},
		{jobs.EntityWorker, []string{"other"}, `"other"`},
		{jobs.EntityWorker, nil, ""},
		{"of-our-own", []string{"other"}, `"other"`},
	} {
		err := c.as(own.workerToken).Register(t.Context(), own.session, jobs.Entity{Kind: row.kind, Name: "e", Boards: row.boards, JobKinds: []string{"k"}})
		if (err == nil) != (row.named == "") || err != nil && (!errors.Is(err, jobs.ErrNotAllowed) || !strings.Contains(err.Error(), "board "+row.named)) {
			t.Errorf("%s for %v: %v", row.kind, row.boards, err)
		}
	}
}

// whole makes a plain call at the first node, and returns its complete answer, without a time
// limit.
func (c *tenants) whole(token, name, request string) string {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	answer := c.send(ctx, 0, token, name, request)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
