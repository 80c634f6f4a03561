package command_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func TestConversionNamesTheBadField(t *testing.T) {
	badTime := &timestamppb.Timestamp{Seconds: math.MaxInt64}
	job := func(m *v1.Job) error { _, err := command.JobFromProto(m); return err }
	posting := func(m *v1.Posting) error { _, err := command.PostingFromProto(m); return err }
	flow := func(m *v1.FlowDetail) error { _, err := command.FlowDetailFromProto(m); return err }
	update := func(m *v1.Update) error { _, err := command.UpdateFromProto(m); return err }
	ending := func(m *v1.Ending) error { _, err := command.EndingFromProto(m); return err }
	session := func(m *v1.Session) error { _, err := command.SessionFromProto(m); return err }
	event := func(m *v1.Event) error { _, err := command.EventFromProto(m); return err }
	change := func(c *v1.AtomChange) error { return update(&v1.Update{Atoms: []*v1.AtomChange{{}, c}}) }
	attempt := func(a *v1.Attempt) error { return change(&v1.AtomChange{Name: "pay", Attempts: []*v1.Attempt{a}}) }

	for _, row := range []struct {
		field string
		err   error
	}{
		{"job id", job(&v1.Job{Id: "17"})},
		{"job id", job(&v1.Job{Id: "{0190c7e2-0000-7000-8000-000000000001}"})},
		{"job id", job(&v1.Job{Id: "00000000-0000-0000-0000-000000000000"})},
		{"job state", job(&v1.Job{State: "CLAIMED"})},
		{"job outcome", job(&v1.Job{Outcome: "fine"})},
		{"job due_at", job(&v1.Job{DueAt: badTime})},
		{"job claims", job(&v1.Job{Claims: math.MaxUint32})},
		{"claim session", job(&v1.Job{Claim: &v1.Claim{Session: "x"}})},
		{"posting book_id", posting(&v1.Posting{BookId: "x"})},
		{"posting flow", posting(&v1.Posting{Flow: "x"})},
		{"posting not_before", posting(&v1.Posting{NotBefore: badTime})},
		{"book id", posting(&v1.Posting{Book: &v1.Book{Id: "x"}})},
		{"book created_at", posting(&v1.Posting{Book: &v1.Book{CreatedAt: badTime}})},
		{"flow state", posting(&v1.Posting{Book: &v1.Book{Flows: []*v1.FlowDetail{{State: "DONE"}}}})},
		{"flow book", flow(&v1.FlowDetail{Book: "x"})},
		{"atom state", flow(&v1.FlowDetail{Atoms: []*v1.AtomDetail{{State: "PENDING"}}})},
		{"update flow", update(&v1.Update{Flow: "x"})},
		{"update state", update(&v1.Update{State: "x"})},
		{"atom kind", change(&v1.AtomChange{Kind: "step"})},
		{"atom intention", change(&v1.AtomChange{Intention: "EXECUTE"})},
		{"atom retry_at", change(&v1.AtomChange{RetryAt: badTime})},
		{"attempt action", attempt(&v1.Attempt{Action: "undo"})},
		{"attempt number", attempt(&v1.Attempt{Number: math.MaxInt32 + 1})},
		{"attempt ended_at", attempt(&v1.Attempt{EndedAt: badTime})},
		{"update flow", ending(&v1.Ending{Update: &v1.Update{Flow: "x"}})},
		{"ending delay", ending(&v1.Ending{Delay: &durationpb.Duration{Seconds: math.MaxInt64}})},
		{"session ttl", session(&v1.Session{Ttl: &durationpb.Duration{Seconds: 1, Nanos: -1}})},
		{"event kind", event(&v1.Event{Kind: "exploded"})},
	} {
		var invalid *logbook.InvalidError
		if !errors.As(row.err, &invalid) || invalid.Field != row.field || !errors.Is(row.err, logbook.ErrInvalid) {
			t.Errorf("got %v, want the field %q to be invalid", row.err, row.field)
		}
	}
}

func TestTimesHaveAnEdge(t *testing.T) {
	first, last := time.Unix(0, 0).UTC(), time.Unix(0, math.MaxInt64).UTC()
	for _, row := range []struct {
		name string
		time time.Time
		ok   bool
	}{
		{"first", first, true},
		{"before the first", first.Add(-1), false},
		{"last", last, true},
		{"after the last", last.Add(1), false},
		{"unset", time.Time{}, true},
	} {
		got, err := command.TimeFromProto("t", command.TimeToProto(row.time))
		if (err == nil) != row.ok || (row.ok && !got.Equal(row.time)) {
			t.Errorf("%s: got %v and %v", row.name, got, err)
		}
	}
	zone := time.FixedZone("east", 3600)
	got, err := command.TimeFromProto("t", command.TimeToProto(time.Date(2026, 1, 2, 3, 4, 5, 6, zone)))
	if err != nil || got != time.Date(2026, 1, 2, 2, 4, 5, 6, time.UTC) {
		t.Errorf("a time of another zone came back as %v, %v", got, err)
	}
}

func TestDurationsHaveAnEdge(t *testing.T) {
	for _, row := range []struct {
		name    string
		message *durationpb.Duration
		want    time.Duration
		ok      bool
	}{
		{"unset", nil, 0, true},
		{"longest", durationpb.New(math.MaxInt64), math.MaxInt64, true},
		{"longer", &durationpb.Duration{Seconds: 9223372036, Nanos: 854775808}, 0, false},
		{"negative", durationpb.New(-time.Second), -time.Second, true},
		{"too many nanoseconds", &durationpb.Duration{Nanos: 1e9}, 0, false},
	} {
		got, err := command.DurationFromProto("d", row.message)
		if got != row.want || (err == nil) != row.ok {
			t.Errorf("%s: got %v and %v", row.name, got, err)
		}
	}
}

func TestTextForPeopleIsRepaired(t *testing.T) {
	const bad = "caf\xe9"
	failure := &logbook.Failure{Message: bad, Stack: bad, Causes: []logbook.Failure{{Message: bad}}}
	message := command.EndingToProto(&jobs.Ending{Reason: bad, Failure: failure})
	attempt := command.AttemptToProto(&logbook.Attempt{Stderr: bad})
	for name, text := range map[string]string{
		"reason": message.Reason, "message": message.Failure.Message, "stack": message.Failure.Stack,
		"cause": message.Failure.Causes[0].Message, "stderr": attempt.Stderr,
		"error": command.ErrorToProto(errors.New(bad)).Message,
	} {
		if text != "caf?" || !utf8.ValidString(text) {
			t.Errorf("%s became %q", name, text)
		}
	}
}

func TestNumbersThatDoNotFitGoToTheEdge(t *testing.T) {
	for _, row := range []struct {
		number int
		want   uint32
	}{{-1, 0}, {0, 0}, {7, 7}, {math.MaxInt32, math.MaxInt32}, {math.MaxInt, math.MaxInt32}} {
		if got := command.AttemptToProto(&logbook.Attempt{Number: row.number}).Number; got != row.want {
			t.Errorf("attempt %d is sent as %d, want %d", row.number, got, row.want)
		}
	}
	if got := command.FailureToProto(&logbook.Failure{Code: math.MinInt}).Code; got != math.MinInt32 {
		t.Errorf("the smallest code is sent as %d", got)
	}
}

func TestValuesKeepTheirBytes(t *testing.T) {
	sent := logbook.Values{"a": json.RawMessage(` { "b" : 1.0 } `), "none": nil}
	got := command.ValuesFromProto(command.ValuesToProto(sent))
	if len(got) != 2 || string(got["a"]) != ` { "b" : 1.0 } ` || got["none"] != nil {
		t.Errorf("got %q", got)
	}
}
