package node_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// Plain programs can watch with one line of JSON per event, because they cannot write the binary
// frames of connect's protocol.
func TestWatchByLines(t *testing.T) {
	c := newCluster(t, 1).startAll()
	client := c.client()
	address := "http://" + c.endpoints()[0] + "/conductord.v1.BoardService/Watch"

	answer, err := http.Post(address, "application/json", strings.NewReader(`{"after": {}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	posted, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "watched", Kind: "none"})
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		var message struct {
			Events []struct{ Kind, Job string }
		}
		if err := json.Unmarshal(lines.Bytes(), &message); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if len(message.Events) == 0 {
			continue
		}
		if event := message.Events[0]; event.Kind != "posted" || event.Job != posted.ID.String() {
			t.Errorf("got event %q of job %s", event.Kind, event.Job)
		}
		break
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}

	for body, status := range map[string]int{
		`{"job": "nobody"}`: http.StatusBadRequest,
		`{"unknown": true}`: http.StatusBadRequest,
		`{"after": `:        http.StatusBadRequest,
		`{"board": "other"`: http.StatusBadRequest,
		`[1, 2, 3]`:         http.StatusBadRequest,
	} {
		refused, err := http.Post(address, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var said struct {
			Code, Message string
			Details       []struct {
				Type  string
				Debug struct{ Code string }
			}
		}
		if err := json.NewDecoder(refused.Body).Decode(&said); err != nil || said.Code == "" || said.Message == "" ||
			strings.Contains(body, "nobody") && (len(said.Details) != 1 || said.Details[0].Type != "conductord.v1.Error" || said.Details[0].Debug.Code != "invalid") {
			t.Errorf("%s: answer %+v, error %v", body, said, err)
		}
		_ = refused.Body.Close()
		if refused.StatusCode != status {
			t.Errorf("%s: status %d, want %d", body, refused.StatusCode, status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestPlainStreamsAreRefusedAsCalls: a watch or backup that is refused at its start has the status
// of docs/protocol.md, also in plain JSON.
func TestPlainStreamsAreRefusedAsCalls(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	token, _ := c.token("viewer", time.Time{}, access.Grant{Role: access.Viewer, Boards: "mine"})
	if err := c.operator.SaveQuota(t.Context(), access.Quota{Subject: access.Subject{Principal: "viewer"}, Limits: access.Amounts{Watches: 1}}); err != nil {
		t.Fatal(err)
	}
	open := c.send(t.Context(), 0, token, "BoardService/Watch", `{}`)
	defer open.Body.Close()
	for _, row := range []struct {
		call, request, code string
		status              int
	}{
		{"BoardService/Watch", `{}`, "over_limit", http.StatusTooManyRequests},
		{"BoardService/Watch", `{"board": "other"}`, "not_allowed", http.StatusForbidden},
		{"BoardService/Watch", `{"job": "` + jobs.NewJobID().String() + `"}`, "not_found", http.StatusNotFound},
		{"BoardService/Watch", `{"job": "x"}`, "invalid", http.StatusBadRequest},
		{"ClusterService/Backup", `{}`, "not_allowed", http.StatusForbidden},
	} {
		status, answer := c.call(0, token, row.call, row.request)
		if status != row.status || !strings.Contains(answer, `"code":"`+row.code+`"`) {
			t.Errorf("%s %s: %d %s", row.call, row.request, status, answer)
		}
	}
}
