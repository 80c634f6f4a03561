package test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	accesscmd "github.com/conductord/conductord/cmd/conductord/cli/access"
	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/credentials"
)

// TestAccess follows the runbook "Who may do what" of docs/security.md: a first administrator
// through a node's socket, tokens for a poster, a worker and a viewer on two boards, the view
// of each, and the replacement of a token. The daemons' conductors work meanwhile.
func TestAccess(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	var made accesscmd.MadeFiles
	printed(t, &made, "cert", "init", "--dir", dir)
	printed(t, &made, "cert", "issue", "client", "ann", "--dir", dir)
	cluster := newCluster(t, func(c *config.Config) {
		printed(t, &made, "cert", "issue", "node", c.Node, "--cluster", "local", "--host", "127.0.0.1,localhost", "--dir", dir)
		c.TLS = config.TLS{CA: file("ca.pem"), Cert: made.Cert, Key: made.Key}
	})
	if err := errors.Join(cluster.Start(), cluster.WaitReady(within(t))); err != nil {
		t.Fatal(err)
	}
	servers := "--server=" + strings.Join(cluster.Endpoints(), ",")
	nobody := []string{servers, "--ca-file=" + file("ca.pem"), "--timeout=10s"}
	refuses(t, 7, "use a token", append([]string{"job", "list"}, nobody...)...)

	socket := filepath.Join(cluster.Nodes[1].DataDir, "api.sock")
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	ran(t, "access", "save", "ann", "--grant", "administrator", "--server", "unix://"+socket)
	ann := append(nobody, "--cert-file="+file("ann.pem"), "--key-file="+file("ann.key"))
	if said := ran(t, append([]string{"access", "whoami"}, ann...)...); strings.TrimSpace(said) != "ann: administrator=*" {
		t.Errorf("%q", said)
	}
	as := map[string][]string{}
	for name, grant := range map[string]string{"shop": "poster=orders/*", "packing": "worker=orders/*", "audit": "viewer=orders/*", "other": "operator=other"} {
		ran(t, append([]string{"token", "create", name, "--grant", grant, "--out", file(name + ".token")}, ann...)...)
		as[name] = append([]string{"--token-file=" + file(name+".token")}, nobody...)
	}
	refuses(t, 1, "file exists", append([]string{"token", "create", "shop", "--out", file("shop.token")}, ann...)...)

	text := ran(t, append([]string{"job", "post", "--board", "orders/new", "--name", "n", "--kind", "none", "-o", "json"}, as["shop"]...)...)
	id := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).FindString(text)
	for name, verdicts := range map[string][3]int{ // exit codes of: get, cancel, list of the board
		"shop": {0, 7, 0}, "packing": {0, 7, 0}, "audit": {0, 7, 0}, "other": {3, 3, 7},
	} {
		for i, args := range [][]string{{"job", "get", id}, {"job", "cancel", id}, {"job", "list", "--board", "orders/new"}} {
			if code := command(t, "", append(args, as[name]...)...).code; code != verdicts[i] {
				t.Errorf("%s %v: exit code %d, want %d", name, args, code, verdicts[i])
			}
		}
	}
	shown := ran(t, append([]string{"job", "get", id, "-o", "json"}, as["audit"]...)...)
	if !strings.Contains(strings.ReplaceAll(shown, " ", ""), `"posted_by":"shop"`) {
		t.Error(shown)
	}
	if said := ran(t, append([]string{"board", "list"}, as["other"]...)...); strings.Contains(said, "orders") {
		t.Error(said)
	}
	ran(t, append([]string{"flow", "run", "../examples/hello.toml"}, ann...)...) // by the conductor of a node

	old := firstToken(t, ran(t, append([]string{"token", "list", "-o", "json"}, ann...)...), "shop")
	ran(t, append([]string{"token", "create", "shop", "--out", file("shop.new")}, ann...)...)
	ran(t, append([]string{"token", "revoke", "shop", old}, ann...)...)
	refuses(t, 7, "revoked", append([]string{"job", "get", id}, as["shop"]...)...)
	if err := os.Rename(file("shop.new"), file("shop.token")); err != nil {
		t.Fatal(err)
	}
	ran(t, append([]string{"job", "get", id}, as["shop"]...)...)
	if err := os.Chmod(file("shop.token"), 0o644); err != nil {
		t.Fatal(err)
	}
	refuses(t, 2, "chmod 600", append([]string{"job", "get", id}, as["shop"]...)...)

	postsAFlow(t, cluster.Endpoints(), file)
	worksAsPacker(t, cluster.Endpoints(), file)
	ran(t, append([]string{"job", "cancel", id}, ann...)...)
	text = ran(t, append([]string{"audit", "search", "--target", id, "--since", "1h"}, ann...)...)
	if strings.Count(text, "cancel") != 1 || !strings.Contains(text, " ann ") || !strings.Contains(text, "127.0.0.1") {
		t.Error(text)
	}
	if text = ran(t, append([]string{"audit", "refusals"}, ann...)...); !strings.Contains(text, "revoked") || !strings.Contains(text, "packing") {
		t.Error(text)
	}
	refuses(t, 7, "no permission to administer", append([]string{"audit", "tail"}, as["packing"]...)...)
	text = ran(t, append([]string{"access", "delete", "audit"}, ann...)...)
	refuses(t, 7, "revoked", append([]string{"job", "get", id}, as["audit"]...)...)
	if found, bad := examined(t, "", "--config", cluster.Nodes[0].Config); bad {
		t.Errorf("%s: %+v", text, found)
	}
}

// dialAs is a client with a principal's token.
func dialAs(t *testing.T, endpoints []string, file func(string) string, name string) *raftboard.Client {
	t.Helper()
	store, err := credentials.Open(credentials.Files{CA: file("ca.pem")}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(file(name + ".token"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := raftboard.Open(within(t), raftboard.Options{Endpoints: endpoints, Credentials: store, Token: strings.TrimSpace(string(token))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// postsAFlow posts a job with a flow that a Go program runs.
func postsAFlow(t *testing.T, endpoints []string, file func(string) string) {
	t.Helper()
	detail := logbook.FlowDetail{ID: logbook.NewFlowID(), Name: "pack", Factory: logbook.Factory{Name: "pack"}}
	book := logbook.Book{ID: logbook.NewBookID(), Name: "pack", Flows: []logbook.FlowDetail{detail}}
	posting := jobs.Posting{Board: "orders/flows", Name: "pack", Book: &book}
	if _, err := jobs.PostOne(within(t), dialAs(t, endpoints, file, "shop"), posting); err != nil {
		t.Fatal(err)
	}
}

// worksAsPacker is a Go program that claims and ends only the jobs of its boards.
func worksAsPacker(t *testing.T, endpoints []string, file func(string) string) {
	t.Helper()
	client := dialAs(t, endpoints, file, "packing")
	session, err := client.OpenSession(within(t), jobs.Opening{ID: jobs.NewSessionID(), Name: "packer", TTL: time.Minute})
	if err != nil || session.Principal != "packing" {
		t.Fatalf("%+v, %v", session, err)
	}
	request := jobs.ClaimRequest{Session: session.ID, Nonce: jobs.NewNonce(), Boards: []string{"orders/new"}}
	granted, err := client.ClaimNext(within(t), request)
	if err != nil || len(granted) != 1 {
		t.Fatalf("%+v, %v", granted, err)
	}
	if err := client.Abandon(within(t), jobs.Ending{Job: granted[0].Job.ID, Token: granted[0].Job.Token}); err != nil {
		t.Error(err)
	}
	request.Nonce, request.Boards = jobs.NewNonce(), []string{"orders/new", "other"}
	if _, err := client.ClaimNext(within(t), request); !errors.Is(err, jobs.ErrNotAllowed) {
		t.Errorf("claimed from the board of another tenant: %v", err)
	}
	conducts(t, client)
	who, err := client.WhoAmI(within(t))
	if err != nil || !slices.Equal(who.Grants, []access.Grant{{Role: access.Worker, Boards: "orders/*"}}) {
		t.Errorf("%+v, %v", who, err)
	}
}

// conducts runs a principal's conductor for one board, and a flow on it.
func conducts(t *testing.T, client *raftboard.Client) {
	t.Helper()
	registry := flow.NewRegistry()
	err := registry.Register("pack", func(json.RawMessage) (*flow.Flow, error) {
		return flow.Linear("pack", flow.Func("wrap", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	packer, err := conductor.New(conductor.Options{Client: client, Registry: registry, Name: "packer", Boards: []string{"orders/flows"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- packer.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the conductor ended: %v", err)
		}
	}()
	eventually(t, "the flow is done", func() bool {
		page, err := client.Jobs(within(t), jobs.Query{Board: "orders/flows"})
		return err == nil && len(page.Items) == 1 && page.Items[0].Outcome == jobs.OutcomeSuccess
	})
}

// firstToken is the id of a principal's first token in the list of all tokens.
func firstToken(t *testing.T, text, principal string) string {
	t.Helper()
	var listed struct {
		Principals []struct {
			Name   string
			Tokens []struct{ ID string }
		}
	}
	if err := json.Unmarshal([]byte(text), &listed); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, p := range listed.Principals {
		if p.Name == principal && len(p.Tokens) > 0 {
			return p.Tokens[0].ID
		}
	}
	t.Fatalf("no token of %s in %s", principal, text)
	return ""
}

// ran returns the output of a command that must succeed.
func ran(t *testing.T, args ...string) string {
	t.Helper()
	got := command(t, "", args...)
	if got.code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, got.code, got.err)
	}
	return got.out
}
