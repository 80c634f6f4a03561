package dashboard_test

import (
	"context"
	"encoding/json"
	"html"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/cmd/conductord/dashboard"
	"github.com/conductord/conductord/docs"
	"github.com/conductord/conductord/raftboard/node"
)

// The page shows each call of docs/protocol.md, with its text, permission, fields and command line.
func TestAPIPageShowsEveryCall(t *testing.T) {
	t.Parallel()
	s := open(t)
	response, text := s.request(http.MethodGet, "viewer", "/dashboard/api", nil)
	calls := docs.Calls()
	if response.StatusCode != http.StatusOK || len(calls) < 80 {
		t.Fatalf("status %d, %d calls: %s", response.StatusCode, len(calls), text)
	}
	if response, _ := s.request(http.MethodGet, "", "/dashboard/api", nil); response.StatusCode == http.StatusOK {
		t.Error("the page is shown to a person without a sign-in")
	}
	sections := sectionsOf(text)
	if len(sections) != len(calls) {
		t.Errorf("the page has %d calls, docs/protocol.md %d", len(sections), len(calls))
	}
	for name, call := range calls {
		has := sections[name]
		switch {
		case call.Text == "" || strings.Contains(has, "<p></p>"):
			t.Errorf("%s has no words", name)
		case name == "StreamService/Carry":
			if curlOf(has) != "" {
				t.Errorf("%s: curl cannot make this call:\n%s", name, has)
			}
		case !strings.Contains(has, `<span class="quiet">`+call.Permission+"</span>") || call.Permission == "":
			t.Errorf("%s does not show the permission %q:\n%s", name, call.Permission, has)
		case !json.Valid([]byte(call.Request)):
			t.Errorf("%s: the example is not JSON: %s", name, call.Request)
		case !strings.HasPrefix(curlOf(has), `curl -sS `) || !strings.Contains(curlOf(has), ` --cacert ca.pem -H "Authorization: Bearer $CONDUCTORD_TOKEN" `) ||
			!strings.Contains(curlOf(has), "'"+s.url+"/conductord.v1."+name+"' -d '{"):
			t.Errorf("%s has no command line: %q", name, curlOf(has))
		}
	}
	s.holds(text, "api", []string{"stale (bool)", "postings (list of Posting)", `aria-current="page">API`}, []string{"](", "**", "data-live"})
}

// The command lines of the page work unchanged: the test runs these in order.
func TestCurlLinesReachTheirCalls(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("this machine has no curl")
	}
	page, err := exec.CommandContext(t.Context(), "curl", "-sS", openPlain(t)+"/dashboard/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	sections := sectionsOf(string(page))
	for _, row := range []struct{ call, has string }{
		{"BoardService/Post", `"posted"`},
		{"BoardService/GetJob", `"name":"paint the shed"`},
		{"BoardService/ListJobs", "paint the shed"},
		{"SessionService/Open", `"opened_at"`},
		{"SessionService/ListSessions", "my worker"},
		{"LogbookService/ListBooks", "{"},
		{"LogbookService/GetFlow", `"not_found"`},
		{"ScheduleService/Save", "{"},
		{"ScheduleService/Get", "new year"},
		{"AccessService/SaveQuota", "{}"},
		{"AccessService/ListQuotas", "orders/*"},
		{"AccessService/WhoAmI", "{"},
		{"ClusterService/Status", `"leader":"n1"`},
	} {
		answer, err := exec.CommandContext(t.Context(), "sh", "-c", curlOf(sections[row.call])).CombinedOutput()
		if err != nil || !strings.Contains(string(answer), row.has) || strings.Contains(string(answer), "unimplemented") {
			t.Errorf("%s: %v, %s\nwant %s", curlOf(sections[row.call]), err, answer, row.has)
		}
	}
}

// openPlain starts a node without access control, and returns its address.
func openPlain(t *testing.T) string {
	t.Helper()
	n, err := node.Open(node.Options{
		Name: "n1", Cluster: "test", Members: []node.Member{{Name: "n1", Raft: "127.0.0.1:1", API: "127.0.0.1:2"}}, RaftListen: "127.0.0.1:0", APIListen: "127.0.0.1:0",
		DataDir: t.TempDir(), Init: true, Raft: node.RaftTimings{Heartbeat: 100 * time.Millisecond}, Memory: 4 << 30, // the memory check counts the heap of all tests
		PagesPath: "/dashboard/", Pages: func(api http.Handler) http.Handler {
			return dashboard.New(dashboard.Options{API: api, Path: "/dashboard/", Node: "n1", Logger: hclog.NewNullLogger()})
		},
		Fatal: func(err error) { t.Errorf("the node cannot continue: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := n.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return "http://" + n.APIAddress().String()
}

// sectionsOf are the parts of the page by call.
func sectionsOf(page string) map[string]string {
	sections := map[string]string{}
	for _, match := range regexp.MustCompile(`(?s)<details id="(\w+)-(\w+)">(.*?)</details>`).FindAllStringSubmatch(page, -1) {
		sections[match[1]+"/"+match[2]] = match[3]
	}
	return sections
}

func curlOf(section string) string {
	_, line, _ := strings.Cut(section, `<code class="command">`)
	line, _, _ = strings.Cut(line, "</code>")
	return html.UnescapeString(line)
}
