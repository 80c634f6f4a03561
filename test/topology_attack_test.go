package test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	accesscmd "github.com/conductord/conductord/cmd/conductord/cli/access"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/credentials"
)

// secureFederation is clusters with TLS and access control.
type secureFederation struct {
	*federation
	dir     string // directory of the certificates
	plain   *http.Client
	touched atomic.Int64 // connections to the address of the cluster without TLS
}

// startSecure starts the clusters a and b. The address of a third one, "open", starts with http://.
// No call may reach it.
func startSecure(t *testing.T) *secureFederation {
	t.Helper()
	f := &secureFederation{dir: t.TempDir()}
	var made accesscmd.MadeFiles
	printed(t, &made, "cert", "init", "--dir", f.dir)
	printed(t, &made, "cert", "issue", "client", "ann", "--dir", f.dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.touched.Add(1)
			_ = conn.Close()
		}
	}()
	rules := fmt.Sprintf("\"away/*\" = \"b\"\n\"open/*\" = \"open\"\n[clusters.open]\nservers = [\"http://%s\"]\n", listener.Addr())
	f.federation = startFederationOf(t, rules, func(c *config.Config) {
		id := c.Cluster.ID
		dir := filepath.Join(f.dir, id)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"ca.pem", "ca.key"} {
			data, err := os.ReadFile(filepath.Join(f.dir, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		printed(t, &made, "cert", "issue", "node", c.Node, "--cluster", id, "--host", "127.0.0.1,localhost", "--dir", dir)
		c.TLS = config.TLS{CA: filepath.Join(dir, "ca.pem"), Cert: made.Cert, Key: made.Key}
	}, "a", "b")
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(filepath.Join(f.dir, "ca.pem"))
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	f.plain = &http.Client{Transport: transport}
	return f
}

// operator calls a cluster through the socket of its node.
func (f *secureFederation) operator(name string) *raftboard.Client {
	f.t.Helper()
	socket := "unix://" + filepath.Join(f.clusters[name].Nodes[0].DataDir, "api.sock")
	client, err := raftboard.Open(within(f.t), raftboard.Options{Endpoints: []string{socket}, Patience: 5 * time.Second})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(client.Close)
	return client
}

// know adds a token for a principal to a cluster.
func (f *secureFederation) know(cluster, name string, token *access.Token, role access.Role, boards string) {
	f.t.Helper()
	client := f.operator(cluster)
	err := client.SavePrincipal(within(f.t), access.Principal{Name: name, Grants: []access.Grant{{Role: role, Boards: boards}}})
	if err == nil && token != nil {
		err = client.AddAccessToken(within(f.t), name, *token)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// answered is a node's answer to one posting.
type answered struct {
	status        int
	text          string
	id            string
	code, message string // of the result
}

// post sends one posting to the node of a cluster, with any headers.
func (f *secureFederation) post(cluster, board string, headers ...string) (answered, error) {
	id := jobs.NewJobID().String()
	return f.send(cluster, id, fmt.Sprintf(`{"postings": [{"id": %q, "board": %q, "name": "n", "kind": "test"}]}`, id, board), headers...)
}

// send sends the body of a posting with an id.
func (f *secureFederation) send(cluster, id, body string, headers ...string) (answered, error) {
	url := "https://" + f.clusters[cluster].Nodes[0].API + "/conductord.v1.BoardService/Post"
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return answered{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := f.plain.Do(request)
	if err != nil {
		return answered{}, err
	}
	defer func() { _ = response.Body.Close() }()
	var text bytes.Buffer
	if _, err = text.ReadFrom(response.Body); err != nil {
		return answered{}, err
	}
	got := answered{status: response.StatusCode, text: text.String(), id: id}
	var message struct {
		Posted []struct {
			Error struct{ Code, Message string }
		}
	}
	if err = json.Unmarshal(text.Bytes(), &message); err == nil && len(message.Posted) == 1 {
		got.code, got.message = message.Posted[0].Error.Code, message.Posted[0].Error.Message
	}
	return got, err
}

// TestForwardingAsAnAttacker posts through the wrong node: with tokens that one or both clusters
// know, with forged headers, with a certificate, and without credentials. Then the other cluster
// hangs.
func TestForwardingAsAnAttacker(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f := startSecure(t)
	texts := map[string]string{}
	draw := func(name string) *access.Token {
		text, token := access.Draw(time.Now().Add(time.Hour))
		texts[name] = text
		return &token
	}
	shop := draw("shop")
	f.know("a", "shop", shop, access.Poster, "*")
	f.know("b", "shop-of-b", shop, access.Poster, "away/*") // another principal in b, whose name counts there
	f.know("a", "local", draw("local"), access.Poster, "*")
	reader := draw("reader") // may post in b, but not in a
	f.know("a", "reader", reader, access.Poster, "here/*")
	f.know("b", "reader", reader, access.Poster, "*")
	f.know("a", "ann", nil, access.Administrator, "*")
	digest, address := f.source("a").Current().Digest(), f.clusters["b"].Nodes[0].API
	for _, row := range []struct {
		what, board, token, header string
		status                     int
		code                       string
		says                       []string
	}{
		{what: "a token of both", board: "away/1", token: "shop", status: 200},
		{what: "a forged principal", board: "away/2", token: "shop", header: "Conductord-Principal", status: 200},
		{what: "a token of a alone", board: "away/3", token: "local", status: 200, code: "not_allowed", says: []string{`cluster "b"`, "the token does not belong to this cluster"}},
		{what: "no right to post in a", board: "away/4", token: "reader", status: 200, code: "not_allowed", says: []string{`principal "reader" has no permission to post`}},
		{what: "the same, with a forged topology", board: "away/5", token: "reader", header: "Conductord-Topology", status: 200, code: "not_allowed"},
		{what: "a forged topology", board: "away/6", token: "shop", header: "Conductord-Topology", status: 200, code: "wrong_cluster", says: []string{"same file"}},
		{what: "forged hops", board: "away/7", token: "shop", header: "Conductord-Hops", status: 200, code: "wrong_cluster"},
		{what: "plain text", board: "open/1", token: "shop", status: 200, code: "not_allowed", says: []string{"plain text"}},
		{what: "nobody", board: "away/8", status: 401},
		{what: "nobody with a forged principal", board: "away/9", header: "Conductord-Principal", status: 401},
		{what: "nobody with a forged topology", board: "away/10", header: "Conductord-Topology", status: 401},
	} {
		var headers []string
		if row.token != "" {
			headers = append(headers, "Authorization", "Bearer "+texts[row.token])
		}
		if row.header != "" {
			headers = append(headers, row.header, "1")
		}
		got, err := f.post("a", row.board, headers...)
		if err != nil || got.status != row.status || got.code != row.code {
			t.Errorf("%s: got %+v, %v; want status %d, code %q", row.what, got, err, row.status, row.code)
		}
		for _, part := range row.says {
			if !strings.Contains(got.message, part) {
				t.Errorf("%s: %q does not say %q", row.what, got.message, part)
			}
		}
		if hidden := row.token != "shop" && row.token != "local"; hidden && (strings.Contains(got.text, digest) || strings.Contains(got.text, address) || strings.Contains(got.text, `cluster \"b\"`)) {
			t.Errorf("%s: the refusal shows the topology: %s", row.what, got.text)
		}
	}
	f.refusesCertificates(address)
	many := `{"postings": [` + strings.Repeat(`{"board": "away/many"},`, 1_000) + `{"board": "away/many"}]}`
	if got, err := f.send("a", "", many, "Authorization", "Bearer "+texts["shop"]); err != nil || got.status != 429 || !strings.Contains(got.text, "1001 postings") {
		t.Errorf("one posting too many: got status %d, %v: %.300s", got.status, err, got.text)
	}
	var boards []string
	page, err := f.operator("b").Jobs(within(t), jobs.Query{})
	for _, job := range page.Items {
		boards = append(boards, job.Board+" of "+job.PostedBy)
	}
	slices.Sort(boards)
	if want := "[away/1 of shop-of-b away/2 of shop-of-b]"; err != nil || fmt.Sprint(boards) != want {
		t.Errorf("cluster b has %v, %v; want %s", boards, err, want)
	}
	if n := f.touched.Load(); n != 0 {
		t.Errorf("%d connections went to an address without TLS", n)
	}
	f.hangs(texts["shop"])
}

// refusesCertificates checks the advice for callers with a certificate or through the socket.
func (f *secureFederation) refusesCertificates(address string) {
	f.t.Helper()
	store, err := credentials.Open(credentials.Files{
		CA: filepath.Join(f.dir, "ca.pem"), Cert: filepath.Join(f.dir, "ann.pem"), Key: filepath.Join(f.dir, "ann.key"),
	}, func(err error) { f.t.Error(err) })
	if err != nil {
		f.t.Fatal(err)
	}
	ann, err := raftboard.Open(within(f.t), raftboard.Options{Endpoints: f.clusters["a"].Endpoints(), Credentials: store})
	if err != nil {
		f.t.Fatal(err)
	}
	defer ann.Close()
	for _, client := range []*raftboard.Client{ann, f.operator("a")} {
		err := verdict(client.Post(within(f.t), postingTo("away/cert")))
		if !errors.Is(err, jobs.ErrNotAllowed) || !strings.Contains(err.Error(), "identifies the caller only to this node: use a token, or call that cluster at "+address) {
			f.t.Errorf("a certificate or a socket: got %v", err)
		}
	}
}

// hangs stops the other cluster's process. Calls to it are limited in number and time, and this
// cluster's own postings continue.
func (f *secureFederation) hangs(token string) {
	t := f.t
	t.Helper()
	const calls, limit = 320, 256
	show := []string{"Authorization", "Bearer " + token}
	other := f.clusters["b"].Nodes[0]
	other.Signal(syscall.SIGSTOP)
	defer other.Signal(syscall.SIGCONT)
	var mu sync.Mutex
	codes := map[string]int{}
	var calling sync.WaitGroup
	began := time.Now()
	for range calls {
		calling.Go(func() {
			got, err := f.post("a", "away/hangs", show...)
			if err != nil || got.code == "" {
				t.Errorf("a call to a cluster that hangs: %+v, %v", got, err)
			}
			mu.Lock()
			defer mu.Unlock()
			codes[got.code]++
		})
	}
	done := make(chan struct{})
	go func() { calling.Wait(); close(done) }()
	own := 0
	for waiting := true; waiting; {
		got, err := f.post("a", "here/1", show...)
		if err != nil || got.status != http.StatusOK || got.code != "" {
			t.Fatalf("a posting for this cluster: %+v, %v", got, err)
		}
		select {
		case <-done:
			waiting = false
		default:
			own++
		}
	}
	took := time.Since(began)
	t.Logf("%v after %v; %d own postings meanwhile", codes, took, own)
	if codes["overloaded"] == 0 || codes["overloaded"] > calls-limit || codes["overloaded"]+codes["uncertain"]+codes["unavailable"] != calls {
		t.Errorf("got %v of %d calls, and %d may be under way", codes, calls, limit)
	}
	if own == 0 || took > patience/3 {
		t.Errorf("%d own postings, and the calls ended after %v", own, took)
	}
	f.boundsBytes(show)
	other.Signal(syscall.SIGCONT)
	eventually(t, "postings are forwarded again", func() bool {
		got, err := f.post("a", "away/again", show...)
		return err == nil && got.status == http.StatusOK && got.code == ""
	})
}

// boundsBytes sends large postings to a hanging cluster: two fit, and further ones are overloaded.
func (f *secureFederation) boundsBytes(show []string) {
	f.t.Helper()
	const calls = 4
	body := fmt.Sprintf(`{"postings": [{"board": "away/large", "name": "n", "kind": "test", "details": {"x": %q}}]}`, strings.Repeat("x", 3<<20))
	var calling sync.WaitGroup
	var overloaded atomic.Int64
	for range calls {
		calling.Go(func() {
			got, err := f.send("a", "", body, show...)
			if err != nil || got.code == "" {
				f.t.Errorf("a large posting to a cluster that hangs: %d, %.300s, %v", got.status, got.text, err)
			}
			if got.code == "overloaded" && strings.Contains(got.message, "the limit is 8388608") {
				overloaded.Add(1)
			}
		})
	}
	calling.Wait()
	if got := overloaded.Load(); got == 0 || got > calls-2 {
		f.t.Errorf("%d of %d large calls are overloaded", got, calls)
	}
}
