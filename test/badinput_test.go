package test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// said is the output of a command, and its exit code.
type said struct {
	out, err string
	code     int
}

// command runs the binary to its end.
func command(t *testing.T, stdin string, args ...string) said {
	t.Helper()
	var out, err bytes.Buffer
	run := exec.CommandContext(within(t), binary, args...)
	run.Stdin, run.Stdout, run.Stderr = strings.NewReader(stdin), &out, &err
	_ = run.Run() // the exit code has the result
	return said{out.String(), err.String(), run.ProcessState.ExitCode()}
}

// TestBadInput sends users' mistakes and hostile input to three real servers, from the command
// line and by HTTP. Each must get a clear answer and must not affect other callers.
func TestBadInput(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	handlers := filepath.Join(t.TempDir(), "handlers")
	installBadHandlers(t, handlers)
	cluster, client := startCluster(t, func(c *config.Config) { c.Conductor.Handlers = []string{handlers} })
	leader := leaderOf(t, cluster, client)
	eventually(t, "all conductors are there", func() bool { // each has written to the log by then
		present, err := client.Entities(t.Context(), jobs.EntityConductor)
		return err == nil && len(present) == len(cluster.Nodes)
	})
	t.Run("commands", func(t *testing.T) { refusedCommands(t, client, leader) })
	t.Run("calls", func(t *testing.T) { refusedCalls(t, client, leader) })
	t.Run("the largest", func(t *testing.T) { largestAccepted(t, leader) })
	t.Run("handlers", func(t *testing.T) { badHandlers(t, client, leader) })
	t.Run("waiting", func(t *testing.T) { waitingInVain(t, client, leader) })
	t.Run("the leader dies", func(t *testing.T) { leaderDiesUnderWait(t, client, leader) })
}

// appliedBy returns a node's applied index. If it is unchanged, the log has not grown.
func appliedBy(t *testing.T, client *raftboard.Client, node *local.Node) uint64 {
	t.Helper()
	status, err := client.Status(within(t), node.API)
	if err != nil {
		t.Fatal(err)
	}
	return status.AppliedIndex
}

// grows reports whether a function makes the log grow. The log sometimes grows by itself, when
// a session expires or the leader changes. Growth counts only if it happens in each of several
// tries.
func grows(t *testing.T, client *raftboard.Client, node *local.Node, do func()) bool {
	t.Helper()
	const tries = 5
	for range tries {
		before := appliedBy(t, client, node)
		do()
		if appliedBy(t, client, node) == before {
			return false
		}
	}
	return true
}

// refusedCommands checks that invalid input never reaches the log, and that the message
// describes the fault.
func refusedCommands(t *testing.T, client *raftboard.Client, leader *local.Node) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "input")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const id = "01890000-0000-7000-8000-000000000001"
	text := func(bytes int) string { return `"` + strings.Repeat("x", bytes-2) + `"` }
	// The store of a document counts towards the document's size; a job's store does not.
	sets := []string{"job", "post", "--kind", "k", "--details", "@" + file(text(200_000))}
	for i := range 9 {
		sets = append(sets, "--set", fmt.Sprintf("v%d=%s", i, text(100_000)))
	}
	steps := "name = 'many'\n" + strings.Repeat("[[steps]]\nname='a'\n", 10_001)
	for _, row := range []struct {
		name string
		code int
		want string
		args []string
	}{
		{"a name of 256 bytes", 8, "posting name is too large: 256 bytes, and the limit is 255", []string{"job", "post", "--kind", "k", "--name", strings.Repeat("ä", 128)}},
		{"a kind of 256 bytes", 8, "--kind is too large: 256 bytes, and the limit is 255", []string{"job", "post", "--kind", strings.Repeat("k", 256)}},
		{"a board of 256 bytes", 8, "posting board is too large: 256 bytes", []string{"job", "post", "--kind", "k", "--board", strings.Repeat("b", 256)}},
		{"a control character", 2, "posting name is invalid: contains the control character U+001B", []string{"job", "post", "--kind", "k", "--name", "red\x1b[31m"}},
		{"not UTF-8", 2, "posting name is invalid: not UTF-8", []string{"job", "post", "--kind", "k", "--name", "a\xff"}},
		{"a value that is not UTF-8", 2, "--set must be UTF-8", []string{"job", "post", "--kind", "k", "--set", "a=\xff"}},
		{"a value of 256 KiB and a byte", 8, "--details is too large: 262145 bytes, and the limit is 262144", []string{"job", "post", "--kind", "k", "--details", "@" + file(text(256<<10+1))}},
		{"a command of more than 1 MiB", 8, "and the limit is 1048576", sets},
		{"65 levels", 8, "65 levels of nesting, and the limit is 64", []string{"job", "post", "--kind", "k", "--details", strings.Repeat("[", 65) + strings.Repeat("]", 65)}},
		{"half a value", 2, "--details is invalid: not a JSON value", []string{"job", "post", "--kind", "k", "--details", `{"a":`}},
		{"10,001 steps", 8, "10001 steps, and the limit is 10000", []string{"flow", "run", file(steps)}},
		{"half a document", 2, "not a JSON value", []string{"flow", "run", file(`{"name": `)}},
		{"a million brackets", 8, "1000000 bytes, and the limit is 262144", []string{"flow", "run", file(strings.Repeat("[", 1_000_000))}},
		{"no work", 2, "name the work of the job", []string{"job", "post"}},
		{"no UUID", 2, "must be a UUID", []string{"job", "get", "the-job"}},
		{"an unknown job", 3, "not found", []string{"job", "get", id}},
		{"an unknown flow", 3, "not found", []string{"flow", "show", id}},
		{"an unknown book", 3, "not found", []string{"book", "get", id}},
	} {
		grown := grows(t, client, leader, func() {
			got := command(t, "", append(row.args, "--server", leader.API)...)
			if got.code != row.code || !strings.Contains(got.err, row.want) || got.out != "" {
				t.Errorf("%s: code %d, want %d with %q:\n%.500s%.500s", row.name, got.code, row.code, row.want, got.out, got.err)
			}
		})
		if grown {
			t.Errorf("%s: the log has grown", row.name)
		}
	}
}

// refusedCalls checks the same for HTTP calls. Only refusals that depend on the state come
// from the state machine.
func refusedCalls(t *testing.T, client *raftboard.Client, leader *local.Node) {
	book, first, second := logbook.NewBookID(), logbook.NewFlowID(), logbook.NewFlowID()
	saved := logbook.Book{ID: book, Name: "two", Flows: []logbook.FlowDetail{
		{ID: first, Book: book, Name: "a", Factory: logbook.Factory{Name: "nobody-builds-this"}},
		{ID: second, Book: book, Name: "b", Factory: logbook.Factory{Name: "document", Args: json.RawMessage(`{"name":"x"}`)}},
	}}
	if err := client.SaveBook(within(t), saved); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, call, body string
		status           int
		want             string
		logged           bool // the refusal depends on the state, so the call is in the log
	}{
		{"half a request", "BoardService/Post", `{"postings":[`, 400, "request is invalid: not JSON, at byte 13", false},
		{"nothing", "BoardService/Post", "", 400, "request is invalid: empty", false},
		{"a list", "BoardService/Post", "[]", 400, "request is invalid", false},
		{"an unknown field", "BoardService/Post", `{"postings":[{"nam":"x"}]}`, 400, "conductord.v1.Posting has no such field", false},
		{"a million brackets", "BoardService/Post", strings.Repeat("[", 1_000_000), 400, "1000000 levels of nesting, and the limit is 128", false},
		{"five MiB", "BoardService/Post", `"` + strings.Repeat("x", 5<<20) + `"`, 429, "5242882 bytes, and the limit is 4194304", false},
		{"a null byte", "BoardService/Post", `{"postings":[{"kind":"k","name":"a\u0000b"}]}`, 200, "contains the control character U+0000", false},
		{"a value that is not UTF-8", "BoardService/Post", "{\"postings\":[{\"kind\":\"k\",\"name\":\"a\",\"details\":\"\xff\"}]}", 200, "posting details is invalid: not UTF-8", false},
		{"10,001 atoms", "LogbookService/SaveBook", `{"id":"` + logbook.NewBookID().String() + `","name":"b","flows":[{"id":"` + logbook.NewFlowID().String() +
			`","name":"f","factory":{"name":"k"},"atoms":[` + strings.Repeat(`{"name":"s"},`, 10_000) + `{"name":"s"}]}]}`, 429, "10001 steps, and the limit is 10000", false},
		{"a document that lacks a value", "BoardService/Post", `{"postings":[{"name":"a","book":{"id":"` + logbook.NewBookID().String() + `","name":"b","flows":[{"id":"` + logbook.NewFlowID().String() +
			`","name":"f","factory":{"name":"document","args":{"name":"f","inputs":["guest"],"steps":[{"name":"s","requires":["guest"]}]}}}]}}]}`, 200, "guest", false},
		{"a missing book", "BoardService/Post", `{"postings":[{"name":"a","book_id":"` + logbook.NewBookID().String() + `"}]}`, 200, "not_found", true},
		{"two flows and none named", "BoardService/Post", `{"postings":[{"name":"a","book_id":"` + book.String() + `"}]}`, 200, "posting flow is invalid: not set; a book with 2 flows requires it", true},
	} {
		grown := grows(t, client, leader, func() {
			status, answer := callHTTP(t, leader, row.call, row.body)
			if status != row.status || !strings.Contains(answer, row.want) {
				t.Errorf("%s: status %d, want %d with %q: %.300s", row.name, status, row.status, row.want, answer)
			}
		})
		if grown != row.logged {
			t.Errorf("%s: the log has grown: %v, want %v", row.name, grown, row.logged)
		}
	}
	// A job of a kind that no conductor builds waits, with a warning. An invalid document is
	// trashed with the reason.
	waits := command(t, "", "job", "post", "--book", book.String(), "--flow-id", first.String(), "--server", leader.API)
	got := command(t, "", "job", "get", strings.TrimSpace(waits.out), "--server", leader.API)
	if got.code != 0 || !strings.Contains(got.out, "claimable") || !strings.Contains(got.err, `no live conductor builds flows of kind "nobody-builds-this"`) {
		t.Errorf("an unknown kind: %+v", got)
	}
	got = command(t, "", "job", "post", "--book", book.String(), "--flow-id", second.String(), "--wait", "--server", leader.API)
	if got.code != 1 || !strings.Contains(got.err, "trashed") || !strings.Contains(got.err, "steps: missing") {
		t.Errorf("a flow that cannot be built: %+v", got)
	}
}

// callHTTP makes a call like curl.
func callHTTP(t *testing.T, node *local.Node, call, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(within(t), http.MethodPost, "http://"+node.API+"/conductord.v1."+call, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// largestAccepted checks that input just within the limits is accepted and read back unchanged.
func largestAccepted(t *testing.T, leader *local.Node) {
	name := strings.Repeat("ä", 127) + "!"
	details := `"` + strings.Repeat("x", 256<<10-2) + `"`
	posted := command(t, details, "job", "post", "--kind", "k", "--name", name, "--details", "@-", "--server", leader.API)
	got := command(t, "", "job", "get", strings.TrimSpace(posted.out), "-o", "json", "--server", leader.API)
	var job struct {
		Name    string
		Details json.RawMessage
	}
	if err := json.Unmarshal([]byte(got.out), &job); err != nil || job.Name != name || string(job.Details) != details {
		t.Errorf("posted %.200s%.200s, got %.200s, %v", posted.out, posted.err, got.out, err)
	}
}

// badHandler is a faulty handler, with the expected end of its job.
type badHandler struct {
	name, script string
	want         string // a regular expression for the output of job get
	timeout      string // timeout of the step; empty: a long one that only an endless handler reaches
}

// patiently is the timeout of handlers that end by themselves, which can take long on a busy
// machine.
const patiently = "60s"

// badHandlerRows are the faulty handlers. Rows without a script have no handler, or create it in
// another way.
var badHandlerRows = []badHandler{
	{"garbage", "echo debugging >&2; echo 'not json'", `outcome: reverted.*failed step: bad.*result: .*not a JSON value.*stdout starts with "not json".*stderr: debugging`, ""},
	{"two-values", "echo 1 2", `outcome: reverted.*result: .*data follows after byte`, ""},
	{"not-utf8", `printf '"\377"'; printf '\377\033[31m' >&2`, `outcome: reverted.*not UTF-8.*stderr: .*\\u001b\[31m`, ""},
	{"exits", "echo disk on fire >&2; exit 3", `outcome: reverted.*handler.exit: handler exits ended with status 3: disk on fire`, ""},
	{"dies", "kill -9 $$", `outcome: reverted.*handler.signal: handler dies was killed by signal 9`, ""},
	{"hangs", "echo waiting >&2; trap '' TERM; while :; do sleep 100; done", `outcome: reverted.*timeout: it took longer than 25s.*stderr: waiting`, "25s"},
	{"silent", "exec >&- 2>&-; sleep 1000", `outcome: reverted.*timeout: it took longer than 3s`, "3s"},
	{"gibibyte", "head -c 1073741824 /dev/zero", `outcome: reverted.*handler gibibyte wrote more than 262144 bytes to stdout and was killed`, ""},
	{"complains", "head -c 1073741824 /dev/zero | tr '\\0' x >&2; echo 1", `outcome: success`, ""},
	{"closes", "exec >&-", `outcome: success`, ""},
	{"no-interpreter", "", `outcome: reverted.*cannot start the handler no-interpreter: the interpreter in its first line`, ""},
	{"missing", "", `state: trashed.*reason: cannot build the flow of kind "document": step "\S+": handler "missing": not found in `, ""},
	{"link-out", "", `state: trashed.*handlers/link-out: not allowed: .*escapes`, ""},
	{"not-executable", "", `state: trashed.*not-executable: not allowed: it is not executable`, ""},
}

func installBadHandlers(t *testing.T, directory string) {
	t.Helper()
	writeHandler(t, directory, "ok", "echo 1")
	writeHandler(t, directory, "second", "sleep 1; echo 1")
	for _, row := range badHandlerRows {
		if row.script != "" {
			writeHandler(t, directory, row.name, row.script)
		}
	}
	for name, mode := range map[string]os.FileMode{"no-interpreter": 0o755, "not-executable": 0o644} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte("#!/no/such/interpreter\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/bin/true", filepath.Join(directory, "link-out")); err != nil {
		t.Fatal(err)
	}
}

// badDocument is a flow of a step that succeeds and a step with the handler.
func badDocument(handler, timeout string) string {
	return fmt.Sprintf("name = %q\npattern = \"linear\"\n[[steps]]\nname = \"good\"\nhandler = \"ok\"\n"+
		"[[steps]]\nname = \"bad\"\nhandler = %q\ntimeout = %q\n", handler, handler, cmp.Or(timeout, patiently))
}

// badHandlers checks that every fault of a handler has a clear outcome with evidence, and does
// not delay other jobs.
func badHandlers(t *testing.T, client *raftboard.Client, leader *local.Node) {
	var postings []jobs.Posting
	for _, row := range badHandlerRows {
		postings = append(postings, documentPosting(t, row.name, badDocument(row.name, row.timeout)))
	}
	posted, err := client.Post(within(t), postings...)
	if err != nil {
		t.Fatal(err)
	}
	hanging := -1
	for i, row := range badHandlerRows {
		if row.name == "hangs" {
			hanging = i
		}
	}
	eventually(t, "the handler that hangs is running", func() bool {
		job, err := client.Job(t.Context(), posted[hanging].Job.ID)
		return err == nil && job.State == jobs.StateClaimed
	})
	got := command(t, badDocument("ok", ""), "flow", "run", "-", "--wait", "--server", leader.API)
	job, err := client.Job(within(t), posted[hanging].Job.ID)
	if got.code != 0 || err != nil || job.State != jobs.StateClaimed {
		t.Errorf("a good job beside the bad: %+v; the one that hangs is %s, %v", got, job.State, err)
	}
	for i, row := range badHandlerRows {
		wait := command(t, "", "job", "wait", posted[i].Job.ID.String(), "--server", leader.API)
		got := command(t, "", "job", "get", posted[i].Job.ID.String(), "--server", leader.API)
		text := strings.Join(strings.Fields(got.out), " ")
		if got.code != 0 || !regexp.MustCompile(row.want).MatchString(text) || (wait.code == 0) != strings.Contains(text, "outcome: success") {
			t.Errorf("%s: wait ended with %d, and the job is %.1000s\nwant %s", row.name, wait.code, text, row.want)
		}
	}
}

// waitingInVain checks that a job that outlasts the caller's wait is reported as a timeout, not as
// an unavailable cluster.
func waitingInVain(t *testing.T, client *raftboard.Client, leader *local.Node) {
	job, err := jobs.PostOne(within(t), client, jobs.Posting{ID: jobs.NewJobID(), Name: "human", Kind: "human"})
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"wait", "watch"} {
		got := command(t, "", "job", verb, job.ID.String(), "--timeout", "300ms", "--server", leader.API)
		if got.code != 5 || strings.Contains(got.err, "unavailable") {
			t.Errorf("job %s: %+v", verb, got)
		}
	}
}

// leaderDiesUnderWait: a command watches a flow through the only node that it knows. It sees the
// end of the flow although that node dies.
func leaderDiesUnderWait(t *testing.T, client *raftboard.Client, leader *local.Node) {
	var text strings.Builder
	text.WriteString("name = \"long\"\npattern = \"linear\"\n")
	for i := range 3 {
		text.WriteString("[[steps]]\nname = \"step-" + strconv.Itoa(i) + "\"\nhandler = \"second\"\n")
	}
	id := jobs.NewJobID()
	ended := make(chan said, 1)
	go func() { // ends with the command, which is bounded
		ended <- command(t, text.String(), "flow", "run", "-", "--wait", "--id", id.String(), "--server", leader.API)
	}()
	eventually(t, "the flow runs", func() bool {
		job, err := client.Job(t.Context(), id)
		return err == nil && job.State == jobs.StateClaimed
	})
	leader.Kill()
	got := <-ended
	if got.code != 0 || !strings.Contains(got.err, "flow long success") || !strings.Contains(got.err, id.String()+" is posted") {
		t.Errorf("the command whose leader died: %+v", got)
	}
}
