package dashboard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestCheckpointsAndSignalsOfAStep: the page of a step shows its checkpoints, the latest first, and the signals that it has sent.
// A user who may not see values sees the names.
func TestCheckpointsAndSignalsOfAStep(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	session := jobs.NewSessionID()
	if _, err := s.operator.OpenSession(ctx, jobs.Opening{ID: session, Name: "c", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	book := logbook.Book{ID: logbook.NewBookID(), Name: "b"}
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "f", Factory: logbook.Factory{Name: "f"}}}
	posted, err := jobs.PostOne(ctx, s.operator, jobs.Posting{Board: "one", Name: "j", Book: &book})
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := s.operator.Claim(ctx, session, posted.ID, jobs.NewNonce())
	if err != nil {
		t.Fatal(err)
	}
	sequence := uint64(0)
	write := func(change logbook.AtomChange) {
		t.Helper()
		sequence++
		change.Name, change.Kind = "import", logbook.KindTask
		update := logbook.Update{Flow: claimed.Job.Flow, Token: claimed.Job.Token, Sequence: sequence, State: logbook.FlowRunning, Atoms: []logbook.AtomChange{change}}
		verdicts, err := s.operator.Update(ctx, update)
		if err := errors.Join(append(verdicts, err)...); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	attempt := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, Token: claimed.Job.Token, StartedAt: now}
	write(logbook.AtomChange{State: logbook.AtomRunning, Attempts: []logbook.Attempt{attempt}})
	checkpoints := []logbook.Checkpoint{{Name: "z-bad", Value: json.RawMessage(`"<script>alert(1)</script>"`), At: now}}
	for i := range 30 {
		checkpoints = append(checkpoints, logbook.Checkpoint{Name: fmt.Sprintf("part%02d", i), Value: json.RawMessage(`"uploaded"`), At: now})
	}
	write(logbook.AtomChange{Checkpoints: append(checkpoints[1:], checkpoints[0])})
	path := "/dashboard/flows/" + posted.ID.String() + "?step=import"
	shows := func(who string, has, not []string) {
		t.Helper()
		response, text := s.request(http.MethodGet, who, path, nil)
		if response.StatusCode != http.StatusOK {
			t.Fatalf("status %d: %s", response.StatusCode, text)
		}
		for _, part := range has {
			if !strings.Contains(text, part) {
				t.Errorf("the page of %s does not show %q:\n%s", who, part, text)
			}
		}
		for _, part := range not {
			if strings.Contains(text, part) {
				t.Errorf("the page of %s shows %q:\n%s", who, part, text)
			}
		}
	}
	shows("viewer", []string{"31, the latest <time", "z-bad", "part18", "uploaded", "&lt;script&gt;alert(1)", "and 11 more"}, []string{"<script>alert", "part19", "Signals sent"})
	shows("blind", []string{"31, the latest <time", "z-bad", "part18", "hidden from you"}, []string{"uploaded", "alert(1)"})

	attempt.EndedAt, attempt.Result = now, json.RawMessage("null")
	attempt.Sends = []logbook.Sending{{Board: "one", Key: "absent", Signal: &logbook.Signal{ID: "1", Name: "paid"}}}
	write(logbook.AtomChange{State: logbook.AtomSuccess, Attempts: []logbook.Attempt{attempt}})
	shows("viewer", []string{"Signals sent", `signal paid to key &#34;absent&#34;: not_found`}, []string{"Checkpoints", "z-bad"})
}
