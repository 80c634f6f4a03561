package node_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/conductord/conductord/jobs"
)

// Plain programs watch by lines of JSON: what connect's own protocol frames in
// bytes that they cannot write.
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
