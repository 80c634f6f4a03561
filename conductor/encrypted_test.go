package conductor_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/valuekeys"
)

// TestEncryptedValues: a job with a value that cannot be decrypted is released with the key and the
// remedy, any number of times. None of its steps runs or is reverted, and it is not trashed.
func TestEncryptedValues(t *testing.T) {
	keys, err := valuekeys.Parse([]byte(`old = "` + base64.StdEncoding.EncodeToString(make([]byte, 32)) + `"`))
	if err != nil {
		t.Fatal(err)
	}
	value := keys.EncryptJSON(valuekeys.Place{}, json.RawMessage(`1`))
	text := string(value[1 : len(value)-1])
	begun := func(change logbook.AtomChange, definition *logbook.Definition) *logbook.Update {
		change.Name, change.Kind, change.State = "a", logbook.KindTask, logbook.AtomRunning
		return &logbook.Update{Sequence: 1, State: logbook.FlowRunning, Definition: definition, Atoms: []logbook.AtomChange{change}}
	}
	for name, row := range map[string]struct {
		what    string
		flow    logbook.FlowDetail
		update  *logbook.Update
		posting jobs.Posting
	}{
		"arguments":  {what: "the arguments of its flow", flow: logbook.FlowDetail{Factory: logbook.Factory{Args: value}}},
		"flow store": {what: `"v" of its store`, flow: logbook.FlowDetail{Store: logbook.Values{"v": value}}},
		"job store":  {what: `"v" of its store`, posting: jobs.Posting{Store: logbook.Values{"v": value}}},
		"result": {what: "a result of step a", update: begun(logbook.AtomChange{Attempts: []logbook.Attempt{
			{Action: logbook.ActionExecute, Number: 1, StartedAt: time.Unix(1, 0), EndedAt: time.Unix(2, 0), Result: value}}}, nil)},
		"definition": {what: "the definition of its flow", update: begun(logbook.AtomChange{}, &logbook.Definition{Hash: text})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openCluster(t)
				detail := row.flow
				detail.ID, detail.Name, detail.Factory.Name = logbook.NewFlowID(), "flow", "f"
				book := logbook.Book{ID: logbook.NewBookID(), Name: "book", Flows: []logbook.FlowDetail{detail}}
				if err := c.SaveBook(t.Context(), book); err != nil {
					t.Fatal(err)
				}
				if row.update != nil {
					update := *row.update
					update.Flow = detail.ID
					if verdicts, err := c.Update(t.Context(), update); err != nil || verdicts[0] != nil {
						t.Fatal(verdicts, err)
					}
				}
				before, err := c.FlowDetail(t.Context(), detail.ID)
				if err != nil {
					t.Fatal(err)
				}
				posting := row.posting
				posting.Name, posting.BookID = "job", book.ID
				job := postOne(t, c, posting)

				factory := factories{"f": func() ([]flow.Node, error) {
					return []flow.Node{do("a", func(context.Context) error { t.Error("a step was begun"); return nil })}, nil
				}}
				o := options(c, factory.registry(t))
				o.MaxTries = 2
				var notices diary
				o.Notify = notices.note
				working := running(t, o)
				until(t, "the job is released", func() bool { return notices.count(conductor.MomentAbandoned) > 2 })
				drain(t, working)
				got, err := c.Job(t.Context(), job.ID)
				for _, says := range []string{row.what, "with key old", "add the key to the file in conductor.value_keys"} {
					if err != nil || !strings.Contains(got.Reason, says) {
						t.Errorf("the reason is %q, without %q: %v", got.Reason, says, err)
					}
				}
				if got.State.Finished() || got.Failures != 0 {
					t.Errorf("it is %s after %d failures", got.State, got.Failures)
				}
				if after, err := c.FlowDetail(t.Context(), detail.ID); err != nil || after.State != before.State || after.Sequence != before.Sequence {
					t.Errorf("its flow is %s, %v", after.State, err)
				}
			})
		})
	}
}

// growing is a logbook that encrypts, which lengthens the values.
type growing struct{ cluster }

// PlainLimits implements logbook.Encrypting.
func (growing) PlainLimits(cluster logbook.Limits) logbook.Limits {
	cluster.Value /= 2
	return cluster
}

// TestResultsFitWhenEncrypted: a result that is too long after encryption fails the step, like a
// result that is too long for the cluster.
func TestResultsFitWhenEncrypted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		most := logbook.MaxLimits.Value / 2
		factory := factories{"f": func() ([]flow.Node, error) {
			return []flow.Node{flow.Func("a", func(context.Context, nothing) (string, error) { return strings.Repeat("x", most), nil })}, nil
		}}
		o := options(c, factory.registry(t))
		o.Client = growing{c}
		running(t, o)
		if got := finished(t, c, post(t, c, "f", nil).ID); got.Outcome != jobs.OutcomeReverted || kindOf(got.Failure) != logbook.FailureResult {
			t.Errorf("it is %s with %+v", got.Outcome, got.Failure)
		}
	})
}

// TestEncryptedWork: a worker starts no attempt with a value that it cannot decrypt.
func TestEncryptedWork(t *testing.T) {
	const text = "$encrypted:1:old:AAAA$"
	value := json.RawMessage(`"` + text + `"`)
	values := logbook.Values{"a": json.RawMessage(`1`), "b": value}
	failed := &logbook.Failure{Kind: "k", Details: values}
	for what, work := range map[string]steps.Work{
		`the argument "b"`:                       {Arguments: values},
		`the checkpoint "b"`:                     {Checkpoints: values},
		"the result of the step":                 {Result: value},
		"the details of the last progress":       {LastProgress: &logbook.Progress{Details: value}},
		`the last failure's detail "b"`:          {LastFailure: failed},
		`the failure's detail "b"`:               {Failure: failed},
		`the failure of step other's detail "b"`: {FlowFailures: map[string]*logbook.Failure{"other": failed}},
		"":                                       {Arguments: logbook.Values{"a": json.RawMessage(`"` + text + `!"`)}, LastFailure: &logbook.Failure{Message: text}},
	} {
		err := conductor.CheckDecryptedWork(&work)
		if plain := what == ""; plain != (err == nil) {
			t.Errorf("%q: %v", what, err)
		} else if !plain && (!strings.Contains(err.Error(), "with key old") || !strings.Contains(err.Error(), "CONDUCTORD_VALUE_KEYS") || !strings.Contains(err.Error(), what)) {
			t.Errorf("%q: %v", what, err)
		}
	}
}
