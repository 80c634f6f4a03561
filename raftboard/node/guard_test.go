package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/wire"
)

// guarded gives each node a certificate, and turns on access control.
func guarded(a *authority) func(*node.Options) {
	return func(o *node.Options) {
		o.Credentials, o.AccessControl = opening(a.t, a.nodeFiles(o.Name)), true
		o.Socket = filepath.Join(a.dir, o.Name+".sock")
	}
}

// tenants is a guarded cluster, with the clients to call it.
type tenants struct {
	*cluster
	authority *authority
	operator  *raftboard.Client // with a node's certificate: has all permissions
	plain     *http.Client
}

func newTenants(t *testing.T, size int, adjust ...func(*node.Options)) *tenants {
	t.Helper()
	a := newAuthority(t)
	adjust = append([]func(*node.Options){guarded(a)}, adjust...)
	c := &tenants{cluster: newCluster(t, size, adjust...).startAll(), authority: a}
	var err error
	if c.operator, err = secureClient(t, c.cluster, a.nodeFiles("n1")); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: opening(t, c.anybody()).Client()}
	t.Cleanup(transport.CloseIdleConnections)
	c.plain = &http.Client{Transport: transport}
	return c
}

// anybody has the authorities, but no certificate.
func (c *tenants) anybody() credentials.Files {
	return credentials.Files{CA: filepath.Join(c.authority.dir, "ca.pem")}
}

// token makes a principal, and a token of it.
func (c *tenants) token(name string, expires time.Time, grants ...access.Grant) (string, access.TokenID) {
	c.t.Helper()
	if err := c.operator.SavePrincipal(c.t.Context(), access.Principal{Name: name, Grants: grants}); err != nil {
		c.t.Fatal(err)
	}
	text, token := access.Draw(expires)
	if err := c.operator.AddAccessToken(c.t.Context(), name, token); err != nil {
		c.t.Fatal(err)
	}
	return text, token.ID
}

// as is a client with a token.
func (c *tenants) as(token string, which ...int) *raftboard.Client {
	c.t.Helper()
	endpoints := c.endpoints()
	if len(which) > 0 {
		endpoints = endpoints[which[0] : which[0]+1]
	}
	client, err := raftboard.Open(c.t.Context(), raftboard.Options{
		Endpoints: endpoints, Patience: 5 * time.Second, Credentials: opening(c.t, c.anybody()), Token: token,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(client.Close)
	return client
}

// call makes a plain call at a node, and returns the status and the answer.
func (c *tenants) call(at int, token, name, request string, header ...string) (int, string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	answer := c.send(ctx, at, token, name, request, header...)
	defer answer.Body.Close()
	if name == "BoardService/Watch" && answer.StatusCode == http.StatusOK { // this call does not end
		return answer.StatusCode, ""
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// send makes a plain call at a node, and leaves the answer to be read.
func (c *tenants) send(ctx context.Context, at int, token, name, request string, header ...string) *http.Response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.options[0].Members[at].API+wire.Prefix+name, strings.NewReader(request))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := c.plain.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

// tenant has a tenant's objects on its board. All their names and values contain the tenant's mark.
type tenant struct {
	board, mark         string
	job, claimed        jobs.JobID
	book                logbook.BookID
	flow                logbook.FlowID
	token               jobs.Token
	session             jobs.SessionID
	worker, workerToken string
	workerTokenID       access.TokenID
	logged              jobs.JobID // a job with log lines
}

func (c *tenants) newTenant(board, mark string) tenant {
	c.t.Helper()
	ctx := c.t.Context()
	marked := json.RawMessage(`"` + mark + `"`)
	own := tenant{board: board, mark: mark, worker: "worker-" + mark}
	flow := logbook.FlowDetail{ID: logbook.NewFlowID(), Name: mark, Factory: logbook.Factory{Name: mark, Args: marked}}
	book := logbook.Book{ID: logbook.NewBookID(), Name: mark, Flows: []logbook.FlowDetail{flow}}
	job, err := jobs.PostOne(ctx, c.operator, jobs.Posting{Board: board, Name: mark, Book: &book, Store: logbook.Values{"v": marked}, Hold: true})
	if err != nil {
		c.t.Fatal(err)
	}
	claimed, err := jobs.PostOne(ctx, c.operator, jobs.Posting{Board: board, Name: mark, Kind: mark, Details: marked})
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = c.operator.SaveSchedule(ctx, schedules.Schedule{Board: board, Name: mark, Rule: "@daily", Posting: jobs.Posting{Name: mark, Kind: mark}})
	if err != nil {
		c.t.Fatal(err)
	}
	own.job, own.claimed, own.book, own.flow = job.ID, claimed.ID, book.ID, flow.ID
	own.workerToken, own.workerTokenID = c.token(own.worker, time.Time{}, access.Grant{Role: access.Worker, Boards: board})
	worker := c.as(own.workerToken)
	own.session = opened(c.t, worker, time.Minute)
	if err := worker.Register(ctx, own.session, jobs.Entity{Kind: jobs.EntityConductor, Name: mark, Boards: []string{board}}); err != nil {
		c.t.Fatal(err)
	}
	if err := c.operator.DrainConductor(ctx, jobs.DrainCommand{Conductor: mark}); err != nil {
		c.t.Fatal(err)
	}
	if drains, err := worker.Drains(ctx); err != nil || len(drains) != 1 || drains[0].Conductor != mark {
		c.t.Fatalf("the drain of its own conductor is not shown: %+v, %v", drains, err)
	}
	if err := c.operator.UndrainConductor(ctx, jobs.DrainCommand{Conductor: mark}); err != nil {
		c.t.Fatal(err)
	}
	if seen, err := worker.Entities(ctx, ""); err != nil || len(seen) != 1 || seen[0].Name != mark {
		c.t.Fatalf("its own conductor is not shown: %+v, %v", seen, err)
	}
	granted, err := worker.Claim(ctx, own.session, own.claimed, jobs.NewNonce())
	if err != nil {
		c.t.Fatal(err)
	}
	own.token = granted.Job.Token
	return own
}

// requests has a request of each call that concerns boards, for a tenant.
func (o *tenant) requests() map[string]string {
	id := func(text string) string { return fmt.Sprintf(text, o.job) }
	board := fmt.Sprintf(`{"board": %q}`, o.board)
	named := fmt.Sprintf(`{"board": %q, "name": %q}`, o.board, o.mark)
	session := fmt.Sprintf(`{"session": %q}`, o.session)
	token := fmt.Sprintf(`"job": %q, "token": %q`, o.claimed, o.token)
	nonce := fmt.Sprintf(`"nonce": %q`, jobs.NewNonce())
	attempt := fmt.Sprintf(`"id": {"flow": %q, "step": "s", "action": "execute", "attempt": 1}`, o.flow)
	return map[string]string{
		"BoardService/Post":             fmt.Sprintf(`{"postings": [{"board": %q, "name": "n", "kind": "k"}]}`, o.board),
		"BoardService/GetJob":           id(`{"id": %q}`),
		"BoardService/WaitJob":          id(`{"id": %q, "timeout": "0.001s"}`),
		"BoardService/WaitStep":         id(`{"job": %q, "step": "s", "timeout": "0.001s"}`),
		"BoardService/Explain":          id(`{"id": %q}`),
		"BoardService/ReadLogs":         id(`{"job": %q}`),
		"BoardService/ListJobs":         board,
		"BoardService/ListClaims":       board,
		"BoardService/ListErrors":       board,
		"BoardService/Watch":            board,
		"BoardService/Claim":            fmt.Sprintf(`{"session": %q, "job": %q, %s}`, o.session, o.job, nonce),
		"BoardService/ClaimNext":        fmt.Sprintf(`{"claim": {"session": %q, "boards": [%q], %s}}`, o.session, o.board, nonce),
		"BoardService/Extend":           `{` + token + `, "expiry": "60s"}`,
		"BoardService/Execute":          fmt.Sprintf(`{"commands": [{"suspend": {"job": %q}}]}`, o.job),
		"BoardService/Suspend":          id(`{"job": %q}`),
		"BoardService/Unreserve":        id(`{"job": %q}`),
		"BoardService/RetryNow":         id(`{"job": %q}`),
		"BoardService/Decide":           id(`{"job": %q, "kind": "approve", "id": "d1"}`),
		"BoardService/Override":         id(`{"job": %q, "kind": "approve", "id": "d1", "reason": "outage"}`),
		"BoardService/GetApproval":      id(`{"job": %q}`),
		"BoardService/ListApprovals":    board,
		"BoardService/Publish":          fmt.Sprintf(`{"board": %q, "topic": "payments", "key": "k", "id": "evt_17", "keep": "60s"}`, o.board),
		"BoardService/Signal":           id(`{"job": %q, "name": "paid", "id": "evt_17"}`),
		"BoardService/Transfer":         id(`{"job": %q, "to": "nobody"}`),
		"BoardService/Resume":           id(`{"job": %q}`),
		"BoardService/Change":           id(`{"job": %q, "priority": 3}`),
		"BoardService/Intervene":        fmt.Sprintf(`{"id": %q, "flow": %q, "kind": "rerun", "step": "s"}`, jobs.NewNonce(), o.flow),
		"BoardService/Purge":            id(`{"job": %q}`),
		"BoardService/Retry":            id(`{"job": %q}`),
		"BoardService/Bulk":             fmt.Sprintf(`{"action": "suspend", "query": {"board": %q}, "dryRun": true}`, o.board),
		"BoardService/CreateBoard":      board,
		"BoardService/GetBoard":         board,
		"BoardService/LimitBoard":       board,
		"BoardService/AgeBoard":         board,
		"BoardService/PauseBoard":       board,
		"BoardService/ResumeBoard":      board,
		"BoardService/DeleteBoard":      board,
		"LogbookService/GetFlow":        fmt.Sprintf(`{"id": %q}`, o.flow),
		"LogbookService/GetCheckpoints": fmt.Sprintf(`{"flow": %q, "step": "running"}`, o.flow),
		"LogbookService/GetBook":        fmt.Sprintf(`{"id": %q}`, o.book),
		"LogbookService/SaveBook":       fmt.Sprintf(`{"id": %q, "name": %q}`, o.book, o.mark),
		"LogbookService/UpdateFlows":    fmt.Sprintf(`{"updates": [{"flow": %q, "sequence": "1", "state": "running"}]}`, o.flow),
		"ScheduleService/Save":          fmt.Sprintf(`{"schedule": {"board": %q, "name": "other", "rule": "@daily", "posting": {"name": "n", "kind": "k"}}}`, o.board),
		"ScheduleService/Get":           named,
		"ScheduleService/List":          board,
		"ScheduleService/Pause":         named,
		"ScheduleService/Resume":        named,
		"ScheduleService/Run":           named,
		"ScheduleService/Backfill":      fmt.Sprintf(`{"board": %q, "name": %q, "from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}`, o.board, o.mark),
		"ScheduleService/Delete":        named,
		"SessionService/KeepAlive":      session,
		"SessionService/Register":       fmt.Sprintf(`{"session": %q, "entity": {"kind": "conductor", "name": "c", "boards": [%q]}}`, o.session, o.board),
		"LogbookService/DestroyBook":    fmt.Sprintf(`{"book": %q}`, o.book),
		"BoardService/Cancel":           id(`{"job": %q}`),
		"BoardService/Abandon":          `{` + token + `}`,
		"BoardService/Trash":            `{` + token + `}`,
		"BoardService/Consume":          `{` + token + `, "outcome": "success"}`,
		"SessionService/Close":          session,
		"WorkerService/Pull":            fmt.Sprintf(`{"session": %q, "slots": 1, "wait": "0.001s"}`, o.session),
		"WorkerService/Report":          fmt.Sprintf(`{"session": %q, "outcome": {"done": true, "result": 1, %s}}`, o.session, attempt),
		"WorkerService/Offer":           fmt.Sprintf(`{"session": %q, "work": {"type": "s", "job": %q, "token": %q, %s}}`, o.session, o.claimed, o.token, attempt),
	}
}

// ofCluster are the calls that concern no board, with requests that change nothing.
var ofCluster = map[string]string{
	"ClusterService/Activity":         `{}`,
	"ClusterService/AddMember":        `{"name": "nobody"}`,
	"ClusterService/RemoveMember":     `{"name": "nobody"}`,
	"ClusterService/SetVote":          `{"name": "nobody"}`,
	"ClusterService/MoveMember":       `{"name": "nobody"}`,
	"ClusterService/TransferLeader":   `{"to": "nobody"}`,
	"ClusterService/Upgrade":          `{}`,
	"ClusterService/Verify":           `{}`,
	"ClusterService/TableSums":        `{"index": 1}`,
	"ClusterService/Backup":           `{}`,
	"SessionService/DrainConductor":   `{"conductor": "nobody"}`,
	"SessionService/UndrainConductor": `{"conductor": "nobody"}`,
	"AccessService/ListPrincipals":    `{}`,
	"AccessService/ListQuotas":        `{}`,
	"AccessService/SaveQuota":         `{"principal": "nobody"}`,
	"AccessService/DeleteQuota":       `{"principal": "nobody"}`,
	"AccessService/ListAudit":         `{}`,
	"AccessService/ListRefusals":      `{}`,
	"AccessService/RecordAct":         `{"verb": "test"}`,
	"AccessService/SavePrincipal":     `{"name": "-/-"}`,
	"AccessService/DeletePrincipal":   `{"name": "nobody"}`,
	"AccessService/AddAccessToken":    `{"principal": "nobody"}`,
	"AccessService/RevokeAccessToken": `{"principal": "nobody"}`,
	"AccessService/NoteTokenUses":     `{"uses": [{"principal": "nobody"}]}`,
}

// ofAll are the calls that every principal may make, and whose answers have only visible
// objects.
var ofAll = map[string]string{
	"ClusterService/Status":       `{}`,
	"BoardService/ListBoards":     `{}`,
	"LogbookService/ListBooks":    `{}`,
	"BoardService/FindIDs":        `{"noun": "job", "prefix": "000000000"}`,
	"AccessService/WhoAmI":        `{}`,
	"SessionService/ListSessions": `{}`,
	"SessionService/ListEntities": `{}`,
	"SessionService/ListDrains":   `{}`,
	"WorkerService/List":          `{}`,
	"SessionService/Open":         "", // below: by a worker of any board
}

// refusals are the allowed refusals of a call. For objects of another tenant, the answer can also
// be the answer for missing objects.
var (
	notAllowed = []string{`"not_allowed"`, `"permission_denied"`}
	notThere   = append([]string{`"not_found"`, `"session_expired"`, `"fenced"`}, notAllowed...)
)

func refused(answer string, how []string) bool {
	return slices.ContainsFunc(how, func(code string) bool { return strings.Contains(answer, code) })
}

// TestWhatEachRoleMay makes each call in each role, on the caller's own board and on another
// tenant's. The verdicts follow from the tables of calls and of roles. Promise: boards are
// the tenants.
func TestWhatEachRoleMay(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	calls := node.Calls()
	calls["BoardService/Execute"] = string(command.Operate) // permission class of its command, which suspends
	other := c.newTenant("other/b", "foreign")
	for name := range calls {
		places := 0
		for _, rows := range []map[string]string{other.requests(), ofCluster, ofAll} {
			if _, found := rows[name]; found {
				places++
			}
		}
		if places != 1 {
			t.Errorf("%s is in %d of the tables above, and belongs in one", name, places)
		}
	}
	foreign := other.requests()
	for _, role := range access.Roles {
		mine := c.newTenant("mine/"+string(role), "own-"+string(role))
		own := mine.requests()
		bound, _ := c.token("bound-"+string(role), time.Time{}, access.Grant{Role: role, Boards: "mine/*"})
		if role == access.Worker { // a worker's claims and sessions are its own
			bound = mine.workerToken
		}
		everywhere, _ := c.token("everywhere-"+string(role), time.Time{}, access.Grant{Role: role, Boards: access.AllBoards})
		for _, name := range slices.Sorted(maps.Keys(foreign)) {
			if _, answer := c.call(0, bound, name, foreign[name]); !refused(answer, notThere) || strings.Contains(answer, other.mark) {
				t.Errorf("%s %s of another tenant: %s", role, name, answer)
			}
		}
		for _, name := range lastFirst(own) {
			_, answer := c.call(0, bound, name, own[name])
			if may := command.Allows(role, command.Permission(calls[name])); may == refused(answer, notAllowed) {
				t.Errorf("%s %s: %s", role, name, answer)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(ofCluster)) {
			if _, answer := c.call(0, bound, name, ofCluster[name]); !refused(answer, notAllowed) {
				t.Errorf("%s of some boards: %s: %s", role, name, answer)
			}
			_, answer := c.call(0, everywhere, name, ofCluster[name])
			if may := command.Allows(role, command.Permission(calls[name])); may == refused(answer, notAllowed) {
				t.Errorf("%s of all boards: %s: %s", role, name, answer)
			}
		}
		for name, request := range ofAll {
			if request == "" {
				continue
			}
			status, answer := c.call(0, bound, name, request)
			if status != http.StatusOK || strings.Contains(answer, other.board) || strings.Contains(answer, other.mark) {
				t.Errorf("%s %s: %d %s", role, name, status, answer)
			}
		}
		_, answer := c.call(0, bound, "SessionService/Open", fmt.Sprintf(`{"opening": {"id": %q, "name": "s"}}`, jobs.NewSessionID()))
		if may := command.Allows(role, command.Work); may == refused(answer, notAllowed) {
			t.Errorf("%s SessionService/Open: %s", role, answer)
		}
	}
}

// lastFirst sorts the calls that end an object to the end.
func lastFirst(requests map[string]string) []string {
	last := []string{"BoardService/Cancel", "BoardService/Purge", "BoardService/Abandon", "BoardService/Trash", "BoardService/Consume",
		"ScheduleService/Delete", "BoardService/DeleteBoard", "LogbookService/DestroyBook", "SessionService/Close"}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(requests)), func(name string) bool { return slices.Contains(last, name) })
	return append(names, last...)
}

// A caller without credentials, or with unknown, expired or revoked ones, is refused everywhere.
func TestCallersAreKnown(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	viewer := access.Grant{Role: access.Viewer, Boards: "*"}
	good, id := c.token("good", time.Time{}, viewer)
	expired, _ := c.token("late", time.Now().Add(-time.Second), viewer)
	fresh, _ := c.token("late", time.Now().Add(time.Hour), viewer)
	for _, row := range []struct {
		name, token string
		header      []string
		want        int
	}{
		{"nothing", "", nil, http.StatusUnauthorized},
		{"no token", "", []string{"Authorization", "Basic YTpi"}, http.StatusUnauthorized},
		{"another token", good + "x", nil, http.StatusUnauthorized},
		{"expired", expired, nil, http.StatusUnauthorized},
		{"an exchanged one", fresh, nil, http.StatusOK},
		{"good", good, nil, http.StatusOK},
		{"in the name of a node", "", []string{wire.HeaderPrincipal, "node/n1"}, http.StatusUnauthorized},
		{"in the name of another", good, []string{wire.HeaderPrincipal, "local/0"}, http.StatusOK}, // the header is ignored
	} {
		if status, answer := c.call(0, row.token, "BoardService/ListBoards", `{}`, row.header...); status != row.want {
			t.Errorf("%s: %d %s", row.name, status, answer)
		}
	}
	if _, answer := c.call(0, good, "BoardService/CreateBoard", `{"board": "b"}`, wire.HeaderPrincipal, "local/0"); !refused(answer, notAllowed) {
		t.Errorf("a viewer has said that it is somebody else: %s", answer)
	}
	client := c.as(good) // with an open stream
	if _, err := client.Job(t.Context(), jobs.NewJobID()); !errors.Is(err, jobs.ErrNotFound) {
		t.Error(err)
	}
	if err := c.operator.RevokeAccessToken(t.Context(), "good", id); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Job(t.Context(), jobs.NewJobID()); !errors.Is(err, jobs.ErrNotAllowed) {
		t.Errorf("with a revoked token, on a stream that is open: %v", err)
	}
	if status, _ := c.call(0, good, "BoardService/ListBoards", `{}`); status != http.StatusUnauthorized {
		t.Errorf("a revoked token: %d", status)
	}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusUnauthorized} {
		answer, err := c.plain.Get("https://" + c.endpoints()[0] + path)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
	}
}

// The last use of a token is stored, for every node to which the token was shown.
func TestTokenUsesAreKept(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 3, func(o *node.Options) { o.TokenUsePeriod = 10 * time.Millisecond })
	lastUsed := func(name string) time.Time {
		page, err := c.operator.Principals(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(page.Items, func(p access.Principal) bool { return p.Name == name })
		return page.Items[at].Tokens[0].LastUsed
	}
	for i, name := range []string{"ann", "ben", "cal"} {
		token, _ := c.token(name, time.Time{}, access.Grant{Role: access.Viewer, Boards: "*"})
		if at := lastUsed(name); !at.IsZero() {
			t.Errorf("the token of %s was used at %s before it was", name, at)
		}
		if status, answer := c.call(i, token, "BoardService/ListBoards", `{"stale": true}`); status != http.StatusOK {
			t.Fatalf("node %d: %d %s", i, status, answer)
		}
		eventually(t, "the use of "+name+" is kept", func() bool { return !lastUsed(name).IsZero() })
	}
}

// A revoked token is refused at once by every node, even by a node that has not yet applied the
// revocation.
func TestTokensAreRevokedAtOnce(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 3)
	request := fmt.Sprintf(`{"id": %q}`, jobs.NewJobID())
	for range 5 {
		token, id := c.token("ann", time.Time{}, access.Grant{Role: access.Viewer, Boards: "*"})
		for i := range 3 {
			if status, answer := c.call(i, token, "BoardService/GetJob", request); status != http.StatusNotFound {
				t.Errorf("node %d: %d %s", i, status, answer)
			}
		}
		if err := c.operator.RevokeAccessToken(t.Context(), "ann", id); err != nil {
			t.Fatal(err)
		}
		var refusing sync.WaitGroup
		for i := range 3 {
			refusing.Go(func() {
				if status, answer := c.call(i, token, "BoardService/GetJob", request); !refused(answer, append([]string{`"unauthenticated"`}, notAllowed...)) {
					t.Errorf("node %d: %d %s", i, status, answer)
				}
			})
		}
		refusing.Wait()
	}
}

// A principal authenticates with its client certificate at any node, and an operator through the
// socket.
func TestWaysToProveWho(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 3)
	ctx := t.Context()
	ann := c.authority.files(credentials.Subject{Name: "ann"})
	const unknown = `there is no principal "ann": if it was deleted, use credentials for another name; otherwise an administrator ` +
		`creates it with "conductord access save ann --grant ROLE=BOARDS"`
	if _, err := secureClient(t, c.cluster, ann); !errors.Is(err, jobs.ErrNotAllowed) || !strings.Contains(err.Error(), unknown) {
		t.Errorf("a certificate of no principal: %v", err)
	}
	local, err := raftboard.Open(ctx, raftboard.Options{Endpoints: []string{"unix://" + c.options[(c.leader()+1)%3].Socket}}) // of a follower
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(local.Close)
	if err := local.SavePrincipal(ctx, access.Principal{Name: "ann", Grants: []access.Grant{{Role: access.Operator, Boards: "orders/*"}}, Approves: []string{"dba"}}); err != nil {
		t.Fatal(err)
	}
	page, err := local.Principals(ctx, "")
	if err != nil || len(page.Items) != 1 || !strings.HasPrefix(page.Items[0].By, "local/") {
		t.Errorf("%+v, %v", page, err)
	}
	for i := range 3 {
		client, err := secureClient(t, c.cluster, ann, i)
		if err != nil {
			t.Fatal(err)
		}
		who, err := client.WhoAmI(ctx)
		if err != nil || !who.Enforced || who.Name != "ann" || !slices.Equal(who.Grants, []access.Grant{{Role: access.Operator, Boards: "orders/*"}}) || !slices.Equal(who.Approves, []string{"dba"}) {
			t.Errorf("%+v, %v", who, err)
		}
		job, err := jobs.PostOne(ctx, client, jobs.Posting{Board: "orders/new", Name: "n", Kind: "k"})
		if err != nil || job.PostedBy != "ann" {
			t.Errorf("by node %d: %+v, %v", i, job, err)
		}
		if _, err := jobs.PostOne(ctx, client, jobs.Posting{Board: "other", Name: "n", Kind: "k"}); !errors.Is(err, jobs.ErrNotAllowed) {
			t.Errorf("by node %d: %v", i, err)
		}
	}
	same(t, c.cluster)
}

// Every change is audited under the authenticated name, for any claimed name.
func TestChangesAreOnRecord(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	ctx := t.Context()
	token, _ := c.token("ops", time.Time{}, access.Grant{Role: access.Operator, Boards: "orders"})
	client := c.as(token)
	job, err := jobs.PostOne(ctx, client, jobs.Posting{Board: "orders", Name: "n", Kind: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Suspend(ctx, jobs.JobCommand{Job: job.ID, By: "somebody else", Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	if err := client.Cancel(ctx, jobs.JobCommand{Job: job.ID, By: "somebody else"}); err != nil {
		t.Fatal(err)
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := 0
	for event, err := range client.Watch(watching, jobs.Watch{After: &jobs.Position{}, Board: "orders"}) {
		if err != nil {
			t.Fatal(err)
		}
		if event.By != "ops" || event.Request != nil && event.Request.By != "ops" {
			t.Errorf("%+v, request %+v", event, event.Request)
		}
		if seen++; seen == 3 {
			break
		}
	}
}

// The audit log has the jobs that an operator trashes, and not the jobs that conductors trash.
func TestTrashIsOnRecord(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	token, _ := c.token("ops", time.Time{}, access.Grant{Role: access.Operator, Boards: "orders"}, access.Grant{Role: access.Worker, Boards: "orders"})
	client := c.as(token)
	byOperator, byConductor := trashed(t, client, logbook.FailureOperator), trashed(t, client, "flow.build")
	page, err := c.operator.Audit(t.Context(), access.RecordQuery{Principal: "ops"})
	if err != nil || len(page.Items) != 1 || page.Items[0].Verb != "trash" || page.Items[0].Target != "job="+byOperator.String() || page.Items[0].Change != "" {
		t.Errorf("an operator trashed job %s, and a conductor trashed job %s: %+v, %v", byOperator, byConductor, page, err)
	}
}

// trashed posts a job, claims it and trashes it with a failure of this kind.
func trashed(t *testing.T, client *raftboard.Client, kind string) jobs.JobID {
	t.Helper()
	ctx := t.Context()
	job, err := jobs.PostOne(ctx, client, jobs.Posting{Board: "orders", Name: "n", Kind: "k"})
	if err != nil {
		t.Fatal(err)
	}
	session, err := client.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "trasher", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := client.Claim(ctx, session.ID, job.ID, jobs.NewNonce())
	if err != nil {
		t.Fatal(err)
	}
	failure := &logbook.Failure{Kind: kind, Message: "broken", Permanent: true}
	if err := client.Trash(ctx, jobs.Ending{Job: job.ID, Token: claimed.Job.Token, Reason: "broken", Failure: failure}); err != nil {
		t.Fatal(err)
	}
	return job.ID
}

// The audit log has every action of principals on the work of others, on boards, on the
// cluster and on each other, done or refused, with the log index. Calls that a node refused
// without the log are counted at that node.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 3)
	ctx := t.Context()
	token, _ := c.token("ops", time.Time{}, access.Grant{Role: access.Operator, Boards: "orders"})
	client := c.as(token)
	job, err := jobs.PostOne(ctx, client, jobs.Posting{Board: "orders", Name: "n", Kind: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Cancel(ctx, jobs.JobCommand{Job: job.ID, Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	if err := client.Suspend(ctx, jobs.JobCommand{Job: job.ID}); err == nil {
		t.Error("a job that is finished was suspended")
	}
	if _, err := c.operator.RemoveMember(ctx, "nobody"); err == nil {
		t.Error("a member was removed that is none")
	}
	page, err := c.operator.Audit(ctx, access.RecordQuery{Principal: "ops"})
	if err != nil || len(page.Items) != 2 || page.Next != "" {
		t.Fatalf("%+v, %v", page, err)
	}
	for i, verb := range []string{"suspend", "cancel"} {
		record := page.Items[i]
		want := access.Record{
			Position: record.Position, At: record.At, Principal: "ops", From: "127.0.0.1", Verb: verb, Target: "job=" + job.ID.String(), Change: "reason=r",
		}
		if verb == "suspend" {
			want.Change, want.Error = "", command.CodeConflict
		}
		if record != want || record.Position.Index == 0 || time.Since(record.At) > time.Minute {
			t.Errorf("%+v, want %+v", record, want)
		}
	}
	granted, err := c.operator.Audit(ctx, access.RecordQuery{Verb: "save_principal", Target: "name=ops"})
	if err != nil || len(granted.Items) != 1 || !strings.Contains(granted.Items[0].Change, "grants=[operator:") {
		t.Errorf("what was granted: %+v, %v", granted, err)
	}
	for verb, target := range map[string]string{"save_principal": "name=ops", "add_access_token": "principal=ops", "ClusterService/RemoveMember": "name=nobody"} {
		page, err := c.operator.Audit(ctx, access.RecordQuery{Verb: verb, Target: target})
		if err != nil || len(page.Items) != 1 || page.Items[0].Principal != "node/n1" {
			t.Errorf("%s: %+v, %v", verb, page, err)
		}
	}
	for range 3 {
		if _, err := jobs.PostOne(ctx, client, jobs.Posting{Board: "other", Name: "n", Kind: "k"}); !errors.Is(err, jobs.ErrNotAllowed) {
			t.Error(err)
		}
	}
	refusals, err := c.operator.Refusals(ctx)
	if err != nil {
		t.Fatal(err)
	}
	counted := uint64(0)
	for _, refusal := range refusals {
		if refusal.Principal == "ops" && refusal.Verb == "post" && refusal.From == "127.0.0.1" && refusal.Node != "" && strings.Contains(refusal.Error, "other") {
			counted += refusal.Count
		}
	}
	if counted < 3 {
		t.Errorf("%d of 3 refusals are counted: %+v", counted, refusals)
	}
	same(t, c.cluster)
}

// Objects of another tenant look like missing objects, and are not changed.
func TestTenantsDoNotMeet(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	ctx := t.Context()
	other := c.newTenant("other", "foreign")
	token, _ := c.token("mine", time.Time{}, access.Grant{Role: access.Operator, Boards: "mine"}, access.Grant{Role: access.Worker, Boards: "mine"})
	client := c.as(token)
	nobody := jobs.NewJobID()
	for _, name := range []string{"BoardService/GetJob", "BoardService/Explain", "BoardService/WaitJob"} {
		_, of := c.call(0, token, name, fmt.Sprintf(`{"id": %q}`, other.job))
		_, none := c.call(0, token, name, fmt.Sprintf(`{"id": %q}`, nobody))
		if strings.ReplaceAll(of, other.job.String(), "ID") != strings.ReplaceAll(none, nobody.String(), "ID") {
			if withoutDetails(of, other.job.String()) != withoutDetails(none, nobody.String()) {
				t.Errorf("%s: %s, and of one that does not exist: %s", name, of, none)
			}
		}
	}
	if _, err := jobs.PostOne(ctx, client, jobs.Posting{ID: other.job, Board: "mine", Name: "n", Kind: "k"}); !errors.Is(err, jobs.ErrConflict) {
		t.Errorf("posted under the id of another tenant's job: %v", err)
	}
	if _, err := jobs.PostOne(ctx, client, jobs.Posting{Board: "mine", Name: "n", BookID: other.book, Flow: other.flow}); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("posted under the book of another tenant: %v", err)
	}
	stolen := logbook.Book{ID: other.book, Name: "stolen"}
	if _, err := jobs.PostOne(ctx, client, jobs.Posting{Board: "mine", Name: "n", Book: &stolen, Flow: other.flow}); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("posted with the book of another tenant: %v", err)
	}
	if err := client.Consume(ctx, jobs.Ending{Job: other.claimed, Token: other.token, Outcome: jobs.OutcomeSuccess}); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("ended under the token of another tenant: %v", err)
	}
	if err := client.CloseSession(ctx, other.session); !errors.Is(err, jobs.ErrSessionExpired) {
		t.Errorf("closed the session of another tenant: %v", err)
	}
	if err := client.KeepAlive(ctx, other.session); !errors.Is(err, jobs.ErrSessionExpired) {
		t.Errorf("kept the session of another tenant alive: %v", err)
	}
	update := logbook.Update{Flow: other.flow, Sequence: 1, State: logbook.FlowRunning}
	if verdicts, err := client.Update(ctx, update); err != nil || !errors.Is(verdicts[0], jobs.ErrNotFound) {
		t.Errorf("changed the flow of another tenant: %v, %v", verdicts, err)
	}
	posted, err := jobs.PostOne(ctx, client, jobs.Posting{Board: "mine", Name: "n", Kind: "k"})
	if err != nil {
		t.Fatal(err)
	}
	watching, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for event, err := range client.Watch(watching, jobs.Watch{After: &jobs.Position{}, Sessions: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Board != "mine" {
			t.Errorf("saw %+v", event)
		}
		if event.Job == posted.ID {
			break
		}
	}
	if err := c.operator.SaveBook(ctx, logbook.Book{ID: other.book, Name: "renamed"}); err != nil {
		t.Error(err)
	}
	if book, err := c.operator.Book(ctx, other.book); err != nil || book.Name != "renamed" || book.Board != "other" {
		t.Errorf("%+v, %v", book, err)
	}
	job, err := c.operator.Job(ctx, other.claimed)
	if err != nil || job.State != jobs.StateClaimed || job.Token != other.token {
		t.Errorf("%+v, %v", job, err)
	}
}

// TestListsShowOwnBoards checks that a list without a board shows exactly the objects on the boards
// that the caller may read, for any number of rows of other tenants between them.
func TestListsShowOwnBoards(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	ctx := t.Context()
	own := c.newTenant("mine/a", "own-mark")
	foreign := make([]jobs.Posting, 100)
	for i := range foreign {
		foreign[i] = jobs.Posting{Board: "other", Name: "foreign", Kind: "foreign"}
	}
	if _, err := c.operator.Post(ctx, foreign...); err != nil {
		t.Fatal(err)
	}
	c.newTenant("other", "foreign")
	last := c.newTenant("mine/b", "last-mark")
	token, _ := c.token("mine", time.Time{}, access.Grant{Role: access.Viewer, Boards: "mine/*"})
	if err := last.trash(c); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"BoardService/ListJobs": "own-mark last-mark", "BoardService/ListClaims": "own-mark", "BoardService/ListErrors": "last-mark",
		"ScheduleService/List": "own-mark last-mark", "LogbookService/ListBooks": "own-mark last-mark",
	} {
		for _, stale := range []string{`{}`, `{"stale": true}`} {
			if stale != `{}` && name == "BoardService/ListClaims" {
				continue // only the leader knows this duration
			}
			status, answer := c.call(0, token, name, stale)
			if status != http.StatusOK || strings.Contains(answer, "foreign") {
				t.Errorf("%s: %d %s", name, status, answer)
			}
			for mark := range strings.FieldsSeq(want) {
				if !strings.Contains(answer, mark) {
					t.Errorf("%s lacks %s: %s", name, mark, answer)
				}
			}
		}
	}
	var found []jobs.JobID
	client, empty := c.as(token), 0
	for query := (jobs.Query{Limit: 1}); ; {
		page, err := client.Jobs(ctx, query)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Items {
			found = append(found, page.Items[i].ID)
		}
		if len(page.Items) == 0 {
			empty++
		}
		if query.After = page.Next; query.After == "" {
			break
		}
	}
	if want := []jobs.JobID{own.job, own.claimed, last.job, last.claimed}; !slices.Equal(found, want) || empty > 10 {
		t.Errorf("page by page: %v, want %v, with %d empty pages", found, want, empty)
	}
	if _, answer := c.call(0, token, "BoardService/ListJobs", `{"board": "other"}`); !refused(answer, notAllowed) {
		t.Errorf("another tenant's board: %s", answer)
	}
}

// trash trashes the claimed job of a tenant.
func (o *tenant) trash(c *tenants) error {
	return c.as(o.workerToken).Trash(c.t.Context(), jobs.Ending{Job: o.claimed, Token: o.token, Reason: o.mark, Failure: &logbook.Failure{Kind: "k", Message: o.mark}})
}

// withoutDetails is the code and the message of an error, without an id.
func withoutDetails(answer, id string) string {
	var failed struct{ Code, Message string }
	if json.Unmarshal([]byte(answer), &failed) != nil {
		return answer
	}
	return failed.Code + strings.ReplaceAll(failed.Message, id, "ID")
}

// A node without access control cannot forward its callers as authenticated.
func TestOpenNodeCannotVouch(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 3, func(o *node.Options) { o.AccessControl = o.Name != "n3" })
	eventually(t, "another node leads", func() bool {
		if c.leader() != 2 {
			return true
		}
		_, _ = c.operator.TransferLeader(t.Context(), "n1")
		return false
	})
	if status, answer := c.call(2, "", "BoardService/Post", `{"postings": [{"name": "n", "kind": "k"}]}`); !refused(answer, notAllowed) {
		t.Errorf("%d %s", status, answer)
	}
	if status, answer := c.call(2, "", "BoardService/ListJobs", `{"stale": true}`); status != http.StatusOK {
		t.Errorf("the node answers from its own state: %d %s", status, answer)
	}
}
